// Scans, as iterators.

import { bytes, fromJson, known, received, shown, text } from './bytes.js';
import { QuarryError, hosted } from './error.js';

/** Entries asked for at first: a scan that is given up soon costs little. */
const FIRST_PAGE = 64;
/** Entries asked for at most. The host ends a page before it grows over 4 MiB. */
const LARGEST_PAGE = 4096;

const DISPOSE = Symbol.dispose ?? Symbol.for('dispose');
const RANGE = ['prefix', 'start', 'end', 'reverse', 'pageLength'];

/**
 * The entries of a range, in order, as `[key, value]`. It fetches them page by page, so a long range needs little memory. A loop that is
 * left closes it; so does the end of the call that opened it, `close`, and `using`.
 */
export class Cursor {
  #source;
  #page = [];
  #at = 0;
  #pageLength;
  #grows;

  constructor(source, pageLength) {
    this.#source = source;
    this.#pageLength = pageLength ?? FIRST_PAGE;
    this.#grows = pageLength === undefined;
  }

  next() {
    if (this.#at >= this.#page.length && this.#source !== undefined) this.#fetch();
    if (this.#at >= this.#page.length) return { done: true, value: undefined };
    const { key, value } = this.#page[this.#at];
    this.#at += 1;
    return { done: false, value: [received(key), received(value)] };
  }

  /** Ends it early: `break` in a loop does this by itself. */
  return(value) {
    this.close();
    return { done: true, value };
  }

  [Symbol.iterator]() {
    return this;
  }

  *text() {
    for (const [key, value] of this) yield [text(key), text(value)];
  }

  *json() {
    for (const [key, value] of this) yield [text(key), fromJson(value)];
  }

  close() {
    const source = this.#source;
    this.#source = undefined;
    this.#page = [];
    drop(source);
  }

  [DISPOSE]() {
    this.close();
  }

  #fetch() {
    try {
      this.#page = hosted(() => this.#source.next(this.#pageLength));
    } catch (error) {
      this.close();
      throw error;
    }
    this.#at = 0;
    if (this.#page.length === 0) this.close();
    if (this.#grows) this.#pageLength = Math.min(this.#pageLength * 4, LARGEST_PAGE);
  }
}

/** Gives a resource of the host back now, rather than when JavaScript collects its garbage. */
export function drop(source) {
  source?.[DISPOSE]?.();
}

/** What a scan is asked for, checked. */
export function bounds(range) {
  const { prefix, start, end, reverse = false, pageLength } = known(range, RANGE, 'a scan');
  if (prefix !== undefined && (start !== undefined || end !== undefined)) {
    throw QuarryError.invalidArgument('give `prefix`, or `start` and `end`, and not both');
  }
  if (pageLength !== undefined && !(Number.isSafeInteger(pageLength) && pageLength >= 1 && pageLength <= 10_000)) {
    throw QuarryError.invalidArgument(`\`pageLength\` is 1 to 10,000, not ${shown(pageLength)}`);
  }
  const key = (value, what) => (value === undefined ? undefined : bytes(value, what));
  return {
    prefix: key(prefix, '`prefix`'),
    start: key(start, '`start`'),
    end: key(end, '`end`'),
    order: reverse ? 'descending' : 'ascending',
    pageLength,
  };
}
