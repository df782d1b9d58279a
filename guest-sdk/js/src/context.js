// Where this instance runs.

import * as wit from '#wit/shard';
import { bytes } from './bytes.js';
import { QuarryError, reason } from './error.js';

const FOR_EVER = (1n << 64n) - 1n;

export const cluster = () => wit.cluster();
export const shard = () => wit.number();
export const shardCount = () => wit.count();
export const shardFor = (key) => wit.shardFor(bytes(key, 'a key'));
export const node = () => wit.node();
export const generation = () => Number(wit.generation());
export const module = () => wit.module();
export const revision = () => Number(wit.revision());
export const status = () => wit.status();
export const options = () => parsed(wit.options());

export function ownedForMs() {
  const left = wit.ownedForMs();
  return left === FOR_EVER ? Infinity : Number(left);
}

/** Options from their JSON. */
export function parsed(json) {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new QuarryError('invalid-options', `the module's options were not understood: ${reason(error)}`);
  }
}
