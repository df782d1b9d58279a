// The form of everything: a list of byte strings, each with its length before it.

import { bytes, concat, QuarryError, textOrUndefined, type Bytes } from 'quarry-guest';

/** An error of the call, and not only of a step. */
export class Failure extends QuarryError {}

/** What is no script. */
export function invalid(): Failure {
  return new Failure('invalid-payload', 'this is no script');
}

/** A list of items. */
export function list(items: Bytes[]): Uint8Array {
  const parts = items.map((item) => bytes(item));
  const made = new Uint8Array(parts.reduce((length, part) => length + 4 + part.length, 0));
  const view = new DataView(made.buffer);
  let at = 0;
  for (const part of parts) {
    view.setUint32(at, part.length, true);
    made.set(part, at + 4);
    at += 4 + part.length;
  }
  return made;
}

/** The items of a list, which go on to be part of it. */
export function itemsOf(from: Uint8Array): Uint8Array[] {
  const view = new DataView(from.buffer, from.byteOffset, from.byteLength);
  const items = [];
  for (let at = 0; at < from.length; ) {
    if (from.length - at < 4) throw invalid();
    const end = at + 4 + view.getUint32(at, true);
    if (end > from.length) throw invalid();
    items.push(from.subarray(at + 4, end));
    at = end;
  }
  return items;
}

/** An option as an item. */
export function option(value: Bytes | undefined): Uint8Array {
  return value === undefined ? new Uint8Array() : concat('+', value);
}

/** A number as an item. */
export function number(value: number | bigint): string {
  return String(value);
}

/** A number as an option. */
export function optionalNumber(value: number | bigint | undefined): Uint8Array {
  return option(value === undefined ? undefined : number(value));
}

/** A flag as an item. */
export function flag(value: boolean): string {
  return value ? '1' : '0';
}

/** The number that an item is. */
export function numberOf(item: Uint8Array): bigint {
  const text = textOrUndefined(item) ?? '';
  if (!/^[0-9]{1,20}$/.test(text)) throw invalid();
  const value = BigInt(text);
  if (value >> 64n !== 0n) throw invalid();
  return value;
}

/** The arguments of a step that are left. */
export class Args {
  #items: Uint8Array[];
  #next = 0;

  constructor(items: Uint8Array[]) {
    this.#items = items;
  }

  get left(): boolean {
    return this.#next < this.#items.length;
  }

  bytes(): Uint8Array {
    const item = this.#items[this.#next];
    if (item === undefined) throw invalid();
    this.#next += 1;
    return item;
  }

  text(): string {
    const text = textOrUndefined(this.bytes());
    if (text === undefined) throw invalid();
    return text;
  }

  number(): bigint {
    return numberOf(this.bytes());
  }

  decimal(): number {
    const text = this.text();
    const value = Number(text);
    if (text.trim() === '' || Number.isNaN(value)) throw invalid();
    return value;
  }

  flag(): boolean {
    return this.choice(['0', '1']) === '1';
  }

  /** One of these words. */
  choice<T extends string>(words: readonly T[]): T {
    const word = this.text();
    const found = words.find((known) => known === word);
    if (found === undefined) throw invalid();
    return found;
  }

  /** None too where it was left out at the end. */
  option(): Uint8Array | undefined {
    const item = this.left ? this.bytes() : new Uint8Array();
    if (item.length === 0) return undefined;
    if (item[0] !== 0x2b) throw invalid();
    return item.subarray(1);
  }

  optionalNumber(): bigint | undefined {
    const value = this.option();
    return value === undefined ? undefined : numberOf(value);
  }

  /** All that are left, two by two, as text. */
  pairs(): Record<string, string> {
    const pairs: [string, string][] = [];
    while (this.left) pairs.push([this.text(), this.text()]);
    return Object.fromEntries(pairs);
  }
}
