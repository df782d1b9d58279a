// A call and its reply.

import * as wit from '#wit/current-call';
import { bytes, fromJson, isBytes, received, string, text, toJson } from './bytes.js';
import { QuarryError, reason } from './error.js';

/** A call, or a query. */
export class Call {
  constructor(method, key, payload = new Uint8Array()) {
    this.method = method;
    this.key = received(key);
    this.payload = received(payload);
  }

  /** The routing key, or the error `missing-key`. */
  get requiredKey() {
    if (this.key === undefined) throw QuarryError.missingKey(this.method);
    return this.key;
  }

  text() {
    return understood(() => text(this.payload));
  }

  json() {
    return understood(() => fromJson(this.payload));
  }

  get timeLeftMs() {
    const left = wit.deadlineMs();
    return left === undefined ? undefined : Number(left);
  }

  get traceparent() {
    return wit.traceparent();
  }

  header(name) {
    return wit.header(string(name, "a header's name"));
  }
}

/** What a call gives back: bytes, their media type, and when it may leave. */
export class Reply {
  constructor(payload, mediaType, isApplied = false) {
    this.payload = bytes(payload, 'a reply');
    this.mediaType = mediaType;
    this.isApplied = isApplied;
    Object.freeze(this);
  }

  static empty() {
    return new Reply(new Uint8Array());
  }

  static bytes(payload) {
    return new Reply(payload);
  }

  static text(value) {
    return new Reply(String(value), 'text/plain; charset=utf-8');
  }

  static json(value) {
    return new Reply(toJson(value), 'application/json');
  }

  /** The reply of whatever a handler returned. */
  static of(value) {
    if (value instanceof Reply) return value;
    if (value === undefined || value === null) return Reply.empty();
    if (isBytes(value)) return new Reply(value);
    if (['string', 'number', 'bigint'].includes(typeof value)) return Reply.text(value);
    try {
      return Reply.json(sync(value, 'a handler'));
    } catch (error) {
      if (error.code !== 'invalid-argument') throw error;
      // A fault of the guest's, and none of its caller's.
      const why = `what a handler returned is no reply: ${error.message}; return bytes, text, a number, nothing, or what has a JSON form`;
      throw new QuarryError('exception', why);
    }
  }

  contentType(mediaType) {
    return new Reply(this.payload, string(mediaType, 'a media type'), this.isApplied);
  }

  whenApplied() {
    return new Reply(this.payload, this.mediaType, true);
  }
}

/** What a function of the guest returned, which must be no promise: nobody would wait for it. */
export function sync(value, what) {
  if (typeof value?.then !== 'function') return value;
  throw new QuarryError(
    'exception',
    `${what} returned a promise: guests are synchronous, and so is all that the host offers; leave out \`async\``,
  );
}

function understood(read) {
  try {
    return read();
  } catch (error) {
    throw QuarryError.invalidPayload(reason(error).replace('stored data was not understood: ', ''));
  }
}
