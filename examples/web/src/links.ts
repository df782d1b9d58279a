// The links of this shard, as they are stored.
//
// | key | value |
// |---|---|
// | `link/SET/NAME` | `{"url":"https://...","hits":0}` |

import { QuarryError, db } from 'quarry-guest';

export interface Link {
  name: string;
  url: string;
  /** How often it was followed. */
  hits: number;
}

export interface Page {
  links: Link[];
  /** The last of them, where there are more behind it. */
  next?: string;
}

/** A request that cannot be done as it was made: for HTTP a status, for calls a code. */
export class Refusal extends QuarryError {
  constructor(
    readonly status: 400 | 404,
    why: string,
  ) {
    super(status === 404 ? 'unknown-link' : 'invalid-request', why);
  }
}

type Stored = Omit<Link, 'name'>;

const NAME = /^[A-Za-z0-9._-]{1,64}$/;
/** What paths of this application begin with. */
const TAKEN = ['api'];
const URL_MAX = 2_000;
const SCHEMES = ['http:', 'https:'];
const PAGE = 100;

/** The name of a set. */
export function setOf(name: unknown): string {
  return named('a set', name);
}

/** Links by name, from the one behind `after`. */
export function list(set: string, after?: string): Page {
  const prefix = `link/${set}/`;
  // `0` is the character after `/`, so this is the end of the prefix.
  const range = after === undefined ? { prefix } : { start: `${keyOf(set, after)}\0`, end: `link/${set}0` };
  const links: Link[] = [];
  for (const [key, stored] of db.scan({ ...range, pageLength: PAGE + 1 }).json<Stored>()) {
    if (links.length === PAGE) return { links, next: links[PAGE - 1]!.name };
    links.push({ name: key.slice(prefix.length), ...stored });
  }
  return { links };
}

/** Stores a link, in the place of one of its name; that one's hits are its own. */
export function store(set: string, name: unknown, url: unknown): Link {
  const key = keyOf(set, name);
  const stored = { url: checked(url), hits: 0 };
  db.putJson(key, stored);
  return { name: String(name), ...stored };
}

/** Where a link points; it is one more hit. Calls and requests of a shard run one at a time, so none is lost. */
export function follow(set: string, name: string): string {
  const { url, hits } = found(set, name);
  db.putJson(keyOf(set, name), { url, hits: hits + 1 });
  return url;
}

export function remove(set: string, name: string): void {
  found(set, name);
  db.remove(keyOf(set, name));
}

function found(set: string, name: string): Stored {
  const stored = db.getJson<Stored>(keyOf(set, name));
  if (stored === undefined) throw new Refusal(404, `there is no link ${name}`);
  return stored;
}

function keyOf(set: string, name: unknown): string {
  return `link/${set}/${named('a link', name)}`;
}

function named(what: string, name: unknown): string {
  if (typeof name === 'string' && NAME.test(name) && !TAKEN.includes(name)) return name;
  throw new Refusal(400, `the name of ${what} is 1 to 64 of A-Z a-z 0-9 . _ - and not ${TAKEN.join(', ')}; this is ${JSON.stringify(name)}`);
}

function checked(url: unknown): string {
  const address = typeof url === 'string' && url.length <= URL_MAX ? parsed(url) : undefined;
  if (address !== undefined && SCHEMES.includes(address.protocol)) return address.href;
  throw new Refusal(400, `\`url\` is an http or https address of up to ${URL_MAX} characters`);
}

function parsed(url: string): URL | undefined {
  try {
    return new URL(url);
  } catch {
    return undefined;
  }
}
