// Values under keys: the same service as ../kv, over the same stored form, so that one can be swapped for the other in place.
//
// | method | key | payload | reply |
// |---|---|---|---|
// | `put` | where to store | the value | the write's seq in decimal |
// | `get`, also as a query | what to read | - | the value, or the error `not-found` |
// | `delete` | what to delete | - | the write's seq in decimal |
// | `scan`, also as a query | any key of the shard | a `Scan` in JSON, or nothing | a line of JSON per entry |

import { base64, concat, db, defineGuest, QuarryError, Reply, textOrUndefined, type Call } from 'quarry-guest';

/** Entries of a scan that does not say how many it wants. */
const DEFAULT_LIMIT = 1_000;
/** Entries of a scan at most. */
const MAX_LIMIT = 100_000;
/** Entries of this size together fail a scan, which says how many fit. */
const MAX_REPLY_BYTES = 8 * 1024 * 1024;

/** What to scan. All of it is optional: an empty payload is the whole shard. */
interface Scan {
  /** Only keys that start with this. Not together with `start` or `end`. */
  prefix?: string;
  /** The first key. */
  start?: string;
  /** The key before which to end. */
  end?: string;
  /** How many entries at most. */
  limit: number;
  /** Whether to begin with the highest key. */
  reverse: boolean;
}

export default defineGuest({
  calls: {
    put: (call) => db.put(call.requiredKey, call.payload),
    delete: (call) => db.remove(call.requiredKey),
  },
  // What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
  queries: { get, scan },
});

function get(call: Call): Uint8Array {
  const value = db.get(call.requiredKey);
  if (value === undefined) throw new QuarryError('not-found', `there is no key \`${escaped(call.requiredKey)}\``);
  return value;
}

function scan(call: Call): Reply {
  const { limit, ...range } = scanOf(call);
  const lines: Uint8Array[] = [];
  let size = 0;
  for (const [key, value] of db.scan(range)) {
    if (size + key.length + value.length > MAX_REPLY_BYTES && lines.length > 0) {
      const count = lines.length;
      throw new QuarryError(
        'reply-too-large',
        `the reply would be larger than ${MAX_REPLY_BYTES} bytes at entry ${count + 1} of ${limit}: ask for at most ${count}`,
      );
    }
    const line = concat(`${JSON.stringify({ ...shown('key', key), ...shown('value', value) })}\n`);
    size += line.length;
    lines.push(line);
    if (lines.length === limit) break;
  }
  return Reply.bytes(concat(...lines)).contentType('application/jsonl');
}

/** The payload of a scan. What it does not know it refuses: a misspelt bound would show everything. */
function scanOf(call: Call): Scan {
  const wrong = (why: string) => QuarryError.invalidPayload(why);
  const given: unknown = call.payload.length === 0 ? {} : call.json();
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw wrong('a scan is a JSON object');
  const scan: Scan = { limit: DEFAULT_LIMIT, reverse: false };
  for (const [name, value] of Object.entries(given)) {
    if (name === 'prefix' || name === 'start' || name === 'end') {
      if (typeof value !== 'string' && value !== null) throw wrong(`\`${name}\` is a string`);
      if (value !== null) scan[name] = value;
    } else if (name === 'limit') {
      if (value !== null) scan.limit = value;
    } else if (name === 'reverse') {
      if (typeof value !== 'boolean') throw wrong('`reverse` is true or false');
      scan.reverse = value;
    } else {
      throw wrong(`unknown field \`${name}\`, expected one of \`prefix\`, \`start\`, \`end\`, \`limit\`, \`reverse\``);
    }
  }
  if (!Number.isInteger(scan.limit) || scan.limit < 1 || scan.limit > MAX_LIMIT) {
    throw wrong(`\`limit\` is 1 to ${MAX_LIMIT}, not ${scan.limit}`);
  }
  if (scan.prefix !== undefined && (scan.start !== undefined || scan.end !== undefined)) {
    throw wrong('give `prefix`, or `start` and `end`, and not both');
  }
  return scan;
}

/** Text stays text; what is not UTF-8 comes in base64, under another name. */
function shown(name: string, bytes: Uint8Array): Record<string, string> {
  const text = textOrUndefined(bytes);
  return text === undefined ? { [`${name}_base64`]: base64(bytes) } : { [name]: text };
}

/** Bytes for a message. */
function escaped(bytes: Uint8Array): string {
  const known: Record<number, string> = { 9: '\\t', 10: '\\n', 13: '\\r', 34: '\\"', 39: "\\'", 92: '\\\\' };
  const one = (byte: number) =>
    known[byte] ?? (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`);
  return Array.from(bytes, one).join('');
}
