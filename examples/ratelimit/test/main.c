// The limiter against a host in memory.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "host.h"
#include "limiter.h"
#include "rules.h"

static int failures;

static void expect(int line, const char *seen, const char *wanted) {
  if (strcmp(seen, wanted) == 0) return;
  fprintf(stderr, "line %d: %s\n     not %s\n", line, seen, wanted);
  failures++;
}
#define EXPECT(seen, wanted) expect(__LINE__, seen, wanted)
#define EXPECT_TRUE(fact) expect(__LINE__, (fact) ? "true" : #fact, "true")

static void takes_until_the_bucket_is_empty(void) {
  host_begin("{\"*\":\"3/3s\"}");
  EXPECT(host_call("take", "ann", ""), "{\"allowed\":true,\"remaining\":2,\"retry_after_ms\":0}");
  EXPECT_TRUE(host_was_applied());
  EXPECT(host_call("take", "ann", "2"), "{\"allowed\":true,\"remaining\":0,\"retry_after_ms\":0}");
  EXPECT(host_call("take", "ann", ""), "{\"allowed\":false,\"remaining\":0,\"retry_after_ms\":1000}");
  EXPECT(host_call("take", "bob", "3"), "{\"allowed\":true,\"remaining\":0,\"retry_after_ms\":0}");
  // All or none.
  host_advance(1999);
  EXPECT(host_call("take", "ann", "2"), "{\"allowed\":false,\"remaining\":1,\"retry_after_ms\":1}");
  host_advance(1);
  EXPECT(host_query("peek", "ann", "2"), "{\"allowed\":true,\"remaining\":2,\"retry_after_ms\":0}");
  EXPECT(host_call("take", "ann", "2"), "{\"allowed\":true,\"remaining\":0,\"retry_after_ms\":0}");
}

static void a_full_bucket_is_not_stored(void) {
  host_begin("{\"*\":\"3/3s\"}");
  host_call("take", "ann", "3");
  EXPECT_TRUE(host_live() == 2);
  host_advance(2999);
  EXPECT_TRUE(host_live() == 2);
  host_advance(1);
  EXPECT_TRUE(host_live() == 1);
  EXPECT(host_query("peek", "ann", "3"), "{\"allowed\":true,\"remaining\":3,\"retry_after_ms\":0}");
}

static void totals_are_sums(void) {
  host_begin("{\"*\":\"3/3s\"}");
  const char *payloads[] = {"", "2", "1", "3"};
  for (size_t i = 0; i < 4; i++) host_call("take", "ann", payloads[i]);
  EXPECT(host_query("totals", "ann", ""), "{\"allowed\":3,\"refused\":4}");
  host_advance(1000000);
  EXPECT(host_call("totals", "ann", ""), "{\"allowed\":3,\"refused\":4}");
  EXPECT(host_query("totals", "bob", ""), "{\"allowed\":0,\"refused\":0}");
  host_call("take", "ann", "3");
  EXPECT(host_call("forget", "ann", ""), "");
  EXPECT_TRUE(host_live() == 0);
  EXPECT(host_query("peek", "ann", "3"), "{\"allowed\":true,\"remaining\":3,\"retry_after_ms\":0}");
}

static void the_best_pattern_counts(void) {
  host_begin("{ \"*\" : \"1/1s\" , \"pro:*\":\"20/1m\", \"pro:a*\":\"300/2h\",\"pro:ann\":\"4000/1ms\" }");
  static const struct {
    const char *key;
    uint64_t limit, interval_ns;
  } cases[] = {{"bob", 1, 1000000000}, {"pro:", 20, 3000000000}, {"pro:bob", 20, 3000000000}, {"pro:al", 300, 24000000000}, {"pro:ann", 4000, 250}, {"pro:anna", 300, 24000000000}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bucket_rule rule = {0};
    bool found;
    quarry_bytes wrong = rules_find(quarry_options(), quarry_text(cases[i].key), &rule, &found);
    if (wrong.len || !found || rule.limit != cases[i].limit || rule.interval_ns != cases[i].interval_ns) {
      fprintf(stderr, "%s: %llu, %llu ns\n", cases[i].key, (unsigned long long)rule.limit, (unsigned long long)rule.interval_ns);
      failures++;
    }
  }
  host_begin("{}");
  EXPECT(host_call("take", "ann", "10"), "{\"allowed\":true,\"remaining\":0,\"retry_after_ms\":0}");
  EXPECT(host_query("peek", "ann", ""), "{\"allowed\":false,\"remaining\":0,\"retry_after_ms\":100}");
  host_begin("{\"pro:*\":\"1/1s\"}");
  EXPECT(host_call("take", "ann", ""), "! no-rule");
}

static void options_are_checked(void) {
  static const char *const wrong[] = {
      "[]", "", "{\"*\":10}", "{\"*\":\"\"}", "{\"*\":\"10\"}", "{\"*\":\"0/1s\"}", "{\"*\":\"1000001/1s\"}", "{\"*\":\"10/s\"}", "{\"*\":\"10/0s\"}",
      "{\"*\":\"10/25h\"}", "{\"*\":\"10/1d\"}", "{\"*\":\"10/1s \"}", "{\"*\":\"-1/1s\"}", "{\"*\":\"99999999999999999999/1s\"}", "{\"a\\u002a\":\"10/1s\"}",
      "{\"*\":\"10/1s\"", "{\"*\":\"10/1s\",}", "{\"*\":\"10/1s\",\"a\":{}}", "{\"*\":\"10/1s"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    host_begin(wrong[i]);
    if (!limiter_validate(quarry_text(wrong[i])).len) fprintf(stderr, "%s was taken\n", wrong[i]), failures++;
    EXPECT(host_call("take", "ann", ""), "! invalid-options");
  }
  EXPECT_TRUE(!limiter_validate(quarry_text("{\"*\":\"1000000/24h\",\"a\":\"1/1ms\"}")).len);
}

static void what_is_refused_is_named(void) {
  static char long_key[1026];
  memset(long_key, 'k', 1025);
  static const struct {
    const char *method, *key, *payload, *code;
  } cases[] = {{"take", NULL, "", "! missing-key"},        {"take", "ann", "0", "! invalid-payload"},  {"take", "ann", "4", "! invalid-payload"},
               {"take", "ann", "1x", "! invalid-payload"}, {"take", "ann", "-1", "! invalid-payload"}, {"take", "ann", "18446744073709551617", "! invalid-payload"},
               {"take", long_key, "", "! key-too-long"},   {"give", "ann", "", "! unknown-method"}};
  host_begin("{\"*\":\"3/3s\"}");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) EXPECT(host_call(cases[i].method, cases[i].key, cases[i].payload), cases[i].code);
  EXPECT_TRUE(host_live() == 0);
  EXPECT(host_query("take", "ann", ""), "! unknown-method");
}

// Whoever takes, whenever, never gets more in any stretch of time than the rule says; nor less, when all is asked for.
static void no_stretch_of_time_gives_too_much(void) {
  enum { STEPS = 2000 };
  static uint64_t at[STEPS], taken[STEPS];
  unsigned seed = (unsigned)time(NULL);
  srand(seed);
  for (int round = 0; round < 20; round++) {
    bucket_rule rule = {1 + (uint64_t)rand() % 20, 1 + (uint64_t)rand() % 1000};
    uint64_t now = 1000000, full_at = 0, sum = 0;
    for (int i = 0; i < STEPS; i++) {
      now += (uint64_t)rand() % (2 * rule.interval_ns);
      uint64_t tokens = 1 + (uint64_t)rand() % rule.limit;
      bucket_taken got = bucket_take(rule, full_at, now, tokens);
      if (got.allowed) full_at = got.full_at_ns;
      // What was refused is there after the time that was said, and not before.
      uint64_t later = now + got.retry_after_ns;
      if (!got.allowed && (!bucket_take(rule, full_at, later, tokens).allowed || bucket_take(rule, full_at, later - 1, tokens).allowed)) {
        fprintf(stderr, "seed %u: %llu tokens at %llu are not there at %llu\n", seed, (unsigned long long)tokens, (unsigned long long)now,
                (unsigned long long)later);
        failures++;
        return;
      }
      at[i] = now;
      sum += got.allowed ? tokens : 0;
      taken[i] = sum;
    }
    for (int from = 0; from < STEPS; from += 7) {
      for (int to = from; to < STEPS; to += 11) {
        uint64_t in = taken[to] - (from ? taken[from - 1] : 0);
        if (in > rule.limit + (at[to] - at[from]) / rule.interval_ns) {
          fprintf(stderr, "seed %u: %llu from %d to %d\n", seed, (unsigned long long)in, from, to);
          failures++;
          return;
        }
      }
    }
  }
}

static void a_clock_that_goes_back_empties_no_more_than_a_bucket(void) {
  bucket_rule rule = {5, 100};
  uint64_t full_at = bucket_take(rule, 0, 1000000, 5).full_at_ns;
  bucket_taken early = bucket_take(rule, full_at, 10, 1);
  EXPECT_TRUE(!early.allowed && early.retry_after_ns == 100 && early.remaining == 0);
}

int main(void) {
  takes_until_the_bucket_is_empty();
  a_full_bucket_is_not_stored();
  totals_are_sums();
  the_best_pattern_counts();
  options_are_checked();
  what_is_refused_is_named();
  no_stretch_of_time_gives_too_much();
  a_clock_that_goes_back_empties_no_more_than_a_bucket();
  host_begin("");
  puts(failures ? "FAILED" : "all is well");
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
