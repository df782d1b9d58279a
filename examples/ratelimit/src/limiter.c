#include "limiter.h"

#include <time.h>

#include "rules.h"

#define MAX_KEY_BYTES 1024u

// The bucket of a key, with a time to live: once it is full again it is gone. And two sums, which are merged and never read here.
typedef struct {
  quarry_bytes bucket;
  quarry_bytes allowed;
  quarry_bytes refused;
  bucket_rule rule;
} limited;

static quarry_bytes stored_as(char kind, quarry_bytes key) {
  uint8_t *at = quarry_alloc(key.len + 2);
  at[0] = (uint8_t)kind;
  at[1] = '/';
  memcpy(at + 2, key.ptr, key.len);
  return quarry_view(at, key.len + 2);
}

static quarry_status find(const quarry_call *call, limited *of) {
  quarry_bytes key;
  bool found;
  QUARRY_TRY(quarry_required_key(call, &key));
  if (key.len > MAX_KEY_BYTES) return quarry_fail("key-too-long", "a key has up to %u bytes, not %zu", MAX_KEY_BYTES, key.len);
  quarry_bytes wrong = rules_find(quarry_options(), key, &of->rule, &found);
  if (wrong.len) return quarry_fail("invalid-options", "%.*s", (int)wrong.len, (const char *)wrong.ptr);
  if (!found) return quarry_fail("no-rule", "no rule fits this key: a rule for all is named `*`");
  of->bucket = stored_as('b', key);
  of->allowed = stored_as('+', key);
  of->refused = stored_as('-', key);
  return QUARRY_OK;
}

// Whole numbers of 8 bytes, little-endian, as merge operators take them; WebAssembly and the machines that tests run on store them so.
static quarry_status read_number(quarry_bytes key, uint64_t *number) {
  quarry_optional stored;
  QUARRY_TRY(quarry_get(key, &stored));
  *number = 0;
  if (stored.some && stored.bytes.len != sizeof *number) return quarry_fail("invalid-data", "a number has 8 bytes, not %zu", stored.bytes.len);
  if (stored.some) memcpy(number, stored.bytes.ptr, sizeof *number);
  return QUARRY_OK;
}

static quarry_status now(uint64_t *ns) {
  struct timespec at;
  if (timespec_get(&at, TIME_UTC) != TIME_UTC) return quarry_fail("no-clock", "the time is not known");
  *ns = (uint64_t)at.tv_sec * UINT64_C(1000000000) + (uint64_t)at.tv_nsec;
  return QUARRY_OK;
}

static uint64_t milliseconds(uint64_t ns) { return ns / 1000000 + (ns % 1000000 != 0); }

static quarry_status reply_taken(const bucket_taken *taken, quarry_reply *reply) {
  reply->body = quarry_printf("{\"allowed\":%s,\"remaining\":%llu,\"retry_after_ms\":%llu}", taken->allowed ? "true" : "false",
                              (unsigned long long)taken->remaining, (unsigned long long)milliseconds(taken->retry_after_ns));
  reply->content_type = QUARRY_BYTES("application/json");
  return QUARRY_OK;
}

// How many tokens a call wants: one, or what the payload says.
static quarry_status wanted(const quarry_call *call, const limited *of, uint64_t *tokens) {
  *tokens = call->payload.len ? 0 : 1;
  for (size_t i = 0; i < call->payload.len; i++) {
    uint8_t digit = call->payload.ptr[i];
    if (digit < '0' || digit > '9' || *tokens > of->rule.limit) break;
    *tokens = *tokens * 10 + (digit - '0');
    if (i + 1 == call->payload.len && *tokens >= 1 && *tokens <= of->rule.limit) return QUARRY_OK;
  }
  if (!call->payload.len) return QUARRY_OK;
  return quarry_fail("invalid-payload", "the payload is how many to take: 1, if it is empty, up to the %llu that the rule allows at once",
                     (unsigned long long)of->rule.limit);
}

static quarry_status take(const quarry_call *call, quarry_reply *reply) {
  limited of;
  uint64_t tokens, full_at, at;
  QUARRY_TRY(find(call, &of));
  QUARRY_TRY(wanted(call, &of, &tokens));
  QUARRY_TRY(read_number(of.bucket, &full_at));
  QUARRY_TRY(now(&at));
  bucket_taken taken = bucket_take(of.rule, full_at, at, tokens);

  quarry_bytes sum = quarry_view(&tokens, sizeof tokens);
  if (taken.allowed) {
    const quarry_op ops[] = {
        {QUARRY_PUT, of.bucket, quarry_view(&taken.full_at_ns, sizeof taken.full_at_ns), milliseconds(taken.full_at_ns - at)},
        {QUARRY_MERGE, of.allowed, sum, 0},
    };
    QUARRY_TRY(quarry_write(ops, sizeof ops / sizeof ops[0], NULL));
  } else {
    QUARRY_TRY(quarry_merge(of.refused, sum, NULL));
  }
  // A crash may forget the last few: better than to make every caller wait for the store.
  reply->when_applied = true;
  return reply_taken(&taken, reply);
}

static quarry_status forget(const quarry_call *call, quarry_reply *reply) {
  limited of;
  (void)reply;
  QUARRY_TRY(find(call, &of));
  const quarry_op ops[] = {{QUARRY_REMOVE, of.bucket, {0}, 0}, {QUARRY_REMOVE, of.allowed, {0}, 0}, {QUARRY_REMOVE, of.refused, {0}, 0}};
  return quarry_write(ops, sizeof ops / sizeof ops[0], NULL);
}

static quarry_status peek(const quarry_call *call, quarry_reply *reply) {
  limited of;
  uint64_t tokens, full_at, at;
  QUARRY_TRY(find(call, &of));
  QUARRY_TRY(wanted(call, &of, &tokens));
  QUARRY_TRY(read_number(of.bucket, &full_at));
  QUARRY_TRY(now(&at));
  bucket_taken taken = bucket_take(of.rule, full_at, at, tokens);
  // What is left is shown as it is, not as it would be after.
  taken.remaining = bucket_take(of.rule, full_at, at, 0).remaining;
  return reply_taken(&taken, reply);
}

static quarry_status totals(const quarry_call *call, quarry_reply *reply) {
  limited of;
  uint64_t allowed, refused;
  QUARRY_TRY(find(call, &of));
  QUARRY_TRY(read_number(of.allowed, &allowed));
  QUARRY_TRY(read_number(of.refused, &refused));
  reply->body = quarry_printf("{\"allowed\":%llu,\"refused\":%llu}", (unsigned long long)allowed, (unsigned long long)refused);
  reply->content_type = QUARRY_BYTES("application/json");
  return QUARRY_OK;
}

quarry_status limiter_query(const quarry_call *call, quarry_reply *reply) {
  if (quarry_method_is(call, "peek")) return peek(call, reply);
  if (quarry_method_is(call, "totals")) return totals(call, reply);
  return quarry_unknown_method(call);
}

quarry_status limiter_call(const quarry_call *call, quarry_reply *reply) {
  if (quarry_method_is(call, "take")) return take(call, reply);
  if (quarry_method_is(call, "forget")) return forget(call, reply);
  // What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
  return limiter_query(call, reply);
}

quarry_bytes limiter_validate(quarry_bytes options) {
  bucket_rule rule;
  bool found;
  return rules_find(options, QUARRY_BYTES(""), &rule, &found);
}
