// Counts per key: a place to start from.
#include "quarry.h"

// Calls of a shard run one at a time, so the read and the write below lose no update. The reply waits by itself until the
// write is durable. What lasts goes into the database; a static variable is a cache that a restart empties.
static quarry_status increment(const quarry_call *call, quarry_reply *reply) {
  quarry_bytes key;
  quarry_optional stored;
  uint64_t count = 0;
  QUARRY_TRY(quarry_required_key(call, &key));
  QUARRY_TRY(quarry_get(key, &stored));
  if (stored.some && stored.bytes.len != sizeof count) return quarry_fail("invalid-data", "a count has 8 bytes, not %zu", stored.bytes.len);
  if (stored.some) memcpy(&count, stored.bytes.ptr, sizeof count);
  count++;
  QUARRY_TRY(quarry_put(key, quarry_view(&count, sizeof count), NULL));
  quarry_log(QUARRY_DEBUG, "counted to %llu", (unsigned long long)count);
  return quarry_reply_text(reply, "%llu", (unsigned long long)count);
}

// Queries only read, and run in parallel with the calls.
static quarry_status query(const quarry_call *call, quarry_reply *reply) {
  if (!quarry_method_is(call, "get")) return quarry_unknown_method(call);
  quarry_bytes key;
  quarry_optional stored;
  uint64_t count = 0;
  QUARRY_TRY(quarry_required_key(call, &key));
  QUARRY_TRY(quarry_get(key, &stored));
  if (stored.some && stored.bytes.len == sizeof count) memcpy(&count, stored.bytes.ptr, sizeof count);
  return quarry_reply_text(reply, "%llu", (unsigned long long)count);
}

static quarry_status call(const quarry_call *call, quarry_reply *reply) {
  if (quarry_method_is(call, "increment")) return increment(call, reply);
  return query(call, reply);
}

QUARRY_EXPORT_CALL(call)
QUARRY_EXPORT_QUERY(query)
