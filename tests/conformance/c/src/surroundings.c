// The commands of everything but the database.

// For `clock_gettime` and `getentropy`, which the C standard does not have.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ends.h"
#include "script.h"
#include "state.h"

// Random bytes that a step may ask for.
enum { RANDOM_MAX = 1024 };
// Fields of a line, labels of a metric.
enum { PAIRS_MAX = 64 };

static quarry_status durable_seq(script *in, list *values) {
  (void)in;
  list_add_number(values, quarry_durable_seq());
  return QUARRY_OK;
}

static quarry_status notify(script *in, list *values) {
  (void)values;
  quarry_bytes item;
  uint64_t seq = in->last_seq, tag;
  QUARRY_TRY(args_bytes(in, &item));
  if (item.len && !number_of(item, &seq)) return script_invalid(in);
  QUARRY_TRY(args_number(in, &tag));
  return quarry_notify_when_durable(seq, tag);
}

// ---------------------------------------------------------------------------------------------------------------------
// Timers

typedef struct {
  const char *name;
  uint64_t after_ms;
  quarry_bytes payload;
} timer;

static quarry_status args_timer(script *in, timer *item) {
  QUARRY_TRY(args_name(in, &item->name));
  QUARRY_TRY(args_number(in, &item->after_ms));
  return args_bytes(in, &item->payload);
}

static quarry_status set_timer(script *in, list *values) {
  (void)values;
  timer it;
  QUARRY_TRY(args_timer(in, &it));
  return quarry_timer_set(it.name, it.after_ms, it.payload);
}

static quarry_status set_durable_timer(script *in, list *values) {
  timer it;
  quarry_seq seq;
  QUARRY_TRY(args_timer(in, &it));
  QUARRY_TRY(quarry_timer_set_durable(it.name, it.after_ms, it.payload, &seq));
  script_wrote(in, seq, values);
  return QUARRY_OK;
}

static quarry_status cancel_timer(script *in, list *values) {
  const char *name;
  bool existed;
  QUARRY_TRY(args_name(in, &name));
  QUARRY_TRY(quarry_timer_cancel(name, &existed));
  list_add_flag(values, existed);
  return QUARRY_OK;
}

static quarry_status timer_due(script *in, list *values) {
  const char *name;
  uint64_t due_ms = 0;
  bool found;
  QUARRY_TRY(args_name(in, &name));
  QUARRY_TRY(quarry_timer_due(name, &due_ms, &found));
  list_add_option(values, (quarry_optional){found, quarry_printf("%llu", (unsigned long long)due_ms)});
  return QUARRY_OK;
}

// ---------------------------------------------------------------------------------------------------------------------
// Other shards

static const char *const KINDS[] = {"call", "query", NULL};

static quarry_status to_shard(script *in, list *values) {
  int kind;
  uint64_t shard;
  quarry_optional key;
  const char *method;
  quarry_bytes payload, reply;
  QUARRY_TRY(args_choice(in, KINDS, &kind));
  QUARRY_TRY(args_number(in, &shard));
  QUARRY_TRY(args_option(in, &key));
  QUARRY_TRY(args_name(in, &method));
  QUARRY_TRY(args_bytes(in, &payload));
  if (shard > UINT32_MAX) return script_invalid(in);
  const quarry_bytes *at = key.some ? &key.bytes : NULL;
  QUARRY_TRY(kind ? quarry_query_shard((uint32_t)shard, method, at, payload, &reply)
                  : quarry_call_shard((uint32_t)shard, method, at, payload, &reply));
  list_add(values, reply);
  return QUARRY_OK;
}

static quarry_status to_key(script *in, list *values) {
  int kind;
  const char *method;
  quarry_bytes key, payload, reply;
  QUARRY_TRY(args_choice(in, KINDS, &kind));
  QUARRY_TRY(args_bytes(in, &key));
  QUARRY_TRY(args_name(in, &method));
  QUARRY_TRY(args_bytes(in, &payload));
  QUARRY_TRY(kind ? quarry_query_key(key, method, payload, &reply) : quarry_call_key(key, method, payload, &reply));
  list_add(values, reply);
  return QUARRY_OK;
}

// ---------------------------------------------------------------------------------------------------------------------
// Log and metrics

typedef struct {
  quarry_field at[PAIRS_MAX];
  size_t count;
} pairs;

// All that are left, two by two.
static quarry_status args_pairs(script *in, pairs *items) {
  for (items->count = 0; args_left(in); items->count++) {
    if (items->count == PAIRS_MAX) return script_invalid(in);
    QUARRY_TRY(args_name(in, &items->at[items->count].name));
    QUARRY_TRY(args_text(in, &items->at[items->count].value));
  }
  return QUARRY_OK;
}

static quarry_status args_decimal(script *in, double *item) {
  const char *text;
  char *end;
  QUARRY_TRY(args_name(in, &text));
  *item = strtod(text, &end);
  return end != text && !*end ? QUARRY_OK : script_invalid(in);
}

static quarry_status measure(script *in, list *values) {
  (void)values;
  static const char *const whats[] = {"describe", "add", "set", "observe", NULL};
  int what;
  const char *name, *help;
  uint64_t by;
  double value;
  pairs labels;
  QUARRY_TRY(args_choice(in, whats, &what));
  QUARRY_TRY(args_name(in, &name));
  switch (what) {
    case 0:
      QUARRY_TRY(args_name(in, &help));
      quarry_metric_describe(name, help);
      return QUARRY_OK;
    case 1:
      QUARRY_TRY(args_number(in, &by));
      QUARRY_TRY(args_pairs(in, &labels));
      quarry_metric_add(name, labels.at, labels.count, by);
      return QUARRY_OK;
    default:
      QUARRY_TRY(args_decimal(in, &value));
      QUARRY_TRY(args_pairs(in, &labels));
      (what == 2 ? quarry_metric_set : quarry_metric_observe)(name, labels.at, labels.count, value);
      return QUARRY_OK;
  }
}

static quarry_status write_log(script *in, list *values) {
  static const char *const levels[] = {"trace", "debug", "info", "warn", "error", NULL};
  int level;
  quarry_bytes message;
  pairs fields;
  QUARRY_TRY(args_choice(in, levels, &level));
  QUARRY_TRY(args_text(in, &message));
  QUARRY_TRY(args_pairs(in, &fields));
  bool enabled = quarry_log_enabled((quarry_level)level);
  quarry_log_fields((quarry_level)level, message, fields.at, fields.count);
  list_add_flag(values, enabled);
  return QUARRY_OK;
}

static quarry_status print(script *in, list *values) {
  (void)values;
  static const char *const streams[] = {"out", "err", NULL};
  int stream;
  quarry_bytes text;
  QUARRY_TRY(args_choice(in, streams, &stream));
  QUARRY_TRY(args_text(in, &text));
  fprintf(stream ? stderr : stdout, "%.*s\n", (int)text.len, (const char *)text.ptr);
  return QUARRY_OK;
}

// ---------------------------------------------------------------------------------------------------------------------
// Where this runs, and the call in progress

static quarry_status place(script *in, list *values) {
  (void)in;
  static const char *const statuses[] = {"running", "stopping", "fenced"};
  list_add(values, quarry_cluster_name());
  list_add_number(values, quarry_shard_number());
  list_add_number(values, quarry_shard_count());
  list_add(values, quarry_node_name());
  list_add_number(values, quarry_generation());
  list_add(values, quarry_module_name());
  list_add_number(values, quarry_revision());
  list_add(values, quarry_options());
  list_add_text(values, statuses[quarry_status_of_shard()]);
  list_add_number(values, quarry_owned_for_ms());
  return QUARRY_OK;
}

static quarry_status shard_for(script *in, list *values) {
  quarry_bytes key;
  QUARRY_TRY(args_bytes(in, &key));
  list_add_number(values, quarry_shard_for(key));
  return QUARRY_OK;
}

static quarry_status this_call(script *in, list *values) {
  const char *name;
  uint64_t left_ms = 0;
  QUARRY_TRY(args_name(in, &name));
  bool ends = quarry_time_left(&left_ms);
  list_add_option(values, (quarry_optional){ends, quarry_printf("%llu", (unsigned long long)left_ms)});
  list_add_option(values, quarry_traceparent());
  list_add_option(values, quarry_header(name));
  return QUARRY_OK;
}

static quarry_status set_content_type(script *in, list *values) {
  (void)values;
  return args_text(in, &in->content_type);
}

static quarry_status reply_when_applied(script *in, list *values) {
  (void)values;
  in->when_applied = true;
  return QUARRY_OK;
}

// ---------------------------------------------------------------------------------------------------------------------
// The instance, its platform, its ends

static quarry_status remember(script *in, list *values) {
  quarry_optional value;
  QUARRY_TRY(args_option(in, &value));
  if (value.some) state_remember(value.bytes);
  list_add(values, state_memory());
  return QUARRY_OK;
}

static quarry_status seen(script *in, list *values) {
  (void)in;
  list_join(values, state_seen());
  return QUARRY_OK;
}

static quarry_status clocks(script *in, list *values) {
  (void)in;
  struct timespec wall, monotonic;
  if (clock_gettime(CLOCK_REALTIME, &wall) || clock_gettime(CLOCK_MONOTONIC, &monotonic)) {
    return quarry_fail("unsupported", "the clocks cannot be read");
  }
  list_add_number(values, (uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / 1000000);
  list_add_number(values, (uint64_t)monotonic.tv_sec * 1000000000 + (uint64_t)monotonic.tv_nsec);
  return QUARRY_OK;
}

static quarry_status random_bytes(script *in, list *values) {
  uint64_t count;
  QUARRY_TRY(args_number(in, &count));
  if (count > RANDOM_MAX) return script_invalid(in);
  uint8_t bytes[RANDOM_MAX];
  // It gives 256 bytes at most.
  for (size_t at = 0; at < count; at += 256) {
    if (getentropy(bytes + at, count - at < 256 ? count - at : 256)) return quarry_fail("unsupported", "there are no random bytes");
  }
  list_add(values, quarry_view(bytes, count));
  return QUARRY_OK;
}

static quarry_status raise_error(script *in, list *values) {
  (void)values;
  const char *code;
  quarry_bytes message;
  bool retryable;
  QUARRY_TRY(args_name(in, &code));
  QUARRY_TRY(args_text(in, &message));
  QUARRY_TRY(args_flag(in, &retryable));
  in->fails = true;
  return (retryable ? quarry_fail_retryable : quarry_fail)(code, "%.*s", (int)message.len, (const char *)message.ptr);
}

// C has no exceptions.
static quarry_status end_abort(script *in, list *values) {
  (void)in, (void)values;
  abort();
}

static quarry_status recurse(script *in, list *values) {
  (void)in;
  list_add_number(values, end_recurse(0));
  return QUARRY_OK;
}

static quarry_status allocate(script *in, list *values) {
  (void)in, (void)values;
  end_allocate();
}

static quarry_status spin(script *in, list *values) {
  (void)in, (void)values;
  end_spin();
}

const command SURROUNDINGS[] = {
    {"durability.durable-seq", durable_seq},
    {"durability.notify-when-durable", notify},
    {"timers.set", set_timer},
    {"timers.set-durable", set_durable_timer},
    {"timers.cancel", cancel_timer},
    {"timers.due-ms", timer_due},
    {"cluster", to_shard},
    {"cluster-key", to_key},
    {"metrics", measure},
    {"log", write_log},
    {"print", print},
    {"shard", place},
    {"shard.shard-for", shard_for},
    {"current-call", this_call},
    {"current-call.set-content-type", set_content_type},
    {"current-call.reply-when-applied", reply_when_applied},
    {"memory", remember},
    {"seen", seen},
    {"clock", clocks},
    {"random", random_bytes},
    {"raise", raise_error},
    {"throw", end_abort},
    {"abort", end_abort},
    {"recurse", recurse},
    {"allocate", allocate},
    {"spin", spin},
    {NULL, NULL},
};
