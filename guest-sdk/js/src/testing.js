// An in-memory host for unit tests of guests: the same limits and error codes, snapshots, transactions with their conflicts, expiry, merge
// operators, timers. The test drives what the real host does by itself: time (`advance`), which `Date` has in handlers, and durability
// (`makeDurable`).

import { AsyncLocalStorage } from 'node:async_hooks';

import { bytes, fromJson, text, toJson } from './bytes.js';
import { Call, sync } from './call.js';
import { QuarryError, reason } from './error.js';
import { Guest, answer, migrated, recordOf } from './guest.js';
import { answered } from './http.js';
import { Timer } from './timer.js';
import { withNow } from './testing/clock.js';
import { keptIn, within } from './testing/current.js';
import { MERGE_OPERATORS } from './testing/store.js';
import { LIMITS, World, calling, lifecycle } from './testing/world.js';

export { LIMITS, MERGE_OPERATORS };

keptIn(new AsyncLocalStorage());

/** Runs guest code in a host, at its time. */
const inHost = (world, body) => within(world, () => withNow(() => world.now, body));

const CODE = /^[a-z0-9-]{1,64}$/;
const SETTINGS = ['cluster', 'shard', 'shards', 'node', 'revision', 'options', 'mergeOperator', 'limits', 'logLevel', 'calls'];
/** Statuses of a response that has no body. */
const BODILESS = [204, 205, 304];
/** A durable timer that fails is tried again after 1 s, doubled each time up to this. */
const RETRY_MAX_MS = 60_000;

/** A host with one shard, in memory. */
export class Host {
  #world;
  #guest;
  #calls;
  #queries;
  #exported;
  /** The last request, and whether one is being answered now. */
  #requests = Promise.resolve();
  #isAnswering = false;

  /** Starts a guest; without one, for `run` alone. Throws what keeps it from starting. */
  constructor(guest, settings = {}) {
    const unknown = Object.keys(settings).find((key) => !SETTINGS.includes(key));
    if (unknown !== undefined) throw new TypeError(`a host has no \`${unknown}\`: it has ${SETTINGS.join(', ')}`);
    const { mergeOperator } = settings;
    if (mergeOperator !== undefined && !MERGE_OPERATORS.includes(mergeOperator)) {
      throw new TypeError(`there is no merge operator \`${mergeOperator}\`: there is ${MERGE_OPERATORS.join(', ')}`);
    }
    this.#world = new World(settings);
    this.#adopt(guest ?? new Guest(() => ({ call: (call) => raise(QuarryError.unknownMethod(call.method)), durable() {}, fire() {} })));
    this.#validate(this.#guest);
    this.#start();
  }

  /** Makes a call, and gives the response. Throws the guest's error, as its caller would see it. */
  call(method, request = {}) {
    const call = callOf(method, request);
    const handlers = this.#running();
    const reply = this.#enter(calling(this.#world, request), () => answer(handlers, false, call));
    return this.#responded(reply);
  }

  /** Makes a query, on another instance than the calls. `readDurable` shows it only what is durable. */
  query(method, request = {}) {
    if (!this.#exported.includes('queries')) {
      throw new QuarryError('no-queries', 'the guest does not export `queries`; use call');
    }
    this.#running();
    const call = callOf(method, request);
    this.#queries ??= this.#instance(this.#guest);
    const view = request.readDurable ? this.#world.durable : this.#world.store.lastSeq;
    const reply = this.#enter(calling(this.#world, request, view), () => answer(this.#queries, true, call));
    return this.#responded(reply);
  }

  /**
   * Makes an HTTP request, as a client of `/http/` would, and gives the `Response`. Requests are answered one at a time, in their order. Rejects
   * where the guest ends itself; a path alone is one of `http://guest.test`.
   */
  fetch(input, init) {
    const request = input instanceof Request ? input : new Request(new URL(input, 'http://guest.test'), init);
    const answer = this.#requests.then(() => this.#answer(request));
    this.#requests = answer.catch(() => {});
    return answer;
  }

  /** Runs code as if it were a call's handler. */
  run(body) {
    const { value } = this.#enter(calling(this.#world, {}), body);
    this.#deliver();
    return value;
  }

  /** Makes the writes up to `seq` durable, or all, and tells the guest of the tags that waited for that. */
  makeDurable(seq = this.lastSeq) {
    const upTo = BigInt(seq) < this.lastSeq ? BigInt(seq) : this.lastSeq;
    if (upTo > this.#world.durable) this.#world.durable = upTo;
    this.#deliver();
  }

  /** Lets time pass: values expire, transactions grow old, timers fire, each at its moment. */
  advance(ms) {
    const until = this.#world.now + ms;
    for (let timer = this.#timer(until); timer !== undefined; timer = this.#timer(until)) {
      this.#world.now = Math.max(this.#world.now, timer.due);
      this.#fire(timer);
    }
    this.#world.now = until;
  }

  /** Stops the guest cleanly: every write is durable then, timers in memory are gone, and calls fail with `closed` until `restart`. */
  stop(why = 'stopping') {
    this.#world.status = 'stopping';
    if (this.#calls !== undefined) this.#quietly(() => this.#calls.stop?.(why));
    this.#world.durable = this.#world.store.lastSeq;
    this.#end();
  }

  /** Stops the guest cleanly if it runs, and starts another instance over the same data. */
  restart() {
    if (this.#calls !== undefined) this.stop();
    this.#start();
  }

  /** What a crash of the node does: no `stop`, the writes that were not durable are gone, and another instance starts over the rest. */
  crash() {
    const world = this.#world;
    world.store.forgetAfter(world.durable);
    world.forgetTimers();
    this.#end();
    this.#start();
  }

  /**
   * Swaps the guest for one of another revision, over the same data: start, migration (with `between` after each step but the last), and
   * the memory where both have `suspend` and `resume`. Where one of these fails, the old guest goes on as it was.
   */
  swap(guest, { revision = this.#world.revision + 1, between = () => {} } = {}) {
    this.#running();
    const before = { guest: this.#guest, exported: this.#exported, revision: this.#world.revision };
    const old = this.#calls;
    const as = (side, body) => {
      this.#asGuest(side);
      return this.#enter(lifecycle(), body).value;
    };
    const next = { guest, exported: guest.exported(), revision };
    try {
      this.#validate(guest);
      const made = this.#instance(guest);
      as(next, () => sync(made.start?.(), '`start`'));
      while (made.migrate !== undefined && !as(next, () => migrated(made.migrate(before.revision)))) {
        this.#asGuest(before);
        between(this);
      }
      if (next.exported.includes('handoff') && before.exported.includes('handoff')) {
        const state = bytes(as(before, () => old.suspend()));
        const limit = this.#world.limits.handoffBytes;
        if (state.length > limit) {
          throw new QuarryError('limit', `the memory to hand over has ${state.length} bytes, over limits.handoff_bytes (${limit} bytes)`);
        }
        as(next, () => sync(made.resume(state, before.revision), '`resume`'));
      } else {
        this.#asGuest(before);
        this.#quietly(() => old.stop?.('swapping'));
      }
      this.#guest = guest;
      this.#calls = made;
      this.#queries = undefined;
      this.#asGuest(next);
      if (!this.#world.takesTimers) this.#world.timersByName.clear();
    } catch (error) {
      this.#asGuest(before);
      throw error;
    } finally {
      this.#deliver();
    }
  }

  /** Lets another writer take the shard over: `db` fails with `fenced` from now on. */
  fence() {
    this.#world.status = 'fenced';
  }

  /** The newest write. */
  get lastSeq() {
    return this.#world.store.lastSeq;
  }

  /** The newest write up to which every write is durable. */
  get durableSeq() {
    return this.#world.durable;
  }

  /** The time on the host's own clock, which begins at 2026-01-01T00:00:00Z and moves by `advance` alone. */
  get now() {
    return new Date(this.#world.now);
  }

  /** The lines that the guest has logged, the oldest first. */
  get logs() {
    return [...this.#world.logs];
  }

  /** What the guest has measured, the oldest first. */
  get metrics() {
    return [...this.#world.measured];
  }

  #adopt(guest) {
    if (!(guest instanceof Guest)) throw new TypeError('a host runs what `defineGuest` made');
    this.#guest = guest;
    this.#asGuest({ exported: guest.exported(), revision: this.#world.revision });
  }

  #asGuest({ exported, revision }) {
    this.#exported = exported;
    this.#world.revision = revision;
    this.#world.takesTags = exported.includes('durable-events');
    this.#world.takesTimers = exported.includes('timer-events');
  }

  #validate(guest) {
    if (!guest.exported().includes('options')) return;
    const world = this.#world;
    const scope = { ...lifecycle(), isValidation: true };
    try {
      this.#enter(scope, () => sync(this.#instance(guest).validate(structuredClone(world.options)), '`validate`'), (error) => error);
    } catch (error) {
      throw new QuarryError('invalid-options', reason(error));
    }
  }

  #instance(guest) {
    return withNow(() => this.#world.now, () => guest.instance());
  }

  #start() {
    this.#world.status = 'running';
    const made = this.#instance(this.#guest);
    const step = (body) => this.#enter(lifecycle(), body).value;
    step(() => sync(made.start?.(), '`start`'));
    while (made.migrate !== undefined && !step(() => migrated(made.migrate(0))));
    this.#calls = made;
    this.#deliver();
  }

  #end() {
    this.#calls = undefined;
    this.#queries = undefined;
    this.#world.tags = [];
    for (const [name, { isDurable }] of this.#world.timersByName) if (!isDurable) this.#world.timersByName.delete(name);
  }

  #running() {
    if (this.#calls === undefined) throw new QuarryError('closed', 'the shard is stopped', { retryable: true });
    return this.#calls;
  }

  async #answer(request) {
    const handlers = this.#running();
    if (handlers.fetch === undefined) throw new QuarryError('no-http', 'the guest does not export `wasi:http/incoming-handler`: give it `fetch`');
    const world = this.#world;
    const before = world.scope;
    world.scope = calling(world, { headers: Object.fromEntries(request.headers) });
    this.#isAnswering = true;
    let made;
    try {
      made = await inHost(world, () => answered(() => handlers, request));
    } catch (error) {
      throw outside(recordOf(error));
    } finally {
      this.#isAnswering = false;
      world.scope = before;
    }
    this.#deliver();
    const { status, headers, body } = made;
    if (body.length > world.limits.reply) throw replyLimit(body.length, world.limits.reply);
    return new globalThis.Response(BODILESS.includes(status) ? null : body, { status, headers });
  }

  /** Runs guest code in a scope. What it throws comes out as the error that the host would see. */
  #enter(scope, body, told = (error) => outside(recordOf(error))) {
    if (this.#isAnswering) throw new Error('the guest answers a request: `await` what `fetch` gave before anything else');
    const world = this.#world;
    const before = world.scope;
    world.scope = scope;
    try {
      return inHost(world, () => {
        try {
          return { value: body(), seq: scope.lastWrite };
        } catch (error) {
          throw told(error);
        }
      });
    } finally {
      world.scope = before;
    }
  }

  #quietly(body) {
    try {
      this.#enter(lifecycle(), body);
    } catch {
      // It is in the log.
    }
  }

  /** Between calls: the tags whose writes are durable, and the timers that are due. */
  #deliver() {
    const tags = this.#world.takeTags();
    if (tags.length > 0 && this.#calls !== undefined) this.#quietly(() => this.#calls.durable(tags));
  }

  #timer(until) {
    return this.#calls !== undefined && this.#world.takesTimers ? this.#world.nextTimer(until) : undefined;
  }

  #fire(timer) {
    const { timersByName } = this.#world;
    if (!timer.isDurable) timersByName.delete(timer.name);
    let failed = false;
    try {
      const due = new Timer(timer.name, timer.payload, timer.due);
      this.#enter(calling(this.#world, {}), () => sync(this.#calls.fire(due), '`fire`'));
    } catch {
      failed = true;
    }
    if (timer.isDurable && timersByName.get(timer.name) === timer) {
      if (failed) {
        timer.due = this.#world.now + Math.min(1000 * 2 ** timer.failures, RETRY_MAX_MS);
        timer.failures += 1;
      } else {
        this.#world.removeTimer(timer.name);
      }
    }
    this.#deliver();
  }

  #responded({ value: reply, seq }) {
    this.#deliver();
    const limit = this.#world.limits.reply;
    if (reply.payload.length > limit) throw replyLimit(reply.payload.length, limit);
    return new Response(reply, seq);
  }
}

/** What a call gave back. */
export class Response {
  constructor(reply, seq) {
    this.payload = reply.payload;
    this.contentType = reply.mediaType ?? 'application/octet-stream';
    this.isApplied = reply.isApplied;
    this.seq = seq;
  }

  text() {
    return text(this.payload);
  }

  json() {
    return fromJson(this.payload);
  }
}

function callOf(method, { key, payload = '', json }) {
  const body = json === undefined ? bytes(payload, 'a payload') : toJson(json);
  return new Call(method, key === undefined ? undefined : bytes(key, 'a key'), body);
}

/** An error of the guest as its caller sees it: a code that is not in the form of codes becomes `guest-error`. */
function outside({ code, message, retryable }) {
  if (CODE.test(code)) return new QuarryError(code, message, { retryable });
  const why = `${message} (the guest's code ${JSON.stringify(code)} is not 1 to 64 bytes of a-z, 0-9 and -)`;
  return new QuarryError('guest-error', why, { retryable });
}

function replyLimit(length, limit) {
  return new QuarryError('guest-reply-limit', `a reply of ${length} bytes is over limits.reply (${limit} bytes)`);
}

function raise(error) {
  throw error;
}
