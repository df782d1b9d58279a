/** Keys, values and payloads: bytes as they are, text as UTF-8. */
export type Bytes = Uint8Array | string;
/** A whole number: a safe integer, or a BigInt of 64 bits. */
export type Whole = number | bigint;

/** What a handler may return: a reply, bytes, text or a number (as text), an object (as JSON), or nothing. Never a promise. */
export type Returned = Reply | Uint8Array | string | number | bigint | boolean | object | null | undefined | void;

/** `Request` and `Response` of the Fetch standard, where the project's types have them (`lib` with `dom`, or `@types/node`). */
export type HttpRequest = typeof globalThis extends { Request: { prototype: infer T } } ? T : any;
export type HttpResponse = typeof globalThis extends { Response: { prototype: infer T } } ? T : any;

export type Handler = (call: Call) => Returned;
/** Why an instance stops; others may come later. */
export type StopReason = 'stopping' | 'moving' | 'fenced' | 'swapping' | (string & {});

/** The handlers of a guest. All are optional but for one that answers: `calls`, `queries`, `call`, `query` or `fetch`. */
export interface Handlers {
  /** Calls by method. They run one at a time, so a read followed by a write loses no update. */
  calls?: Record<string, Handler>;
  /** Queries by method: they only read, and run in parallel with the calls, on instances of their own. Also answered as calls. */
  queries?: Record<string, Handler>;
  /** Calls of any other method. */
  call?(call: Call): Returned;
  /** Queries of any other method. */
  query?(call: Call): Returned;
  /**
   * HTTP requests to `/http/...`, one at a time with the calls: `fetch: (request) => app.fetch(request)` for a Hono application. Here `await` is
   * fine. What it throws is a 500, with its text in the log. Makes the component export `wasi:http/incoming-handler`.
   */
  fetch?(request: HttpRequest): HttpResponse | Promise<HttpResponse>;
  /** Before the first call. Throwing keeps the shard from serving; it is tried again. */
  start?(): void;
  /** After the last call, with the database still open. */
  stop?(reason: StopReason): void;
  /** Checks the options before anything runs: throw an error that says what is wrong. No database is open. */
  validate?(options: any): void;
  /** The tags of `durability.notifyWhenDurable` whose writes became durable, the lowest seq first. */
  durable?(tags: bigint[]): void;
  /** A timer that is due. A durable one is tried again when this throws. */
  fire?(timer: Timer): void;
  /** The memory to carry over a swap, in a form that other revisions understand. Leaves the guest as it was. */
  suspend?(): Bytes;
  /** Takes the memory over, after `start` and before the first call. */
  resume?(state: Uint8Array, fromRevision: number): void;
  /** One step of a migration: true when the data is as this revision wants it. */
  migrate?(fromRevision: number): boolean;
}

/** What `defineGuest` makes. The entry of a project exports it as its default. */
export interface Guest {
  /** The optional interfaces that its component exports. */
  exported(): string[];
  /** Whether its component exports `wasi:http/incoming-handler`. */
  answersHttp(): boolean;
}

/**
 * Makes a guest of its handlers. Give a function where the guest has memory: it makes the handlers, with what they close over, for each
 * instance, and runs when the instance first works, so that it may use the time and random numbers.
 */
export function defineGuest(handlers: Handlers | (() => Handlers)): Guest;

/** A call, or a query. */
export class Call {
  constructor(method: string, key?: Uint8Array, payload?: Uint8Array);
  /** The method that the caller named. */
  readonly method: string;
  /** The routing key; undefined when the caller named a shard. */
  readonly key: Uint8Array | undefined;
  /** The routing key, or the error `missing-key`. */
  get requiredKey(): Uint8Array;
  readonly payload: Uint8Array;
  /** The payload as text, or the error `invalid-payload`. */
  text(): string;
  /** The payload as JSON, or the error `invalid-payload`. */
  json<T = any>(): T;
  /** Milliseconds that the caller still waits. */
  get timeLeftMs(): number | undefined;
  /** The caller's W3C trace context. */
  get traceparent(): string | undefined;
  /** A header: `content-type`, `accept`, `traceparent`, `tracestate`, `idempotency-key`, and all that begin with `x-`. */
  header(name: string): string | undefined;
}

/** What a call gives back: bytes, their media type, and when it may leave. */
export class Reply {
  private constructor();
  static empty(): Reply;
  /** As `application/octet-stream` unless `contentType` says otherwise. */
  static bytes(payload: Bytes): Reply;
  /** As `text/plain; charset=utf-8`. */
  static text(value: unknown): Reply;
  /** As `application/json`. */
  static json(value: unknown): Reply;
  /** The same reply with this media type: up to 128 bytes of printable ASCII. */
  contentType(mediaType: string): Reply;
  /** The same reply, which may leave before the writes that it shows are durable. */
  whenApplied(): Reply;
  readonly payload: Uint8Array;
  readonly mediaType: string | undefined;
  readonly isApplied: boolean;
}

/** A timer that is due. */
export class Timer {
  constructor(name: string, payload: Uint8Array, dueMs: Whole);
  readonly name: string;
  readonly payload: Uint8Array;
  readonly due: Date;
  text(): string;
  json<T = any>(): T;
}

/**
 * An error with a stable code for programs and a message for people: one of the host's, or one that a guest gives to its caller. Any other
 * exception of a handler becomes the code `exception`, with its stack in the log; neither harms the instance.
 */
export class QuarryError extends Error {
  /** `code`: up to 64 bytes of `a-z`, `0-9` and `-`. `message`: up to 8 KiB. */
  constructor(code: string, message: string, options?: { retryable?: boolean; cause?: unknown });
  readonly code: string;
  /** Whether the same request may succeed when it is made again. */
  readonly retryable: boolean;
  /** Whether a transaction met another write. */
  get isConflict(): boolean;
  /** Whether this instance is about to be stopped (`closed`, `fenced`). */
  get isFinal(): boolean;
  static unknownMethod(method: string): QuarryError;
  static missingKey(method: string): QuarryError;
  static invalidPayload(why: unknown): QuarryError;
  static invalidData(why: unknown): QuarryError;
  static invalidArgument(why: string): QuarryError;
}

/**
 * Ends the instance: its call fails as a trap, and a fresh instance takes its place. For memory that is not to be trusted any more. Throws, so
 * that a `catch` of the guest's own is in the way: what it catches then is no `Error`. In a test it is the error `guest-trap`.
 */
export function abort(why?: string): never;

/** Text as UTF-8; bytes as they are. */
export function bytes(value: Bytes): Uint8Array;
/** Bytes as text, or the error `invalid-data`. */
export function text(value: Uint8Array): string;
export function textOrUndefined(value: Uint8Array): string | undefined;
export function toJson(value: unknown): Uint8Array;
export function fromJson<T = any>(value: Uint8Array): T;
export function base64(value: Uint8Array): string;
export function concat(...parts: Bytes[]): Uint8Array;
/** The order of two keys: below zero, zero, or above. */
export function compare(a: Uint8Array, b: Uint8Array): number;

/** Integers as values (little-endian, as merge operators take them) and as keys (which sort as numbers do). */
export interface Integer<T> {
  value(value: Whole): Uint8Array;
  fromValue(from: Uint8Array): T;
  key(value: Whole): Uint8Array;
  fromKey(from: Uint8Array): T;
}
export const codec: { u32: Integer<number>; i32: Integer<number>; u64: Integer<bigint>; i64: Integer<bigint> };

/** The shard's database: ordered keys and values. Everything is synchronous. */
export namespace db {
  interface PutOptions {
    /** The value expires after so many milliseconds, at least 1. */
    ttlMs?: Whole;
  }
  /** A prefix, or a range from `start` to the key before `end`; every key without. */
  interface Range {
    prefix?: Bytes;
    start?: Bytes;
    end?: Bytes;
    /** Whether to begin with the highest key. */
    reverse?: boolean;
    /** Entries fetched at once, 1 to 10,000, instead of pages that grow from 64 to 4,096. */
    pageLength?: number;
  }
  interface Versioned {
    value: Uint8Array;
    seq: bigint;
    createdAt: Date;
    expiresAt: Date | undefined;
  }
  interface TransactionOptions {
    /** `serializable` (the default) finds writes of keys and ranges that were read, `snapshot` only two writes of one key. */
    isolation?: 'serializable' | 'snapshot';
  }

  /** The value of a key, or undefined. */
  function get(key: Bytes): Uint8Array | undefined;
  function getText(key: Bytes): string | undefined;
  function getJson<T = any>(key: Bytes): T | undefined;
  /** The value of a key with its seq and times. */
  function getVersioned(key: Bytes): Versioned | undefined;
  /** The values of up to 1,024 keys, in their order, read concurrently. */
  function getMany(keys: Iterable<Bytes>): (Uint8Array | undefined)[];
  /** Stores a value; gives the write's seq. */
  function put(key: Bytes, value: Bytes, options?: PutOptions): bigint;
  function putJson(key: Bytes, value: unknown, options?: PutOptions): bigint;
  /** Deletes a key, whether it exists or not. */
  function remove(key: Bytes): bigint;
  /** Hands an operand to the cluster's merge operator. */
  function merge(key: Bytes, operand: Bytes): bigint;
  /** Reads a range of keys as they are now: `for (const [key, value] of db.scan({ prefix: 'user/' }))`. */
  function scan(range?: Range): Cursor;
  /** Operations that are applied all or none: `db.batch().put('a', '1').remove('b').write()`. */
  function batch(): Batch;
  /** A view that later writes do not change. Closed after the body, where one is given. */
  function snapshot(): Snapshot;
  function snapshot<T>(body: (view: Snapshot) => T): T;
  function begin(options?: TransactionOptions): Transaction;
  /** Runs `body` in a transaction and commits it; begins again on a conflict, up to 10 times in all. What it throws changes nothing. */
  function transaction<T>(body: (tx: Transaction) => T, options?: TransactionOptions): T;

  interface Batch {
    put(key: Bytes, value: Bytes, options?: PutOptions): this;
    putJson(key: Bytes, value: unknown, options?: PutOptions): this;
    remove(key: Bytes): this;
    merge(key: Bytes, operand: Bytes): this;
    readonly length: number;
    /** Applies them; gives their seq. */
    write(): bigint;
  }
  /** The entries of a range. Leaving a loop closes it; so does the end of its call. */
  interface Cursor extends IterableIterator<[key: Uint8Array, value: Uint8Array]> {
    /** The entries as text. */
    text(): IterableIterator<[key: string, value: string]>;
    /** The entries with values of JSON. */
    json<T = any>(): IterableIterator<[key: string, value: T]>;
    close(): void;
    [Symbol.dispose](): void;
  }
  interface View {
    get(key: Bytes): Uint8Array | undefined;
    getText(key: Bytes): string | undefined;
    getJson<T = any>(key: Bytes): T | undefined;
    getMany(keys: Iterable<Bytes>): (Uint8Array | undefined)[];
    scan(range?: Range): Cursor;
    /** Ends it now, rather than with its call. */
    close(): void;
    [Symbol.dispose](): void;
  }
  interface Snapshot extends View {
    /** The last write that it shows. */
    readonly seq: bigint;
  }
  /** The database as it was when it began, with its own writes on top. Not committed it changes nothing. */
  interface Transaction extends View {
    put(key: Bytes, value: Bytes, options?: PutOptions): void;
    putJson(key: Bytes, value: unknown, options?: PutOptions): void;
    remove(key: Bytes): void;
    merge(key: Bytes, operand: Bytes): void;
    /** Undefined when nothing was written; the error `conflict` when another write came between. */
    commit(): bigint | undefined;
  }
}

/** When writes become durable. A reply waits for that by itself. */
export namespace durability {
  function durableSeq(): bigint;
  /** Asks that `durable` gets `tag` once every write up to `seq` is durable. */
  function notifyWhenDurable(seq: Whole, tag: Whole): void;
}

/**
 * Timers of this module in this shard, for `fire`. A name of 1 to 256 bytes has one timer: setting it again replaces it. Where the shard has
 * all the timers that it may have (10,000, `limits.timers`), both ways to set one fail with `limit`, which is retryable: there is room again
 * once a timer has fired or was cancelled.
 */
export namespace timers {
  /** In memory: forgotten when the shard closes or moves. */
  function set(name: string, afterMs: Whole, payload?: Bytes): void;
  /** In the database: fires at least once, wherever the shard is then. Gives the write's seq. */
  function setDurable(name: string, afterMs: Whole, payload?: Bytes): bigint;
  /** False where there is none of that name. */
  function cancel(name: string): boolean;
  function due(name: string): Date | undefined;
}

/** Calls to other shards; they wait. See `cluster.wit` for their errors. */
export namespace cluster {
  /** The shard that a key belongs to, or one by its number. */
  type Target = { key: Bytes; shard?: undefined } | { shard: number; key?: Bytes };
  function call(target: Target, method: string, payload?: Bytes): Uint8Array;
  /** Over what is durable there. */
  function query(target: Target, method: string, payload?: Bytes): Uint8Array;
}

/** The guest's own metrics, on the node's `/metrics` as `quarry_guest_NAME`. What is over a bound is dropped and counted. */
export namespace metrics {
  type Labels = Record<string, string | number | boolean>;
  function describe(name: string, help: string): void;
  function add(counter: string, by?: Whole, labels?: Labels): void;
  function set(gauge: string, value: number, labels?: Labels): void;
  function observe(histogram: string, value: number, labels?: Labels): void;
}

/** Lines in the guest's log on the host, with fields. `console` goes there too. */
export namespace log {
  type Level = 'trace' | 'debug' | 'info' | 'warn' | 'error';
  type Fields = Record<string, unknown>;
  function enabled(level: Level): boolean;
  function trace(message: unknown, fields?: Fields): void;
  function debug(message: unknown, fields?: Fields): void;
  function info(message: unknown, fields?: Fields): void;
  function warn(message: unknown, fields?: Fields): void;
  function error(message: unknown, fields?: Fields): void;
}

/** Where this instance runs. */
export namespace context {
  function cluster(): string;
  function shard(): number;
  function shardCount(): number;
  function shardFor(key: Bytes): number;
  function node(): string;
  /** Grows with each owner; 0 without leases. */
  function generation(): number;
  function module(): string;
  function revision(): number;
  /** The module's options, as deployed. */
  function options<T = any>(): T;
  function status(): 'running' | 'stopping' | 'fenced';
  /** Milliseconds for which this node is sure to own the shard; `Infinity` without leases. */
  function ownedForMs(): number;
}
