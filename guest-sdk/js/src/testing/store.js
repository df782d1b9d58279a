// A map that keeps every version, so that any moment of the past can be read; and the merge operators.

import { codec, compare, concat } from '../bytes.js';
import { HostError } from './current.js';

/** The shard's data: rows by key, each with its versions, the oldest first. */
export class Store {
  #rows = [];
  lastSeq = 0n;

  /** The version of a key as of the write `view`, if it has a value at `now`. */
  at(key, view, now) {
    const row = this.#row(key);
    return row && live(row.versions, view, now);
  }

  /** The entries of a range as of the write `view`, ascending. */
  scan({ start, end }, view, now) {
    const entries = [];
    for (let at = start === undefined ? 0 : this.#place(start); at < this.#rows.length; at += 1) {
      const { key, versions } = this.#rows[at];
      if (end !== undefined && compare(key, end) >= 0) break;
      const version = live(versions, view, now);
      if (version !== undefined) entries.push({ key, value: version.value });
    }
    return entries;
  }

  /** Whether a key was written after the write `view`. */
  changed(key, view) {
    return (this.#row(key)?.versions.at(-1).seq ?? 0n) > view;
  }

  /** Whether a key of a range was written after the write `view`. */
  rangeChanged({ start, end }, view) {
    return this.#rows.some(
      ({ key, versions }) =>
        (start === undefined || compare(key, start) >= 0) &&
        (end === undefined || compare(key, end) < 0) &&
        versions.at(-1).seq > view,
    );
  }

  /** Applies changes as one write. */
  commit(changes, now) {
    this.lastSeq += 1n;
    for (const { key, value, expires } of changes) {
      const version = { seq: this.lastSeq, value, expires, created: now };
      const row = this.#row(key);
      if (row === undefined) this.#rows.splice(this.#place(key), 0, { key, versions: [version] });
      else row.versions.push(version);
    }
    return this.lastSeq;
  }

  /** Forgets the writes after `seq`. Their numbers are not given out again. */
  forgetAfter(seq) {
    for (const row of this.#rows) row.versions = row.versions.filter((version) => version.seq <= seq);
    this.#rows = this.#rows.filter((row) => row.versions.length > 0);
  }

  #row(key) {
    const row = this.#rows[this.#place(key)];
    return row !== undefined && compare(row.key, key) === 0 ? row : undefined;
  }

  /** The place of the first row that is not below a key. */
  #place(key) {
    let [low, high] = [0, this.#rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(this.#rows[middle].key, key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Whether a version has a value at `now`. */
export function isLive(version, now) {
  return version !== undefined && version.value !== undefined && (version.expires === undefined || version.expires > now);
}

/** The range of the keys that start with a prefix. */
export function prefixRange(prefix) {
  const end = Array.from(prefix);
  while (end.at(-1) === 255) end.pop();
  if (end.length === 0) return { start: prefix, end: undefined };
  end[end.length - 1] += 1;
  return { start: prefix, end: Uint8Array.from(end) };
}

const wrapped = (form, wrap, join) => (existing, operand) =>
  form.value(existing === undefined ? form.fromValue(operand) : wrap(64, join(form.fromValue(existing), form.fromValue(operand))));
const add = (a, b) => a + b;
const larger = (a, b) => (a > b ? a : b);
const smaller = (a, b) => (a < b ? a : b);

const MERGES = {
  'u64-add': wrapped(codec.u64, BigInt.asUintN, add),
  'u64-max': wrapped(codec.u64, BigInt.asUintN, larger),
  'i64-add': wrapped(codec.i64, BigInt.asIntN, add),
  'i64-max': wrapped(codec.i64, BigInt.asIntN, larger),
  'i64-min': wrapped(codec.i64, BigInt.asIntN, smaller),
  append: (existing, operand) => (existing === undefined ? operand : concat(existing, operand)),
};

/** The names of the merge operators. */
export const MERGE_OPERATORS = Object.keys(MERGES);

/** The value that comes of an operand. */
export function merged(operator, existing, operand, limit) {
  if (operator !== 'append') {
    if (operand.length !== 8) {
      const why = `the operand of a merge has ${operand.length} bytes; it has to be a little-endian 64-bit number, 8 bytes`;
      throw new HostError('invalid-value', why);
    }
    // A value that is no number counts as none, as in the host.
    return MERGES[operator](existing?.length === 8 ? existing : undefined, operand);
  }
  const joined = MERGES.append(existing, operand);
  if (joined.length > limit) {
    throw new HostError('invalid-value', `the value would grow to ${joined.length} bytes, over limits.value (${limit} bytes)`);
  }
  return joined;
}

function live(versions, view, now) {
  const version = versions.findLast(({ seq }) => seq <= view);
  return isLive(version, now) ? version : undefined;
}
