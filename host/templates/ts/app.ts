// Counts per key: a place to start from.

import { db, defineGuest, log, type Call } from 'quarry-guest';

function count(call: Call): number {
  return Number(db.getText(call.requiredKey) ?? 0);
}

export default defineGuest({
  // Calls of a shard run one at a time, so the read and the write below lose no update. The reply waits by itself until the write is
  // durable. What is thrown becomes the caller's error; give it a code with `QuarryError`.
  calls: {
    increment(call) {
      const next = count(call) + 1;
      db.put(call.requiredKey, String(next));
      log.debug('counted', { count: next });
      return next;
    },
  },
  // Queries only read, and run in parallel with the calls.
  queries: {
    get: count,
  },
});
