// The store against the in-memory host.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Host } from 'quarry-guest/testing';

import kv from '../src/app.js';

function hostWith(...keys: string[]): Host {
  const host = new Host(kv);
  for (const key of keys) host.call('put', { key, payload: `value of ${key}` });
  return host;
}

const lines = (text: string) => text.split('\n').filter((line) => line !== '');

test('puts, gets and deletes', () => {
  const host = new Host(kv);
  const put = host.call('put', { key: 'a', payload: Uint8Array.of(0, 255) });
  assert.equal(put.text(), String(put.seq));
  assert.deepEqual(host.call('get', { key: 'a' }).payload, Uint8Array.of(0, 255));
  assert.deepEqual(host.query('get', { key: 'a' }).payload, Uint8Array.of(0, 255));
  const gone = host.call('delete', { key: 'a' });
  assert.ok(gone.seq! > put.seq!);
  assert.throws(() => host.query('get', { key: 'a' }), { code: 'not-found', message: 'there is no key `a`' });
  host.call('put', { key: 'empty' });
  assert.equal(host.call('get', { key: 'empty' }).payload.length, 0);
});

test('scans', () => {
  const host = hostWith('a/1', 'a/2', 'b/1', 'b/2');
  const cases: [object, string][] = [
    [{}, 'a/1 a/2 b/1 b/2'],
    [{ prefix: 'a/' }, 'a/1 a/2'],
    [{ prefix: 'a/', reverse: true, limit: 1 }, 'a/2'],
    [{ start: 'a/2' }, 'a/2 b/1 b/2'],
    [{ start: 'a/2', end: 'b/2' }, 'a/2 b/1'],
    [{ end: 'b/1', reverse: true }, 'a/2 a/1'],
    [{ start: 'c', end: 'a' }, ''],
    [{ prefix: 'none' }, ''],
  ];
  for (const [json, wanted] of cases) {
    for (const reply of [host.call('scan', { json }), host.query('scan', { json })]) {
      const keys = lines(reply.text()).map((line) => JSON.parse(line).key);
      assert.equal(keys.join(' '), wanted, JSON.stringify(json));
      assert.equal(reply.contentType, 'application/jsonl');
    }
  }
  assert.equal(lines(host.call('scan').text())[0], '{"key":"a/1","value":"value of a/1"}');
});

test('scans bytes as base64', () => {
  const host = new Host(kv);
  host.call('put', { key: Uint8Array.of(0xff), payload: Uint8Array.of(0x80) });
  assert.equal(host.query('scan').text(), '{"key_base64":"/w==","value_base64":"gA=="}\n');
});

test('ends a scan at its limits', () => {
  const many = new Host(kv);
  for (let n = 0; n < 1_100; n += 1) many.call('put', { key: String(n).padStart(4, '0') });
  assert.equal(lines(many.query('scan').text()).length, 1_000);
  assert.equal(lines(many.query('scan', { json: { limit: 100_000 } }).text()).length, 1_100);

  const large = new Host(kv);
  for (const key of ['a', 'b', 'c']) large.call('put', { key, payload: 'x'.repeat(3 << 20) });
  assert.throws(() => large.query('scan'), { code: 'reply-too-large', message: /at most 2/ });
  assert.equal(lines(large.query('scan', { json: { limit: 2 } }).text()).length, 2);
});

test('refuses what it does not understand', () => {
  const host = hostWith('a');
  const cases = [
    ['scan', '{', 'invalid-payload'],
    ['scan', '[]', 'invalid-payload'],
    ['scan', '{"limit": 0}', 'invalid-payload'],
    ['scan', '{"limit": 100001}', 'invalid-payload'],
    ['scan', '{"limits": 1}', 'invalid-payload'],
    ['scan', '{"prefix": "a", "start": "b"}', 'invalid-payload'],
    ['put', 'value', 'missing-key'],
    ['get', '', 'missing-key'],
    ['delete', '', 'missing-key'],
    ['copy', '', 'unknown-method'],
  ] as const;
  for (const [method, payload, code] of cases) {
    assert.throws(() => host.call(method, { payload }), { code }, `${method} ${payload}`);
  }
});
