// Guests against the in-memory host: what they answer, throw, remember and hand over.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Reply, QuarryError, abort, cluster, context, db, defineGuest, durability, log, metrics, timers } from '../src/index.js';
import { exportsOf } from '../src/guest.js';
import { Host } from '../src/testing.js';

test('what a handler returns becomes a reply', () => {
  const cases = [
    [undefined, '', 'application/octet-stream'],
    [null, '', 'application/octet-stream'],
    ['text', 'text', 'text/plain; charset=utf-8'],
    [1.5, '1.5', 'text/plain; charset=utf-8'],
    [2n ** 63n, '9223372036854775808', 'text/plain; charset=utf-8'],
    [true, 'true', 'application/json'],
    [{ a: [1n] }, '{"a":[1]}', 'application/json'],
    [Uint8Array.of(97), 'a', 'application/octet-stream'],
    [Reply.bytes('x').contentType('a/b'), 'x', 'a/b'],
  ];
  for (const [value, text, contentType] of cases) {
    const reply = new Host(defineGuest({ calls: { get: () => value } })).call('get');
    assert.equal(reply.text(), text);
    assert.equal(reply.contentType, contentType);
  }
  assert.ok(new Host(defineGuest({ calls: { get: () => Reply.empty().whenApplied() } })).call('get').isApplied);
});

test('an abort is no error of an export, but what ends the instance', () => {
  const end = () => abort('on purpose');
  const guest = defineGuest({ calls: { end }, queries: { ask: end }, start: end, stop: end, validate: end, durable: end, fire: end });
  const { handler, queries, lifecycle, options, durableEvents, timerEvents } = exportsOf(guest);
  const host = new Host(defineGuest({ calls: { end } }));
  assert.throws(() => host.call('end'), { code: 'guest-trap', message: 'on purpose' });
  const payload = new Uint8Array();
  // What has no code is no record of an error: it cannot be handed to the host.
  const isNoRecord = (thrown) => thrown.why === 'on purpose' && thrown.code === undefined;
  for (const run of [
    () => handler.call('end', undefined, payload),
    () => queries.query('ask', undefined, payload),
    () => lifecycle.start(),
    () => lifecycle.stop('stopping'),
    () => options.validate('{}'),
    () => durableEvents.durable([1n]),
    () => timerEvents.fire('a', payload, 1n),
  ]) {
    host.run(() => assert.throws(run, isNoRecord));
  }
});

test('what is thrown becomes an error, and only a fault is logged', () => {
  const thrown = [
    [new QuarryError('overdraft', 'no', { retryable: true }), 'overdraft', 'no', 0],
    [new Error('plain'), 'exception', 'Error: plain', 1],
    ['text', 'exception', 'thrown: text', 1],
    [undefined, 'exception', 'thrown: undefined', 1],
    [{ a: 1 }, 'exception', 'thrown: {"a":1}', 1],
    [new QuarryError('Not Good', 'no'), 'guest-error', 'no (the guest\'s code "Not Good" is not 1 to 64 bytes of a-z, 0-9 and -)', 0],
  ];
  for (const [value, code, message, lines] of thrown) {
    const host = new Host(defineGuest({ calls: { fail: () => { throw value; } } }));
    assert.throws(() => host.call('fail'), { code, message, retryable: Boolean(value?.retryable) });
    assert.equal(host.logs.length, lines, message);
  }
  const promise = new Host(defineGuest({ calls: { later: async () => 1 } }));
  assert.throws(() => promise.call('later'), { code: 'exception', message: /leave out `async`/ });
});

test('the records of a component are those of the host', () => {
  const { handler, options } = exportsOf(defineGuest({ call: () => { throw new QuarryError('mine', 'm'); }, validate: () => { throw new Error('bad'); } }));
  assert.throws(() => handler.call('x', undefined, new Uint8Array()), { code: 'mine', message: 'm', retryable: false });
  assert.throws(() => options.validate('{}'), (error) => error === 'bad');
});

test('methods are found by their own names alone', () => {
  const host = new Host(defineGuest({ calls: { put: () => 1 }, queries: { get: () => 2 }, call: (call) => `other ${call.method}` }));
  assert.equal(host.call('put').text(), '1');
  assert.equal(host.call('get').text(), '2');
  assert.equal(host.query('get').text(), '2');
  assert.equal(host.call('constructor').text(), 'other constructor');
  for (const method of ['put', '__proto__', 'toString']) assert.throws(() => host.query(method), { code: 'unknown-method' });
});

test('a wrong definition says what is wrong', () => {
  const cases = [
    [{}, /answers something/],
    [{ calls: { a: 1 } }, /`calls.a` is no function/],
    [{ call() {}, strat() {} }, /no `strat`/],
    [{ call() {}, start: 1 }, /`start` is no function/],
    [{ call() {}, suspend() {} }, /go together/],
    [1, /object of handlers/],
  ];
  for (const [definition, message] of cases) assert.throws(() => defineGuest(definition), { name: 'TypeError', message });
});

test('optional interfaces are those that a guest has', () => {
  const cases = [
    [{ calls: {} }, []],
    [{ queries: {} }, ['queries']],
    [{ call() {}, stop() {} }, ['lifecycle']],
    [{ call() {}, fire() {}, durable() {} }, ['durable-events', 'timer-events']],
    [{ call() {}, suspend() {}, resume() {}, migrate() {}, validate() {} }, ['options', 'handoff', 'migration']],
  ];
  for (const [definition, exported] of cases) assert.deepEqual(defineGuest(definition).exported(), exported);
});

test('memory lasts as long as its instance', () => {
  const guest = defineGuest(() => {
    let count = 0;
    return { calls: { up: () => (count += 1) }, queries: { seen: () => count } };
  });
  const host = new Host(guest);
  host.call('up');
  assert.equal(host.call('up').text(), '2');
  assert.equal(host.query('seen').text(), '0');
  host.restart();
  assert.equal(host.call('up').text(), '1');
  assert.equal(new Host(guest).call('up').text(), '1');
});

test('durability is told in the order of writes', () => {
  const told = [];
  const host = new Host(defineGuest({
    calls: { put: (call) => durability.notifyWhenDurable(db.put(call.requiredKey, ''), Number(call.text())) },
    durable: (tags) => told.push(...tags),
  }));
  host.call('put', { key: 'a', payload: '7' });
  host.call('put', { key: 'b', payload: '5' });
  assert.deepEqual(told, []);
  host.makeDurable(1);
  assert.deepEqual(told, [7n]);
  host.call('put', { key: 'c', payload: '9' });
  host.crash();
  host.makeDurable();
  assert.deepEqual(told, [7n]);
  assert.throws(() => host.run(() => durability.notifyWhenDurable(99, 1)), { code: 'invalid-argument' });
});

test('timers fire in their order, durable ones until they succeed', () => {
  const fired = [];
  let failures = 2;
  const host = new Host(defineGuest({
    calls: { set: () => { timers.set('late', 20, 'l'); timers.setDurable('early', 10, 'e'); } },
    fire(timer) {
      fired.push([timer.name, timer.text(), timer.due.getTime() - Date.UTC(2026, 0, 1)]);
      if (timer.name === 'early' && failures-- > 0) throw new Error('again');
    },
  }));
  host.call('set');
  host.advance(9);
  assert.deepEqual(fired, []);
  host.advance(11);
  assert.deepEqual(fired, [['early', 'e', 10], ['late', 'l', 20]]);
  host.advance(10_000);
  assert.deepEqual(fired.slice(2), [['early', 'e', 1010], ['early', 'e', 3010]]);
  host.call('set');
  host.stop();
  host.restart();
  assert.equal(host.run(() => timers.due('late')), undefined);
  assert.equal(host.run(() => timers.cancel('early')), true);
  assert.throws(() => new Host(defineGuest({ calls: {} })).run(() => timers.set('a', 1)), { code: 'invalid-argument' });
});

test('a shard that is full of timers says that there may be room later', () => {
  const host = new Host(defineGuest({ calls: {}, fire() {} }), { limits: { timers: 1 } });
  host.run(() => timers.set('a', 1_000));
  for (const set of [timers.set, timers.setDurable]) {
    assert.throws(() => host.run(() => set('b', 1_000)), { code: 'limit', message: /limits\.timers/, retryable: true });
    assert.throws(() => host.run(() => set('', 1_000)), { code: 'invalid-argument', retryable: false });
    host.run(() => set('a', 1_000));
  }
});

test('a crash takes back what became of a durable timer, as far as it was not durable', () => {
  const fired = [];
  const host = new Host(defineGuest({ calls: { set: (call) => timers.setDurable(call.text(), 10) }, fire: (timer) => fired.push(timer.name) }));
  host.call('set', { payload: 'a' });
  host.makeDurable();
  host.call('set', { payload: 'b' });
  host.advance(10);
  assert.deepEqual(fired, ['a', 'b']);
  host.crash();
  host.advance(0);
  assert.deepEqual(fired, ['a', 'b', 'a']);
  host.makeDurable();
  host.crash();
  host.advance(100);
  assert.equal(fired.length, 3);
  host.call('set', { payload: 'c' });
  host.makeDurable();
  host.run(() => timers.cancel('c'));
  host.crash();
  assert.equal(host.run(() => timers.cancel('c')), true);
});

test('a swap migrates, and carries memory where both can', () => {
  const counter = (step) => defineGuest(() => {
    let count = 0;
    return {
      calls: { up: () => { count += step; db.put(`n/${count}`, 'old'); return count; } },
      suspend: () => String(count),
      resume: (state, from) => { count = Number(new TextDecoder().decode(state)) + from * 100; },
      ...(step === 10 && {
        migrate() {
          for (const [key, value] of db.scan({ prefix: 'n/' }).text()) {
            if (value === 'old') return db.put(key, 'new'), false;
          }
          return true;
        },
      }),
    };
  });
  const host = new Host(counter(1));
  host.call('up');
  let between = 0;
  host.swap(counter(10), { between: (at) => { if (between++ === 0) at.call('up'); } });
  assert.equal(between, 2);
  assert.equal(host.run(() => db.getText('n/2')), 'new');
  assert.equal(host.call('up').text(), '112');
  const broken = defineGuest({ calls: {}, start() { throw new Error('no'); } });
  assert.throws(() => host.swap(broken), { code: 'exception' });
  assert.equal(host.call('up').text(), '122');
});

test('options are checked before anything runs', () => {
  const guest = defineGuest({
    calls: { get: () => context.options().limit },
    validate(options) {
      if (!(options.limit > 0)) throw new Error('`limit` is above 0');
      assert.throws(() => db.get('a'), { code: 'closed' });
    },
  });
  assert.equal(new Host(guest, { options: { limit: 3 } }).call('get').text(), '3');
  assert.throws(() => new Host(guest), { code: 'invalid-options', message: '`limit` is above 0' });
});

test('other shards are played by the test', () => {
  const calls = [];
  const guest = defineGuest({ calls: { ask: () => new TextDecoder().decode(cluster.call({ key: 'ann' }, 'get', 'x')) } });
  const host = new Host(guest, { shards: 4, calls: (call) => (calls.push(call), new TextEncoder().encode('reply')) });
  assert.equal(host.call('ask').text(), 'reply');
  assert.equal(calls[0].shard, host.run(() => context.shardFor('ann')));
  for (const target of [undefined, {}, { shard: -1 }, { shard: 1.5 }]) {
    assert.throws(() => host.run(() => cluster.call(target, 'm')), { code: 'invalid-argument' });
  }
});

test('logs and metrics are seen', () => {
  const host = new Host(undefined, { logLevel: 'info' });
  host.run(() => { log.debug('no'); log.info('yes', { a: 1, b: { c: 2n } }); metrics.add('orders', 2, { kind: 'x' }); });
  assert.deepEqual(host.logs, [{ level: 'info', message: 'yes', fields: { a: '1', b: '{"c":"2n"}' } }]);
  assert.deepEqual(host.metrics, [{ kind: 'counter', name: 'orders', labels: { kind: 'x' }, value: 2 }]);
});

test('`Date` in a handler is the time of its host', () => {
  const guest = defineGuest(() => {
    const made = Date.now();
    return {
      calls: {
        now: () => [Date.now(), new Date().getTime(), new Date(5).getTime(), Date.UTC(1970, 0, 2), made],
        kinds: () => [new Date() instanceof Date, new Date(2026, 0).constructor.name, typeof Date(), Object.prototype.toString.call(new Date())],
        fail() { throw new Error('no'); },
        ask: () => new TextDecoder().decode(cluster.call({ key: 'a' }, 'now')),
      },
    };
  });
  const first = Date.UTC(2026, 0, 1);
  const host = new Host(guest);
  host.advance(1500);
  assert.deepEqual(host.call('now').json(), [first + 1500, first + 1500, 5, 86_400_000, first]);
  assert.deepEqual(host.call('kinds').json(), [true, 'Date', 'string', '[object Date]']);
  assert.equal(host.run(() => Date.now()), host.now.getTime());
  // Each host has its own, and the test keeps the machine's.
  const other = new Host(guest, { calls: (call) => host.call(call.method).payload });
  assert.equal(JSON.parse(other.call('ask').text())[0], first + 1500);
  assert.equal(other.call('now').json()[0], first);
  assert.throws(() => host.call('fail'));
  assert.ok(Math.abs(Date.now() - performance.timeOrigin - performance.now()) < 60_000);
});

test('what is of a wrong type is refused with what was given and what is wanted', () => {
  const host = new Host();
  for (const [use, message] of [
    [() => db.put(1, 2), 'a key is a Uint8Array or a string, not the number 1'],
    [() => db.put('a', ['b']), 'a value is a Uint8Array or a string, not an array'],
    [() => db.put('a', new Map()), 'a value is a Uint8Array or a string, not an object (Map)'],
    [() => db.put('a', 'b', { ttl: 1 }), 'a put has no `ttl`: it takes ttlMs'],
    [() => db.put('a', 'b', 5), 'a put takes an object of ttlMs, not the number 5'],
    [() => db.getMany('abc'), '`keys` is an array of keys, not the string "abc"'],
    [() => db.getMany({}), '`keys` is an array of keys, not an object (Object)'],
    [() => db.scan('a'), 'a scan takes an object of prefix, start, end, reverse, pageLength, not the string "a"'],
    [() => db.scan({ pageLength: '9' }), '`pageLength` is 1 to 10,000, not the string "9"'],
    [() => db.begin({ isolation: 1 }), "isolation is 'serializable' or 'snapshot', not the number 1"],
    [() => db.begin('snapshot'), 'a transaction takes an object of isolation, not the string "snapshot"'],
    [() => timers.set(undefined, 1), "a timer's name is a string, not undefined"],
    [() => timers.set('a', 1.5), '`afterMs` is a whole number from 0, a safe integer or a BigInt of 64 bits, not the number 1.5'],
    [() => cluster.call({ key: 'a' }, Symbol('m')), 'a method is a string, not a symbol'],
    [() => metrics.set('a', null), '`value` is a number, not null'],
  ]) {
    assert.throws(() => host.run(use), { code: 'invalid-argument', message });
  }
});
