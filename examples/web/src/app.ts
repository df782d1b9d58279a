// Short links, one set for each routing key: a page for people, a JSON API for programs, and the redirects, all by Hono. The same set is there for
// calls of Quarry's own.
//
// | request, behind `/http/key/SET` | what it does |
// |---|---|
// | `GET /` | the page |
// | `POST /` | the form of the page: stores a link, and goes back to the page |
// | `GET /NAME` | leads to where the link points, and counts that |
// | `GET /api/links?after=NAME` | up to 100 links, by name, from the one behind `after` |
// | `PUT /api/links/NAME` with `{"url":"https://..."}` | stores a link |
// | `DELETE /api/links/NAME` | removes it |
//
// | query | payload | reply |
// |---|---|---|
// | `list`, the key is the set | the name behind which it begins, or nothing | as `GET /api/links` |

import { Hono } from 'hono';
import { secureHeaders } from 'hono/secure-headers';
import { defineGuest } from 'quarry-guest';

import { Refusal, follow, list, remove, setOf, store } from './links.js';
import { page } from './page.js';

/** What the requests of a set have in common: its name, and the path that leads to it. */
type Env = { Variables: { set: string; base: string } };

const app = new Hono<Env>();

app.use(secureHeaders());

// The host says which key led here, and what it took off the path.
app.use(async (c, next) => {
  const key = c.req.header('quarry-key');
  if (key === undefined) throw new Refusal(400, 'ask below /http/key/SET/, where SET is the name of a set of links');
  c.set('set', setOf(key));
  c.set('base', c.req.header('x-forwarded-prefix') ?? '');
  await next();
});

app.get('/', (c) => c.html(page(c.var.base, list(c.var.set, c.req.query('after')))));

app.post('/', async (c) => {
  const { name, url } = await c.req.parseBody();
  store(c.var.set, name, url);
  return c.redirect(`${c.var.base}/`, 303);
});

app.get('/api/links', (c) => c.json(list(c.var.set, c.req.query('after'))));

app.put('/api/links/:name', async (c) => {
  const body = await c.req.json().catch(() => undefined);
  return c.json(store(c.var.set, c.req.param('name'), body?.url));
});

app.delete('/api/links/:name', (c) => {
  remove(c.var.set, c.req.param('name'));
  return c.body(null, 204);
});

app.get('/:name', (c) => c.redirect(follow(c.var.set, c.req.param('name'))));

app.notFound((c) => c.json({ error: `there is no ${c.req.method} ${c.req.path}` }, 404));

app.onError((error, c) => {
  if (error instanceof Refusal) return c.json({ error: error.message }, error.status);
  // What nobody expected: the SDK makes a 500 of it, with its stack in the log.
  throw error;
});

export default defineGuest({
  fetch: (request) => app.fetch(request),
  queries: {
    list: (call) => list(setOf(new TextDecoder().decode(call.requiredKey)), call.text() || undefined),
  },
});
