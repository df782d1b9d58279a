// When writes become durable. A reply waits by itself until the writes that it may show are durable; this is for a guest that wants to do
// something of its own at that moment.

import * as wit from '#wit/durability';
import { u64 } from './bytes.js';
import { hosted } from './error.js';

export const durableSeq = () => wit.durableSeq();

export function notifyWhenDurable(seq, tag) {
  const [upTo, what] = [u64(seq, '`seq`'), u64(tag, '`tag`')];
  hosted(() => wit.notifyWhenDurable(upTo, what));
}
