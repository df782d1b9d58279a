// Bytes, text, JSON and numbers.

import { QuarryError, reason } from './error.js';

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const U64_MAX = (1n << 64n) - 1n;

/** Keys, values and payloads: bytes as they are, text as UTF-8. */
export function bytes(value, what = 'a value') {
  if (typeof value === 'string') return encoder.encode(value);
  if (isBytes(value)) return value;
  throw QuarryError.invalidArgument(`${what} is a Uint8Array or a string, not ${shown(value)}`);
}

/** Names: of methods, timers, headers, metrics. Anything else would be a name as well, such as `undefined`. */
export function string(value, what) {
  if (typeof value === 'string') return value;
  throw QuarryError.invalidArgument(`${what} is a string, not ${shown(value)}`);
}

/** A number, with a fraction or without. */
export function number(value, what) {
  if (typeof value === 'number' || typeof value === 'bigint') return Number(value);
  throw QuarryError.invalidArgument(`${what} is a number, not ${shown(value)}`);
}

/** Several keys. One alone would be taken for a list of its characters. */
export function keysOf(keys) {
  if (typeof keys === 'object' && !isBytes(keys) && typeof keys?.[Symbol.iterator] === 'function') {
    return Array.from(keys, (key) => bytes(key, 'a key'));
  }
  throw QuarryError.invalidArgument(`\`keys\` is an array of keys, not ${shown(keys)}`);
}

/** Options, of which a name that is not known would be ignored. */
export function known(options, names, what) {
  if (options === undefined) return {};
  if (typeof options !== 'object' || options === null) {
    throw QuarryError.invalidArgument(`${what} takes an object of ${names.join(', ')}, not ${shown(options)}`);
  }
  const unknown = Object.keys(options).find((key) => !names.includes(key));
  if (unknown !== undefined) throw QuarryError.invalidArgument(`${what} has no \`${unknown}\`: it takes ${names.join(', ')}`);
  return options;
}

/** Whether this is a Uint8Array. What the host hands over may have another prototype, for which `instanceof` says no. */
export function isBytes(value) {
  return Object.prototype.toString.call(value) === '[object Uint8Array]';
}

/** Bytes of the host as the guest knows them: its own `Uint8Array`, so that `instanceof` holds. */
export function received(value) {
  if (value === undefined || value instanceof Uint8Array) return value;
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

/** Bytes as text, or nothing where they are not UTF-8. */
export function textOrUndefined(value) {
  try {
    return decoder.decode(value);
  } catch {
    return undefined;
  }
}

/** Bytes as text. */
export function text(value) {
  const decoded = textOrUndefined(value);
  if (decoded === undefined) throw QuarryError.invalidData('it is not UTF-8');
  return decoded;
}

/** JSON as bytes. */
export function toJson(value) {
  let made;
  try {
    made = JSON.stringify(value, plainBigInt);
  } catch (error) {
    throw QuarryError.invalidArgument(`a value has no JSON form: ${reason(error)}`);
  }
  if (made === undefined) throw QuarryError.invalidArgument(`a value of type ${typeof value} has no JSON form`);
  return encoder.encode(made);
}

/** Bytes of JSON as a value. */
export function fromJson(value) {
  try {
    return JSON.parse(text(value));
  } catch (error) {
    throw error instanceof QuarryError ? error : QuarryError.invalidData(reason(error));
  }
}

/** Bytes in base64. */
export function base64(value) {
  let binary = '';
  // In parts: a call takes only so many arguments.
  for (let at = 0; at < value.length; at += 8192) binary += String.fromCharCode(...value.subarray(at, at + 8192));
  return btoa(binary);
}

/** Bytes one after the other. */
export function concat(...parts) {
  const given = parts.map((part) => bytes(part));
  const joined = new Uint8Array(given.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of given) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** The order of two keys: below zero, zero, or above. */
export function compare(a, b) {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at += 1) if (a[at] !== b[at]) return a[at] - b[at];
  return a.length - b.length;
}

/** An unsigned number of the host's, from a number or a BigInt. */
export function u64(value, what) {
  const isWhole = typeof value === 'bigint' || Number.isSafeInteger(value);
  if (!isWhole || value < 0 || BigInt(value) > U64_MAX) {
    throw QuarryError.invalidArgument(`${what} is a whole number from 0, a safe integer or a BigInt of 64 bits, not ${shown(value)}`);
  }
  return BigInt(value);
}

/** Integers of one size as values (little-endian, as merge operators take them) and as keys (which sort as numbers do). */
function integer(bits, signed) {
  const length = bits / 8;
  const flip = signed ? 1n << BigInt(bits - 1) : 0n;
  const name = `${signed ? 'i' : 'u'}${bits}`;
  const wrap = signed ? BigInt.asIntN : BigInt.asUintN;

  const checked = (value) => {
    const isWhole = typeof value === 'bigint' || Number.isSafeInteger(value);
    const whole = isWhole ? BigInt(value) : undefined;
    if (whole === undefined || wrap(bits, whole) !== whole) throw QuarryError.invalidArgument(`${shown(value)} is no ${name}`);
    return BigInt.asUintN(bits, whole);
  };
  const write = (value, little) => {
    const made = new Uint8Array(length);
    for (let at = 0; at < length; at += 1) made[little ? at : length - 1 - at] = Number((value >> BigInt(at * 8)) & 0xffn);
    return made;
  };
  const read = (from, little) => {
    if (from.length !== length) throw QuarryError.invalidData(`${name} has ${length} bytes, not ${from.length}`);
    let value = 0n;
    for (let at = 0; at < length; at += 1) value |= BigInt(from[little ? at : length - 1 - at]) << BigInt(at * 8);
    return value;
  };
  const narrow = (value) => (bits <= 32 ? Number(wrap(bits, value)) : wrap(bits, value));
  return Object.freeze({
    value: (value) => write(checked(value), true),
    fromValue: (from) => narrow(read(from, true)),
    key: (value) => write(checked(value) ^ flip, false),
    fromKey: (from) => narrow(read(from, false) ^ flip),
  });
}

/** Integers as keys and values, in the form that guests in every language use. */
export const codec = /* @__PURE__ */ Object.freeze({
  u32: integer(32, false),
  i32: integer(32, true),
  u64: integer(64, false),
  i64: integer(64, true),
});

/** What was given: its type, and the value itself where that is short. */
export function shown(value) {
  if (value === undefined || value === null) return String(value);
  if (typeof value === 'object') return Array.isArray(value) ? 'an array' : `an object (${value.constructor?.name ?? 'of no class'})`;
  if (typeof value === 'function' || typeof value === 'symbol') return `a ${typeof value}`;
  const text = typeof value === 'bigint' ? `${value}n` : typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > 40 ? `a ${typeof value}` : `the ${typeof value} ${text}`;
}

/** JSON has no BigInt: one that a number holds becomes that number, any other is a fault of the caller's. */
function plainBigInt(_key, value) {
  if (typeof value !== 'bigint') return value;
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new Error(`${value}n is too large for a JSON number: make it a string`);
  return number;
}
