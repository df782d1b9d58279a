// Errors: those of the host, and those that a guest gives to its caller.

/** An error with a stable code for programs and a message for people. */
export class QuarryError extends Error {
  constructor(code, message, { retryable = false, cause } = {}) {
    super(String(message), cause === undefined ? undefined : { cause });
    this.name = 'QuarryError';
    this.code = String(code);
    this.retryable = Boolean(retryable);
  }

  get isConflict() {
    return this.code === 'conflict';
  }

  get isFinal() {
    return this.code === 'closed' || this.code === 'fenced';
  }

  static unknownMethod(method) {
    return new QuarryError('unknown-method', `there is no method \`${method}\``);
  }

  static missingKey(method) {
    return new QuarryError('missing-key', `\`${method}\` needs a key: call it with a key, not with a shard`);
  }

  static invalidPayload(why) {
    return new QuarryError('invalid-payload', `the payload was not understood: ${reason(why)}`);
  }

  static invalidData(why) {
    return new QuarryError('invalid-data', `stored data was not understood: ${reason(why)}`);
  }

  static invalidArgument(why) {
    return new QuarryError('invalid-argument', why);
  }
}

/** The end of the instance, on its way out. Not an error: nothing of the SDK makes one of it. */
export class Abort {
  constructor(why) {
    this.why = why;
  }
}

/**
 * Ends the instance: its call fails as a trap, and a fresh instance takes its place. For memory that is not to be trusted any more. Only a `catch` of
 * the guest's own is in the way.
 */
export function abort(why = 'the guest ended itself') {
  throw new Abort(String(why));
}

/** Runs a function of the host, whose errors come as records. */
export function hosted(body) {
  try {
    return body();
  } catch (error) {
    const record = error?.payload;
    if (typeof record?.code === 'string') {
      throw new QuarryError(record.code, record.message, { retryable: record.retryable });
    }
    throw error;
  }
}

/** The text of a reason, which may be an error. */
export function reason(why) {
  return why instanceof Error ? why.message : String(why);
}
