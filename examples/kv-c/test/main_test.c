// The service against a host in memory.
#include "testing/quarry_test.h"

#define CALL(method, key, payload) quarry_test_call(method, key, quarry_text(payload))

static void stores_reads_and_deletes(void) {
  quarry_test_begin("stores, reads and deletes");
  QUARRY_EXPECT_TEXT(CALL("put", "fruit/apple", "green"), "1");
  QUARRY_EXPECT_TEXT(CALL("get", "fruit/apple", ""), "green");
  QUARRY_EXPECT_TEXT(quarry_test_query("get", "fruit/apple", QUARRY_BYTES("")), "green");
  QUARRY_EXPECT_TEXT(CALL("delete", "fruit/apple", ""), "2");
  QUARRY_EXPECT_ERROR(CALL("get", "fruit/apple", "").error, "not-found");
}

static void scans_what_is_asked_for(void) {
  quarry_test_begin("scans what is asked for");
  CALL("put", "fruit/apple", "green");
  CALL("put", "fruit/\"pear\"", "a\nb");
  CALL("put", "nut", "brown");
  static const struct {
    const char *request, *lines;
  } rows[] = {
      {"{\"prefix\":\"fruit/\",\"limit\":1}", "{\"key\":\"fruit/\\\"pear\\\"\",\"value\":\"a\\nb\"}\n"},
      {"{\"prefix\":\"fruit/a\"}", "{\"key\":\"fruit/apple\",\"value\":\"green\"}\n"},
      {"{\"start\":\"g\"}", "{\"key\":\"nut\",\"value\":\"brown\"}\n"},
      {"{\"reverse\":true,\"limit\":1}", "{\"key\":\"nut\",\"value\":\"brown\"}\n"},
      {"{\"start\":\"z\"}", ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) QUARRY_EXPECT_TEXT(CALL("scan", "x", rows[i].request), rows[i].lines);
}

static void says_what_is_wrong(void) {
  quarry_test_begin("says what is wrong");
  static const char *bad[] = {"[", "{\"prefix\":1}", "{\"limit\":0}", "{\"limit\":-1}", "{\"limit\":100001}", "{\"nothing\":1}", "{\"prefix\":\"\\ud800\"}", "\xff", "{} more"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) QUARRY_EXPECT_ERROR(CALL("scan", "x", bad[i]).error, "invalid-payload");
  QUARRY_EXPECT_ERROR(CALL("put", NULL, "a").error, "missing-key");
  QUARRY_EXPECT_ERROR(CALL("rename", "a", "").error, "unknown-method");
  QUARRY_EXPECT_ERROR(quarry_test_query("put", "a", QUARRY_BYTES("")).error, "unknown-method");
}

int main(void) {
  stores_reads_and_deletes();
  scans_what_is_asked_for();
  says_what_is_wrong();
  return quarry_test_end();
}
