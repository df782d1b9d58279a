// The host that runs now, outside of a component.

/** An error as the host gives it: a record, beside the exception. */
export class HostError extends Error {
  constructor(code, message, retryable = false) {
    super(`${code}: ${message}`);
    this.payload = { code, message, retryable };
  }
}

let kept;

/** Says where the current host is kept: in a storage that goes along with code which awaits. It is made in `testing.js`, since it is of Node.js. */
export function keptIn(storage) {
  kept = storage;
}

/** A function of an interface, as the current host has it. */
export function ask(face, name) {
  return (...args) => {
    const current = kept?.getStore();
    if (current === undefined) {
      throw new HostError('closed', 'no host runs here: use this in a handler, or within `Host.run` of quarry-guest/testing');
    }
    return current[face][name](...args);
  };
}

/** Runs guest code in this host, with all that it awaits. */
export function within(world, body) {
  return kept.run(world, body);
}
