// Guests with `fetch` against the in-memory host.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { QuarryError, abort, context, db, defineGuest } from '../src/index.js';
import { Host } from '../src/testing.js';

const RealDate = globalThis.Date;
const pause = () => new Promise((resolve) => setImmediate(resolve));

test('a guest answers requests over the database of its calls', async () => {
  const add = () => {
    const count = Number(db.getText('count') ?? 0) + 1;
    db.put('count', String(count));
    return count;
  };
  const guest = defineGuest({
    calls: { add },
    async fetch(request) {
      const text = await request.text();
      await pause();
      return Response.json({ count: add(), text, url: request.url, of: request.headers.get('x-of'), shard: context.shard() }, { status: 201 });
    },
  });
  assert.ok(guest.answersHttp());
  assert.deepEqual(guest.exported(), []);
  const host = new Host(guest, { shards: 8, shard: 5 });
  assert.equal(host.call('add').text(), '1');
  const response = await host.fetch('/a?b=c', { method: 'POST', body: 'body', headers: { 'x-of': 'me' } });
  assert.equal(response.status, 201);
  assert.equal(response.headers.get('content-type'), 'application/json');
  assert.deepEqual(await response.json(), { count: 2, text: 'body', url: 'http://guest.test/a?b=c', of: 'me', shard: 5 });
  assert.equal(host.call('add').text(), '3');
  // What was not durable is gone with a crash, as after a call.
  host.crash();
  assert.equal((await (await host.fetch(new Request('http://other.test/'))).json()).count, 1);
});

test('requests are answered one at a time, and by their own hosts', async () => {
  const guest = defineGuest({
    async fetch() {
      const count = Number(db.getText('count') ?? 0);
      for (let n = 0; n < 5; n += 1) await pause();
      db.put('count', String(count + 1));
      return new Response(`${context.shard()} ${count + 1}`);
    },
  });
  const hosts = [0, 1].map((shard) => new Host(guest, { shard, shards: 2 }));
  const asked = [0, 1, 0, 1, 0].map((shard) => hosts[shard].fetch('/'));
  await pause();
  assert.throws(() => hosts[0].call('x'), /await/);
  const texts = await Promise.all(asked.map(async (response) => (await response).text()));
  assert.deepEqual(texts, ['0 1', '1 1', '0 2', '1 2', '0 3']);
});

test('the time is that of the host, also behind an await', async () => {
  const times = [];
  const guest = defineGuest({
    async fetch() {
      times.push(new Date().toISOString());
      await pause();
      times.push(new Date(Date.now()).toISOString());
      return new Response();
    },
  });
  const hosts = [new Host(guest), new Host(guest)];
  hosts[1].advance(60_000);
  const answers = hosts.map((host) => host.fetch('/'));
  await pause();
  // A test has the time of its machine.
  assert.notEqual(new Date().toISOString().slice(0, 10), '2026-01-01');
  await Promise.all(answers);
  const [first, second] = ['2026-01-01T00:00:00.000Z', '2026-01-01T00:01:00.000Z'];
  assert.deepEqual(times.sort(), [first, first, second, second]);
  assert.equal(globalThis.Date, RealDate);
});

test('whatever is thrown is a 500 with its text in the log', async () => {
  const cases = [
    [() => { throw new Error('plain'); }, 'plain'],
    [async () => { throw new QuarryError('mine', 'told'); }, 'mine: told'],
    [() => 7, 'gives a Response, or a promise of one; not 7'],
    [() => undefined, 'gives a Response'],
    [() => new Response(new ReadableStream({ start: (to) => to.error(new Error('half')) })), 'half'],
    [() => db.get(''), 'invalid-key: a key cannot be empty'],
  ];
  for (const [fetch, wanted] of cases) {
    const host = new Host(defineGuest({ fetch }));
    const response = await host.fetch('/');
    assert.equal(response.status, 500, wanted);
    assert.equal(await response.text(), 'the guest failed; its log says how\n');
    assert.equal(host.logs.length, 1, wanted);
    assert.match(host.logs[0].message, new RegExp(wanted));
    assert.equal(host.logs[0].level, 'error');
  }
});

test('an abort ends the instance', async () => {
  for (const fetch of [() => abort('on purpose'), async () => abort('on purpose')]) {
    const host = new Host(defineGuest({ fetch }));
    await assert.rejects(host.fetch('/'), { code: 'guest-trap', message: 'on purpose' });
    // The next one is not held up by it.
    await assert.rejects(host.fetch('/'), { code: 'guest-trap' });
  }
});

test('headers, bodies and statuses come out as they are', async () => {
  const headers = [['set-cookie', 'a=1'], ['set-cookie', 'b=2'], ['x-any', 'caf\u00e9']];
  const responses = {
    '/204': () => new Response(null, { status: 204 }),
    '/304': () => new Response(null, { status: 304 }),
    '/cookies': () => new Response('', { headers }),
    '/stream': () => new Response(new ReadableStream({ start(to) { to.enqueue(Uint8Array.of(1, 2)); to.enqueue(Uint8Array.of(3)); to.close(); } })),
    '/large': () => new Response(new Uint8Array(100)),
  };
  const host = new Host(defineGuest({ fetch: (request) => responses[new URL(request.url).pathname]() }), { limits: { reply: 99 } });
  assert.equal((await host.fetch('/204')).status, 204);
  assert.equal((await host.fetch('/304')).status, 304);
  const cookies = await host.fetch('/cookies');
  assert.deepEqual(cookies.headers.getSetCookie(), ['a=1', 'b=2']);
  assert.equal(cookies.headers.get('x-any'), 'caf\u00e9');
  assert.deepEqual([...new Uint8Array(await (await host.fetch('/stream')).arrayBuffer())], [1, 2, 3]);
  await assert.rejects(host.fetch('/large'), { code: 'guest-reply-limit', message: /100 bytes .* limits.reply \(99 bytes\)/ });
});

test('what has no `fetch` answers no requests', async () => {
  const guest = defineGuest({ calls: {} });
  assert.ok(!guest.answersHttp());
  await assert.rejects(new Host(guest).fetch('/'), { code: 'no-http', message: /give it `fetch`/ });
  assert.throws(() => defineGuest({ fetch: 7 }), /`fetch` is no function/);
});
