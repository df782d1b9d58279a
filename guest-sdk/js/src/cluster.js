// Calls to other shards of this cluster, wherever they are. The caller waits, and so do the other calls of its shard.

import * as wit from '#wit/cluster';
import { bytes, received, shown, string } from './bytes.js';
import { QuarryError, hosted } from './error.js';

export function call(target, method, payload = '') {
  return sent(target, method, payload, wit.call, wit.callKey);
}

export function query(target, method, payload = '') {
  return sent(target, method, payload, wit.query, wit.queryKey);
}

function sent(target, method, payload, byShard, byKey) {
  const { shard, key } = target ?? {};
  const at = key === undefined ? undefined : bytes(key, 'a key');
  const what = bytes(payload, 'a payload');
  if (shard === undefined) {
    if (at === undefined) throw QuarryError.invalidArgument('name whom to call: { key } or { shard }');
    return received(hosted(() => byKey(at, string(method, 'a method'), what)));
  }
  if (!(Number.isInteger(shard) && shard >= 0 && shard <= 0xffff_ffff)) {
    throw QuarryError.invalidArgument(`a shard is a number from 0, not ${shown(shard)}`);
  }
  return received(hosted(() => byShard(shard, string(method, 'a method'), at, what)));
}
