// The database: the bindings, with views in and the handler's memory out, and with resources that end by themselves.
#include "internal.h"

_Static_assert(sizeof(quarry_bytes) == sizeof(quarry_wit_list_u8_t), "an array of keys is handed over as it is");

// Entries that the host is asked for at once: few at first, for scans that end soon.
enum { FIRST_PAGE = 16, LARGEST_PAGE = 1024 };
enum { MAX_ATTEMPTS = 10 };
enum { CLOSED = -1 };

// What is open on the host: one list, the newest first. It lies in the handler's memory.
typedef enum { CURSOR, SNAPSHOT, TRANSACTION } kind;
typedef struct resource {
  kind kind;
  int32_t handle;
  struct resource *older;
  struct resource *newer;
} resource;
struct quarry_cursor {
  resource resource;
  // The page that is being read, in memory of its own, so that a long scan takes no more than a page.
  quarry_arena page;
  const quarry_shard_db_entry_t *entries;
  size_t count;
  size_t next;
  uint32_t page_size;
};
struct quarry_snapshot {
  resource resource;
};
struct quarry_transaction {
  resource resource;
};
static resource *open;

#ifdef __wasm__
#define DROPS(what) __attribute__((import_module("quarry:shard/db@0.1.0"), import_name("[resource-drop]" what)))
#else
#define DROPS(what)
#endif
DROPS("cursor") extern void drop_cursor(int32_t);
DROPS("snapshot") extern void drop_snapshot(int32_t);
DROPS("transaction") extern void drop_transaction(int32_t);

static void *opened(kind kind, int32_t handle, size_t size) {
  resource *made = memset(quarry_alloc(size), 0, size);
  made->kind = kind;
  made->handle = handle;
  made->older = open;
  if (open) open->newer = made;
  open = made;
  return made;
}

static void close_resource(resource *it) {
  if (it->handle == CLOSED) return;
  switch (it->kind) {
    case CURSOR:
      drop_cursor(it->handle);
      quarry_arena_keep(&((quarry_cursor *)it)->page);
      break;
    case SNAPSHOT: drop_snapshot(it->handle); break;
    case TRANSACTION: drop_transaction(it->handle); break;
  }
  it->handle = CLOSED;
  if (it->older) it->older->newer = it->newer;
  *(it->newer ? &it->newer->older : &open) = it->older;
}

void quarry_db_end(void) {
  while (open) close_resource(open);
}

static quarry_status closed(const char *what) { return quarry_fail("closed", "the %s was closed before", what); }

// The host ends an instance that hands over a number that an enum does not have.
static quarry_status not_one_of(const char *what, unsigned given, const char *choices) {
  return quarry_fail("invalid-argument", "%s is %s, not %u", what, choices, given);
}
static quarry_status check_order(quarry_order order) {
  return (unsigned)order > QUARRY_DESCENDING ? not_one_of("an order", order, "QUARRY_ASCENDING or QUARRY_DESCENDING") : QUARRY_OK;
}

// ---------------------------------------------------------------------------------------------------------------------

static quarry_status optional(bool ok, const quarry_wit_option_list_u8_t *from, const quarry_shard_types_error_t *error, quarry_optional *to) {
  if (!ok) return quarry_from_host(error);
  *to = (quarry_optional){from->is_some, from->is_some ? quarry_from_list(from->val) : quarry_view("", 0)};
  return QUARRY_OK;
}

static quarry_status optionals(bool ok, const quarry_wit_list_option_list_u8_t *from, const quarry_shard_types_error_t *error, quarry_optional *to) {
  for (size_t i = 0; ok && i < from->len; i++) optional(true, &from->ptr[i], NULL, &to[i]);
  return ok ? QUARRY_OK : quarry_from_host(error);
}

// By their addresses: whether the host was asked before an argument is read, C does not say.
static quarry_status numbered(bool ok, const quarry_seq *from, const quarry_shard_types_error_t *error, quarry_seq *to) {
  if (!ok) return quarry_from_host(error);
  if (to) *to = *from;
  return QUARRY_OK;
}

static quarry_status cursor_of(bool ok, const quarry_shard_db_own_cursor_t *from, const quarry_shard_types_error_t *error, quarry_cursor **to) {
  if (!ok) return quarry_from_host(error);
  *to = opened(CURSOR, from->__handle, sizeof **to);
  (*to)->page_size = FIRST_PAGE;
  return QUARRY_OK;
}

static quarry_wit_option_list_u8_t bound_of(quarry_optional bound) {
  return (quarry_wit_option_list_u8_t){bound.some, quarry_to_list(bound.bytes)};
}
static quarry_shard_db_key_range_t range_of(quarry_range range) {
  return (quarry_shard_db_key_range_t){bound_of(range.start), bound_of(range.end)};
}

static quarry_wit_list_list_u8_t keys_of(const quarry_bytes *keys, size_t count) {
  return (quarry_wit_list_list_u8_t){(quarry_wit_list_u8_t *)keys, count};
}

// ---------------------------------------------------------------------------------------------------------------------

quarry_status quarry_get(quarry_bytes key, quarry_optional *value) {
  quarry_wit_list_u8_t list = quarry_to_list(key);
  quarry_wit_option_list_u8_t got;
  quarry_shard_types_error_t error;
  return optional(quarry_shard_db_get(&list, &got, &error), &got, &error, value);
}

quarry_status quarry_get_many(const quarry_bytes *keys, size_t count, quarry_optional *values) {
  quarry_wit_list_list_u8_t list = keys_of(keys, count);
  quarry_wit_list_option_list_u8_t got;
  quarry_shard_types_error_t error;
  return optionals(quarry_shard_db_get_many(&list, &got, &error), &got, &error, values);
}

quarry_status quarry_get_versioned(quarry_bytes key, quarry_versioned *value) {
  quarry_wit_list_u8_t list = quarry_to_list(key);
  quarry_shard_db_option_versioned_t got;
  quarry_shard_types_error_t error;
  if (!quarry_shard_db_get_versioned(&list, &got, &error)) return quarry_from_host(&error);
  *value = (quarry_versioned){0};
  if (!got.is_some) return QUARRY_OK;
  *value = (quarry_versioned){
      .some = true,
      .value = quarry_from_list(got.val.value),
      .seq = got.val.seq,
      .created_at_ms = got.val.created_at_ms,
      .expires = got.val.expires_at_ms.is_some,
      .expires_at_ms = got.val.expires_at_ms.is_some ? got.val.expires_at_ms.val : 0,
  };
  return QUARRY_OK;
}

quarry_status quarry_put(quarry_bytes key, quarry_bytes value, quarry_seq *seq) {
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(value);
  quarry_seq got;
  quarry_shard_types_error_t error;
  return numbered(quarry_shard_db_put(&list, &bytes, &got, &error), &got, &error, seq);
}

quarry_status quarry_put_for(quarry_bytes key, quarry_bytes value, uint64_t ttl_ms, quarry_seq *seq) {
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(value);
  quarry_seq got;
  quarry_shard_types_error_t error;
  return numbered(quarry_shard_db_put_for(&list, &bytes, ttl_ms, &got, &error), &got, &error, seq);
}

quarry_status quarry_remove(quarry_bytes key, quarry_seq *seq) {
  quarry_wit_list_u8_t list = quarry_to_list(key);
  quarry_seq got;
  quarry_shard_types_error_t error;
  return numbered(quarry_shard_db_remove(&list, &got, &error), &got, &error, seq);
}

quarry_status quarry_merge(quarry_bytes key, quarry_bytes operand, quarry_seq *seq) {
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(operand);
  quarry_seq got;
  quarry_shard_types_error_t error;
  return numbered(quarry_shard_db_merge(&list, &bytes, &got, &error), &got, &error, seq);
}

quarry_status quarry_write(const quarry_op *ops, size_t count, quarry_seq *seq) {
  // The host's own limit. Said here, as the list is made before it is asked.
  if (count > 65536) return quarry_fail("limit", "a batch has up to 65536 operations, not %zu", count);
  quarry_shard_db_op_t *list = quarry_alloc(count * sizeof *list);
  for (size_t i = 0; i < count; i++) {
    if ((unsigned)ops[i].kind > QUARRY_MERGE) return not_one_of("an operation's kind", ops[i].kind, "QUARRY_PUT, QUARRY_REMOVE or QUARRY_MERGE");
    list[i] = (quarry_shard_db_op_t){
        .kind = (quarry_shard_db_op_kind_t)ops[i].kind,
        .key = quarry_to_list(ops[i].key),
        .value = quarry_to_list(ops[i].value),
        .ttl_ms = {ops[i].ttl_ms != 0, ops[i].ttl_ms},
    };
  }
  quarry_shard_db_list_op_t all = {list, count};
  quarry_seq got;
  quarry_shard_types_error_t error;
  return numbered(quarry_shard_db_write(&all, &got, &error), &got, &error, seq);
}

// ---------------------------------------------------------------------------------------------------------------------

quarry_status quarry_scan(quarry_range range, quarry_order order, quarry_cursor **cursor) {
  QUARRY_TRY(check_order(order));
  quarry_shard_db_key_range_t bounds = range_of(range);
  quarry_shard_db_own_cursor_t got;
  quarry_shard_types_error_t error;
  return cursor_of(quarry_shard_db_scan(&bounds, (quarry_shard_db_order_t)order, &got, &error), &got, &error, cursor);
}

quarry_status quarry_scan_prefix(quarry_bytes prefix, quarry_order order, quarry_cursor **cursor) {
  QUARRY_TRY(check_order(order));
  quarry_wit_list_u8_t list = quarry_to_list(prefix);
  quarry_shard_db_own_cursor_t got;
  quarry_shard_types_error_t error;
  return cursor_of(quarry_shard_db_scan_prefix(&list, (quarry_shard_db_order_t)order, &got, &error), &got, &error, cursor);
}

quarry_status quarry_next(quarry_cursor *cursor, quarry_entry *entry, bool *found) {
  if (cursor->resource.handle == CLOSED) return closed("cursor");
  if (cursor->next == cursor->count) {
    quarry_arena_free(&cursor->page);
    cursor->next = cursor->count = 0;
    quarry_shard_db_list_entry_t page;
    quarry_shard_types_error_t error;
    quarry_arena *before = quarry_arena_of_host;
    quarry_arena_of_host = &cursor->page;
    bool ok = quarry_shard_db_method_cursor_next((quarry_shard_db_borrow_cursor_t){cursor->resource.handle}, cursor->page_size, &page, &error);
    quarry_arena_of_host = before;
    if (!ok) {
      // The error outlives the cursor.
      error.code = quarry_to_string(quarry_copy(quarry_from_string(error.code)));
      error.message = quarry_to_string(quarry_copy(quarry_from_string(error.message)));
      return quarry_from_host(&error);
    }
    cursor->entries = page.ptr;
    cursor->count = page.len;
    if (cursor->page_size < LARGEST_PAGE) cursor->page_size *= 4;
  }
  *found = cursor->next < cursor->count;
  if (*found) {
    const quarry_shard_db_entry_t *from = &cursor->entries[cursor->next++];
    *entry = (quarry_entry){quarry_from_list(from->key), quarry_from_list(from->value)};
  }
  return QUARRY_OK;
}

void quarry_close(quarry_cursor *cursor) {
  quarry_arena_free(&cursor->page);
  close_resource(&cursor->resource);
}

// ---------------------------------------------------------------------------------------------------------------------

static quarry_shard_db_borrow_snapshot_t of_snapshot(const quarry_snapshot *snapshot) {
  return (quarry_shard_db_borrow_snapshot_t){snapshot->resource.handle};
}

quarry_status quarry_open_snapshot(quarry_snapshot **snapshot) {
  quarry_shard_db_own_snapshot_t got;
  quarry_shard_types_error_t error;
  if (!quarry_shard_db_open_snapshot(&got, &error)) return quarry_from_host(&error);
  *snapshot = opened(SNAPSHOT, got.__handle, sizeof **snapshot);
  return QUARRY_OK;
}

quarry_seq quarry_snapshot_seq(const quarry_snapshot *snapshot) { return quarry_shard_db_method_snapshot_seq(of_snapshot(snapshot)); }

quarry_status quarry_snapshot_get(const quarry_snapshot *snapshot, quarry_bytes key, quarry_optional *value) {
  if (snapshot->resource.handle == CLOSED) return closed("snapshot");
  quarry_wit_list_u8_t list = quarry_to_list(key);
  quarry_wit_option_list_u8_t got;
  quarry_shard_types_error_t error;
  return optional(quarry_shard_db_method_snapshot_get(of_snapshot(snapshot), &list, &got, &error), &got, &error, value);
}

quarry_status quarry_snapshot_get_many(const quarry_snapshot *snapshot, const quarry_bytes *keys, size_t count, quarry_optional *values) {
  if (snapshot->resource.handle == CLOSED) return closed("snapshot");
  quarry_wit_list_list_u8_t list = keys_of(keys, count);
  quarry_wit_list_option_list_u8_t got;
  quarry_shard_types_error_t error;
  return optionals(quarry_shard_db_method_snapshot_get_many(of_snapshot(snapshot), &list, &got, &error), &got, &error, values);
}

quarry_status quarry_snapshot_scan(const quarry_snapshot *snapshot, quarry_range range, quarry_order order, quarry_cursor **cursor) {
  QUARRY_TRY(check_order(order));
  if (snapshot->resource.handle == CLOSED) return closed("snapshot");
  quarry_shard_db_key_range_t bounds = range_of(range);
  quarry_shard_db_own_cursor_t got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_db_method_snapshot_scan(of_snapshot(snapshot), &bounds, (quarry_shard_db_order_t)order, &got, &error);
  return cursor_of(ok, &got, &error, cursor);
}

quarry_status quarry_snapshot_scan_prefix(const quarry_snapshot *snapshot, quarry_bytes prefix, quarry_order order, quarry_cursor **cursor) {
  QUARRY_TRY(check_order(order));
  if (snapshot->resource.handle == CLOSED) return closed("snapshot");
  quarry_wit_list_u8_t list = quarry_to_list(prefix);
  quarry_shard_db_own_cursor_t got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_db_method_snapshot_scan_prefix(of_snapshot(snapshot), &list, (quarry_shard_db_order_t)order, &got, &error);
  return cursor_of(ok, &got, &error, cursor);
}

void quarry_close_snapshot(quarry_snapshot *snapshot) { close_resource(&snapshot->resource); }

// ---------------------------------------------------------------------------------------------------------------------

static quarry_shard_db_borrow_transaction_t of_transaction(quarry_transaction *transaction) {
  return (quarry_shard_db_borrow_transaction_t){transaction->resource.handle};
}

quarry_status quarry_transact(quarry_isolation isolation, quarry_body body, void *context) {
  for (int attempt = 1;; attempt++) {
    quarry_transaction *transaction;
    QUARRY_TRY(quarry_begin(isolation, &transaction));
    quarry_status status = body(transaction, context);
    if (!status) status = quarry_commit(transaction, NULL);
    quarry_rollback(transaction);
    if (!quarry_is(status, "conflict") || attempt == MAX_ATTEMPTS) return status;
  }
}

quarry_status quarry_begin(quarry_isolation isolation, quarry_transaction **transaction) {
  quarry_shard_db_own_transaction_t got;
  quarry_shard_types_error_t error;
  if ((unsigned)isolation > QUARRY_SERIALIZABLE) return not_one_of("an isolation", isolation, "QUARRY_SNAPSHOT or QUARRY_SERIALIZABLE");
  if (!quarry_shard_db_begin((quarry_shard_db_isolation_level_t)isolation, &got, &error)) return quarry_from_host(&error);
  *transaction = opened(TRANSACTION, got.__handle, sizeof **transaction);
  return QUARRY_OK;
}

quarry_status quarry_tx_get(quarry_transaction *transaction, quarry_bytes key, quarry_optional *value) {
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_wit_list_u8_t list = quarry_to_list(key);
  quarry_wit_option_list_u8_t got;
  quarry_shard_types_error_t error;
  return optional(quarry_shard_db_method_transaction_get(of_transaction(transaction), &list, &got, &error), &got, &error, value);
}

quarry_status quarry_tx_get_many(quarry_transaction *transaction, const quarry_bytes *keys, size_t count, quarry_optional *values) {
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_wit_list_list_u8_t list = keys_of(keys, count);
  quarry_wit_list_option_list_u8_t got;
  quarry_shard_types_error_t error;
  return optionals(quarry_shard_db_method_transaction_get_many(of_transaction(transaction), &list, &got, &error), &got, &error, values);
}

quarry_status quarry_tx_put(quarry_transaction *transaction, quarry_bytes key, quarry_bytes value) {
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(value);
  quarry_shard_types_error_t error;
  return quarry_shard_db_method_transaction_put(of_transaction(transaction), &list, &bytes, &error) ? QUARRY_OK : quarry_from_host(&error);
}

quarry_status quarry_tx_put_for(quarry_transaction *transaction, quarry_bytes key, quarry_bytes value, uint64_t ttl_ms) {
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(value);
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_db_method_transaction_put_for(of_transaction(transaction), &list, &bytes, ttl_ms, &error);
  return ok ? QUARRY_OK : quarry_from_host(&error);
}

quarry_status quarry_tx_remove(quarry_transaction *transaction, quarry_bytes key) {
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_wit_list_u8_t list = quarry_to_list(key);
  quarry_shard_types_error_t error;
  return quarry_shard_db_method_transaction_remove(of_transaction(transaction), &list, &error) ? QUARRY_OK : quarry_from_host(&error);
}

quarry_status quarry_tx_merge(quarry_transaction *transaction, quarry_bytes key, quarry_bytes operand) {
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_wit_list_u8_t list = quarry_to_list(key), bytes = quarry_to_list(operand);
  quarry_shard_types_error_t error;
  return quarry_shard_db_method_transaction_merge(of_transaction(transaction), &list, &bytes, &error) ? QUARRY_OK : quarry_from_host(&error);
}

quarry_status quarry_tx_scan(quarry_transaction *transaction, quarry_range range, quarry_order order, quarry_cursor **cursor) {
  QUARRY_TRY(check_order(order));
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_shard_db_key_range_t bounds = range_of(range);
  quarry_shard_db_own_cursor_t got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_db_method_transaction_scan(of_transaction(transaction), &bounds, (quarry_shard_db_order_t)order, &got, &error);
  return cursor_of(ok, &got, &error, cursor);
}

quarry_status quarry_tx_scan_prefix(quarry_transaction *transaction, quarry_bytes prefix, quarry_order order, quarry_cursor **cursor) {
  QUARRY_TRY(check_order(order));
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_wit_list_u8_t list = quarry_to_list(prefix);
  quarry_shard_db_own_cursor_t got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_db_method_transaction_scan_prefix(of_transaction(transaction), &list, (quarry_shard_db_order_t)order, &got, &error);
  return cursor_of(ok, &got, &error, cursor);
}

quarry_status quarry_commit(quarry_transaction *transaction, quarry_seq *seq) {
  if (transaction->resource.handle == CLOSED) return closed("transaction");
  quarry_shard_db_option_seq_t got;
  quarry_shard_types_error_t error;
  bool ok = quarry_shard_db_method_transaction_commit(of_transaction(transaction), &got, &error);
  close_resource(&transaction->resource);
  quarry_seq written = ok && got.is_some ? got.val : 0;
  return numbered(ok, &written, &error, seq);
}

void quarry_rollback(quarry_transaction *transaction) { close_resource(&transaction->resource); }
