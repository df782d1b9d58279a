// The host that runs now, outside of a component.

import { withDate } from './clock.js';

/** An error as the host gives it: a record, beside the exception. */
export class HostError extends Error {
  constructor(code, message, retryable = false) {
    super(`${code}: ${message}`);
    this.payload = { code, message, retryable };
  }
}

let current;

/** A function of an interface, as the current host has it. */
export function ask(face, name) {
  return (...args) => {
    if (current === undefined) {
      throw new HostError('closed', 'no host runs here: use this in a handler, or within `Host.run` of quarry-guest/testing');
    }
    return current[face][name](...args);
  };
}

/** Runs guest code in this host. */
export function within(world, body) {
  const before = current;
  current = world;
  try {
    return withDate(world.date, body);
  } finally {
    current = before;
  }
}
