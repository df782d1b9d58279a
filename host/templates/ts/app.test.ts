// The guest against an in-memory host.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Host } from 'quarry-guest/testing';

import app from '../src/app.js';

test('counts each key', () => {
  const host = new Host(app);
  for (const [key, expected] of [['a', '1'], ['a', '2'], ['b', '1']] as const) {
    assert.equal(host.call('increment', { key }).text(), expected);
  }
  assert.equal(host.query('get', { key: 'a' }).text(), '2');
});

test('refuses what it does not know', () => {
  const host = new Host(app);
  assert.throws(() => host.call('decrement', { key: 'a' }), { code: 'unknown-method' });
  assert.throws(() => host.call('increment'), { code: 'missing-key' });
});
