// The database of the test double: limits, snapshots, transactions with their conflicts, cursors that end with their call.

import { compare } from '../bytes.js';
import { HostError } from './current.js';
import { MERGE_OPERATORS, isLive, merged, prefixRange } from './store.js';

const OP_OVERHEAD = 64;
const BATCH_MAX_OPS = 65_536;
const MAX_PAGE = 10_000;
const DISPOSE = Symbol.dispose ?? Symbol.for('dispose');

/** The interface `db` of a host. */
export function database(world) {
  const writable = () => {
    world.view();
    if (world.scope.view !== undefined) throw new HostError('read-only', 'a query cannot write: make a call instead');
  };
  const one = (kind, key, value, ttlMs) => write([{ kind, key, value, ttlMs }]);
  const write = (ops) => {
    writable();
    if (ops.length === 0) throw new HostError('invalid-argument', 'a batch needs at least one operation');
    const stage = new Stage(world, (key) => world.store.at(key, world.store.lastSeq, world.now)?.value);
    for (const op of ops) stage.add(op);
    return world.commit(stage.changes());
  };
  const reads = views(world, () => world.view());
  return {
    ...reads,
    getVersioned(key) {
      const view = world.view();
      checkKey(world, key);
      const found = world.store.at(key, view, world.now);
      if (found === undefined) return undefined;
      const { value, seq, created, expires } = found;
      return { value, seq, createdAtMs: BigInt(created), expiresAtMs: expires === undefined ? undefined : BigInt(expires) };
    },
    put: (key, value) => one('put', key, value),
    putFor: (key, value, ttlMs) => one('put', key, value, ttlMs),
    remove: (key) => one('remove', key, new Uint8Array()),
    merge: (key, operand) => one('merge', key, operand),
    write,
    openSnapshot() {
      const view = world.view();
      const held = new Held(world);
      const open = () => {
        world.view();
        held.check();
        return view;
      };
      return { ...views(world, open), seq: () => open(), [DISPOSE]: () => held.drop() };
    },
    begin(isolation) {
      writable();
      return new Transaction(world, isolation, writable);
    },
  };
}

/** Reads as of the write that `view` gives. */
function views(world, view) {
  const read = (key, at) => {
    checkKey(world, key);
    return world.store.at(key, at, world.now)?.value;
  };
  const scanned = (range, order) => {
    const at = view();
    checkRange(world, range);
    return new Cursor(world, world.store.scan(range, at, world.now), order);
  };
  return {
    get: (key) => read(key, view()),
    getMany(keys) {
      const at = view();
      return many(world, keys, (key) => read(key, at));
    },
    scan: (range, order) => scanned(range, order),
    scanPrefix: (prefix, order) => scanned(prefixRange(prefix), order),
  };
}

/** Something open, for as long as its scope lasts. */
class Held {
  constructor(world) {
    const limit = world.limits.openResources;
    if (world.scope.open >= limit) {
      const why = `${limit} cursors, snapshots and transactions are open in this call (limits.open_resources); close some first`;
      throw new HostError('limit', why);
    }
    this.world = world;
    this.scope = world.scope;
    this.scope.open += 1;
  }

  check() {
    if (this.scope === undefined || this.scope !== this.world.scope) {
      const why = 'the call that opened this is over: cursors, snapshots and transactions end with it';
      throw new HostError('closed', why);
    }
  }

  drop() {
    if (this.scope !== undefined) this.scope.open -= 1;
    this.scope = undefined;
  }
}

class Cursor {
  constructor(world, entries, order) {
    this.world = world;
    this.held = new Held(world);
    this.entries = order === 'descending' ? entries.reverse() : entries;
    this.at = 0;
  }

  next(max) {
    this.world.view();
    this.held.check();
    if (max === 0) throw new HostError('invalid-argument', 'a page holds at least 1 entry');
    const page = [];
    let bytes = 0;
    while (page.length < Math.min(max, MAX_PAGE) && this.at < this.entries.length) {
      const entry = this.entries[this.at];
      bytes += entry.key.length + entry.value.length;
      if (bytes > this.world.limits.page && page.length > 0) break;
      page.push(entry);
      this.at += 1;
    }
    return page;
  }

  [DISPOSE]() {
    this.held.drop();
  }
}

/** Changes that are not applied yet: of a batch, or of a transaction. */
class Stage {
  #changes = [];
  #bytes = 0;
  #ops = 0;

  constructor(world, below) {
    this.world = world;
    this.below = below;
  }

  /** Adds an operation, within the limits. */
  add({ kind, key, value, ttlMs }) {
    const { world } = this;
    const size = checkOp(world, kind, key, value, kind === 'put' ? ttlMs : undefined);
    const { batch } = world.limits;
    if (this.#bytes + size > batch) {
      const why = `a batch of ${this.#bytes + size} bytes (64 for each operation among them) is over limits.batch (${batch} bytes)`;
      throw new HostError('limit', why);
    }
    if (this.#ops + 1 > BATCH_MAX_OPS) {
      const why = `${this.#ops + 1} operations are more than a batch or a transaction takes (${BATCH_MAX_OPS}); write in several`;
      throw new HostError('limit', why);
    }
    const change = { key, value: kind === 'remove' ? undefined : value, expires: undefined };
    if (kind === 'put' && ttlMs !== undefined) change.expires = world.now + Number(ttlMs);
    if (kind === 'merge') {
      const staged = this.find(key);
      const existing = staged === undefined ? this.below(key) : isLive(staged, world.now) ? staged.value : undefined;
      change.value = merged(world.mergeOperator, existing, value, world.limits.value);
    }
    this.#bytes += size;
    this.#ops += 1;
    this.#changes = this.#changes.filter((other) => compare(other.key, key) !== 0);
    this.#changes.push(change);
  }

  find(key) {
    return this.#changes.find((change) => compare(change.key, key) === 0);
  }

  changes() {
    return this.#changes;
  }
}

class Transaction {
  #reads = [];
  #ranges = [];
  #isOver = false;

  constructor(world, isolation, writable) {
    this.world = world;
    this.isolation = isolation;
    this.writable = writable;
    this.held = new Held(world);
    this.view = world.store.lastSeq;
    this.began = world.now;
    this.stage = new Stage(world, (key) => world.store.at(key, this.view, world.now)?.value);
  }

  get(key) {
    this.#check();
    checkKey(this.world, key);
    const staged = this.stage.find(key);
    if (staged !== undefined) return isLive(staged, this.world.now) ? staged.value : undefined;
    this.#reads.push(key);
    return this.world.store.at(key, this.view, this.world.now)?.value;
  }

  getMany(keys) {
    this.#check();
    return many(this.world, keys, (key) => this.get(key));
  }

  put(key, value) {
    this.#add({ kind: 'put', key, value });
  }

  putFor(key, value, ttlMs) {
    this.#add({ kind: 'put', key, value, ttlMs });
  }

  remove(key) {
    this.#add({ kind: 'remove', key, value: new Uint8Array() });
  }

  merge(key, operand) {
    this.#add({ kind: 'merge', key, value: operand });
  }

  scan(range, order) {
    this.#check();
    checkRange(this.world, range);
    this.#ranges.push(range);
    const inRange = ({ key }) =>
      (range.start === undefined || compare(key, range.start) >= 0) && (range.end === undefined || compare(key, range.end) < 0);
    const staged = this.stage.changes().filter(inRange);
    const below = this.world.store.scan(range, this.view, this.world.now);
    const kept = below.filter(({ key }) => !staged.some((change) => compare(change.key, key) === 0));
    const own = staged.filter((change) => isLive(change, this.world.now));
    const entries = [...kept, ...own].map(({ key, value }) => ({ key, value })).sort((a, b) => compare(a.key, b.key));
    return new Cursor(this.world, entries, order);
  }

  scanPrefix(prefix, order) {
    return this.scan(prefixRange(prefix), order);
  }

  commit() {
    this.#check();
    this.#isOver = true;
    const changes = this.stage.changes();
    if (changes.length === 0) return undefined;
    const { store } = this.world;
    const written = changes.some(({ key }) => store.changed(key, this.view));
    const read =
      this.isolation === 'serializable' &&
      (this.#reads.some((key) => store.changed(key, this.view)) || this.#ranges.some((range) => store.rangeChanged(range, this.view)));
    if (written || read) {
      const what = written ? 'a key that it writes' : 'what it read';
      throw new HostError('conflict', `another write changed ${what}: begin the transaction again`, true);
    }
    return this.world.commit(changes);
  }

  [DISPOSE]() {
    this.held.drop();
  }

  #add(op) {
    this.#check();
    this.stage.add(op);
  }

  #check() {
    this.writable();
    this.held.check();
    const limit = this.world.limits.transactionAgeMs;
    if (this.#isOver) throw new HostError('closed', 'the transaction is over; begin another');
    if (this.world.now - this.began > limit) {
      throw new HostError('limit', `the transaction is older than limits.transaction_age (${limit} ms)`);
    }
  }
}

function many(world, keys, read) {
  const { getMany, batch } = world.limits;
  if (keys.length > getMany) {
    throw new HostError('limit', `${keys.length} keys are more than one get-many takes (${getMany}); ask in several`);
  }
  const values = keys.map(read);
  if (values.reduce((size, value) => size + (value?.length ?? 0), 0) > batch) {
    const why = `the values of these ${keys.length} keys have more bytes together than one get-many gives (limits.batch, ${batch} bytes); ask for fewer`;
    throw new HostError('limit', why);
  }
  return values;
}

function checkOp(world, kind, key, value, ttlMs) {
  if (ttlMs === 0n) throw new HostError('invalid-argument', 'a TTL is at least 1 ms; remove the key instead');
  if (kind === 'merge' && !MERGE_OPERATORS.includes(world.mergeOperator)) {
    const why = 'this cluster has no merge operator; `merge_operator` has to be set before its first start';
    throw new HostError('no-merge-operator', why);
  }
  checkKey(world, key);
  const limit = world.limits.value;
  if (value.length > limit) throw new HostError('invalid-value', `a value of ${value.length} bytes is over limits.value (${limit} bytes)`);
  return key.length + value.length + OP_OVERHEAD;
}

function checkKey(world, key) {
  if (key.length === 0) throw new HostError('invalid-key', 'a key cannot be empty');
  checkBound(world, key);
}

function checkRange(world, { start, end }) {
  checkBound(world, start);
  checkBound(world, end);
}

function checkBound(world, key) {
  const limit = world.limits.key;
  if ((key?.length ?? 0) > limit) throw new HostError('invalid-key', `a key of ${key.length} bytes is over limits.key (${limit} bytes)`);
}
