// Values under keys. The same service as the one in Rust beside (../kv), over the same stored form.
//
// | method | key | payload | reply |
// |---|---|---|---|
// | `put` | where to store | the value | the write's seq in decimal |
// | `get`, also as a query | what to read | - | the value, or the error `not-found` |
// | `delete` | what to delete | - | the write's seq in decimal |
// | `scan`, also as a query | any key of the shard | JSON, see scan.h, or nothing | a line of JSON per entry |
#include "quarry.h"
#include "scan.h"
#include "text.h"

// Entries of this size together fail a scan, which says how many fit.
#define MAX_REPLY_BYTES (8u << 20)

static quarry_status put(const quarry_call *call, quarry_reply *reply) {
  quarry_bytes key;
  quarry_seq seq;
  QUARRY_TRY(quarry_required_key(call, &key));
  QUARRY_TRY(quarry_put(key, call->payload, &seq));
  return quarry_reply_text(reply, "%llu", (unsigned long long)seq);
}

static quarry_status remove_key(const quarry_call *call, quarry_reply *reply) {
  quarry_bytes key;
  quarry_seq seq;
  QUARRY_TRY(quarry_required_key(call, &key));
  QUARRY_TRY(quarry_remove(key, &seq));
  return quarry_reply_text(reply, "%llu", (unsigned long long)seq);
}

static quarry_status get(const quarry_call *call, quarry_reply *reply) {
  quarry_bytes key;
  quarry_optional value;
  QUARRY_TRY(quarry_required_key(call, &key));
  QUARRY_TRY(quarry_get(key, &value));
  if (!value.some) {
    quarry_bytes shown = text_escaped(key);
    return quarry_fail("not-found", "there is no key `%.*s`", (int)shown.len, (const char *)shown.ptr);
  }
  reply->body = value.bytes;
  return QUARRY_OK;
}

static quarry_status scan(const quarry_call *call, quarry_reply *reply) {
  scan_request wanted;
  QUARRY_TRY(scan_read(call->payload, &wanted));
  quarry_cursor *cursor;
  if (wanted.prefix.some) {
    QUARRY_TRY(quarry_scan_prefix(wanted.prefix.bytes, wanted.order, &cursor));
  } else {
    QUARRY_TRY(quarry_scan(wanted.range, wanted.order, &cursor));
  }
  text_buffer lines = {0};
  for (uint32_t count = 0; count < wanted.limit; count++) {
    quarry_entry entry;
    bool found;
    QUARRY_TRY(quarry_next(cursor, &entry, &found));
    if (!found) break;
    if (count > 0 && lines.len + entry.key.len + entry.value.len > MAX_REPLY_BYTES) {
      return quarry_fail("reply-too-large", "the reply would be larger than %u bytes at entry %u of %u: ask for at most %u", MAX_REPLY_BYTES,
                         count + 1, wanted.limit, count);
    }
    text_append(&lines, QUARRY_BYTES("{"));
    text_append_field(&lines, "key", entry.key);
    text_append(&lines, QUARRY_BYTES(","));
    text_append_field(&lines, "value", entry.value);
    text_append(&lines, QUARRY_BYTES("}\n"));
  }
  reply->body = quarry_view(lines.at, lines.len);
  reply->content_type = QUARRY_BYTES("application/jsonl");
  return QUARRY_OK;
}

static quarry_status query(const quarry_call *call, quarry_reply *reply) {
  if (quarry_method_is(call, "get")) return get(call, reply);
  if (quarry_method_is(call, "scan")) return scan(call, reply);
  return quarry_unknown_method(call);
}

// What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
static quarry_status call(const quarry_call *call, quarry_reply *reply) {
  if (quarry_method_is(call, "put")) return put(call, reply);
  if (quarry_method_is(call, "delete")) return remove_key(call, reply);
  return query(call, reply);
}

QUARRY_EXPORT_CALL(call)
QUARRY_EXPORT_QUERY(query)
