// The queue against the in-memory host, where time and crashes come when the test says so.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { db, timers } from 'quarry-guest';
import { Host, type OtherCall, type Settings } from 'quarry-guest/testing';

import jobs from '../src/app.js';

const OPTIONS = { max_attempts: 3, backoff_ms: 1_000, max_backoff_ms: 1_500, keep_ms: 60_000 };

const made = (settings: Settings = {}) => new Host(jobs, { options: OPTIONS, ...settings });
const tallyJob = (id: string, more = {}) => ({ id, kind: 'tally', input: { name: 'sent', add: 1 }, ...more });
const enqueue = (host: Host, json: object) => host.call('enqueue', { key: 'mail', json }).json();
const status = (host: Host, id: string) => host.query('status', { key: 'mail', json: { id } }).json();
const sent = (host: Host) => host.query('sum', { key: 'mail', json: { name: 'sent' } }).text();
const outcomes = (host: Host) => host.metrics.map((one) => `${one.name} ${one.labels.outcome}`);

test('runs a job once, however often it is sent', () => {
  const host = made();
  const first = enqueue(host, tallyJob('a'));
  assert.deepEqual(first, { ...tallyJob('a'), state: 'waiting', attempts: 0, due: host.now.toISOString() });
  assert.deepEqual(enqueue(host, tallyJob('a')), first);
  host.advance(1);
  assert.deepEqual(enqueue(host, tallyJob('a')), { ...tallyJob('a'), state: 'done', attempts: 1, result: 1 });
  host.advance(10_000);
  assert.equal(sent(host), '1');
  assert.throws(() => enqueue(host, { ...tallyJob('a'), kind: 'flaky' }), { code: 'id-taken' });
  // The id is forgotten with the job.
  host.advance(60_000);
  assert.throws(() => status(host, 'a'), { code: 'unknown-job' });
  assert.deepEqual(outcomes(host), ['jobs_attempts done']);
});

test('takes the id from the header that clients use for it', () => {
  const host = made();
  const request = { key: 'mail', json: { kind: 'flaky', input: { failures: 0 } } };
  assert.equal(host.call('enqueue', { ...request, headers: { 'idempotency-key': 'k1' } }).json().id, 'k1');
  assert.throws(() => host.call('enqueue', request), { code: 'invalid-payload', message: /`id`/ });
});

test('runs a job later, or not at all', () => {
  const host = made();
  enqueue(host, tallyJob('later', { delay_ms: 5_000 }));
  enqueue(host, tallyJob('never', { delay_ms: 5_000 }));
  host.advance(4_999);
  assert.equal(sent(host), '0');
  assert.equal(host.call('cancel', { key: 'mail', json: { id: 'never' } }).json().state, 'cancelled');
  assert.equal(host.run(() => timers.due('mail/never')), undefined);
  host.advance(1);
  assert.equal(sent(host), '1');
  assert.equal(status(host, 'never').state, 'cancelled');
  for (const id of ['later', 'never']) {
    assert.throws(() => host.call('cancel', { key: 'mail', json: { id } }), { code: 'not-waiting' });
    assert.throws(() => host.call('retry', { key: 'mail', json: { id } }), { code: 'not-dead' });
  }
  host.advance(60_000);
  assert.throws(() => status(host, 'never'), { code: 'unknown-job' });
});

test('tries again with growing pauses, and gives up', () => {
  const host = made();
  enqueue(host, { id: 'a', kind: 'flaky', input: { failures: 2 } });
  enqueue(host, { id: 'b', kind: 'flaky', input: { failures: 4 } });
  const seen: string[] = [];
  // The second pause would be 2,000 ms, and is the longest that there may be.
  for (const ms of [0, 999, 1, 1_499, 1, 10_000]) {
    host.advance(ms);
    seen.push(['a', 'b'].map((id) => `${status(host, id).state} ${status(host, id).attempts}`).join(', '));
  }
  assert.deepEqual(seen, ['waiting 1, waiting 1', 'waiting 1, waiting 1', 'waiting 2, waiting 2', 'waiting 2, waiting 2', 'done 3, dead 3', 'done 3, dead 3']);
  assert.equal(status(host, 'b').error, 'attempt 3 of 4 that fail');
  assert.equal(status(host, 'a').error, undefined);

  const dead = host.query('list', { key: 'mail', json: { state: 'dead' } }).text();
  assert.deepEqual(dead.split('\n').filter(Boolean).map((line) => JSON.parse(line).id), ['b']);
  assert.equal(host.call('retry', { key: 'mail', json: { id: 'b' } }).json().attempts, 0);
  host.advance(100_000);
  assert.equal(status(host, 'b').state, 'dead');
});

test('does not try again what is hopeless', () => {
  for (const [kind, input] of [['tally', null], ['tally', { name: '/', add: 1 }], ['flaky', { failure: 1 }], ['deliver', { to: 'ann' }]] as const) {
    const host = made();
    enqueue(host, { id: 'a', kind, input });
    host.advance(0);
    assert.deepEqual([status(host, 'a').state, status(host, 'a').attempts], ['dead', 1], `${kind} ${JSON.stringify(input)}`);
  }
});

test('loses no job to a crash, and doubles no effect', () => {
  // Writes: the timer, the job, the attempt, the effect with the end, the timer's removal.
  for (let durable = 0n; durable <= 5n; durable += 1n) {
    const host = made();
    const before = host.lastSeq;
    enqueue(host, tallyJob('a'));
    const acknowledged = host.lastSeq;
    host.advance(0);
    host.makeDurable(before + durable);
    host.crash();
    // Who has no reply yet sends the job again.
    if (before + durable < acknowledged) enqueue(host, tallyJob('a'));
    host.advance(0);
    assert.equal(status(host, 'a').state, 'done', `${durable} writes are durable`);
    assert.equal(sent(host), '1', `${durable} writes are durable`);
  }
});

test('ends a job that takes its instance down', () => {
  const host = made();
  enqueue(host, { id: 'a', kind: 'flaky', input: { failures: 0 } });
  // As a trap leaves it: begun as often as may be, and never ended.
  host.run(() => db.putJson('job/mail/a', { ...status(host, 'a'), attempts: 3 }));
  host.advance(0);
  const { state, attempts, error } = status(host, 'a');
  assert.deepEqual({ state, attempts, error }, { state: 'dead', attempts: 3, error: 'its attempts did not come to an end' });
});

test('delivers to other shards, and to its own', () => {
  const asked: OtherCall[] = [];
  let isUp = false;
  const host = made({
    shards: 2,
    calls(call) {
      if (!isUp) throw new Error('the shard is elsewhere');
      asked.push(call);
      return new Uint8Array();
    },
  });
  const names = ['ann', 'bob', 'cid', 'dan', 'eve', 'fay'];
  for (const to of names) enqueue(host, { id: to, kind: 'deliver', input: { to, text: 'hello' } });
  host.advance(0);
  const own = names.filter((to) => status(host, to).state === 'done');
  const others = names.filter((to) => !own.includes(to));
  assert.ok(own.length > 0 && others.length > 0, `${own} are here, ${others} are not`);
  assert.equal(host.query('inbox', { key: own[0]! }).text(), `{"id":"mail.${own[0]}","text":"hello"}\n`);
  isUp = true;
  host.advance(1_000);
  assert.deepEqual(asked.map((call) => new TextDecoder().decode(call.key)).sort(), others);
  assert.ok(asked.every((call) => call.method === 'receive' && call.shard === 1));
  assert.ok(names.every((to) => status(host, to).state === 'done'));

  // What arrives twice is there once.
  for (let n = 0; n < 2; n += 1) host.call('receive', { key: 'gil', payload: asked[0]!.payload });
  assert.equal(host.query('inbox', { key: 'gil' }).text().split('\n').length, 2);
});

test('lists in pages', () => {
  const host = made();
  for (const id of ['a', 'b', 'b.c', 'd']) enqueue(host, tallyJob(id, { delay_ms: id === 'd' ? 1 : 0 }));
  host.call('enqueue', { key: 'mail.too', json: tallyJob('x') });
  host.advance(0);
  const ids = (json: object) => host.query('list', { key: 'mail', json }).text().split('\n').filter(Boolean).map((line) => JSON.parse(line).id).join(' ');
  for (const [json, wanted] of [
    [{}, 'a b b.c d'],
    [{ limit: 2 }, 'a b'],
    [{ limit: 2, after: 'b' }, 'b.c d'],
    [{ after: 'd' }, ''],
    [{ state: 'waiting' }, 'd'],
    [{ state: 'done', after: 'a', limit: 1 }, 'b'],
  ] as const) assert.equal(ids(json), wanted, JSON.stringify(json));
  // A page is bounded in bytes, and the rest comes after it.
  const large = made();
  for (let n = 0; n < 70; n += 1) enqueue(large, { id: String(n + 100), kind: 'tally', input: 'x'.repeat(65_000), delay_ms: 1 });
  const page = large.query('list', { key: 'mail' }).text().split('\n').filter(Boolean);
  const last = JSON.parse(page.at(-1)!).id;
  const rest = large.query('list', { key: 'mail', json: { after: last } }).text().split('\n').filter(Boolean);
  assert.ok(page.length < 70 && page.length + rest.length === 70, `${page.length}, ${rest.length}`);
});

test('refuses what it does not understand', () => {
  const host = made();
  const cases = [
    ['enqueue', { ...tallyJob('a'), kind: 'mine' }, 'invalid-payload'],
    ['enqueue', { ...tallyJob('a'), kind: 'toString' }, 'invalid-payload'],
    ['enqueue', tallyJob('a/b'), 'invalid-payload'],
    ['enqueue', tallyJob('a', { delay_ms: -1 }), 'invalid-payload'],
    ['enqueue', tallyJob('a', { delay: 1 }), 'invalid-payload'],
    ['enqueue', tallyJob('a', { input: 'x'.repeat(65_536) }), 'invalid-payload'],
    ['enqueue', [], 'invalid-payload'],
    ['status', { id: 'none' }, 'unknown-job'],
    ['list', { state: 'gone' }, 'invalid-payload'],
    ['list', { limit: 1_001 }, 'invalid-payload'],
    ['list', { after: 'a/b' }, 'invalid-payload'],
    ['sum', {}, 'invalid-payload'],
    ['inbox', { limit: 0 }, 'invalid-payload'],
    ['receive', { id: 'a', text: 1 }, 'invalid-payload'],
    ['fetch', {}, 'unknown-method'],
  ] as const;
  for (const [method, json, code] of cases) {
    assert.throws(() => host.call(method, { key: 'mail', json }), { code }, `${method} ${JSON.stringify(json)}`);
  }
  assert.throws(() => host.call('enqueue', { json: tallyJob('a') }), { code: 'missing-key' });
  assert.throws(() => host.call('enqueue', { key: 'a/b', json: tallyJob('a') }), { code: 'invalid-payload' });
  assert.throws(() => made({ options: { attempts: 3 } }), { code: 'invalid-options', message: /max_attempts/ });
  assert.throws(() => made({ options: { backoff_ms: 0 } }), { code: 'invalid-options', message: /1 to 3600000/ });
});
