import { fromJson, received, text } from './bytes.js';

/** A timer that is due, as `fire` gets it. */
export class Timer {
  constructor(name, payload, dueMs) {
    this.name = name;
    this.payload = received(payload);
    this.due = new Date(Number(dueMs));
  }

  text() {
    return text(this.payload);
  }

  json() {
    return fromJson(this.payload);
  }
}
