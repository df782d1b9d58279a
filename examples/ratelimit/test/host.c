#include "host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "limiter.h"

enum { KEYS = 64, ARENA = 1 << 16 };

static struct {
  quarry_bytes key, value;
  uint64_t expires_ms;
} rows[KEYS];
static size_t row_count;
static const char *set_options;
static uint64_t now_ms;
static bool is_query, was_applied;
// Memory of the handler that runs.
static _Alignas(8) uint8_t arena[ARENA];
static size_t arena_used;

static quarry_bytes kept(quarry_bytes bytes) {
  uint8_t *copy = malloc(bytes.len + 1);
  if (bytes.len) memcpy(copy, bytes.ptr, bytes.len);
  return quarry_view(copy, bytes.len);
}

static void drop(size_t row) {
  free((void *)rows[row].key.ptr);
  free((void *)rows[row].value.ptr);
  rows[row] = rows[--row_count];
}

static size_t row_of(quarry_bytes key) {
  for (size_t row = 0; row < row_count; row++) {
    if (!quarry_equal(rows[row].key, key)) continue;
    if (rows[row].expires_ms > now_ms) return row;
    drop(row);
    break;
  }
  return KEYS;
}

void host_begin(const char *options) {
  while (row_count) drop(0);
  set_options = options;
  now_ms = UINT64_C(1700000000000);
}

void host_advance(uint64_t ms) { now_ms += ms; }

size_t host_live(void) {
  size_t live = 0;
  for (size_t row = 0; row < row_count; row++) live += rows[row].expires_ms > now_ms;
  return live;
}

bool host_was_applied(void) { return was_applied; }

static const char *run(quarry_handler handler, const char *method, const char *key, const char *payload) {
  static char shown[1024];
  arena_used = 0;
  quarry_call call = {quarry_text(method), {key != NULL, quarry_text(key ? key : "")}, quarry_text(payload)};
  quarry_reply reply = {0};
  quarry_status failed = handler(&call, &reply);
  quarry_bytes text = failed ? failed->code : reply.body;
  snprintf(shown, sizeof shown, "%s%.*s", failed ? "! " : "", (int)text.len, (const char *)text.ptr);
  was_applied = reply.when_applied;
  return shown;
}

const char *host_call(const char *method, const char *key, const char *payload) { return run(limiter_call, method, key, payload); }

const char *host_query(const char *method, const char *key, const char *payload) {
  is_query = true;
  const char *shown = run(limiter_query, method, key, payload);
  is_query = false;
  return shown;
}

// What the limiter uses of quarry.h.

// In place of the C library's.
int timespec_get(struct timespec *at, int base) {
  at->tv_sec = (time_t)(now_ms / 1000);
  at->tv_nsec = (long)(now_ms % 1000 * 1000000);
  return base;
}

void *quarry_alloc(size_t len) {
  size_t at = (arena_used + 7) & ~(size_t)7;
  if (at + len > ARENA) abort();
  arena_used = at + len;
  return arena + at;
}

static quarry_bytes printed(const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int len = vsnprintf(NULL, 0, format, again);
  va_end(again);
  char *at = quarry_alloc((size_t)len + 1);
  vsnprintf(at, (size_t)len + 1, format, args);
  return quarry_view(at, (size_t)len);
}

quarry_bytes quarry_printf(const char *format, ...) {
  va_list args;
  va_start(args, format);
  quarry_bytes text = printed(format, args);
  va_end(args);
  return text;
}

quarry_status quarry_fail(const char *code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  quarry_error *error = quarry_alloc(sizeof *error);
  *error = (quarry_error){quarry_text(code), printed(format, args), false};
  va_end(args);
  return error;
}

quarry_status quarry_required_key(const quarry_call *call, quarry_bytes *key) {
  if (!call->key.some) return quarry_fail("missing-key", "no key");
  *key = call->key.bytes;
  return QUARRY_OK;
}

quarry_status quarry_unknown_method(const quarry_call *call) { return quarry_fail("unknown-method", "%.*s", (int)call->method.len, (const char *)call->method.ptr); }

quarry_bytes quarry_options(void) { return quarry_text(set_options); }

quarry_status quarry_get(quarry_bytes key, quarry_optional *value) {
  size_t row = row_of(key);
  *value = (quarry_optional){row < KEYS, row < KEYS ? rows[row].value : quarry_view("", 0)};
  return QUARRY_OK;
}

quarry_status quarry_write(const quarry_op *ops, size_t count, quarry_seq *seq) {
  if (is_query) return quarry_fail("read-only", "a query cannot write");
  for (size_t i = 0; i < count; i++) {
    size_t row = row_of(ops[i].key);
    uint64_t sum = 0, operand = 0;
    quarry_bytes value = ops[i].value;
    if (ops[i].kind == QUARRY_MERGE) {
      if (value.len != sizeof operand) abort();
      if (row < KEYS) memcpy(&sum, rows[row].value.ptr, sizeof sum);
      memcpy(&operand, value.ptr, sizeof operand);
      sum += operand;
      value = quarry_view(&sum, sizeof sum);
    }
    quarry_bytes fresh = kept(value);
    if (row < KEYS) drop(row);
    if (ops[i].kind == QUARRY_REMOVE) {
      free((void *)fresh.ptr);
      continue;
    }
    if (row_count == KEYS) abort();
    rows[row_count].key = kept(ops[i].key);
    rows[row_count].value = fresh;
    rows[row_count++].expires_ms = ops[i].ttl_ms ? now_ms + ops[i].ttl_ms : UINT64_MAX;
  }
  if (seq) *seq = 1;
  return QUARRY_OK;
}

quarry_status quarry_merge(quarry_bytes key, quarry_bytes operand, quarry_seq *seq) {
  return quarry_write(&(quarry_op){QUARRY_MERGE, key, operand, 0}, 1, seq);
}
