// The links against the in-memory host, by requests as a browser and a program make them.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { db } from 'quarry-guest';
import { Host } from 'quarry-guest/testing';

import links from '../src/app.js';

/** A client of one set, as the host passes its requests on. */
function client(host: Host, set = 'docs') {
  const send = (path: string, init: RequestInit = {}) =>
    host.fetch(path, { ...init, headers: { 'quarry-key': set, 'x-forwarded-prefix': `/http/key/${set}`, ...(init.headers as Record<string, string>) } });
  return {
    send,
    put: (name: string, body: unknown) => send(`/api/links/${name}`, { method: 'PUT', body: JSON.stringify(body) }),
    list: async (query = '') => ((await (await send(`/api/links${query}`)).json()) as any).links.map((link: any) => `${link.name} ${link.hits}`),
  };
}

test('a link leads on, and counts how often it did', async () => {
  const host = new Host(links);
  const docs = client(host);
  const stored = await docs.put('wasi', { url: 'https://wasi.dev' });
  assert.deepEqual([stored.status, await stored.json()], [200, { name: 'wasi', url: 'https://wasi.dev/', hits: 0 }]);
  for (let n = 0; n < 3; n += 1) {
    const followed = await docs.send('/wasi');
    assert.deepEqual([followed.status, followed.headers.get('location')], [302, 'https://wasi.dev/']);
  }
  assert.deepEqual(await docs.list(), ['wasi 3']);
  // A set is its own, and a call sees what requests see.
  assert.deepEqual(await client(host, 'other').list(), []);
  assert.deepEqual(host.query('list', { key: 'docs' }).json(), { links: [{ name: 'wasi', url: 'https://wasi.dev/', hits: 3 }] });

  assert.equal((await docs.send('/api/links/wasi', { method: 'DELETE' })).status, 204);
  assert.equal((await docs.send('/wasi')).status, 404);
});

test('what is not durable goes with a crash', async () => {
  const host = new Host(links);
  const docs = client(host);
  await docs.put('a', { url: 'https://a.example' });
  host.makeDurable();
  await docs.put('b', { url: 'https://b.example' });
  host.crash();
  assert.deepEqual(await docs.list(), ['a 0']);
});

test('the form leads back to a page that escapes what it shows', async () => {
  const docs = client(new Host(links));
  const url = 'https://a.example/?<script>=1&b=2';
  const sent = await docs.send('/', { method: 'POST', body: new URLSearchParams({ name: 'a', url }) });
  assert.deepEqual([sent.status, sent.headers.get('location')], [303, '/http/key/docs/']);
  const page = await docs.send('/');
  assert.match(page.headers.get('content-type') ?? '', /^text\/html/);
  assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
  const text = await page.text();
  assert.match(text, /<a href="\/http\/key\/docs\/a">a<\/a><\/td><td>https:\/\/a\.example\/\?%3Cscript%3E=1&amp;b=2<\/td><td>0<\/td>/);
  assert.doesNotMatch(text, /<script/);
});

test('lists come in pages', async () => {
  const docs = client(new Host(links));
  const names = Array.from({ length: 150 }, (_, n) => `n${n + 100}`);
  for (const name of names) await docs.put(name, { url: 'https://a.example' });
  const first = (await (await docs.send('/api/links')).json()) as any;
  assert.deepEqual([first.links.length, first.next], [100, 'n199']);
  const rest = (await (await docs.send(`/api/links?after=${first.next}`)).json()) as any;
  assert.deepEqual([...first.links, ...rest.links].map((link) => link.name), names);
  assert.equal(rest.next, undefined);
  assert.match(await (await docs.send('/')).text(), /href="\?after=n199"/);
});

test('what it does not understand is refused, and why', async () => {
  const host = new Host(links);
  const docs = client(host);
  const cases: [string, string, unknown, number, RegExp][] = [
    ['PUT', '/api/links/a', { url: 'javascript:alert(1)' }, 400, /`url` is an http or https address/],
    ['PUT', '/api/links/a', { url: `https://a.example/${'x'.repeat(2_000)}` }, 400, /2000 characters/],
    ['PUT', '/api/links/a', 'no object', 400, /`url`/],
    ['PUT', '/api/links/a', null, 400, /`url`/],
    ['PUT', '/api/links/a%2Fb', { url: 'https://a.example' }, 400, /"a\/b"/],
    ['PUT', '/api/links/api', { url: 'https://a.example' }, 400, /not api/],
    ['POST', '/', 'no form', 400, /the name of a link/],
    ['GET', '/api/links?after=%00', undefined, 400, /the name of a link/],
    ['DELETE', '/api/links/none', undefined, 404, /there is no link none/],
    ['GET', '/none', undefined, 404, /there is no link none/],
    ['PATCH', '/none', undefined, 404, /there is no PATCH \/none/],
  ];
  for (const [method, path, json, status, why] of cases) {
    const response = await docs.send(path, { method, ...(json === undefined ? {} : { body: JSON.stringify(json) }) });
    assert.equal(response.status, status, `${method} ${path}`);
    assert.match(((await response.json()) as any).error, why, `${method} ${path}`);
  }
  // Without a key nobody knows which set is meant.
  assert.equal((await host.fetch('/')).status, 400);
  for (const key of ['a%20b', '%FF', '']) assert.equal((await docs.send('/', { headers: { 'quarry-key': key } })).status, 400, key);
  assert.deepEqual(host.logs, []);
  assert.throws(() => host.query('list', { key: 'a/b' }), { code: 'invalid-request' });
  assert.throws(() => host.query('list'), { code: 'missing-key' });
});

test('a fault of its own is a 500, with its text in the log alone', async () => {
  const host = new Host(links);
  host.run(() => db.put('link/docs/a', 'no JSON'));
  const response = await client(host).send('/a');
  assert.deepEqual([response.status, await response.text()], [500, 'the guest failed; its log says how\n']);
  assert.match(host.logs[0]!.message, /invalid-data/);
});
