// The exports of a guest: one macro each, at the top level of one source file. What is not named is not exported, and the host
// then knows that the guest has no such thing. Part of quarry.h.
//
// In a native program, which a test is, the macros tell the double of the host (testing/quarry_test.h) of the handlers.
#ifndef QUARRY_EXPORT_H
#define QUARRY_EXPORT_H

#ifdef __cplusplus
extern "C" {
#endif

// Runs a call; required. Calls of a shard run one at a time. An error does not undo the writes before it: use `quarry_write`
// or a transaction where that matters.
typedef quarry_status (*quarry_handler)(const quarry_call *call, quarry_reply *reply);
#define QUARRY_EXPORT_CALL(handler) QUARRY_EXPORT_CALLS_(call, "quarry:shard/handler@0.1.0#call", handler)

// Runs a query, on further instances with memory of their own, over a snapshot of the database. Writes fail with `read-only`.
#define QUARRY_EXPORT_QUERY(handler) QUARRY_EXPORT_CALLS_(query, "quarry:shard/queries@0.1.0#query", handler)

// `start` runs before the first call, `stop` after the last one, with the reason: `stopping`, `moving`, `fenced`, `swapping`, ...
typedef quarry_status (*quarry_start)(void);
typedef void (*quarry_stop)(quarry_bytes reason);
#define QUARRY_EXPORT_LIFECYCLE(start, stop)                                                                        \
  QUARRY_EXPORT_("quarry:shard/lifecycle@0.1.0#start") void *quarry_export_start_(void) { return quarry_run_start_(start); }  \
  QUARRY_EXPORT_POST_(start, "quarry:shard/lifecycle@0.1.0#start")                                                  \
  QUARRY_EXPORT_("quarry:shard/lifecycle@0.1.0#stop") void quarry_export_stop_(uint8_t *reason, size_t reason_len) { \
    quarry_run_stop_(stop, reason, reason_len);                                                                     \
  }

// Checks options, a JSON object, before anything runs. No bytes when they are good, else the reason, for whoever gave them.
typedef quarry_bytes (*quarry_validate)(quarry_bytes options);
#define QUARRY_EXPORT_OPTIONS(validate)                                                                                          \
  QUARRY_EXPORT_("quarry:shard/options@0.1.0#validate") void *quarry_export_validate_(uint8_t *options, size_t options_len) {    \
    return quarry_run_validate_(validate, options, options_len);                                                                 \
  }                                                                                                                              \
  QUARRY_EXPORT_POST_(validate, "quarry:shard/options@0.1.0#validate")

// The tags of `quarry_notify_when_durable` that became durable, lowest seq first.
typedef void (*quarry_durable)(const uint64_t *tags, size_t count);
#define QUARRY_EXPORT_DURABLE(durable)                                                                                      \
  QUARRY_EXPORT_("quarry:shard/durable-events@0.1.0#durable") void quarry_export_durable_(uint64_t *tags, size_t count) {   \
    quarry_run_durable_(durable, tags, count);                                                                              \
  }

// A timer that is due, since `due_ms` (milliseconds since the Unix epoch). After an error a durable one is tried again.
typedef quarry_status (*quarry_fire)(quarry_bytes name, quarry_bytes payload, uint64_t due_ms);
#define QUARRY_EXPORT_TIMER(fire)                                                                                              \
  QUARRY_EXPORT_("quarry:shard/timer-events@0.1.0#fire")                                                                       \
  void *quarry_export_fire_(uint8_t *name, size_t name_len, uint8_t *payload, size_t payload_len, uint64_t due_ms) {           \
    return quarry_run_fire_(fire, name, name_len, payload, payload_len, due_ms);                                               \
  }                                                                                                                            \
  QUARRY_EXPORT_POST_(fire, "quarry:shard/timer-events@0.1.0#fire")

// Hands memory over in a swap: `suspend` gives it, and leaves the instance as it was; `resume` takes it, after `start`.
typedef quarry_status (*quarry_suspend)(quarry_bytes *state);
typedef quarry_status (*quarry_resume)(uint64_t from_revision, quarry_bytes state);
#define QUARRY_EXPORT_HANDOFF(suspend, resume)                                                                          \
  QUARRY_EXPORT_("quarry:shard/handoff@0.1.0#suspend") void *quarry_export_suspend_(void) { return quarry_run_suspend_(suspend); } \
  QUARRY_EXPORT_POST_(suspend, "quarry:shard/handoff@0.1.0#suspend")                                                    \
  QUARRY_EXPORT_("quarry:shard/handoff@0.1.0#resume")                                                                   \
  void *quarry_export_resume_(uint64_t from_revision, uint8_t *state, size_t state_len) {                               \
    return quarry_run_resume_(resume, from_revision, state, state_len);                                                 \
  }                                                                                                                     \
  QUARRY_EXPORT_POST_(resume, "quarry:shard/handoff@0.1.0#resume")

// One step of rewriting stored data while the older revision serves; `*done` is true when the data is as this one wants it.
typedef quarry_status (*quarry_migrate)(uint64_t from_revision, bool *done);
#define QUARRY_EXPORT_MIGRATION(migrate)                                                                               \
  QUARRY_EXPORT_("quarry:shard/migration@0.1.0#migrate") void *quarry_export_migrate_(uint64_t from_revision) {        \
    return quarry_run_migrate_(migrate, from_revision);                                                                \
  }                                                                                                                    \
  QUARRY_EXPORT_POST_(migrate, "quarry:shard/migration@0.1.0#migrate")

// ---------------------------------------------------------------------------------------------------------------------
// What the macros are made of.

#define QUARRY_EXPORT_(name) __attribute__((export_name(name)))
// The host calls this when it has read a result.
#define QUARRY_EXPORT_POST_(id, name) \
  QUARRY_EXPORT_("cabi_post_" name) void quarry_export_##id##_post_(void *result) { quarry_end_(result); }
#define QUARRY_EXPORT_CALLS_(id, name, handler)                                                                               \
  QUARRY_EXPORT_(name)                                                                                                        \
  void *quarry_export_##id##_(uint8_t *method, size_t method_len, int32_t has_key, uint8_t *key, size_t key_len,              \
                              uint8_t *payload, size_t payload_len) {                                                         \
    return quarry_run_call_(handler, method, method_len, has_key, key, key_len, payload, payload_len);                        \
  }                                                                                                                           \
  QUARRY_EXPORT_POST_(id, name)

void *quarry_run_call_(quarry_handler handler, uint8_t *method, size_t method_len, int32_t has_key, uint8_t *key, size_t key_len,
                       uint8_t *payload, size_t payload_len);
void *quarry_run_start_(quarry_start start);
void quarry_run_stop_(quarry_stop stop, uint8_t *reason, size_t reason_len);
void *quarry_run_validate_(quarry_validate validate, uint8_t *options, size_t options_len);
void quarry_run_durable_(quarry_durable durable, uint64_t *tags, size_t count);
void *quarry_run_fire_(quarry_fire fire, uint8_t *name, size_t name_len, uint8_t *payload, size_t payload_len, uint64_t due_ms);
void *quarry_run_suspend_(quarry_suspend suspend);
void *quarry_run_resume_(quarry_resume resume, uint64_t from_revision, uint8_t *state, size_t state_len);
void *quarry_run_migrate_(quarry_migrate migrate, uint64_t from_revision);
void quarry_end_(void *result);

// ---------------------------------------------------------------------------------------------------------------------
// The same in a native program: each macro hands its handlers to the double before `main` runs.
#ifndef __wasm__

typedef struct {
  quarry_handler call;
  quarry_handler query;
  quarry_start start;
  quarry_stop stop;
  quarry_validate validate;
  quarry_durable durable;
  quarry_fire fire;
  quarry_suspend suspend;
  quarry_resume resume;
  quarry_migrate migrate;
} quarry_exports;
extern quarry_exports quarry_exports_;

#define QUARRY_HAND_OVER_(id, what) \
  __attribute__((constructor)) static void quarry_hand_over_##id##_(void) { what; }

#undef QUARRY_EXPORT_CALL
#define QUARRY_EXPORT_CALL(handler_) QUARRY_HAND_OVER_(call, (quarry_exports_.call = handler_))
#undef QUARRY_EXPORT_QUERY
#define QUARRY_EXPORT_QUERY(handler_) QUARRY_HAND_OVER_(query, (quarry_exports_.query = handler_))
#undef QUARRY_EXPORT_LIFECYCLE
#define QUARRY_EXPORT_LIFECYCLE(start_, stop_) QUARRY_HAND_OVER_(start, (quarry_exports_.start = start_, quarry_exports_.stop = stop_))
#undef QUARRY_EXPORT_OPTIONS
#define QUARRY_EXPORT_OPTIONS(validate_) QUARRY_HAND_OVER_(validate, (quarry_exports_.validate = validate_))
#undef QUARRY_EXPORT_DURABLE
#define QUARRY_EXPORT_DURABLE(durable_) QUARRY_HAND_OVER_(durable, (quarry_exports_.durable = durable_))
#undef QUARRY_EXPORT_TIMER
#define QUARRY_EXPORT_TIMER(fire_) QUARRY_HAND_OVER_(fire, (quarry_exports_.fire = fire_))
#undef QUARRY_EXPORT_HANDOFF
#define QUARRY_EXPORT_HANDOFF(suspend_, resume_) QUARRY_HAND_OVER_(suspend, (quarry_exports_.suspend = suspend_, quarry_exports_.resume = resume_))
#undef QUARRY_EXPORT_MIGRATION
#define QUARRY_EXPORT_MIGRATION(migrate_) QUARRY_HAND_OVER_(migrate, (quarry_exports_.migrate = migrate_))

#endif

#ifdef __cplusplus
}
#endif

#endif
