// What a test expects, and how it ended.
#include <stdio.h>

#include "double.h"

static unsigned expected, failed;
static const char *running = "";

void quarry_double_named(const char *name) { running = name; }

void quarry_test_expect(const char *file, int line, bool holds, const char *what) {
  expected++;
  if (holds) return;
  failed++;
  fprintf(stderr, "%s:%d: %s: not so: %s\n", file, line, running, what);
}

void quarry_test_expect_text(const char *file, int line, quarry_test_reply reply, const char *text) {
  expected++;
  if (!reply.error && quarry_equal(reply.body, quarry_text(text))) return;
  failed++;
  const quarry_bytes code = reply.error ? reply.error->code : quarry_view("", 0), seen = reply.error ? reply.error->message : reply.body;
  fprintf(stderr, "%s:%d: %s: not \"%s\" but %s%.*s \"%.*s\"\n", file, line, running, text, reply.error ? "the error " : "", (int)code.len,
          (const char *)code.ptr, (int)seen.len, (const char *)seen.ptr);
}

void quarry_test_expect_error(const char *file, int line, quarry_status status, const char *code) {
  expected++;
  if (quarry_is(status, code)) return;
  failed++;
  fprintf(stderr, "%s:%d: %s: not the error %s but %.*s\n", file, line, running, code, status ? (int)status->code.len : 4,
          status ? (const char *)status->code.ptr : "none");
}

int quarry_test_end(void) {
  quarry_double_end();
  fprintf(stderr, "%u of %u expectations hold\n", expected - failed, expected);
  return failed || !expected;
}
