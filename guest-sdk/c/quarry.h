// The logic of a Quarry shard, in C.
//
//     #include "quarry.h"
//
//     static quarry_status call(const quarry_call *call, quarry_reply *reply) {
//       if (quarry_method_is(call, "hello")) {
//         reply->body = QUARRY_BYTES("world");
//         return QUARRY_OK;
//       }
//       return quarry_unknown_method(call);
//     }
//     QUARRY_EXPORT_CALL(call)
//
// MEMORY. There is nothing to free. Whatever a function here hands out (values, entries, errors, text) lies in memory of
// the handler that runs, and ends when it returns; so do the arguments of the handler. What has to last longer is copied
// to memory of your own, with `malloc` and `memcpy`. What you hand in is only read. A reply may point to any of these:
// it is sent before the memory ends.
//
// ERRORS. A function that can fail returns a `quarry_status`: NULL when all is well, else the error, which a handler can
// return as it is. `QUARRY_TRY(f(x));` does that. Results are written only when all is well.
//
// A trap (`abort()`, a bad pointer, no memory left) fails the call and replaces the instance; what is in the database stays.
#ifndef QUARRY_H
#define QUARRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------------------------------------
// Bytes

// A view of bytes that lie elsewhere. Never owned, not terminated by a zero.
typedef struct {
  const uint8_t *ptr;
  size_t len;
} quarry_bytes;

// Bytes, or none. An empty value is a value.
typedef struct {
  bool some;
  quarry_bytes bytes;
} quarry_optional;

// The bytes of a string literal, without its terminating zero.
#define QUARRY_BYTES(literal) ((quarry_bytes){(const uint8_t *)("" literal), sizeof(literal) - 1})

// A view of `len` bytes at `ptr`.
static inline quarry_bytes quarry_view(const void *ptr, size_t len) { return (quarry_bytes){(const uint8_t *)ptr, len}; }
// A view of a string that ends with a zero.
static inline quarry_bytes quarry_text(const char *text) { return quarry_view(text, strlen(text)); }
// Whether two views show the same bytes.
static inline bool quarry_equal(quarry_bytes a, quarry_bytes b) {
  return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

// Memory that ends when the handler returns, aligned to 8 bytes, not cleared. Traps where the instance has no more
// (`limits.memory`).
void *quarry_alloc(size_t len);
// A copy in such memory.
quarry_bytes quarry_copy(quarry_bytes bytes);
// `printf` into such memory, for text and whole numbers: %s %c %d %i %u %x %p with the lengths hh h l ll z t j, widths, `-`, `0`,
// `.N` and `*`, and `%%`. Not for floating point, which would make a small guest twice as large.
quarry_bytes quarry_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---------------------------------------------------------------------------------------------------------------------
// Errors

// Why something failed. The host's codes: `invalid-key`, `invalid-value`, `invalid-argument`, `limit`, `conflict`, `read-only`,
// `no-merge-operator`, `closed`, `fenced`, `unavailable`, `internal`, and those of calls to other shards (wit/cluster.wit).
typedef struct {
  // Stable, for programs: up to 64 bytes of a-z, 0-9 and -.
  quarry_bytes code;
  // For a person: names the thing, the value and the limit. Up to 8 KiB.
  quarry_bytes message;
  // Whether the same request may succeed when it is made again.
  bool retryable;
} quarry_error;

// NULL when all is well.
typedef const quarry_error *quarry_status;
#define QUARRY_OK ((quarry_status)0)

// Returns from the function that it stands in when `status` is an error.
#define QUARRY_TRY(status)                   \
  do {                                       \
    quarry_status quarry_try_ = (status);    \
    if (quarry_try_) return quarry_try_;     \
  } while (0)

// An error of the guest's own. The message is made as by `quarry_printf`.
quarry_status quarry_fail(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The same, retryable.
quarry_status quarry_fail_retryable(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Whether `status` is the error `code`.
static inline bool quarry_is(quarry_status status, const char *code) {
  return status && quarry_equal(status->code, quarry_text(code));
}

// ---------------------------------------------------------------------------------------------------------------------
// Calls

// A call or a query.
typedef struct {
  quarry_bytes method;
  // The routing key; none when the caller named a shard.
  quarry_optional key;
  quarry_bytes payload;
} quarry_call;

// What a call gives back. All zero when the handler gets it: no bytes, as `application/octet-stream`, when durable.
typedef struct {
  quarry_bytes body;
  // Up to 128 bytes of printable ASCII; empty for the default.
  quarry_bytes content_type;
  // Lets the reply leave before the writes that it shows are durable. A caller that asked for durable still waits.
  bool when_applied;
} quarry_reply;

// Whether the caller named this method.
static inline bool quarry_method_is(const quarry_call *call, const char *method) {
  return quarry_equal(call->method, quarry_text(method));
}
// The routing key, or the error `missing-key`.
quarry_status quarry_required_key(const quarry_call *call, quarry_bytes *key);
// The error `unknown-method`.
quarry_status quarry_unknown_method(const quarry_call *call);
// Text as the reply, as `text/plain; charset=utf-8`. Returns QUARRY_OK, so that a handler can return it.
quarry_status quarry_reply_text(quarry_reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Milliseconds until the caller gives up; false outside of a call.
bool quarry_time_left(uint64_t *milliseconds);
// The caller's W3C trace context.
quarry_optional quarry_traceparent(void);
// A header of the request, by name in any case: `content-type`, `accept`, `traceparent`, `tracestate`, `idempotency-key`, and
// all that begin with `x-`.
quarry_optional quarry_header(const char *name);

// ---------------------------------------------------------------------------------------------------------------------
// Database. Keys have 1 byte to 64 KiB, values up to 16 MiB. A write is visible at once, and a reply waits by itself until
// what it may show is durable. Calls of a shard run one at a time: a read followed by a write loses no update.

// The number of a write: higher is later, unique for the life of the data.
typedef uint64_t quarry_seq;

// The value of a key, or none. An expired value reads as none.
quarry_status quarry_get(quarry_bytes key, quarry_optional *value);
// The values of up to 1,024 keys, in their order; `values` has room for `count`.
quarry_status quarry_get_many(const quarry_bytes *keys, size_t count, quarry_optional *values);

// A value and what is known of it. Times are milliseconds since the Unix epoch.
typedef struct {
  bool some;
  quarry_bytes value;
  quarry_seq seq;
  int64_t created_at_ms;
  bool expires;
  int64_t expires_at_ms;
} quarry_versioned;
quarry_status quarry_get_versioned(quarry_bytes key, quarry_versioned *value);

// Each write gives its seq, unless `seq` is NULL. With `ttl_ms` of at least 1 a value expires after that time.
quarry_status quarry_put(quarry_bytes key, quarry_bytes value, quarry_seq *seq);
quarry_status quarry_put_for(quarry_bytes key, quarry_bytes value, uint64_t ttl_ms, quarry_seq *seq);
// No error where there is no such key.
quarry_status quarry_remove(quarry_bytes key, quarry_seq *seq);
// Hands an operand to the cluster's merge operator.
quarry_status quarry_merge(quarry_bytes key, quarry_bytes operand, quarry_seq *seq);

typedef enum { QUARRY_PUT, QUARRY_REMOVE, QUARRY_MERGE } quarry_op_kind;
// One operation of a batch. `value` is the operand of a merge, and ignored for a removal; `ttl_ms` is for puts, 0 for never.
typedef struct {
  quarry_op_kind kind;
  quarry_bytes key;
  quarry_bytes value;
  uint64_t ttl_ms;
} quarry_op;
// All operations or none, with one seq: 1 to 65,536. Later operations on a key win.
quarry_status quarry_write(const quarry_op *ops, size_t count, quarry_seq *seq);

typedef enum { QUARRY_ASCENDING, QUARRY_DESCENDING } quarry_order;
// From `start` (inclusive) to `end` (exclusive); none is open. All zero is every key.
typedef struct {
  quarry_optional start;
  quarry_optional end;
} quarry_range;

// A scan of keys, over the database as it was when the scan was opened. Cursors, snapshots and transactions end with the
// handler, at the latest; up to 64 may be open.
typedef struct quarry_cursor quarry_cursor;
typedef struct {
  quarry_bytes key;
  quarry_bytes value;
} quarry_entry;
quarry_status quarry_scan(quarry_range range, quarry_order order, quarry_cursor **cursor);
// The keys that start with `prefix`. An empty prefix is every key.
quarry_status quarry_scan_prefix(quarry_bytes prefix, quarry_order order, quarry_cursor **cursor);
// The next entry, which stays until this is called again or the cursor is closed; `*found` is false at the end.
//
//     for (bool found;;) {
//       quarry_entry entry;
//       QUARRY_TRY(quarry_next(cursor, &entry, &found));
//       if (!found) break;
//       ...
//     }
quarry_status quarry_next(quarry_cursor *cursor, quarry_entry *entry, bool *found);
// Ends a scan before its handler does. The cursor is not to be used again.
void quarry_close(quarry_cursor *cursor);

// The database at one moment: later writes do not change it.
typedef struct quarry_snapshot quarry_snapshot;
quarry_status quarry_open_snapshot(quarry_snapshot **snapshot);
// The last write that it shows.
quarry_seq quarry_snapshot_seq(const quarry_snapshot *snapshot);
quarry_status quarry_snapshot_get(const quarry_snapshot *snapshot, quarry_bytes key, quarry_optional *value);
quarry_status quarry_snapshot_get_many(const quarry_snapshot *snapshot, const quarry_bytes *keys, size_t count, quarry_optional *values);
quarry_status quarry_snapshot_scan(const quarry_snapshot *snapshot, quarry_range range, quarry_order order, quarry_cursor **cursor);
quarry_status quarry_snapshot_scan_prefix(const quarry_snapshot *snapshot, quarry_bytes prefix, quarry_order order, quarry_cursor **cursor);
void quarry_close_snapshot(quarry_snapshot *snapshot);

// The database as it was at the beginning, with the transaction's own writes on top. Older than 10 s it fails with `limit`.
typedef struct quarry_transaction quarry_transaction;
// `QUARRY_SNAPSHOT` finds two writes of one key, `QUARRY_SERIALIZABLE` also reads that changed.
typedef enum { QUARRY_SNAPSHOT, QUARRY_SERIALIZABLE } quarry_isolation;
// Runs `body` in a transaction and commits it; an error of `body` changes nothing, and is given back. On a conflict it begins
// again, up to 10 times in all, so that `body` must not do anything that cannot be done twice.
typedef quarry_status (*quarry_body)(quarry_transaction *transaction, void *context);
quarry_status quarry_transact(quarry_isolation isolation, quarry_body body, void *context);
// The same by hand.
quarry_status quarry_begin(quarry_isolation isolation, quarry_transaction **transaction);
quarry_status quarry_tx_get(quarry_transaction *transaction, quarry_bytes key, quarry_optional *value);
quarry_status quarry_tx_get_many(quarry_transaction *transaction, const quarry_bytes *keys, size_t count, quarry_optional *values);
quarry_status quarry_tx_put(quarry_transaction *transaction, quarry_bytes key, quarry_bytes value);
quarry_status quarry_tx_put_for(quarry_transaction *transaction, quarry_bytes key, quarry_bytes value, uint64_t ttl_ms);
quarry_status quarry_tx_remove(quarry_transaction *transaction, quarry_bytes key);
quarry_status quarry_tx_merge(quarry_transaction *transaction, quarry_bytes key, quarry_bytes operand);
quarry_status quarry_tx_scan(quarry_transaction *transaction, quarry_range range, quarry_order order, quarry_cursor **cursor);
quarry_status quarry_tx_scan_prefix(quarry_transaction *transaction, quarry_bytes prefix, quarry_order order, quarry_cursor **cursor);
// All writes or none; `conflict` when another write came between. `*seq` is 0 when nothing was written. Ends the transaction in
// any case.
quarry_status quarry_commit(quarry_transaction *transaction, quarry_seq *seq);
// Ends it without its writes.
void quarry_rollback(quarry_transaction *transaction);

// ---------------------------------------------------------------------------------------------------------------------
// Durability, timers, other shards

// The newest write up to which every write is durable.
quarry_seq quarry_durable_seq(void);
// Asks that the handler of QUARRY_EXPORT_DURABLE gets `tag` once every write up to `seq` is durable. Up to 65,536 at once.
quarry_status quarry_notify_when_durable(quarry_seq seq, uint64_t tag);

// Timers need QUARRY_EXPORT_TIMER. A name has 1 to 256 bytes and one timer; a payload up to 64 KiB. Where the shard has all the timers that
// it may have (10,000, `limits.timers`), both ways to set one fail with `limit`, which is retryable: there is room again once a timer has
// fired or was cancelled.
// In memory: forgotten when the shard closes or moves, and after a trap.
quarry_status quarry_timer_set(const char *name, uint64_t after_ms, quarry_bytes payload);
// In the database: fires at least once, wherever the shard is then.
quarry_status quarry_timer_set_durable(const char *name, uint64_t after_ms, quarry_bytes payload, quarry_seq *seq);
// `*existed` says whether there was one; it may be NULL.
quarry_status quarry_timer_cancel(const char *name, bool *existed);
// When it is due, in milliseconds since the Unix epoch; `*found` is false where there is none.
quarry_status quarry_timer_due(const char *name, uint64_t *due_ms, bool *found);

// Calls and queries of other shards, by number or by key. `key` may be NULL. See wit/cluster.wit for the errors.
quarry_status quarry_call_shard(uint32_t shard, const char *method, const quarry_bytes *key, quarry_bytes payload, quarry_bytes *reply);
quarry_status quarry_call_key(quarry_bytes key, const char *method, quarry_bytes payload, quarry_bytes *reply);
quarry_status quarry_query_shard(uint32_t shard, const char *method, const quarry_bytes *key, quarry_bytes payload, quarry_bytes *reply);
quarry_status quarry_query_key(quarry_bytes key, const char *method, quarry_bytes payload, quarry_bytes *reply);

// ---------------------------------------------------------------------------------------------------------------------
// Where this runs

quarry_bytes quarry_cluster_name(void);
quarry_bytes quarry_node_name(void);
quarry_bytes quarry_module_name(void);
// A JSON object, `{}` where there are no options.
quarry_bytes quarry_options(void);
uint32_t quarry_shard_number(void);
uint32_t quarry_shard_count(void);
// The shard that a key belongs to.
uint32_t quarry_shard_for(quarry_bytes key);
// The lease's generation; 0 without leases.
uint64_t quarry_generation(void);
uint64_t quarry_revision(void);
// Milliseconds for which this node is sure to own the shard.
uint64_t quarry_owned_for_ms(void);
typedef enum { QUARRY_RUNNING, QUARRY_STOPPING, QUARRY_FENCED } quarry_shard_status;
quarry_shard_status quarry_status_of_shard(void);

// ---------------------------------------------------------------------------------------------------------------------
// Log and metrics

typedef enum { QUARRY_TRACE, QUARRY_DEBUG, QUARRY_INFO, QUARRY_WARN, QUARRY_ERROR } quarry_level;
// A name and a value: a field of a log line, or a label of a metric.
typedef struct {
  const char *name;
  quarry_bytes value;
} quarry_field;
// Whether lines of this level go anywhere, to save the work of gathering what they say.
bool quarry_log_enabled(quarry_level level);
// A line in the guest's log on the host. Made only where lines of this level go anywhere.
void quarry_log(quarry_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The same with up to 32 fields.
void quarry_log_fields(quarry_level level, quarry_bytes message, const quarry_field *fields, size_t count);

// On the node's /metrics as quarry_guest_NAME. Up to 4 labels. Nothing here fails: what is not well formed is dropped.
void quarry_metric_describe(const char *name, const char *help);
void quarry_metric_add(const char *counter, const quarry_field *labels, size_t count, uint64_t by);
void quarry_metric_set(const char *gauge, const quarry_field *labels, size_t count, double value);
void quarry_metric_observe(const char *histogram, const quarry_field *labels, size_t count, double value);

#ifdef __cplusplus
}
#endif

#include "quarry_export.h"

#endif
