// The guest against a host in memory.
#include "testing/quarry_test.h"

#define NOTHING QUARRY_BYTES("")

static void counts_each_key(void) {
  quarry_test_begin("counts each key");
  QUARRY_EXPECT_TEXT(quarry_test_call("increment", "a", NOTHING), "1");
  QUARRY_EXPECT_TEXT(quarry_test_call("increment", "a", NOTHING), "2");
  QUARRY_EXPECT_TEXT(quarry_test_call("increment", "b", NOTHING), "1");
  QUARRY_EXPECT_TEXT(quarry_test_query("get", "a", NOTHING), "2");
}

static void a_crash_takes_what_is_not_durable(void) {
  quarry_test_begin("a crash takes what is not durable");
  quarry_test_call("increment", "a", NOTHING);
  quarry_test_make_durable();
  quarry_test_call("increment", "a", NOTHING);
  quarry_test_crash();
  QUARRY_EXPECT_TEXT(quarry_test_call("increment", "a", NOTHING), "2");
}

static void refuses_what_it_does_not_know(void) {
  quarry_test_begin("refuses what it does not know");
  QUARRY_EXPECT_ERROR(quarry_test_call("decrement", "a", NOTHING).error, "unknown-method");
  QUARRY_EXPECT_ERROR(quarry_test_call("increment", NULL, NOTHING).error, "missing-key");
}

int main(void) {
  counts_each_key();
  a_crash_takes_what_is_not_durable();
  refuses_what_it_does_not_know();
  return quarry_test_end();
}
