// The shard's database: ordered keys and values. Everything is synchronous; a write is visible at once and durable later, and replies wait
// for that by themselves.

import * as wit from '#wit/db';
import { bytes, fromJson, keysOf, known, received, shown, text, toJson, u64 } from './bytes.js';
import { sync } from './call.js';
import { Cursor, bounds, drop } from './cursor.js';
import { QuarryError, hosted } from './error.js';

/** How often `transaction` begins before it gives the conflict to its caller. */
const MAX_ATTEMPTS = 10;
const LEVELS = { serializable: 'serializable', snapshot: 'snapshot-isolation' };

export function get(key) {
  const at = bytes(key, 'a key');
  return received(hosted(() => wit.get(at)));
}

export function getText(key) {
  return mapped(get(key), text);
}

export function getJson(key) {
  return mapped(get(key), fromJson);
}

export function getVersioned(key) {
  const at = bytes(key, 'a key');
  return mapped(
    hosted(() => wit.getVersioned(at)),
    ({ value, seq, createdAtMs, expiresAtMs }) => ({
      value: received(value),
      seq,
      createdAt: new Date(Number(createdAtMs)),
      expiresAt: mapped(expiresAtMs, (ms) => new Date(Number(ms))),
    }),
  );
}

export function getMany(keys) {
  const all = keysOf(keys);
  return hosted(() => wit.getMany(all)).map(received);
}

export function put(key, value, options) {
  return stored(wit, bytes(key, 'a key'), bytes(value), options);
}

export function putJson(key, value, options) {
  return stored(wit, bytes(key, 'a key'), toJson(value), options);
}

export function remove(key) {
  const at = bytes(key, 'a key');
  return hosted(() => wit.remove(at));
}

export function merge(key, operand) {
  const [at, what] = [bytes(key, 'a key'), bytes(operand, 'an operand')];
  return hosted(() => wit.merge(at, what));
}

export function scan(range) {
  return opened(wit, range);
}

/** Operations that are applied all or none, with one seq. */
export class Batch {
  #ops = [];

  put(key, value, options) {
    return this.#push('put', bytes(key, 'a key'), bytes(value), ttlOf(options));
  }

  putJson(key, value, options) {
    return this.#push('put', key, toJson(value), ttlOf(options));
  }

  remove(key) {
    return this.#push('remove', key, new Uint8Array());
  }

  merge(key, operand) {
    return this.#push('merge', key, bytes(operand, 'an operand'));
  }

  get length() {
    return this.#ops.length;
  }

  write() {
    return hosted(() => wit.write(this.#ops));
  }

  #push(kind, key, value, ttlMs) {
    this.#ops.push({ kind, key: bytes(key, 'a key'), value, ttlMs });
    return this;
  }
}

export function batch() {
  return new Batch();
}

/** What snapshots and transactions read alike. */
class View {
  #source;

  constructor(source) {
    this.#source = source;
  }

  get(key) {
    const at = bytes(key, 'a key');
    return received(hosted(() => this._open().get(at)));
  }

  getText(key) {
    return mapped(this.get(key), text);
  }

  getJson(key) {
    return mapped(this.get(key), fromJson);
  }

  getMany(keys) {
    const all = keysOf(keys);
    return hosted(() => this._open().getMany(all)).map(received);
  }

  scan(range) {
    return opened(this._open(), range);
  }

  close() {
    const source = this.#source;
    this.#source = undefined;
    drop(source);
  }

  [Symbol.dispose ?? Symbol.for('dispose')]() {
    this.close();
  }

  _open() {
    if (this.#source === undefined) throw new QuarryError('closed', 'this was closed, or is over');
    return this.#source;
  }
}

/** The database at one moment. */
export class Snapshot extends View {
  get seq() {
    return hosted(() => this._open().seq());
  }
}

/** Opens a view that later writes do not change. With a body it is given to that, and closed after it. */
export function snapshot(body) {
  const view = new Snapshot(hosted(() => wit.openSnapshot()));
  if (body === undefined) return view;
  try {
    return sync(body(view), 'the body of a snapshot');
  } finally {
    view.close();
  }
}

/** The database as it was when it began, with the transaction's own writes on top. */
export class Transaction extends View {
  put(key, value, options) {
    stored(this._open(), bytes(key, 'a key'), bytes(value), options);
  }

  putJson(key, value, options) {
    stored(this._open(), bytes(key, 'a key'), toJson(value), options);
  }

  remove(key) {
    const at = bytes(key, 'a key');
    hosted(() => this._open().remove(at));
  }

  merge(key, operand) {
    const [at, what] = [bytes(key, 'a key'), bytes(operand, 'an operand')];
    hosted(() => this._open().merge(at, what));
  }

  /** Applies the writes, all or none. It is over then, however it ends. */
  commit() {
    try {
      return hosted(() => this._open().commit());
    } finally {
      this.close();
    }
  }
}

export function begin(options) {
  const { isolation = 'serializable' } = known(options, ['isolation'], 'a transaction');
  if (!Object.hasOwn(LEVELS, isolation)) {
    throw QuarryError.invalidArgument(`isolation is 'serializable' or 'snapshot', not ${shown(isolation)}`);
  }
  return new Transaction(hosted(() => wit.begin(LEVELS[isolation])));
}

/** Runs `body` in a transaction and commits it; again on a conflict. An error of `body` changes nothing. */
export function transaction(body, options) {
  for (let attempt = 1; ; attempt += 1) {
    const tx = begin(options);
    try {
      const value = sync(body(tx), 'the body of a transaction');
      tx.commit();
      return value;
    } catch (error) {
      if (!(error instanceof QuarryError && error.isConflict && attempt < MAX_ATTEMPTS)) throw error;
    } finally {
      tx.close();
    }
  }
}

function stored(target, key, value, options) {
  const ttl = ttlOf(options);
  return hosted(() => (ttl === undefined ? target.put(key, value) : target.putFor(key, value, ttl)));
}

function opened(source, range) {
  const { prefix, start, end, order, pageLength } = bounds(range);
  const isPrefix = prefix !== undefined;
  const cursor = hosted(() => (isPrefix ? source.scanPrefix(prefix, order) : source.scan({ start, end }, order)));
  return new Cursor(cursor, pageLength);
}

function ttlOf(options) {
  return mapped(known(options, ['ttlMs'], 'a put').ttlMs, (ttl) => u64(ttl, '`ttlMs`'));
}

function mapped(value, read) {
  return value === undefined ? undefined : read(value);
}
