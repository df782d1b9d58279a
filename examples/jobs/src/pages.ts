// Answers that come in pages.

import { concat, db, QuarryError, Reply } from 'quarry-guest';

import { whole } from './request.js';

const USUAL = 100;
const MOST = 1_000;
/** A page ends before it is larger, but for its first line. */
const MOST_BYTES = 4 * 1024 * 1024;
const ID = /^[A-Za-z0-9._-]{1,201}$/;

/** What is stored under a prefix, by the id behind it: a line of JSON each, from the one after `after`, up to `limit` of those that `show` shows. */
export function listed<T>(prefix: string, { after, limit = USUAL }: Record<string, unknown>, show: (value: T) => object | undefined): Reply {
  const most = whole('`limit`', limit, 1, MOST);
  if (after !== undefined && (typeof after !== 'string' || !ID.test(after))) throw QuarryError.invalidPayload('`after` is the id of the last line before');
  // Prefixes end in `/`, and `0` is the next character.
  const range = after === undefined ? { prefix } : { start: `${prefix}${after}\0`, end: `${prefix.slice(0, -1)}0` };
  const lines: Uint8Array[] = [];
  let size = 0;
  for (const [, value] of db.scan(range).json<T>()) {
    const shown = show(value);
    if (shown === undefined) continue;
    const line = concat(JSON.stringify(shown), '\n');
    size += line.length;
    if (lines.length > 0 && size > MOST_BYTES) break;
    lines.push(line);
    if (lines.length === most) break;
  }
  return Reply.bytes(concat(...lines)).contentType('application/jsonl');
}
