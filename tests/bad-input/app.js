// A guest that gives the SDK and the host what they do not take, one method a fault. What its caller has to see stands in `.ci/bad-input.py`.

import { QuarryError, Reply, cluster, db, defineGuest, durability, log, metrics, timers } from 'quarry-guest';

const circle = {};
circle.circle = circle;

const faults = {
  // What a handler returns and throws.
  'return-number': () => 7,
  'return-none': () => undefined,
  'return-object': () => ({ a: [1, null] }),
  'return-function': () => () => 1,
  'return-circle': () => circle,
  'return-promise': async () => 1,
  'return-surrogate': () => '\ud800',
  'return-too-much': () => new Uint8Array((16 << 20) + 1),
  'content-type': () => Reply.text('a').contentType(5),
  'raise-types': () => { throw new QuarryError(5, null); },
  'raise-surrogate': () => { throw new QuarryError('mine', '\ud800 is half'); },
  'raise-plain': () => undefined.no,
  'raise-nothing': () => { throw undefined; },
  // The database.
  'key-number': () => db.put(1, 2),
  'key-none': () => db.get(undefined),
  'key-empty': () => db.get(''),
  'key-large': () => db.get('k'.repeat(70_000)),
  'value-number': () => db.put('a', 2),
  'value-none': () => db.put('a', null),
  'value-buffer': () => db.put('a', new ArrayBuffer(4)),
  'value-large': () => db.put('a', new Uint8Array((16 << 20) + 1)),
  'json-none-such': () => db.putJson('a', () => 1),
  'ttl-zero': () => db.put('a', 'b', { ttlMs: 0 }),
  'ttl-below': () => db.put('a', 'b', { ttlMs: -1 }),
  'ttl-text': () => db.put('a', 'b', { ttlMs: '1' }),
  'ttl-unknown': () => db.put('a', 'b', { ttl: 1 }),
  'ttl-bare': () => db.put('a', 'b', 1000),
  'many-text': () => db.getMany('abc'),
  'many-number': () => db.getMany(5),
  'many-too-many': () => db.getMany(Array(1025).fill('a')),
  'batch-empty': () => db.batch().write(),
  'batch-number': () => db.batch().put('a', 1),
  'scan-limit': () => [...db.scan({ pageLength: -1 })],
  'scan-limit-zero': () => [...db.scan({ pageLength: 0 })],
  'scan-limit-text': () => [...db.scan({ pageLength: '9' })],
  'scan-start': () => [...db.scan({ start: 1 })],
  'scan-both': () => [...db.scan({ prefix: 'a', start: 'b' })],
  'scan-unknown': () => [...db.scan({ limit: 5 })],
  'scan-text': () => [...db.scan('a')],
  'scan-null': () => [...db.scan(null)],
  isolation: () => db.transaction(() => 1, { isolation: 'none' }),
  'no-merge': () => db.merge('a', 'b'),
  // Numbers, names and the rest.
  'tag-below': () => durability.notifyWhenDurable(1n, -1),
  'tag-above': () => durability.notifyWhenDurable(1n, 1n << 64n),
  'tag-text': () => durability.notifyWhenDurable(1n, '7'),
  'seq-ahead': () => durability.notifyWhenDurable((1n << 64n) - 1n, 1),
  'timer-name-number': () => timers.set(5, 10),
  'timer-name-empty': () => timers.set('', 10),
  'timer-after': () => timers.set('a', -1),
  'timer-cancel': () => timers.cancel(undefined),
  'call-method': () => cluster.call({ key: 'a' }, 5),
  'call-shard': () => cluster.call({ shard: -1 }, 'a'),
  'call-target': () => cluster.call(undefined, 'a'),
  'header-number': (call) => call.header(5),
  'metric-name': () => metrics.add(5, 1),
  'metric-by': () => metrics.add('a', -1),
  'metric-value': () => metrics.set('a', 'much'),
  // The payload.
  'payload-text': (call) => call.text(),
  'payload-json': (call) => call.json(),
  // What is taken, whatever it is: a log line is no reason to fail.
  'log-anything': () => log.info('\ud800', { field: '\ud800', other: Symbol('a'), circle }),
};

export default defineGuest(() => {
  let alive = 0;
  return {
    calls: { ...faults, alive: () => (alive += 1) },
    // So that tags can be asked for, and timers set.
    durable() {},
    fire() {},
  };
});
