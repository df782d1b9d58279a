// What the tests of the double call: a method for each thing that a handler can do.
#include "quarry.h"

#define IS(name) quarry_method_is(call, name)

static unsigned instances, calls;
void forget_all(void) { calls = 0; }

static quarry_status listed(quarry_cursor *cursor, quarry_reply *reply) {
  quarry_bytes all = quarry_view("", 0);
  for (bool found;;) {
    quarry_entry entry;
    QUARRY_TRY(quarry_next(cursor, &entry, &found));
    if (!found) break;
    all = quarry_printf("%.*s%.*s=%.*s ", (int)all.len, (const char *)all.ptr, (int)entry.key.len, (const char *)entry.key.ptr, (int)entry.value.len,
                        (const char *)entry.value.ptr);
  }
  reply->body = all;
  return QUARRY_OK;
}

static quarry_status swapped(quarry_transaction *tx, void *context) {
  const quarry_call *call = context;
  quarry_optional before;
  QUARRY_TRY(quarry_tx_get(tx, call->key.bytes, &before));
  QUARRY_TRY(quarry_tx_put(tx, call->key.bytes, call->payload));
  if (IS("conflict")) QUARRY_TRY(quarry_put(QUARRY_BYTES("other"), QUARRY_BYTES("1"), NULL));
  if (IS("give-up")) return quarry_fail("gave-up", "on purpose");
  return before.some ? QUARRY_OK : quarry_fail("no-such", "there is nothing to swap");
}

static quarry_status get(const quarry_call *call, quarry_reply *reply) {
  quarry_optional value;
  QUARRY_TRY(quarry_get(call->key.bytes, &value));
  return value.some ? (reply->body = value.bytes, QUARRY_OK) : quarry_fail("not-found", "there is no such key");
}

static quarry_status query(const quarry_call *call, quarry_reply *reply) {
  if (IS("get")) return get(call, reply);
  if (IS("put")) return quarry_put(call->key.bytes, call->payload, NULL);
  if (IS("timer")) return quarry_timer_set("a", 1, call->payload);
  if (IS("notify")) return quarry_notify_when_durable(0, 1);
  return quarry_unknown_method(call);
}

static quarry_status call(const quarry_call *call, quarry_reply *reply) {
  quarry_seq seq;
  quarry_cursor *cursor;
  calls++;
  if (IS("calls")) return quarry_reply_text(reply, "%u of instance %u", calls, instances);
  if (IS("put")) return quarry_put(call->key.bytes, call->payload, NULL);
  if (IS("put-for")) return quarry_put_for(call->key.bytes, call->payload, 1000, NULL);
  if (IS("remove")) return quarry_remove(call->key.bytes, NULL);
  if (IS("merge")) return quarry_merge(call->key.bytes, call->payload, NULL);
  if (IS("scan") || IS("scan-back")) {
    QUARRY_TRY(quarry_scan_prefix(call->payload, IS("scan") ? QUARRY_ASCENDING : QUARRY_DESCENDING, &cursor));
    return listed(cursor, reply);
  }
  if (IS("range")) {
    quarry_range range = {{true, QUARRY_BYTES("b")}, {true, QUARRY_BYTES("d")}};
    QUARRY_TRY(quarry_scan(range, QUARRY_ASCENDING, &cursor));
    return listed(cursor, reply);
  }
  if (IS("many-open")) {
    for (int i = 0; i < 65; i++) QUARRY_TRY(quarry_scan_prefix(QUARRY_BYTES(""), QUARRY_ASCENDING, &cursor));
    return QUARRY_OK;
  }
  if (IS("snapshot")) {
    quarry_snapshot *snapshot;
    quarry_optional value;
    QUARRY_TRY(quarry_open_snapshot(&snapshot));
    QUARRY_TRY(quarry_put(call->key.bytes, call->payload, NULL));
    QUARRY_TRY(quarry_snapshot_get(snapshot, call->key.bytes, &value));
    reply->body = value.bytes;
    return QUARRY_OK;
  }
  if (IS("swap") || IS("conflict") || IS("give-up")) return quarry_transact(QUARRY_SERIALIZABLE, swapped, (void *)call);
  if (IS("write")) {
    quarry_op ops[] = {{QUARRY_PUT, QUARRY_BYTES("x"), call->payload, 0}, {QUARRY_REMOVE, QUARRY_BYTES("y"), QUARRY_BYTES(""), 0}, {QUARRY_PUT, call->key.bytes, call->payload, 0}};
    return quarry_write(ops, 3, NULL);
  }
  if (IS("notify")) {
    QUARRY_TRY(quarry_put(call->key.bytes, call->payload, &seq));
    return quarry_notify_when_durable(seq, call->payload.len);
  }
  if (IS("ahead")) return quarry_notify_when_durable(999, 1);
  if (IS("timer")) return quarry_timer_set("soon", 500, call->payload);
  if (IS("timer-durable")) return quarry_timer_set_durable("later", 2000, call->payload, NULL);
  if (IS("due")) {
    uint64_t due;
    bool found;
    QUARRY_TRY(quarry_timer_due("later", &due, &found));
    return found ? quarry_reply_text(reply, "%llu", (unsigned long long)due) : quarry_reply_text(reply, "none");
  }
  if (IS("ask")) return quarry_call_key(call->key.bytes, "hello", call->payload, &reply->body);
  if (IS("header")) {
    quarry_optional header = quarry_header("X-Who");
    reply->body = header.some ? header.bytes : QUARRY_BYTES("nobody");
    return QUARRY_OK;
  }
  if (IS("log")) return quarry_log(QUARRY_WARN, "half of %s", "\xe2\x82"), QUARRY_OK;
  if (IS("name")) return quarry_timer_set("\xff", 1, call->payload);
  if (IS("metric")) return quarry_metric_add("hits", NULL, 0, 2), QUARRY_OK;
  if (IS("applied")) return reply->when_applied = true, reply->content_type = QUARRY_BYTES("text/html"), QUARRY_OK;
  return query(call, reply);
}

static quarry_status start(void) {
  instances++;
  return quarry_equal(quarry_options(), QUARRY_BYTES("{\"broken\":true}")) ? quarry_fail("broken", "it is told not to start") : QUARRY_OK;
}

static void stop(quarry_bytes reason) { quarry_put(QUARRY_BYTES("stopped"), reason, NULL); }

static quarry_bytes validate(quarry_bytes options) {
  quarry_optional value;
  if (!quarry_is(quarry_get(QUARRY_BYTES("a"), &value), "closed")) return QUARRY_BYTES("a database is open");
  return options.len && options.ptr[0] == '{' ? QUARRY_BYTES("") : QUARRY_BYTES("options are an object");
}

static void durable(const uint64_t *tags, size_t count) {
  for (size_t i = 0; i < count; i++) quarry_put(quarry_printf("told/%zu", i), quarry_printf("%llu", (unsigned long long)tags[i]), NULL);
}

static quarry_status fire(quarry_bytes name, quarry_bytes payload, uint64_t due_ms) {
  QUARRY_TRY(quarry_put(quarry_printf("fired/%.*s", (int)name.len, (const char *)name.ptr), quarry_printf("%llu", (unsigned long long)due_ms), NULL));
  return quarry_equal(payload, QUARRY_BYTES("fail")) ? quarry_fail("not-yet", "once more") : QUARRY_OK;
}

QUARRY_EXPORT_CALL(call)
QUARRY_EXPORT_QUERY(query)
QUARRY_EXPORT_LIFECYCLE(start, stop)
QUARRY_EXPORT_OPTIONS(validate)
QUARRY_EXPORT_DURABLE(durable)
QUARRY_EXPORT_TIMER(fire)
