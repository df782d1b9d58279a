// What callers send, read strictly: what is not understood is refused.

import { QuarryError, type Call } from 'quarry-guest';

const NAME = /^[A-Za-z0-9._-]{1,100}$/;

/** A name, of a queue, a job, a recipient: short, and free of the `/` that separates names in keys. */
export function named(what: string, value: unknown): string {
  if (typeof value === 'string' && NAME.test(value)) return value;
  throw QuarryError.invalidPayload(`${what} has 1 to 100 of A-Z a-z 0-9 . _ -, not ${JSON.stringify(value)}`);
}

/** The routing key as a name. */
export function keyOf(call: Call, what: string): string {
  return named(what, new TextDecoder().decode(call.requiredKey));
}

/** A whole number within bounds. */
export function whole(what: string, value: unknown, least: number, most: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value;
  throw QuarryError.invalidPayload(`${what} is a whole number from ${least} to ${most}, not ${JSON.stringify(value)}`);
}

/** The payload, an object with some of these fields and no others. */
export function fieldsOf(call: Call, ...names: string[]): Record<string, unknown> {
  return fields('a payload', call.payload.length === 0 ? {} : call.json(), ...names);
}

/** An object with some of these fields and no others. */
export function fields(what: string, value: unknown, ...names: string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw QuarryError.invalidPayload(`${what} is a JSON object`);
  const unknown = Object.keys(value).find((name) => !names.includes(name));
  if (unknown === undefined) return value as Record<string, unknown>;
  throw QuarryError.invalidPayload(`${what} has no \`${unknown}\`: it has ${names.join(', ')}`);
}
