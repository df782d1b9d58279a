// What the macros of quarry_export.h run: arguments in, the handler, its result out, in the canonical ABI. Arguments lie in the
// handler's memory already, since the host took it there by `cabi_realloc`. A native program has none of it.
#include "internal.h"

#ifdef __wasm__

// A result as the host reads it: whether it is an error, and from the fifth byte on its bytes, its flag, or the error. Calls of an
// instance never overlap, and each result is read before the next call begins.
static struct {
  uint8_t is_error;
  union {
    struct {
      const uint8_t *ptr;
      size_t len;
    } bytes;
    uint8_t flag;
    struct {
      const uint8_t *code;
      size_t code_len;
      const uint8_t *message;
      size_t message_len;
      uint8_t retryable;
    } error;
  };
} result;
_Static_assert(sizeof result == 24, "the layout of result<list<u8>, error>");

static void *finish(quarry_status error) {
  result.is_error = error != QUARRY_OK;
  if (error) {
    quarry_bytes code = quarry_readable(error->code), message = quarry_readable(error->message);
    result.error.code = code.ptr;
    result.error.code_len = code.len;
    result.error.message = message.ptr;
    result.error.message_len = message.len;
    result.error.retryable = error->retryable;
  }
  quarry_db_end();
  return &result;
}

static void *finish_bytes(quarry_status error, quarry_bytes bytes) {
  result.bytes.ptr = bytes.ptr;
  result.bytes.len = bytes.len;
  return finish(error);
}

void quarry_end_(void *ended) {
  (void)ended;
  quarry_memory_end();
}

// The end of what gives no result.
static void end_all(void) {
  quarry_db_end();
  quarry_memory_end();
}

void *quarry_run_call_(quarry_handler handler, uint8_t *method, size_t method_len, int32_t has_key, uint8_t *key, size_t key_len,
                       uint8_t *payload, size_t payload_len) {
  quarry_call call = {
      .method = quarry_view(method, method_len),
      .key = {has_key != 0, has_key ? quarry_view(key, key_len) : quarry_view("", 0)},
      .payload = quarry_view(payload, payload_len),
  };
  quarry_reply reply = {0};
  quarry_status error = handler(&call, &reply);
  if (!error && reply.content_type.len) {
    quarry_wit_string_t text = quarry_to_string(quarry_readable(reply.content_type));
    quarry_shard_current_call_set_content_type(&text);
  }
  if (!error && reply.when_applied) quarry_shard_current_call_reply_when_applied();
  return finish_bytes(error, reply.body);
}

void *quarry_run_start_(quarry_start start) { return finish(start()); }

void quarry_run_stop_(quarry_stop stop, uint8_t *reason, size_t reason_len) {
  stop(quarry_view(reason, reason_len));
  end_all();
}

void *quarry_run_validate_(quarry_validate validate, uint8_t *options, size_t options_len) {
  quarry_bytes why = quarry_readable(validate(quarry_view(options, options_len)));
  void *area = finish_bytes(QUARRY_OK, why);
  result.is_error = why.len != 0;
  return area;
}

void quarry_run_durable_(quarry_durable durable, uint64_t *tags, size_t count) {
  durable(tags, count);
  end_all();
}

void *quarry_run_fire_(quarry_fire fire, uint8_t *name, size_t name_len, uint8_t *payload, size_t payload_len, uint64_t due_ms) {
  return finish(fire(quarry_view(name, name_len), quarry_view(payload, payload_len), due_ms));
}

void *quarry_run_suspend_(quarry_suspend suspend) {
  quarry_bytes state = quarry_view("", 0);
  quarry_status error = suspend(&state);
  return finish_bytes(error, state);
}

void *quarry_run_resume_(quarry_resume resume, uint64_t from_revision, uint8_t *state, size_t state_len) {
  return finish(resume(from_revision, quarry_view(state, state_len)));
}

void *quarry_run_migrate_(quarry_migrate migrate, uint64_t from_revision) {
  bool done = false;
  quarry_status error = migrate(from_revision, &done);
  result.flag = done;
  return finish(error);
}

#else
typedef int quarry_no_exports_;
#endif
