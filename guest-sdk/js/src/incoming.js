// The export `wasi:http/incoming-handler` of a component. Part of no test: the build puts it beside a guest with `fetch`.
//
// The engine has an event for requests (`addEventListener('fetch')`), but an instance of it answers one request in its life, and one of a shard lives
// for many. Bodies are whole on both ways: the host keeps an answer until what it shows is durable.

import { Fields, OutgoingBody, OutgoingResponse, ResponseOutparam } from 'wasi:http/types@0.2.10';

import { concat } from './bytes.js';
import { Abort } from './error.js';
import { answered, failed } from './http.js';
import * as log from './log.js';

/** What is read of a body at once. */
const READ_BYTES = 1n << 20n;

const DISPOSE = Symbol.dispose ?? Symbol.for('dispose');
const METHODS_WITHOUT_BODY = ['GET', 'HEAD'];

/** The handler of requests, over what `exportsOf` made of a guest. */
export function incoming({ handlers }) {
  return {
    async handle(incoming, out) {
      let made;
      try {
        made = outgoing(await answered(handlers, requestOf(incoming)));
      } catch (error) {
        if (error instanceof Abort) log.error(error.why);
        made = outgoing(failed(error));
      }
      const { response, body } = made;
      // Without a body its length may be told all the same, as an answer to HEAD does.
      const sink = body.length > 0 ? response.body() : undefined;
      // The host takes what is written while this runs, but not before it has the head.
      ResponseOutparam.set(out, { tag: 'ok', val: response });
      if (sink !== undefined) {
        write(sink, body);
        OutgoingBody.finish(sink, undefined);
      }
    },
  };
}

function requestOf(incoming) {
  const method = methodOf(incoming.method());
  const scheme = incoming.scheme()?.tag === 'HTTPS' ? 'https' : 'http';
  const url = `${scheme}://${incoming.authority() ?? 'localhost'}${incoming.pathWithQuery() ?? '/'}`;
  const headers = headersOf(incoming.headers());
  const bytes = read(incoming.consume());
  incoming[DISPOSE]();
  const body = METHODS_WITHOUT_BODY.includes(method) ? undefined : bytes;
  return new Request(url, { method, headers, body });
}

function methodOf({ tag, val }) {
  return tag === 'other' ? val : tag.toUpperCase();
}

function headersOf(fields) {
  const headers = new Headers();
  const cookies = [];
  for (const [name, value] of fields.entries()) {
    const text = Array.from(value, (byte) => String.fromCharCode(byte)).join('');
    // Several of these would be joined by a comma, which is part of a cookie.
    if (name === 'cookie') cookies.push(text);
    else headers.append(name, text);
  }
  fields[DISPOSE]();
  if (cookies.length > 0) headers.set('cookie', cookies.join('; '));
  return headers;
}

function read(body) {
  const stream = body.stream();
  const parts = [];
  try {
    for (;;) parts.push(stream.blockingRead(READ_BYTES));
  } catch (error) {
    if (error?.payload?.tag !== 'closed') throw new Error(`the body of the request cannot be read: ${said(error)}`, { cause: error });
  }
  stream[DISPOSE]();
  body[DISPOSE]();
  return concat(...parts);
}

/** The host's form of an answer. Throws where the host cannot take it, which is before it has any of it. */
function outgoing({ status, headers, body }) {
  const fields = new Fields();
  for (const [name, value] of headers) {
    // The host tells the length of a body itself, and one that the guest has wrong would end the instance.
    if (body.length > 0 && name === 'content-length') continue;
    try {
      fields.append(name, Uint8Array.from(value, byteOf));
    } catch (error) {
      throw new Error(`the answer cannot have the header \`${name}\`: ${said(error)}`, { cause: error });
    }
  }
  const response = new OutgoingResponse(fields);
  response.setStatusCode(status);
  return { response, body };
}

function byteOf(char) {
  const code = char.codePointAt(0);
  if (code > 0xff) throw new RangeError(`its value has the character ${JSON.stringify(char)}, and may have U+0000 to U+00FF`);
  return code;
}

function write(sink, bytes) {
  const stream = sink.write();
  const ready = stream.subscribe();
  for (let at = 0; at < bytes.length; ) {
    const room = Number(stream.checkWrite());
    if (room === 0) {
      ready.block();
      continue;
    }
    const part = bytes.subarray(at, at + room);
    stream.write(part);
    at += part.length;
  }
  stream.blockingFlush();
  ready[DISPOSE]();
  stream[DISPOSE]();
}

/** An error of the host's, which is a name with more or without. */
function said(error) {
  return error?.payload?.tag ?? error?.payload ?? error?.message ?? String(error);
}
