// The double of the host: what it keeps, gives back, refuses and forgets. `make -C guest-sdk/c/test`.
#include "testing/quarry_test.h"

#define NO QUARRY_BYTES("")
#define CALL(method, key, payload) quarry_test_call(method, key, quarry_text(payload))
#define FINE(method, key, payload) QUARRY_EXPECT(CALL(method, key, payload).error == QUARRY_OK)
#define FAILS(method, key, payload, code) QUARRY_EXPECT_ERROR(CALL(method, key, payload).error, code)
#define GIVES(method, key, payload, text) QUARRY_EXPECT_TEXT(CALL(method, key, payload), text)

void forget_all(void);

static void reads_and_writes(void) {
  quarry_test_begin("reads and writes");
  FINE("put", "b", "2");
  FINE("put", "a", "1");
  FINE("put", "c", "");
  FINE("put", "a", "one");
  GIVES("get", "a", "", "one");
  GIVES("get", "c", "", "");
  FAILS("get", "d", "", "not-found");
  GIVES("scan", NULL, "", "a=one b=2 c= ");
  GIVES("scan-back", NULL, "", "c= b=2 a=one ");
  GIVES("scan", NULL, "b", "b=2 ");
  GIVES("range", NULL, "", "b=2 c= ");
  FINE("remove", "b", "");
  FINE("write", "z", "w");
  GIVES("scan", NULL, "", "a=one c= x=w z=w ");
  QUARRY_EXPECT(quarry_test_last_seq() == 6);
  for (int i = 0; i < 5000; i++) CALL("put", (const char *)quarry_printf("many/%d%c", i * 7919 % 5000, 0).ptr, "v");
  quarry_test_reply all = CALL("scan", NULL, "many/");
  QUARRY_EXPECT(all.body.len > 5000 * 8);
}

static void what_is_refused(void) {
  quarry_test_begin("what is refused");
  FAILS("get", "", "", "invalid-key");
  FAILS("merge", "a", "1", "no-merge-operator");
  FAILS("ahead", NULL, "", "invalid-argument");
  FAILS("many-open", NULL, "", "limit");
  FAILS("name", NULL, "", "invalid-argument");
  FAILS("ask", "a", "", "unreachable");
  FAILS("no such method", NULL, "", "unknown-method");
  QUARRY_EXPECT_ERROR(quarry_test_query("put", "a", NO).error, "read-only");
  QUARRY_EXPECT_ERROR(quarry_test_query("timer", "a", NO).error, "read-only");
  QUARRY_EXPECT_ERROR(quarry_test_query("notify", "a", NO).error, "read-only");
  static char large[(16 << 20) + 2];
  memset(large, 'x', sizeof large - 1);
  QUARRY_EXPECT_ERROR(quarry_test_call("put", "a", quarry_view(large, sizeof large - 1)).error, "invalid-value");
  FAILS("get", (large[65536] = 0, large), "", "invalid-key");
  FAILS("get", "a", "", "not-found");
}

static void transactions_and_snapshots(void) {
  quarry_test_begin("transactions and snapshots");
  FINE("put", "a", "1");
  FINE("swap", "a", "2");
  GIVES("get", "a", "", "2");
  FAILS("give-up", "a", "3", "gave-up");
  FAILS("conflict", "a", "3", "conflict");
  GIVES("get", "a", "", "2");
  FAILS("swap", "b", "3", "no-such");
  GIVES("snapshot", "a", "4", "2");
  GIVES("get", "a", "", "4");
}

static void time_moves_when_the_test_says_so(void) {
  quarry_test_begin("time");
  FINE("put-for", "a", "1");
  QUARRY_EXPECT(quarry_test_advance(999) == QUARRY_OK);
  GIVES("get", "a", "", "1");
  QUARRY_EXPECT(quarry_test_advance(1) == QUARRY_OK);
  FAILS("get", "a", "", "not-found");
  GIVES("scan", NULL, "", "");
  QUARRY_EXPECT(quarry_test_now_ms() == QUARRY_TEST_FIRST_MS + 1000);

  FINE("timer", NULL, "");
  FINE("timer-durable", NULL, "fail");
  GIVES("due", NULL, "", "1767225603000");
  quarry_test_advance(500);
  GIVES("get", "fired/soon", "", "1767225601500");
  QUARRY_EXPECT_ERROR(quarry_test_advance(1500), "not-yet");
  GIVES("due", NULL, "", "1767225604000");
  QUARRY_EXPECT_ERROR(quarry_test_advance(1000), "not-yet");
  GIVES("due", NULL, "", "1767225606000");
  FINE("timer-durable", NULL, "");
  QUARRY_EXPECT(quarry_test_advance(2000) == QUARRY_OK);
  GIVES("due", NULL, "", "none");
}

static void what_a_crash_takes_and_leaves(void) {
  quarry_test_on_fresh(forget_all);
  quarry_test_begin("a crash");
  FINE("notify", "a", "1");
  FINE("notify", "b", "333");
  QUARRY_EXPECT(quarry_test_durable_seq() == 0);
  quarry_test_make_durable();
  GIVES("get", "told/0", "", "1");
  GIVES("get", "told/1", "", "3");
  FINE("notify", "c", "22");
  FINE("timer-durable", NULL, "");
  QUARRY_EXPECT(quarry_test_crash() == QUARRY_OK);
  GIVES("get", "a", "", "1");
  FAILS("get", "c", "", "not-found");
  GIVES("due", NULL, "", "none");
  quarry_test_make_durable();
  FAILS("get", "told/2", "", "not-found");

  FINE("timer", NULL, "");
  FINE("timer-durable", NULL, "");
  quarry_test_make_durable();
  QUARRY_EXPECT(quarry_test_crash() == QUARRY_OK);
  FINE("timer", NULL, "");
  QUARRY_EXPECT(quarry_test_restart("moving") == QUARRY_OK);
  QUARRY_EXPECT(quarry_test_advance(2000) == QUARRY_OK);
  FAILS("get", "fired/soon", "", "not-found");
  GIVES("get", "fired/later", "", "1767225602000");
  GIVES("get", "stopped", "", "moving");
  // As a fresh instance: begun at nothing, but for what the test's process keeps by its own wish.
  QUARRY_EXPECT(quarry_test_restart("again") == QUARRY_OK);
  quarry_test_reply calls = CALL("calls", NULL, "");
  QUARRY_EXPECT(!calls.error && calls.body.len > 2 && memcmp(calls.body.ptr, "1 of", 4) == 0);
  quarry_test_on_fresh(NULL);
}

static quarry_status other(bool is_query, uint32_t shard, quarry_optional key, quarry_bytes method, quarry_bytes payload, quarry_bytes *reply) {
  if (is_query || shard || !key.some || !quarry_equal(method, QUARRY_BYTES("hello"))) return quarry_fail("not-that", "another call");
  if (!payload.len) return quarry_fail_retryable("busy", "not now");
  *reply = quarry_printf("%.*s and %.*s", (int)key.bytes.len, (const char *)key.bytes.ptr, (int)payload.len, (const char *)payload.ptr);
  return QUARRY_OK;
}

static void the_rest(void) {
  quarry_test_begin("the rest");
  quarry_test_answer(other);
  GIVES("ask", "a", "b", "a and b");
  quarry_test_reply busy = CALL("ask", "a", "");
  QUARRY_EXPECT_ERROR(busy.error, "busy");
  QUARRY_EXPECT(busy.error && busy.error->retryable);
  GIVES("header", NULL, "", "nobody");
  quarry_test_set_header("x-who", "me");
  GIVES("header", NULL, "", "me");
  quarry_test_set_header("x-who", NULL);
  GIVES("header", NULL, "", "nobody");
  FINE("log", NULL, "");
  QUARRY_EXPECT(quarry_test_logged("half of \xef\xbf\xbd\xef\xbf\xbd") && !quarry_test_logged("half of it"));
  FINE("metric", NULL, "");
  FINE("metric", NULL, "");
  QUARRY_EXPECT(quarry_test_metric("hits") == 4 && quarry_test_metric("misses") == 0);
  quarry_test_reply applied = CALL("applied", NULL, "");
  QUARRY_EXPECT(applied.when_applied && quarry_equal(applied.content_type, QUARRY_BYTES("text/html")));
  QUARRY_EXPECT_ERROR(quarry_test_begin_with("options", "[]"), "invalid-options");
  QUARRY_EXPECT_ERROR(quarry_test_begin_with("options", "{\"broken\":true}"), "broken");
  QUARRY_EXPECT(quarry_test_begin_with("options", "{}") == QUARRY_OK);
}

int main(void) {
  reads_and_writes();
  what_is_refused();
  transactions_and_snapshots();
  time_moves_when_the_test_says_so();
  what_a_crash_takes_and_leaves();
  the_rest();
  return quarry_test_end();
}
