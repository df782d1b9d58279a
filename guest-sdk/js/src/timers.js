// Timers of this module in this shard; `fire` of the guest gets them. A name has one timer: setting it again replaces it.

import * as wit from '#wit/timers';
import { bytes, string, u64 } from './bytes.js';
import { hosted } from './error.js';

export function set(name, afterMs, payload = '') {
  const [after, what] = [u64(afterMs, '`afterMs`'), bytes(payload, 'a payload')];
  hosted(() => wit.set(string(name, "a timer's name"), after, what));
}

export function setDurable(name, afterMs, payload = '') {
  const [after, what] = [u64(afterMs, '`afterMs`'), bytes(payload, 'a payload')];
  return hosted(() => wit.setDurable(string(name, "a timer's name"), after, what));
}

export function cancel(name) {
  return hosted(() => wit.cancel(string(name, "a timer's name")));
}

export function due(name) {
  const ms = hosted(() => wit.dueMs(string(name, "a timer's name")));
  return ms === undefined ? undefined : new Date(Number(ms));
}
