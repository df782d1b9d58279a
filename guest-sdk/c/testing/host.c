// The double of the host: what runs handlers, and all that they ask for beside the database.
#include <stdio.h>

#include "double.h"

enum { MAX_NAME = 256, MAX_PAYLOAD = 64 << 10, MAX_TIMERS = 10000, MAX_TAGS = 65536, MAX_REPLY = 16 << 20 };
enum { CALL_MS = 30000, RETRY_MS = 1000, RETRY_MAX_MS = 60000 };

typedef struct {
  bool is_set;
  quarry_bytes name;
  quarry_bytes payload;
  uint64_t due_ms;
  bool is_durable;
  unsigned failures;
} timer;
typedef struct {
  quarry_seq seq;
  uint64_t tag;
} tag;
typedef struct {
  quarry_bytes name;
  quarry_bytes value;
} pair;
typedef struct {
  const char *name;
  double value;
} metric;

quarry_double quarry_double_;
quarry_exports quarry_exports_;

// All of it but `fresh` is of one test.
static struct {
  const char *options;
  timer timers[MAX_TIMERS];
  timer durable_timers[MAX_TIMERS];
  tag tags[MAX_TAGS];
  size_t tag_count;
  pair headers[64];
  size_t header_count;
  quarry_bytes log;
  metric metrics[256];
  size_t metric_count;
  quarry_test_other answer;
  // Of the call in progress.
  bool in_call;
  quarry_bytes content_type;
  bool when_applied;
} test;
static void (*fresh)(void);

// ---------------------------------------------------------------------------------------------------------------------
// Handing over

quarry_wit_list_u8_t quarry_double_give(quarry_bytes bytes) {
  uint8_t *to = cabi_realloc(NULL, 0, 1, bytes.len);
  if (bytes.len) memcpy(to, bytes.ptr, bytes.len);
  return (quarry_wit_list_u8_t){to, bytes.len};
}

static quarry_wit_string_t give_text(quarry_bytes text) {
  quarry_wit_list_u8_t list = quarry_double_give(text);
  return (quarry_wit_string_t){list.ptr, list.len};
}

bool quarry_double_fail(quarry_shard_types_error_t *error, const char *code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  *error = (quarry_shard_types_error_t){give_text(quarry_text(code)), give_text(quarry_vprintf(format, args)), false};
  va_end(args);
  return false;
}

bool quarry_double_writable(quarry_shard_types_error_t *error) {
  if (quarry_double_.closed) return quarry_double_fail(error, "closed", "no database is open while options are checked");
  if (quarry_double_.read_only) return quarry_double_fail(error, "read-only", "a query cannot do this: make a call instead");
  return true;
}

static bool keep_error(quarry_status from, quarry_shard_types_error_t *to) {
  *to = (quarry_shard_types_error_t){give_text(from->code), give_text(from->message), from->retryable};
  return false;
}

// ---------------------------------------------------------------------------------------------------------------------
// Running handlers. What one made lasts until the next one begins: a test looks at it.

static void enter(void) {
  quarry_memory_end();
  test.in_call = true;
  test.content_type = QUARRY_BYTES("application/octet-stream");
  test.when_applied = false;
}

static quarry_status leave(quarry_status status) {
  quarry_db_end();
  test.in_call = false;
  return status;
}

static quarry_test_reply run(quarry_handler handler, const char *method, const char *key, quarry_bytes payload) {
  // The arguments may lie in memory of the reply before.
  quarry_bytes name = quarry_double_keep_bytes(quarry_text(method)), body = quarry_double_keep_bytes(payload);
  quarry_optional routing = {key != NULL, quarry_double_keep_bytes(quarry_text(key ? key : ""))};
  enter();
  quarry_reply reply = {0};
  quarry_call call = {name, routing, body};
  quarry_status error = leave(handler ? handler(&call, &reply) : quarry_fail("no-queries", "the guest has no queries: add QUARRY_EXPORT_QUERY"));
  if (!error && reply.body.len > MAX_REPLY) {
    error = quarry_fail("guest-reply-limit", "a reply of %zu bytes is over limits.reply (%d bytes)", reply.body.len, MAX_REPLY);
  }
  if (error) return (quarry_test_reply){error, quarry_view("", 0), quarry_view("", 0), false};
  quarry_bytes type = reply.content_type.len ? reply.content_type : test.content_type;
  return (quarry_test_reply){QUARRY_OK, reply.body, type, reply.when_applied || test.when_applied};
}

quarry_test_reply quarry_test_call(const char *method, const char *key, quarry_bytes payload) {
  if (!quarry_exports_.call) {
    fputs("the guest has no handler: add QUARRY_EXPORT_CALL(call) to it, and compile it with the test\n", stderr);
    exit(1);
  }
  return run(quarry_exports_.call, method, key, payload);
}

quarry_test_reply quarry_test_query(const char *method, const char *key, quarry_bytes payload) {
  quarry_double_.read_only = true;
  quarry_test_reply reply = run(quarry_exports_.query, method, key, payload);
  quarry_double_.read_only = false;
  return reply;
}

static quarry_status start(void) {
  if (fresh) fresh();
  enter();
  quarry_status status = quarry_exports_.start ? quarry_exports_.start() : QUARRY_OK;
  for (bool done = false; !status && quarry_exports_.migrate && !done;) status = quarry_exports_.migrate(0, &done);
  return leave(status);
}

void quarry_double_end(void) {
  quarry_db_end();
  quarry_memory_end();
  quarry_table_free(&quarry_double_.rows);
  quarry_table_free(&quarry_double_.durable_rows);
  quarry_double_forget();
}

quarry_status quarry_test_begin_with(const char *name, const char *options) {
  quarry_double_end();
  quarry_double_ = (quarry_double){.now_ms = QUARRY_TEST_FIRST_MS};
  memset(&test, 0, sizeof test);
  test.options = options;
  quarry_double_named(name);
  if (quarry_exports_.validate) {
    enter();
    quarry_double_.closed = true;
    quarry_bytes why = quarry_exports_.validate(quarry_text(options));
    quarry_double_.closed = false;
    leave(QUARRY_OK);
    if (why.len) return quarry_fail("invalid-options", "%.*s", (int)why.len, (const char *)why.ptr);
  }
  return start();
}

void quarry_test_begin(const char *name) {
  quarry_status status = quarry_test_begin_with(name, "{}");
  if (status) quarry_test_expect(__FILE__, __LINE__, false, (const char *)quarry_printf("the guest starts: %.*s%c", (int)status->message.len, (const char *)status->message.ptr, 0).ptr);
}

quarry_status quarry_test_restart(const char *reason) {
  quarry_test_make_durable();
  if (quarry_exports_.stop) {
    enter();
    quarry_exports_.stop(quarry_text(reason));
    leave(QUARRY_OK);
  }
  test.tag_count = 0;
  for (size_t i = 0; i < MAX_TIMERS; i++) test.timers[i].is_set = test.timers[i].is_set && test.timers[i].is_durable;
  return start();
}

quarry_status quarry_test_crash(void) {
  quarry_db_end();
  quarry_table_copy(&quarry_double_.rows, &quarry_double_.durable_rows);
  memcpy(test.timers, test.durable_timers, sizeof test.timers);
  test.tag_count = 0;
  // Numbers are not given out twice, as on a host, where another opening counts from a higher one.
  return start();
}

void quarry_test_on_fresh(void (*reset)(void)) { fresh = reset; }
void quarry_test_answer(quarry_test_other answer) { test.answer = answer; }
uint64_t quarry_test_now_ms(void) { return quarry_double_.now_ms; }
quarry_seq quarry_test_last_seq(void) { return quarry_double_.last_seq; }
quarry_seq quarry_test_durable_seq(void) { return quarry_double_.durable_seq; }

void quarry_test_set_header(const char *name, const char *value) {
  quarry_bytes bytes = quarry_double_keep_bytes(quarry_text(name));
  size_t at = 0;
  while (at < test.header_count && !quarry_equal(test.headers[at].name, bytes)) at++;
  if (at == sizeof test.headers / sizeof *test.headers) return;
  if (at == test.header_count) test.header_count++;
  test.headers[at] = (pair){value ? bytes : quarry_view("", 0), quarry_double_keep_bytes(quarry_text(value ? value : ""))};
}

// ---------------------------------------------------------------------------------------------------------------------
// Durability and timers

void quarry_test_make_durable(void) {
  quarry_double_.durable_seq = quarry_double_.last_seq;
  quarry_table_copy(&quarry_double_.durable_rows, &quarry_double_.rows);
  for (size_t i = 0; i < MAX_TIMERS; i++) {
    test.durable_timers[i] = test.timers[i];
    test.durable_timers[i].is_set = test.timers[i].is_set && test.timers[i].is_durable;
  }
  if (!test.tag_count) return;
  enter();
  uint64_t *tags = quarry_alloc(test.tag_count * sizeof *tags);
  size_t count = test.tag_count;
  for (size_t i = 0; i < count; i++) {
    // The lowest seq first; of one seq, the one that was asked for first.
    size_t lowest = 0;
    for (size_t j = 1; j < test.tag_count; j++) {
      if (test.tags[j].seq < test.tags[lowest].seq) lowest = j;
    }
    tags[i] = test.tags[lowest].tag;
    test.tag_count--;
    memmove(test.tags + lowest, test.tags + lowest + 1, (test.tag_count - lowest) * sizeof *test.tags);
  }
  if (quarry_exports_.durable) quarry_exports_.durable(tags, count);
  leave(QUARRY_OK);
}

quarry_seq quarry_shard_durability_durable_seq(void) { return quarry_double_.durable_seq; }

bool quarry_shard_durability_notify_when_durable(quarry_seq seq, uint64_t asked, quarry_shard_types_error_t *err) {
  if (!quarry_double_writable(err)) return false;
  if (!quarry_exports_.durable) return quarry_double_fail(err, "invalid-argument", "this guest has no `durable-events`: add QUARRY_EXPORT_DURABLE");
  if (seq > quarry_double_.last_seq) {
    return quarry_double_fail(err, "invalid-argument", "seq %llu was not given out yet; the newest write is %llu", (unsigned long long)seq, (unsigned long long)quarry_double_.last_seq);
  }
  if (test.tag_count == MAX_TAGS) return quarry_double_fail(err, "limit", "%d notifications are outstanding (limits.notifications)", MAX_TAGS);
  test.tags[test.tag_count++] = (tag){seq, asked};
  return true;
}

static timer *timer_of(quarry_bytes name) {
  for (size_t i = 0; i < MAX_TIMERS; i++) {
    if (test.timers[i].is_set && quarry_equal(test.timers[i].name, name)) return &test.timers[i];
  }
  return NULL;
}

static bool has_timers(quarry_shard_types_error_t *err) {
  return quarry_exports_.fire ? true : quarry_double_fail(err, "invalid-argument", "this guest has no `timer-events`: add QUARRY_EXPORT_TIMER");
}

static bool set(quarry_wit_string_t *name, uint64_t after_ms, quarry_wit_list_u8_t *payload, bool is_durable, quarry_shard_types_error_t *err) {
  if (!quarry_double_writable(err) || !has_timers(err)) return false;
  if (!name->len || name->len > MAX_NAME) {
    return quarry_double_fail(err, "invalid-argument", "the name of a timer has %zu bytes, and has to have 1 to %d", name->len, MAX_NAME);
  }
  if (payload->len > MAX_PAYLOAD) return quarry_double_fail(err, "invalid-argument", "the payload of a timer has %zu bytes, and may have %d", payload->len, MAX_PAYLOAD);
  timer *it = timer_of(quarry_from_string(*name));
  for (size_t i = 0; !it && i < MAX_TIMERS; i++) it = test.timers[i].is_set ? NULL : &test.timers[i];
  if (!it) return quarry_double_fail(err, "limit", "%d timers are set (limits.timers)", MAX_TIMERS);
  uint64_t now = quarry_double_.now_ms, due = after_ms > UINT64_MAX - now ? UINT64_MAX : now + after_ms;
  *it = (timer){true, quarry_double_keep_bytes(quarry_from_string(*name)), quarry_double_keep_bytes(quarry_from_list(*payload)), due, is_durable, 0};
  return true;
}

bool quarry_shard_timers_set(quarry_wit_string_t *name, uint64_t after_ms, quarry_wit_list_u8_t *payload, quarry_shard_types_error_t *err) {
  return set(name, after_ms, payload, false, err);
}

bool quarry_shard_timers_set_durable(quarry_wit_string_t *name, uint64_t after_ms, quarry_wit_list_u8_t *payload, quarry_seq *ret, quarry_shard_types_error_t *err) {
  if (!set(name, after_ms, payload, true, err)) return false;
  *ret = ++quarry_double_.last_seq;
  return true;
}

bool quarry_shard_timers_cancel(quarry_wit_string_t *name, bool *ret, quarry_shard_types_error_t *err) {
  if (!quarry_double_writable(err) || !has_timers(err)) return false;
  timer *it = timer_of(quarry_from_string(*name));
  *ret = it != NULL;
  if (it && it->is_durable) quarry_double_.last_seq++;
  if (it) it->is_set = false;
  return true;
}

bool quarry_shard_timers_due_ms(quarry_wit_string_t *name, quarry_wit_option_u64_t *ret, quarry_shard_types_error_t *err) {
  if (!has_timers(err)) return false;
  timer *it = timer_of(quarry_from_string(*name));
  *ret = (quarry_wit_option_u64_t){it != NULL, it ? it->due_ms : 0};
  return true;
}

// Fires a timer. A durable one that succeeded is gone, unless its handler set it anew.
static quarry_status fire(timer *it) {
  timer due = *it;
  if (!due.is_durable) it->is_set = false;
  enter();
  quarry_status status = leave(quarry_exports_.fire(due.name, due.payload, due.due_ms));
  bool is_same = due.is_durable && it->is_set && it->due_ms == due.due_ms && it->payload.ptr == due.payload.ptr;
  if (is_same && status) {
    uint64_t wait = due.failures < 6 ? (uint64_t)RETRY_MS << due.failures : RETRY_MAX_MS;
    it->due_ms = quarry_double_.now_ms + (wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS);
    it->failures++;
  } else if (is_same) {
    it->is_set = false;
    quarry_double_.last_seq++;
  }
  return status;
}

quarry_status quarry_test_advance(uint64_t milliseconds) {
  uint64_t until = quarry_double_.now_ms + milliseconds;
  quarry_error *first = NULL;
  while (quarry_exports_.fire) {
    timer *next = NULL;
    for (size_t i = 0; i < MAX_TIMERS; i++) {
      timer *it = &test.timers[i];
      if (it->is_set && it->due_ms <= until && (!next || it->due_ms < next->due_ms)) next = it;
    }
    if (!next) break;
    if (next->due_ms > quarry_double_.now_ms) quarry_double_.now_ms = next->due_ms;
    quarry_status status = fire(next);
    if (status && !first) {
      first = quarry_double_keep(sizeof *first);
      *first = (quarry_error){quarry_double_keep_bytes(status->code), quarry_double_keep_bytes(status->message), status->retryable};
    }
  }
  quarry_double_.now_ms = until;
  return first;
}

// ---------------------------------------------------------------------------------------------------------------------
// Where the guest runs, and the call in progress

void quarry_shard_shard_cluster(quarry_wit_string_t *ret) { *ret = give_text(QUARRY_BYTES("test")); }
void quarry_shard_shard_node(quarry_wit_string_t *ret) { *ret = give_text(QUARRY_BYTES("test-node")); }
void quarry_shard_shard_module(quarry_wit_string_t *ret) { *ret = give_text(QUARRY_BYTES("main")); }
void quarry_shard_shard_options(quarry_wit_string_t *ret) { *ret = give_text(quarry_text(test.options)); }
uint32_t quarry_shard_shard_number(void) { return 0; }
uint32_t quarry_shard_shard_count(void) { return 1; }
uint32_t quarry_shard_shard_shard_for(quarry_wit_list_u8_t *key) {
  (void)key;
  return 0;
}
uint64_t quarry_shard_shard_generation(void) { return 0; }
uint64_t quarry_shard_shard_revision(void) { return 1; }
uint64_t quarry_shard_shard_owned_for_ms(void) { return UINT64_MAX; }
quarry_shard_shard_shard_status_t quarry_shard_shard_status(void) { return QUARRY_RUNNING; }

bool quarry_shard_current_call_deadline_ms(uint64_t *ret) {
  *ret = CALL_MS;
  return test.in_call;
}

static uint8_t lower(uint8_t byte) { return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte + 'a' - 'A') : byte; }

bool quarry_shard_current_call_header(quarry_wit_string_t *name, quarry_wit_string_t *ret) {
  for (size_t i = 0; i < test.header_count; i++) {
    quarry_bytes known = test.headers[i].name;
    bool is_it = known.len == name->len && known.len;
    for (size_t at = 0; is_it && at < known.len; at++) is_it = lower(known.ptr[at]) == lower(name->ptr[at]);
    if (is_it) *ret = give_text(test.headers[i].value);
    if (is_it) return true;
  }
  return false;
}

bool quarry_shard_current_call_traceparent(quarry_wit_string_t *ret) {
  quarry_wit_string_t name = quarry_to_string(QUARRY_BYTES("traceparent"));
  return quarry_shard_current_call_header(&name, ret);
}

void quarry_shard_current_call_set_content_type(quarry_wit_string_t *media_type) { test.content_type = quarry_copy(quarry_from_string(*media_type)); }
void quarry_shard_current_call_reply_when_applied(void) { test.when_applied = true; }

// ---------------------------------------------------------------------------------------------------------------------
// Other shards, log and metrics

static bool ask(bool is_query, uint32_t shard, quarry_wit_string_t *method, quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *payload, quarry_wit_list_u8_t *ret, quarry_shard_types_error_t *err) {
  if (!is_query && !quarry_double_writable(err)) return false;
  if (!test.answer) return quarry_double_fail(err, "unreachable", "this host has no other shards: give it quarry_test_answer");
  quarry_optional at = {key != NULL, key ? quarry_from_list(*key) : quarry_view("", 0)};
  quarry_bytes reply = quarry_view("", 0);
  quarry_status status = test.answer(is_query, shard, at, quarry_from_string(*method), quarry_from_list(*payload), &reply);
  if (status) return keep_error(status, err);
  *ret = quarry_double_give(reply);
  return true;
}

bool quarry_shard_cluster_call(uint32_t shard, quarry_wit_string_t *method, quarry_wit_list_u8_t *maybe_key, quarry_wit_list_u8_t *payload, quarry_wit_list_u8_t *ret, quarry_shard_types_error_t *err) {
  return ask(false, shard, method, maybe_key, payload, ret, err);
}
bool quarry_shard_cluster_call_key(quarry_wit_list_u8_t *key, quarry_wit_string_t *method, quarry_wit_list_u8_t *payload, quarry_wit_list_u8_t *ret, quarry_shard_types_error_t *err) {
  return ask(false, 0, method, key, payload, ret, err);
}
bool quarry_shard_cluster_query(uint32_t shard, quarry_wit_string_t *method, quarry_wit_list_u8_t *maybe_key, quarry_wit_list_u8_t *payload, quarry_wit_list_u8_t *ret, quarry_shard_types_error_t *err) {
  return ask(true, shard, method, maybe_key, payload, ret, err);
}
bool quarry_shard_cluster_query_key(quarry_wit_list_u8_t *key, quarry_wit_string_t *method, quarry_wit_list_u8_t *payload, quarry_wit_list_u8_t *ret, quarry_shard_types_error_t *err) {
  return ask(true, 0, method, key, payload, ret, err);
}

bool quarry_shard_log_enabled(quarry_shard_log_level_t level) {
  (void)level;
  return true;
}

static void log_more(const char *before, const uint8_t *ptr, size_t len) {
  size_t more = strlen(before);
  uint8_t *made = quarry_double_keep(test.log.len + more + len);
  if (test.log.len) memcpy(made, test.log.ptr, test.log.len);
  memcpy(made + test.log.len, before, more);
  if (len) memcpy(made + test.log.len + more, ptr, len);
  test.log = quarry_view(made, test.log.len + more + len);
}

void quarry_shard_log_write(quarry_shard_log_level_t level, quarry_wit_string_t *message, quarry_wit_list_tuple2_string_string_t *fields) {
  (void)level;
  log_more("\n", message->ptr, message->len);
  for (size_t i = 0; i < fields->len; i++) {
    log_more(" ", fields->ptr[i].f0.ptr, fields->ptr[i].f0.len);
    log_more("=", fields->ptr[i].f1.ptr, fields->ptr[i].f1.len);
  }
}

bool quarry_test_logged(const char *text) {
  size_t len = strlen(text);
  for (size_t at = 0; at + len <= test.log.len; at++) {
    if (memcmp(test.log.ptr + at, text, len) == 0) return true;
  }
  return false;
}

static metric *metric_of(quarry_bytes name) {
  for (size_t i = 0; i < test.metric_count; i++) {
    if (quarry_equal(quarry_text(test.metrics[i].name), name)) return &test.metrics[i];
  }
  if (test.metric_count == sizeof test.metrics / sizeof *test.metrics) return NULL;
  char *text = memset(quarry_double_keep(name.len + 1), 0, name.len + 1);
  if (name.len) memcpy(text, name.ptr, name.len);
  test.metrics[test.metric_count] = (metric){text, 0};
  return &test.metrics[test.metric_count++];
}

static void measure(quarry_wit_string_t *name, double value, bool adds) {
  metric *it = metric_of(quarry_from_string(*name));
  if (it) it->value = adds ? it->value + value : value;
}

void quarry_shard_metrics_describe(quarry_wit_string_t *name, quarry_wit_string_t *help) {
  (void)name;
  (void)help;
}
void quarry_shard_metrics_add(quarry_wit_string_t *counter, quarry_wit_list_tuple2_string_string_t *labels, uint64_t by) {
  (void)labels;
  measure(counter, (double)by, true);
}
void quarry_shard_metrics_set(quarry_wit_string_t *gauge, quarry_wit_list_tuple2_string_string_t *labels, double value) {
  (void)labels;
  measure(gauge, value, false);
}
void quarry_shard_metrics_observe(quarry_wit_string_t *histogram, quarry_wit_list_tuple2_string_string_t *labels, double value) {
  (void)labels;
  measure(histogram, value, false);
}

double quarry_test_metric(const char *name) {
  for (size_t i = 0; i < test.metric_count; i++) {
    if (!strcmp(test.metrics[i].name, name)) return test.metrics[i].value;
  }
  return 0;
}
