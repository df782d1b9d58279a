// The database of the in-memory host, through the SDK.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { codec, compare, concat, context, db, fromJson, text, toJson } from '../src/index.js';
import { Host } from '../src/testing.js';
import { xxh64 } from '../src/testing/xxh64.js';

const inHost = (body, settings) => new Host(undefined, settings).run(body);
const keysOf = (cursor) => [...cursor.text()].map(([key]) => key).join(' ');

test('scans go both ways, and close when a loop is left', () => inHost(() => {
  for (const key of ['a/1', 'a/2', 'a/\u00ff', 'b']) db.put(key, key);
  assert.equal(keysOf(db.scan({ prefix: 'a/' })), 'a/1 a/2 a/\u00ff');
  assert.equal(keysOf(db.scan({ reverse: true, pageLength: 1 })), 'b a/\u00ff a/2 a/1');
  assert.equal(keysOf(db.scan({ start: 'a/2', end: 'b' })), 'a/2 a/\u00ff');
  assert.equal(keysOf(db.scan({ start: 'c', end: 'a' })), '');
  for (let n = 0; n < 200; n += 1) for (const _ of db.scan().text()) break;
  const cursor = db.scan();
  db.put('c', '');
  assert.equal(keysOf(cursor), 'a/1 a/2 a/\u00ff b');
  for (const range of [{ prefix: 'a', end: 'b' }, { limit: 1 }, { pageLength: 0 }, { prefix: 1 }]) {
    assert.throws(() => db.scan(range), { code: 'invalid-argument' }, JSON.stringify(range));
  }
}));

test('what is open ends with its call, and is bounded', () => {
  const host = new Host();
  const [cursor, view, tx] = host.run(() => (db.put('a', '1'), [db.scan(), db.snapshot(), db.begin()]));
  for (const use of [() => [...cursor], () => view.get('a'), () => tx.put('a', '2')]) {
    assert.throws(() => host.run(use), { code: 'closed' });
  }
  assert.throws(() => host.run(() => { for (let n = 0; n < 65; n += 1) db.snapshot(); }), { code: 'limit', message: /open_resources/ });
});

test('a transaction is all or nothing, and begins again on a conflict', () => {
  const host = new Host();
  let attempts = 0;
  const seen = host.run(() => db.transaction((tx) => {
    const before = tx.getText('n');
    if (attempts++ < 2) db.put('n', String(attempts));
    tx.put('n', `${before}!`);
    assert.deepEqual([...tx.scan().text()], [['n', `${before}!`]]);
    return before;
  }));
  assert.deepEqual([attempts, seen], [3, '2']);
  assert.throws(() => host.run(() => db.transaction((tx) => { tx.put('n', 'x'); throw new Error('no'); })), { code: 'exception' });
  assert.equal(host.run(() => db.getText('n')), '2!');
  const conflict = (isolation) => () => host.run(() => db.transaction((tx) => {
    tx.get('read');
    db.put('read', '1');
    tx.put('other', '1');
  }, { isolation }));
  assert.throws(conflict('serializable'), { code: 'conflict', retryable: true });
  assert.doesNotThrow(conflict('snapshot'));
  assert.throws(conflict('none'), { code: 'invalid-argument' });
  const old = () => { const tx = db.begin(); host.advance(10_001); return tx.get('a'); };
  assert.throws(() => host.run(old), { code: 'limit', message: /transaction_age/ });
});

test('a snapshot keeps its moment', () => inHost(() => {
  db.put('a', '1');
  const view = db.snapshot();
  db.batch().put('a', '2').put('b', '3').remove('none').write();
  assert.deepEqual([view.getText('a'), view.getText('b'), view.seq], ['1', undefined, 1n]);
  assert.deepEqual(db.snapshot((now) => now.getMany(['b', 'x']).map((value) => value && text(value))), ['3', undefined]);
  view.close();
  assert.throws(() => view.get('a'), { code: 'closed' });
}));

test('values expire', () => {
  const host = new Host();
  host.run(() => db.put('a', '1', { ttlMs: 10 }));
  host.advance(9);
  assert.equal(host.run(() => db.getVersioned('a').expiresAt.getTime() - host.now.getTime()), 1);
  host.advance(1);
  assert.equal(host.run(() => db.get('a')), undefined);
});

test('operands merge', () => {
  const cases = [
    ['u64-add', [codec.u64.value(2n ** 64n - 1n), codec.u64.value(3)], codec.u64.value(2)],
    ['i64-min', [codec.i64.value(5), codec.i64.value(-7)], codec.i64.value(-7)],
    ['i64-max', [codec.i64.value(-5), codec.i64.value(-7)], codec.i64.value(-5)],
    ['u64-max', [codec.u64.value(5), codec.u64.value(7)], codec.u64.value(7)],
    ['append', ['a', 'b'], concat('ab')],
  ];
  for (const [mergeOperator, operands, wanted] of cases) {
    inHost(() => {
      for (const operand of operands) db.merge('k', operand);
      assert.deepEqual(db.get('k'), wanted, mergeOperator);
      if (mergeOperator !== 'append') assert.throws(() => db.merge('k', 'x'), { code: 'invalid-value' });
    }, { mergeOperator });
  }
  inHost(() => assert.throws(() => db.merge('k', 'x'), { code: 'no-merge-operator' }));
});

test('limits have their names', () => inHost(() => {
  const cases = [
    [() => db.get(''), 'invalid-key'],
    [() => db.put('k'.repeat(11), ''), 'invalid-key'],
    [() => db.put('k', 'v'.repeat(21)), 'invalid-value'],
    [() => db.batch().write(), 'invalid-argument'],
    [() => db.batch().put('k', 'v'.repeat(20)).put('l', 'v'.repeat(20)).write(), 'limit'],
    [() => db.getMany(['a', 'b', 'c']), 'limit'],
    [() => db.put('k', 'v', { ttlMs: 0 }), 'invalid-argument'],
    [() => db.put('k', 'v', { ttlMs: 1.5 }), 'invalid-argument'],
    [() => db.put('k', 'v', { ttlMs: -1 }), 'invalid-argument'],
    [() => db.put('k', 5), 'invalid-argument'],
    [() => db.put(null, 'v'), 'invalid-argument'],
  ];
  for (const [use, code] of cases) assert.throws(use, { code }, String(use));
}, { limits: { key: 10, value: 20, batch: 160, getMany: 2 } }));

test('integers as keys sort, and come back', () => {
  const numbers = [-(2n ** 63n), -1n, 0n, 1n, 255n, 256n, 2n ** 63n - 1n];
  const keys = numbers.map(codec.i64.key);
  assert.deepEqual(keys.toSorted?.(compare) ?? [...keys].sort(compare), keys);
  assert.deepEqual(keys.map(codec.i64.fromKey), numbers);
  assert.deepEqual(codec.u32.key(258), Uint8Array.of(0, 0, 1, 2));
  assert.deepEqual(codec.u32.value(258), Uint8Array.of(2, 1, 0, 0));
  for (const wrong of [() => codec.u32.value(2 ** 32), () => codec.u64.value(-1), () => codec.i64.key(1.5), () => codec.u64.value('1')]) {
    assert.throws(wrong, { code: 'invalid-argument' });
  }
  assert.throws(() => codec.u64.fromValue(Uint8Array.of(1)), { code: 'invalid-data' });
});

test('JSON that is none is refused', () => {
  assert.deepEqual(fromJson(toJson({ a: 2n, b: 'ä' })), { a: 2, b: 'ä' });
  for (const wrong of [2n ** 60n, () => 1, undefined]) assert.throws(() => toJson(wrong), { code: 'invalid-argument' });
  for (const wrong of ['{', '\u0000']) assert.throws(() => fromJson(concat(wrong)), { code: 'invalid-data' });
  assert.throws(() => text(Uint8Array.of(0xff)), { code: 'invalid-data' });
});

test('without a host everything says so', () => {
  assert.throws(() => db.get('a'), { code: 'closed', message: /no host runs here/ });
  assert.throws(() => context.shard(), { message: /no host runs here/ });
});

test('a fenced or reading guest cannot write', () => {
  const host = new Host();
  host.fence();
  assert.throws(() => host.run(() => db.get('a')), { code: 'fenced', retryable: true });
});

test('keys belong to the shards that the host says', () => {
  const cases = [
    ['', 0xef46db3751d8e999n],
    ['a', 0xd24ec4f1a98c6e5bn],
    ['abc', 0x44bc2cf5ad770999n],
    ['Nobody inspects the spammish repetition', 0xfbcea83c8a378bf1n],
  ];
  for (const [input, wanted] of cases) assert.equal(xxh64(concat(input)), wanted, input);
});
