import type { Bytes, Guest, HttpRequest, HttpResponse, Whole } from './index.d.ts';

export type MergeOperator = 'u64-add' | 'u64-max' | 'i64-add' | 'i64-max' | 'i64-min' | 'append';
export const MERGE_OPERATORS: MergeOperator[];

export interface Limits {
  key: number;
  value: number;
  batch: number;
  getMany: number;
  openResources: number;
  transactionAgeMs: number;
  page: number;
  reply: number;
  handoffBytes: number;
  notifications: number;
  timers: number;
}
export const LIMITS: Readonly<Limits>;

/** A call that the guest makes to another shard. */
export interface OtherCall {
  shard: number;
  key: Uint8Array | undefined;
  method: string;
  payload: Uint8Array;
  isQuery: boolean;
}

export interface Settings {
  cluster?: string;
  shard?: number;
  shards?: number;
  node?: string;
  revision?: number;
  options?: object;
  mergeOperator?: MergeOperator;
  limits?: Partial<Limits>;
  logLevel?: 'trace' | 'debug' | 'info' | 'warn' | 'error';
  /** Plays the other shards of the cluster. */
  calls?: (call: OtherCall) => Uint8Array;
}

export interface Request {
  /** The routing key. Without one the guest sees a caller that named the shard. */
  key?: Bytes;
  payload?: Bytes;
  /** A payload of JSON. */
  json?: unknown;
  headers?: Record<string, string>;
  timeoutMs?: number;
}

/** A host with one shard, in memory, for unit tests. */
export class Host {
  /** Starts a guest; without one, for `run` alone. */
  constructor(guest?: Guest, settings?: Settings);
  /** Makes a call. Throws the guest's error as a `QuarryError`. */
  call(method: string, request?: Request): Response;
  /** Makes a query; `readDurable` shows it only what is durable. */
  query(method: string, request?: Request & { readDurable?: boolean }): Response;
  /** Makes an HTTP request; a path alone is one of `http://guest.test`. One at a time: await it before anything else. */
  fetch(request: HttpRequest | URL | string, init?: object): Promise<HttpResponse>;
  /** Runs code as if it were a call's handler. */
  run<T>(body: () => T): T;
  /** Makes the writes up to `seq` durable, or all. */
  makeDurable(seq?: Whole): void;
  /** Lets time pass: values expire, timers fire. In handlers `Date` has this time; `performance.now` stays the machine's. */
  advance(ms: number): void;
  stop(reason?: string): void;
  restart(): void;
  /** Takes away what is not durable, and starts another instance. */
  crash(): void;
  /** Swaps the guest for one of another revision, with `between` after each step of its migration but the last. */
  swap(guest: Guest, options?: { revision?: number; between?: (host: Host) => void }): void;
  /** Lets another writer take the shard over. */
  fence(): void;
  readonly lastSeq: bigint;
  readonly durableSeq: bigint;
  readonly now: Date;
  readonly logs: { level: string; message: string; fields: Record<string, string> }[];
  readonly metrics: { kind: 'counter' | 'gauge' | 'histogram'; name: string; labels: Record<string, string>; value: number }[];
}

/** What a call gave back. */
export class Response {
  private constructor();
  readonly payload: Uint8Array;
  readonly contentType: string;
  readonly isApplied: boolean;
  /** The last write of the call; undefined where it wrote nothing. */
  readonly seq: bigint | undefined;
  text(): string;
  json<T = any>(): T;
}
