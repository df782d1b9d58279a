// A host in memory, to test a guest as a native program: compile the guest, the SDK's `src/*.c` and `testing/*.c`, and a test with `main`.
//
//     #include "testing/quarry_test.h"
//
//     int main(void) {
//       quarry_test_begin("counts each key");
//       QUARRY_EXPECT_TEXT(quarry_test_call("increment", "a", QUARRY_BYTES("")), "1");
//       return quarry_test_end();
//     }
//
// It has one shard, and the limits and error codes of the host that handlers meet. The test drives what a host does by itself: time
// (`quarry_test_advance`) and durability (`quarry_test_make_durable`). There is one host a process. What a reply or an error points to lasts
// until the next function of these.
//
// Not as on a host: no merge operator, no other shards but what the test plays, and a transaction conflicts with any write since it began.
// A transaction does not grow old. The C library's own clock (`time`) is the machine's, and not the one that the test moves.
#ifndef QUARRY_TEST_H
#define QUARRY_TEST_H

#include "../quarry.h"

#ifdef __cplusplus
extern "C" {
#endif

// The host's clock when a test begins: 2026-01-01T00:00:00Z, in milliseconds since the Unix epoch.
#define QUARRY_TEST_FIRST_MS 1767225600000

// Begins a test with an empty shard, no options and no log, and starts the guest. A guest that does not start fails the test.
void quarry_test_begin(const char *name);
// The same with options, a JSON object. They are checked first (QUARRY_EXPORT_OPTIONS), and the reason is the error `invalid-options`.
quarry_status quarry_test_begin_with(const char *name, const char *options);
// What `main` returns: 0 when everything was as expected. Says on standard error how many expectations there were.
int quarry_test_end(void);

// A call's end: an error, or what it replied.
typedef struct {
  quarry_status error;
  quarry_bytes body;
  // `application/octet-stream` unless the guest set one.
  quarry_bytes content_type;
  bool when_applied;
} quarry_test_reply;
// Makes a call, or a query, which cannot write. `key` may be NULL: the caller named a shard.
quarry_test_reply quarry_test_call(const char *method, const char *key, quarry_bytes payload);
quarry_test_reply quarry_test_query(const char *method, const char *key, quarry_bytes payload);
// A header of the calls that follow, in this test. `value` may be NULL for none.
void quarry_test_set_header(const char *name, const char *value);

// Lets time pass: values expire, timers fire, each at its moment. Gives the first error of a timer; a durable one that fails is tried again
// after 1 s, doubled each time up to 60 s.
quarry_status quarry_test_advance(uint64_t milliseconds);
// Makes every write durable, and tells the guest of the tags that waited for that.
void quarry_test_make_durable(void);
// Stops the guest, with every write durable, and starts it again. `reason` is what its `stop` gets.
quarry_status quarry_test_restart(const char *reason);
// What a crash of the node does: no `stop`, the writes and timers that were not durable are gone, and the guest starts over the rest.
quarry_status quarry_test_crash(void);
// What puts the guest's static variables back to how a program begins with them. Runs wherever a host would make a fresh instance; without it they stay,
// as they are the test's own process. Holds until it is set again.
void quarry_test_on_fresh(void (*reset)(void));

// Plays the other shards. `key` is none where the guest named a shard only; `shard` is 0 where it named a key.
typedef quarry_status (*quarry_test_other)(bool is_query, uint32_t shard, quarry_optional key, quarry_bytes method, quarry_bytes payload, quarry_bytes *reply);
void quarry_test_answer(quarry_test_other answer);

// The time on the host's clock, the newest write, and the newest one that is durable.
uint64_t quarry_test_now_ms(void);
quarry_seq quarry_test_last_seq(void);
quarry_seq quarry_test_durable_seq(void);
// Whether a line of the log has this text in it.
bool quarry_test_logged(const char *text);
// The sum of a counter, or the last value of a gauge or a histogram, over all labels; 0 where there is none.
double quarry_test_metric(const char *name);

// What a test expects. What is not so is said with its line, and the test goes on.
#define QUARRY_EXPECT(condition) quarry_test_expect(__FILE__, __LINE__, (condition), #condition)
#define QUARRY_EXPECT_TEXT(reply, text) quarry_test_expect_text(__FILE__, __LINE__, (reply), (text))
#define QUARRY_EXPECT_ERROR(status, code) quarry_test_expect_error(__FILE__, __LINE__, (status), (code))
void quarry_test_expect(const char *file, int line, bool holds, const char *what);
void quarry_test_expect_text(const char *file, int line, quarry_test_reply reply, const char *text);
void quarry_test_expect_error(const char *file, int line, quarry_status status, const char *code);

#ifdef __cplusplus
}
#endif

#endif
