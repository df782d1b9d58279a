// The host's interfaces, played by the test double.

import { HostError } from './current.js';
import { database } from './database.js';
import { Store } from './store.js';
import { xxh64 } from './xxh64.js';

/** The first moment of a host's own clock: 2026-01-01T00:00:00Z. */
const FIRST_MOMENT = Date.UTC(2026, 0, 1);
const TIMEOUT_MS = 30_000;
const PASSED_ON = ['content-type', 'accept', 'traceparent', 'tracestate', 'idempotency-key'];
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];

/** What a guest may use; each is `limits.<name in snake case>` of a revision. */
export const LIMITS = Object.freeze({
  key: 65_535,
  value: 16 << 20,
  batch: 32 << 20,
  getMany: 1024,
  openResources: 64,
  transactionAgeMs: 10_000,
  page: 4 << 20,
  reply: 16 << 20,
  handoffBytes: 16 << 20,
  notifications: 65_536,
  timers: 10_000,
});

/** All that a host of one shard has. */
export class World {
  constructor(settings) {
    const limits = { ...LIMITS, ...settings.limits };
    Object.assign(this, {
      cluster: 'test', shard: 0, shards: 1, node: 'test-node', revision: 1, options: {}, mergeOperator: undefined, logLevel: 'trace', ...settings, limits,
    });
    this.settings = { clusterName: this.cluster, shardNumber: this.shard };
    this.store = new Store();
    this.status = 'running';
    this.now = FIRST_MOMENT;
    this.durable = 0n;
    this.tags = [];
    this.timersByName = new Map();
    this.timerWrites = [];
    this.logs = [];
    this.measured = [];
    this.takesTags = false;
    this.takesTimers = false;
    this.scope = lifecycle();
    this.db = database(this);
    Object.assign(this, faces(this));
  }

  /** The newest write that reads see. Fails where no database is open. */
  view() {
    if (this.status === 'fenced') throw new HostError('fenced', "another writer opened this shard's database", true);
    if (this.scope.isValidation) throw new HostError('closed', 'no database is open while options are checked');
    return this.scope.view ?? this.store.lastSeq;
  }

  commit(changes) {
    const seq = this.store.commit(changes, this.now);
    this.scope.lastWrite = seq;
    return seq;
  }

  /** The tags whose writes are durable, lowest seq first. */
  takeTags() {
    const due = this.tags.filter(({ seq }) => seq <= this.durable);
    this.tags = this.tags.filter(({ seq }) => seq > this.durable);
    return due.sort((a, b) => (a.seq < b.seq ? -1 : a.seq > b.seq ? 1 : 0)).map(({ tag }) => tag);
  }

  /** Sets a timer, in place of the one of its name. Gives the write's seq where it is durable. */
  setTimer(timer) {
    // A volatile timer in the place of a durable one removes that from the database.
    if (!timer.isDurable) this.removeTimer(timer.name);
    const seq = timer.isDurable ? this.commit([]) : undefined;
    if (timer.isDurable) this.timerWrites.push({ seq, name: timer.name, timer: { ...timer } });
    this.timersByName.set(timer.name, timer);
    return seq;
  }

  /** Removes a timer; of a durable one that is a write, as its setting was. False where there is none. */
  removeTimer(name) {
    if (this.timersByName.get(name)?.isDurable) this.timerWrites.push({ seq: this.commit([]), name, timer: undefined });
    return this.timersByName.delete(name);
  }

  /** Leaves the durable timers as their durable writes have them. */
  forgetTimers() {
    this.timerWrites = this.timerWrites.filter(({ seq }) => seq <= this.durable);
    this.timersByName = new Map(this.timerWrites.map(({ name, timer }) => [name, timer && { ...timer }]));
    for (const [name, timer] of this.timersByName) if (timer === undefined) this.timersByName.delete(name);
  }

  /** The timer that is due first, if one is by `until`. */
  nextTimer(until) {
    const due = [...this.timersByName.values()].filter((timer) => timer.due <= until);
    return due.sort((a, b) => a.due - b.due)[0];
  }
}

/** What runs: cursors, snapshots and transactions belong to it and end with it. */
export function lifecycle() {
  return { open: 0, lastWrite: undefined, headers: {}, deadline: undefined, view: undefined, isValidation: false };
}

/** The scope of a call; of a query with a `view`. */
export function calling(world, { headers = {}, timeoutMs = TIMEOUT_MS }, view) {
  const lower = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]);
  const passed = lower.filter(([name]) => PASSED_ON.includes(name) || name.startsWith('x-'));
  return { ...lifecycle(), headers: Object.fromEntries(passed), deadline: world.now + timeoutMs, view };
}

function faces(world) {
  const writable = () => {
    world.view();
    if (world.scope.view !== undefined) throw new HostError('read-only', 'a query cannot do this: make a call instead');
  };
  const timed = (isWrite) => {
    if (isWrite) writable();
    if (!world.takesTimers) throw new HostError('invalid-argument', 'this guest does not export `timer-events`: give it `fire`');
  };
  const setTimer = (name, afterMs, payload, isDurable) => {
    timed(true);
    const size = new TextEncoder().encode(name).length;
    if (size < 1 || size > 256) throw new HostError('invalid-argument', `a timer's name has 1 to 256 bytes, not ${size}`);
    if (payload.length > 65_536) throw new HostError('invalid-argument', `a timer's payload has up to 64 KiB, not ${payload.length} bytes`);
    const { timers } = world.limits;
    if (world.timersByName.size >= timers && !world.timersByName.has(name)) {
      throw new HostError('limit', `${timers} timers are set (limits.timers)`, true);
    }
    return world.setTimer({ name, payload, due: world.now + Number(afterMs), isDurable, failures: 0 });
  };
  const call = (isQuery, target, method, payload) => {
    if (world.scope.deadline === undefined) throw new HostError('invalid-argument', 'other shards are called in `call` and `fire` only');
    if (!isQuery) writable();
    if (world.calls === undefined) throw new HostError('unreachable', 'this host has no other shards: give it `calls`', true);
    return world.calls({ ...target, method, payload, isQuery });
  };
  const shardFor = (key) => Number(xxh64(key) % BigInt(world.shards));
  const { clusterName, shardNumber } = world.settings;
  return {
    shard: {
      cluster: () => clusterName,
      number: () => shardNumber,
      count: () => world.shards,
      shardFor,
      node: () => world.node,
      generation: () => 0n,
      module: () => 'main',
      revision: () => BigInt(world.revision),
      options: () => JSON.stringify(world.options),
      status: () => world.status,
      ownedForMs: () => (1n << 64n) - 1n,
    },
    'current-call': {
      deadlineMs: () => (world.scope.deadline === undefined ? undefined : BigInt(Math.max(0, world.scope.deadline - world.now))),
      traceparent: () => world.scope.headers.traceparent,
      header: (name) => world.scope.headers[name.toLowerCase()],
      setContentType: () => {},
      replyWhenApplied: () => {},
    },
    durability: {
      durableSeq: () => world.durable,
      notifyWhenDurable(seq, tag) {
        writable();
        if (!world.takesTags) throw new HostError('invalid-argument', 'this guest does not export `durable-events`: give it `durable`');
        if (seq > world.store.lastSeq) {
          throw new HostError('invalid-argument', `seq ${seq} was not given out yet: the last one is ${world.store.lastSeq}`);
        }
        const { notifications } = world.limits;
        if (world.tags.length >= notifications) {
          throw new HostError('limit', `${notifications} notifications are outstanding (limits.notifications)`, true);
        }
        world.tags.push({ seq, tag });
      },
    },
    timers: {
      set: (name, afterMs, payload) => void setTimer(name, afterMs, payload, false),
      setDurable: (name, afterMs, payload) => setTimer(name, afterMs, payload, true),
      cancel(name) {
        timed(true);
        return world.removeTimer(name);
      },
      dueMs(name) {
        timed(false);
        const timer = world.timersByName.get(name);
        return timer === undefined ? undefined : BigInt(timer.due);
      },
    },
    cluster: {
      call: (shard, method, key, payload) => call(false, { shard, key }, method, payload),
      callKey: (key, method, payload) => call(false, { shard: shardFor(key), key }, method, payload),
      query: (shard, method, key, payload) => call(true, { shard, key }, method, payload),
      queryKey: (key, method, payload) => call(true, { shard: shardFor(key), key }, method, payload),
    },
    log: {
      enabled: (level) => LEVELS.indexOf(level) >= LEVELS.indexOf(world.logLevel),
      write: (level, message, fields) => void world.logs.push({ level, message, fields: Object.fromEntries(fields) }),
    },
    metrics: {
      describe: () => {},
      add: (name, labels, by) => void world.measured.push({ kind: 'counter', name, labels: Object.fromEntries(labels), value: Number(by) }),
      set: (name, labels, value) => void world.measured.push({ kind: 'gauge', name, labels: Object.fromEntries(labels), value }),
      observe: (name, labels, value) => void world.measured.push({ kind: 'histogram', name, labels: Object.fromEntries(labels), value }),
    },
  };
}
