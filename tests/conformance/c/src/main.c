// The guest of the conformance kit in C: what ../../README.md says, on the guest SDK.
#include "script.h"
#include "state.h"

static quarry_status call(const quarry_call *call, quarry_reply *reply) {
  if (quarry_method_is(call, "run")) return script_run(call->payload, reply);
  if (!quarry_method_is(call, "echo")) return quarry_unknown_method(call);
  list echoed = {0};
  list_add(&echoed, call->method);
  list_add_option(&echoed, call->key);
  list_add(&echoed, call->payload);
  reply->body = list_bytes(&echoed);
  return QUARRY_OK;
}
QUARRY_EXPORT_CALL(call)
QUARRY_EXPORT_QUERY(call)

static quarry_status start(void) {
  list_add_text(state_event(), "start");
  state_noted();
  return script_run_stored("on-start", NULL);
}

static void stop(quarry_bytes reason) {
  // Whatever comes of either: there is nobody to tell.
  script_run_stored("on-stop", NULL);
  quarry_put(QUARRY_BYTES("stopped"), reason, NULL);
}
QUARRY_EXPORT_LIFECYCLE(start, stop)

static quarry_bytes validate(quarry_bytes options) {
  static const char refuse[] = "\"refuse\"";
  const size_t len = sizeof refuse - 1;
  for (size_t at = 0; at + len <= options.len; at++) {
    if (memcmp(options.ptr + at, refuse, len) == 0) return quarry_printf("refused: %.*s", (int)options.len, (const char *)options.ptr);
  }
  return (quarry_bytes){0};
}
QUARRY_EXPORT_OPTIONS(validate)

static void durable(const uint64_t *tags, size_t count) {
  list *event = state_event();
  list_add_text(event, "durable");
  for (size_t i = 0; i < count; i++) list_add_number(event, tags[i]);
  state_noted();
}
QUARRY_EXPORT_DURABLE(durable)

static quarry_status fire(quarry_bytes name, quarry_bytes payload, uint64_t due_ms) {
  list *event = state_event();
  list_add_text(event, "fire");
  list_add(event, name);
  list_add(event, payload);
  list_add_number(event, due_ms);
  state_noted();
  quarry_reply reply;
  return script_run(payload, &reply);
}
QUARRY_EXPORT_TIMER(fire)

static quarry_status suspend(quarry_bytes *state) {
  QUARRY_TRY(script_run_stored("on-suspend", NULL));
  *state = state_memory();
  return QUARRY_OK;
}

// Notes an event that comes from a revision.
static void came_from(const char *what, uint64_t revision) {
  list *event = state_event();
  list_add_text(event, what);
  list_add_number(event, revision);
  state_noted();
}

static quarry_status resume(uint64_t from_revision, quarry_bytes state) {
  came_from("resume", from_revision);
  QUARRY_TRY(script_run_stored("on-resume", NULL));
  state_remember(state);
  return QUARRY_OK;
}
QUARRY_EXPORT_HANDOFF(suspend, resume)

static quarry_status migrate(uint64_t from_revision, bool *done) {
  came_from("migrate", from_revision);
  bool found;
  QUARRY_TRY(script_run_stored("on-migrate", &found));
  *done = !found;
  return QUARRY_OK;
}
QUARRY_EXPORT_MIGRATION(migrate)
