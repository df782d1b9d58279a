// A guest that gives the SDK and the host what they do not take, one method a fault. What its caller has to see stands in `.ci/bad-input.py`.
#include "quarry.h"

#include <stdlib.h>

#define NO QUARRY_BYTES("")
#define A QUARRY_BYTES("a")
enum { TOO_MUCH = (16 << 20) + 1 };

static const char half[] = "\xff is no text";

static quarry_bytes large(size_t len) {
  return quarry_view(memset(quarry_alloc(len), 'x', len), len);
}

static quarry_status scanned(quarry_range range, quarry_order order) {
  quarry_cursor *cursor;
  return quarry_scan(range, order, &cursor);
}

static quarry_status unchanged(quarry_transaction *transaction, void *context) {
  (void)transaction;
  (void)context;
  return QUARRY_OK;
}

static quarry_status call(const quarry_call *call, quarry_reply *reply) {
  static unsigned alive;
  quarry_optional value;
  quarry_bytes got;
#define IS(name) quarry_method_is(call, name)
  if (IS("alive")) return quarry_reply_text(reply, "%u", ++alive);
  // What a handler gives back.
  if (IS("return-none")) return QUARRY_OK;
  if (IS("return-too-much")) return reply->body = large(TOO_MUCH), QUARRY_OK;
  if (IS("content-type")) return reply->content_type = quarry_text(half), QUARRY_OK;
  if (IS("raise-types")) return quarry_fail("Not Good", "no");
  if (IS("raise-surrogate")) return quarry_fail("mine", "%s", half);
  // The database.
  if (IS("key-empty")) return quarry_get(NO, &value);
  if (IS("key-none")) return quarry_get((quarry_bytes){0}, &value);
  if (IS("key-large")) return quarry_get(large(70000), &value);
  if (IS("value-large")) return quarry_put(A, large(TOO_MUCH), NULL);
  if (IS("ttl-zero")) return quarry_put_for(A, A, 0, NULL);
  if (IS("many-too-many")) {
    quarry_bytes *keys = quarry_alloc(1025 * sizeof *keys);
    for (size_t i = 0; i < 1025; i++) keys[i] = A;
    return quarry_get_many(keys, 1025, quarry_alloc(1025 * sizeof(quarry_optional)));
  }
  if (IS("batch-empty")) return quarry_write(NULL, 0, NULL);
  if (IS("batch-kind")) return quarry_write(&(quarry_op){.kind = (quarry_op_kind)9, .key = A}, 1, NULL);
  if (IS("scan-order")) return scanned((quarry_range){0}, (quarry_order)9);
  if (IS("isolation")) return quarry_transact((quarry_isolation)9, unchanged, NULL);
  if (IS("no-merge")) return quarry_merge(A, A, NULL);
  // Numbers, names and the rest.
  if (IS("seq-ahead")) return quarry_notify_when_durable(UINT64_MAX, 1);
  if (IS("timer-name-empty")) return quarry_timer_set("", 10, NO);
  if (IS("timer-name-bytes")) return quarry_timer_set(half, 10, NO);
  if (IS("timer-name-none")) return quarry_timer_set(NULL, 10, NO);
  if (IS("timer-cancel")) return quarry_timer_cancel(half, NULL);
  if (IS("call-method")) return quarry_call_key(A, half, NO, &got);
  if (IS("call-shard")) return quarry_call_shard(UINT32_MAX, "a", NULL, NO, &got);
  if (IS("header-bytes")) return quarry_header(half), quarry_reply_text(reply, "none");
  if (IS("metric-name")) return quarry_metric_add(half, NULL, 0, 1), quarry_reply_text(reply, "dropped");
  if (IS("log-anything")) {
    quarry_log_fields((quarry_level)9, quarry_text(half), &(quarry_field){half, quarry_text(half)}, 1);
    return QUARRY_OK;
  }
  if (IS("abort")) abort();
  return quarry_unknown_method(call);
}

static void durable(const uint64_t *tags, size_t count) {
  (void)tags;
  (void)count;
}

static quarry_status fire(quarry_bytes name, quarry_bytes payload, uint64_t due_ms) {
  (void)name;
  (void)payload;
  (void)due_ms;
  return QUARRY_OK;
}

QUARRY_EXPORT_CALL(call)
QUARRY_EXPORT_DURABLE(durable)
QUARRY_EXPORT_TIMER(fire)
