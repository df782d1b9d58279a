// HTTP requests of a guest with `fetch`: what comes out of it, whatever it does.

import { Abort, QuarryError } from './error.js';
import { recordOf } from './guest.js';
import * as log from './log.js';

/**
 * What a guest, whose handlers a function gives, answers to a request. Whole: `status`, `headers` as pairs, `body` as bytes. What is thrown
 * becomes a 500, and its text a line of the log; only the end of the instance comes out of here.
 */
export async function answered(handlers, request) {
  try {
    return await whole(await handlers().fetch(request));
  } catch (error) {
    return failed(error);
  }
}

/** The answer for a request that a guest, or what is around it, failed. */
export function failed(error) {
  if (error instanceof Abort) throw error;
  // A call would have given it to its caller; here nobody else gets to see it.
  recordOf(error instanceof QuarryError ? new Error(`${error.code}: ${error.message}`, { cause: error }) : error);
  const body = new TextEncoder().encode('the guest failed; its log says how\n');
  return { status: 500, headers: [['content-type', 'text/plain; charset=utf-8']], body };
}

async function whole(response) {
  if (!(response instanceof Response)) {
    throw new TypeError(`\`fetch\` gives a Response, or a promise of one; not ${log.shown(response)}`);
  }
  const body = new Uint8Array(await response.arrayBuffer());
  return { status: response.status, headers: [...response.headers], body };
}
