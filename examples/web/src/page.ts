// The page of a set. `html` escapes whatever is put into it.

import { html } from 'hono/html';

import type { Link, Page } from './links.js';

export function page(base: string, { links, next }: Page) {
  const row = ({ name, url, hits }: Link) => html`<tr><td><a href="${base}/${name}">${name}</a></td><td>${url}</td><td>${hits}</td></tr>
`;
  return html`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Short links</title>
<h1>Short links</h1>
<form method="post">
<input name="name" placeholder="name" required pattern="[A-Za-z0-9._\\-]{1,64}">
<input name="url" type="url" placeholder="https://..." required>
<button>Store</button>
</form>
<table>
${links.map(row)}</table>
${next === undefined ? '' : html`<a href="?after=${next}">more</a>`}
</html>
`;
}
