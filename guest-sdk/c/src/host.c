// The rest of what the host offers: errors, the call in progress, durability, timers, other shards, where this runs, log and metrics.
#include "internal.h"

// ---------------------------------------------------------------------------------------------------------------------
// Errors

quarry_status quarry_from_host(const quarry_shard_types_error_t *from) {
  quarry_error *error = quarry_alloc(sizeof *error);
  *error = (quarry_error){quarry_from_string(from->code), quarry_from_string(from->message), from->retryable};
  return error;
}

static quarry_status fail(const char *code, bool retryable, const char *format, va_list args) {
  quarry_error *error = quarry_alloc(sizeof *error);
  *error = (quarry_error){quarry_copy(quarry_text(code)), quarry_vprintf(format, args), retryable};
  return error;
}

quarry_status quarry_fail(const char *code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  quarry_status error = fail(code, false, format, args);
  va_end(args);
  return error;
}

quarry_status quarry_fail_retryable(const char *code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  quarry_status error = fail(code, true, format, args);
  va_end(args);
  return error;
}

static quarry_status result(bool ok, const quarry_shard_types_error_t *error) { return ok ? QUARRY_OK : quarry_from_host(error); }

// ---------------------------------------------------------------------------------------------------------------------
// The call in progress

quarry_status quarry_required_key(const quarry_call *call, quarry_bytes *key) {
  if (!call->key.some) {
    return quarry_fail("missing-key", "`%.*s` needs a key: call it with a key, not with a shard", (int)call->method.len,
                       (const char *)call->method.ptr);
  }
  *key = call->key.bytes;
  return QUARRY_OK;
}

quarry_status quarry_unknown_method(const quarry_call *call) {
  return quarry_fail("unknown-method", "there is no method `%.*s`", (int)call->method.len, (const char *)call->method.ptr);
}

quarry_status quarry_reply_text(quarry_reply *reply, const char *format, ...) {
  va_list args;
  va_start(args, format);
  reply->body = quarry_vprintf(format, args);
  va_end(args);
  reply->content_type = QUARRY_BYTES("text/plain; charset=utf-8");
  return QUARRY_OK;
}

bool quarry_time_left(uint64_t *milliseconds) {
  uint64_t got;
  if (!quarry_shard_current_call_deadline_ms(&got)) return false;
  *milliseconds = got;
  return true;
}

quarry_optional quarry_traceparent(void) {
  quarry_wit_string_t got;
  bool some = quarry_shard_current_call_traceparent(&got);
  return (quarry_optional){some, some ? quarry_from_string(got) : quarry_view("", 0)};
}

quarry_optional quarry_header(const char *name) {
  quarry_wit_string_t text, got;
  // A name that no header has.
  if (quarry_name("a header's name", name, &text)) return (quarry_optional){false, quarry_view("", 0)};
  bool some = quarry_shard_current_call_header(&text, &got);
  return (quarry_optional){some, some ? quarry_from_string(got) : quarry_view("", 0)};
}

// ---------------------------------------------------------------------------------------------------------------------
// Durability and timers

quarry_seq quarry_durable_seq(void) { return quarry_shard_durability_durable_seq(); }

quarry_status quarry_notify_when_durable(quarry_seq seq, uint64_t tag) {
  quarry_shard_types_error_t error;
  return result(quarry_shard_durability_notify_when_durable(seq, tag, &error), &error);
}

quarry_status quarry_timer_set(const char *name, uint64_t after_ms, quarry_bytes payload) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a timer's name", name, &text));
  quarry_wit_list_u8_t bytes = quarry_to_list(payload);
  quarry_shard_types_error_t error;
  return result(quarry_shard_timers_set(&text, after_ms, &bytes, &error), &error);
}

quarry_status quarry_timer_set_durable(const char *name, uint64_t after_ms, quarry_bytes payload, quarry_seq *seq) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a timer's name", name, &text));
  quarry_wit_list_u8_t bytes = quarry_to_list(payload);
  quarry_seq got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_timers_set_durable(&text, after_ms, &bytes, &got, &error);
  if (ok && seq) *seq = got;
  return result(ok, &error);
}

quarry_status quarry_timer_cancel(const char *name, bool *existed) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a timer's name", name, &text));
  bool got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_timers_cancel(&text, &got, &error);
  if (ok && existed) *existed = got;
  return result(ok, &error);
}

quarry_status quarry_timer_due(const char *name, uint64_t *due_ms, bool *found) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a timer's name", name, &text));
  quarry_wit_option_u64_t got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_timers_due_ms(&text, &got, &error);
  if (ok) {
    *found = got.is_some;
    if (got.is_some) *due_ms = got.val;
  }
  return result(ok, &error);
}

// ---------------------------------------------------------------------------------------------------------------------
// Other shards

static quarry_status answered(bool ok, const quarry_wit_list_u8_t *got, const quarry_shard_types_error_t *error, quarry_bytes *reply) {
  if (ok) *reply = quarry_from_list(*got);
  return result(ok, error);
}

quarry_status quarry_call_shard(uint32_t shard, const char *method, const quarry_bytes *key, quarry_bytes payload, quarry_bytes *reply) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a method", method, &text));
  quarry_wit_list_u8_t list = key ? quarry_to_list(*key) : (quarry_wit_list_u8_t){0}, bytes = quarry_to_list(payload), got;
  quarry_shard_types_error_t error;
  return answered(quarry_shard_cluster_call(shard, &text, key ? &list : NULL, &bytes, &got, &error), &got, &error, reply);
}

quarry_status quarry_call_key(quarry_bytes key, const char *method, quarry_bytes payload, quarry_bytes *reply) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a method", method, &text));
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(payload), got;
  quarry_shard_types_error_t error;
  return answered(quarry_shard_cluster_call_key(&list, &text, &bytes, &got, &error), &got, &error, reply);
}

quarry_status quarry_query_shard(uint32_t shard, const char *method, const quarry_bytes *key, quarry_bytes payload, quarry_bytes *reply) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a method", method, &text));
  quarry_wit_list_u8_t list = key ? quarry_to_list(*key) : (quarry_wit_list_u8_t){0}, bytes = quarry_to_list(payload), got;
  quarry_shard_types_error_t error;
  return answered(quarry_shard_cluster_query(shard, &text, key ? &list : NULL, &bytes, &got, &error), &got, &error, reply);
}

quarry_status quarry_query_key(quarry_bytes key, const char *method, quarry_bytes payload, quarry_bytes *reply) {
  quarry_wit_string_t text;
  QUARRY_TRY(quarry_name("a method", method, &text));
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(payload), got;
  quarry_shard_types_error_t error;
  return answered(quarry_shard_cluster_query_key(&list, &text, &bytes, &got, &error), &got, &error, reply);
}

// ---------------------------------------------------------------------------------------------------------------------
// Where this runs

static quarry_bytes told(void (*ask)(quarry_wit_string_t *)) {
  quarry_wit_string_t text;
  ask(&text);
  return quarry_from_string(text);
}

quarry_bytes quarry_cluster_name(void) { return told(quarry_shard_shard_cluster); }
quarry_bytes quarry_node_name(void) { return told(quarry_shard_shard_node); }
quarry_bytes quarry_module_name(void) { return told(quarry_shard_shard_module); }
quarry_bytes quarry_options(void) { return told(quarry_shard_shard_options); }
uint32_t quarry_shard_number(void) { return quarry_shard_shard_number(); }
uint32_t quarry_shard_count(void) { return quarry_shard_shard_count(); }
uint64_t quarry_generation(void) { return quarry_shard_shard_generation(); }
uint64_t quarry_revision(void) { return quarry_shard_shard_revision(); }
uint64_t quarry_owned_for_ms(void) { return quarry_shard_shard_owned_for_ms(); }
quarry_shard_status quarry_status_of_shard(void) { return (quarry_shard_status)quarry_shard_shard_status(); }
uint32_t quarry_shard_for(quarry_bytes key) {
  quarry_wit_list_u8_t list = quarry_to_list(key);
  return quarry_shard_shard_shard_for(&list);
}

// ---------------------------------------------------------------------------------------------------------------------
// Log and metrics

// Text of a program's own that is no reason to fail.
static quarry_wit_string_t readable(const char *text) { return quarry_to_string(quarry_readable(quarry_text(text ? text : ""))); }

// Any other value would end the instance.
static quarry_shard_log_level_t known_level(quarry_level level) {
  return (quarry_shard_log_level_t)((unsigned)level > QUARRY_ERROR ? QUARRY_ERROR : level);
}

static quarry_wit_list_tuple2_string_string_t pairs(const quarry_field *fields, size_t count) {
  quarry_wit_tuple2_string_string_t *list = quarry_alloc(count * sizeof *list);
  for (size_t i = 0; i < count; i++) {
    list[i].f0 = readable(fields[i].name);
    list[i].f1 = quarry_to_string(quarry_readable(fields[i].value));
  }
  return (quarry_wit_list_tuple2_string_string_t){list, count};
}

bool quarry_log_enabled(quarry_level level) { return quarry_shard_log_enabled(known_level(level)); }

void quarry_log(quarry_level level, const char *format, ...) {
  if (!quarry_log_enabled(level)) return;
  va_list args;
  va_start(args, format);
  quarry_bytes message = quarry_vprintf(format, args);
  va_end(args);
  quarry_log_fields(level, message, NULL, 0);
}

void quarry_log_fields(quarry_level level, quarry_bytes message, const quarry_field *fields, size_t count) {
  if (!quarry_log_enabled(level)) return;
  quarry_wit_string_t text = quarry_to_string(quarry_readable(message));
  quarry_wit_list_tuple2_string_string_t list = pairs(fields, count);
  quarry_shard_log_write(known_level(level), &text, &list);
}

void quarry_metric_describe(const char *name, const char *help) {
  quarry_wit_string_t text = readable(name), about = readable(help);
  quarry_shard_metrics_describe(&text, &about);
}

void quarry_metric_add(const char *counter, const quarry_field *labels, size_t count, uint64_t by) {
  quarry_wit_string_t text = readable(counter);
  quarry_wit_list_tuple2_string_string_t list = pairs(labels, count);
  quarry_shard_metrics_add(&text, &list, by);
}

void quarry_metric_set(const char *gauge, const quarry_field *labels, size_t count, double value) {
  quarry_wit_string_t text = readable(gauge);
  quarry_wit_list_tuple2_string_string_t list = pairs(labels, count);
  quarry_shard_metrics_set(&text, &list, value);
}

void quarry_metric_observe(const char *histogram, const quarry_field *labels, size_t count, double value) {
  quarry_wit_string_t text = readable(histogram);
  quarry_wit_list_tuple2_string_string_t list = pairs(labels, count);
  quarry_shard_metrics_observe(&text, &list, value);
}
