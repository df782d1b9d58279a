// The double's database: sorted arrays of rows that are never changed, so that a snapshot is a copy of an array.
#include <stdio.h>

#include "double.h"

enum { MAX_KEY = 65535, MAX_VALUE = 16 << 20, MAX_BATCH = 32 << 20, MAX_OPS = 65536, MAX_KEYS = 1024, MAX_OPEN = 64, MAX_PAGE = 10000 };
enum { PAGE_BYTES = 4 << 20 };

static void *grown(void *old, size_t size) {
  void *made = realloc(old, size);
  if (!made) {
    fputs("the test has no memory left\n", stderr);
    abort();
  }
  return made;
}

// ---------------------------------------------------------------------------------------------------------------------
// Memory of the test

static void **kept;
static size_t kept_count;

void *quarry_double_keep(size_t len) {
  kept = grown(kept, (kept_count + 1) * sizeof *kept);
  return kept[kept_count++] = grown(NULL, len ? len : 1);
}

quarry_bytes quarry_double_keep_bytes(quarry_bytes bytes) {
  if (!bytes.len) return quarry_view("", 0);
  return quarry_view(memcpy(quarry_double_keep(bytes.len), bytes.ptr, bytes.len), bytes.len);
}

void quarry_double_forget(void) {
  while (kept_count) free(kept[--kept_count]);
  free(kept);
  kept = NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// Tables

static int compare(quarry_bytes a, quarry_bytes b) {
  size_t shorter = a.len < b.len ? a.len : b.len;
  int order = shorter ? memcmp(a.ptr, b.ptr, shorter) : 0;
  return order ? order : (a.len > b.len) - (a.len < b.len);
}

// Where a key is, or would be.
static size_t place(const quarry_table *table, quarry_bytes key) {
  size_t low = 0, high = table->len;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare(table->rows[middle].key, key) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static bool has(const quarry_table *table, size_t at, quarry_bytes key) { return at < table->len && quarry_equal(table->rows[at].key, key); }

static bool is_live(const quarry_row *row) { return !row->expires_ms || quarry_double_.now_ms < row->expires_ms; }

static const quarry_row *find(const quarry_table *table, quarry_bytes key) {
  size_t at = place(table, key);
  return has(table, at, key) && is_live(&table->rows[at]) ? &table->rows[at] : NULL;
}

static void apply(quarry_table *table, const quarry_op *op, quarry_seq seq) {
  size_t at = place(table, op->key);
  bool there = has(table, at, op->key);
  if (op->kind == QUARRY_REMOVE) {
    if (!there) return;
    table->len--;
    memmove(table->rows + at, table->rows + at + 1, (table->len - at) * sizeof *table->rows);
    return;
  }
  if (!there) {
    if (table->len == table->room) {
      table->room = table->room ? table->room * 2 : 16;
      table->rows = grown(table->rows, table->room * sizeof *table->rows);
    }
    memmove(table->rows + at + 1, table->rows + at, (table->len - at) * sizeof *table->rows);
    table->len++;
  }
  uint64_t now = quarry_double_.now_ms;
  quarry_bytes key = there ? table->rows[at].key : quarry_double_keep_bytes(op->key);
  table->rows[at] = (quarry_row){key, quarry_double_keep_bytes(op->value), seq, now, op->ttl_ms ? now + op->ttl_ms : 0};
}

void quarry_table_copy(quarry_table *to, const quarry_table *from) {
  quarry_table_free(to);
  *to = (quarry_table){grown(NULL, (from->len ? from->len : 1) * sizeof *to->rows), from->len, from->len ? from->len : 1};
  if (from->len) memcpy(to->rows, from->rows, from->len * sizeof *to->rows);
}

void quarry_table_free(quarry_table *table) {
  free(table->rows);
  *table = (quarry_table){0};
}

// ---------------------------------------------------------------------------------------------------------------------
// What the host checks

typedef quarry_shard_types_error_t error_of;

static bool readable(error_of *error) {
  return quarry_double_.closed ? quarry_double_fail(error, "closed", "no database is open while options are checked") : true;
}

static bool check_key(quarry_bytes key, error_of *error) {
  if (!readable(error)) return false;
  if (!key.len) return quarry_double_fail(error, "invalid-key", "a key cannot be empty");
  if (key.len > MAX_KEY) return quarry_double_fail(error, "invalid-key", "a key of %zu bytes is over limits.key (%d bytes)", key.len, MAX_KEY);
  return true;
}

static bool check_op(const quarry_op *op, bool expires, error_of *error) {
  if (!quarry_double_writable(error) || !check_key(op->key, error)) return false;
  if (op->value.len > MAX_VALUE) {
    return quarry_double_fail(error, "invalid-value", "a value of %zu bytes is over limits.value (%d bytes)", op->value.len, MAX_VALUE);
  }
  if (expires && !op->ttl_ms) return quarry_double_fail(error, "invalid-argument", "a TTL is at least 1 ms; remove the key instead");
  if (op->kind == QUARRY_MERGE) return quarry_double_fail(error, "no-merge-operator", "this cluster has no merge operator");
  return true;
}

static bool check_size(const quarry_op *ops, size_t count, error_of *error) {
  size_t size = 0;
  for (size_t i = 0; i < count; i++) size += 64 + ops[i].key.len + ops[i].value.len;
  if (count > MAX_OPS || size > MAX_BATCH) {
    return quarry_double_fail(error, "limit", "%zu operations with %zu bytes are over what a batch may have (%d and %d, limits.batch)", count, size, MAX_OPS, MAX_BATCH);
  }
  return true;
}

static quarry_op op_of(quarry_op_kind kind, quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *value, uint64_t ttl_ms) {
  return (quarry_op){kind, quarry_from_list(*key), value ? quarry_from_list(*value) : quarry_view("", 0), ttl_ms};
}

// ---------------------------------------------------------------------------------------------------------------------
// Reads and writes

static bool get_from(const quarry_table *table, quarry_wit_list_u8_t *key, quarry_wit_option_list_u8_t *ret, error_of *error) {
  if (!check_key(quarry_from_list(*key), error)) return false;
  const quarry_row *row = find(table, quarry_from_list(*key));
  ret->is_some = row != NULL;
  if (row) ret->val = quarry_double_give(row->value);
  return true;
}

static bool get_many_from(const quarry_table *table, quarry_wit_list_list_u8_t *keys, quarry_wit_list_option_list_u8_t *ret, error_of *error) {
  if (keys->len > MAX_KEYS) return quarry_double_fail(error, "limit", "%zu keys are more than one get-many takes (%d); ask in several", keys->len, MAX_KEYS);
  ret->len = keys->len;
  ret->ptr = cabi_realloc(NULL, 0, _Alignof(quarry_wit_option_list_u8_t), keys->len * sizeof *ret->ptr);
  for (size_t i = 0; i < keys->len; i++) {
    if (!get_from(table, &keys->ptr[i], &ret->ptr[i], error)) return false;
  }
  return true;
}

static bool write_all(const quarry_op *ops, size_t count, quarry_seq *ret) {
  *ret = ++quarry_double_.last_seq;
  for (size_t i = 0; i < count; i++) apply(&quarry_double_.rows, &ops[i], *ret);
  return true;
}

bool quarry_shard_db_get(quarry_wit_list_u8_t *key, quarry_wit_option_list_u8_t *ret, error_of *err) { return get_from(&quarry_double_.rows, key, ret, err); }

bool quarry_shard_db_get_many(quarry_wit_list_list_u8_t *keys, quarry_wit_list_option_list_u8_t *ret, error_of *err) {
  return get_many_from(&quarry_double_.rows, keys, ret, err);
}

bool quarry_shard_db_get_versioned(quarry_wit_list_u8_t *key, quarry_shard_db_option_versioned_t *ret, error_of *err) {
  if (!check_key(quarry_from_list(*key), err)) return false;
  const quarry_row *row = find(&quarry_double_.rows, quarry_from_list(*key));
  ret->is_some = row != NULL;
  if (!row) return true;
  ret->val.value = quarry_double_give(row->value);
  ret->val.seq = row->seq;
  ret->val.created_at_ms = (int64_t)row->created_ms;
  ret->val.expires_at_ms.is_some = row->expires_ms != 0;
  ret->val.expires_at_ms.val = (int64_t)row->expires_ms;
  return true;
}

static bool write_one(quarry_op op, bool expires, quarry_seq *ret, error_of *err) { return check_op(&op, expires, err) && write_all(&op, 1, ret); }

bool quarry_shard_db_put(quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *value, quarry_seq *ret, error_of *err) {
  return write_one(op_of(QUARRY_PUT, key, value, 0), false, ret, err);
}
bool quarry_shard_db_put_for(quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *value, uint64_t ttl_ms, quarry_seq *ret, error_of *err) {
  return write_one(op_of(QUARRY_PUT, key, value, ttl_ms), true, ret, err);
}
bool quarry_shard_db_remove(quarry_wit_list_u8_t *key, quarry_seq *ret, error_of *err) {
  return write_one(op_of(QUARRY_REMOVE, key, NULL, 0), false, ret, err);
}
bool quarry_shard_db_merge(quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *operand, quarry_seq *ret, error_of *err) {
  return write_one(op_of(QUARRY_MERGE, key, operand, 0), false, ret, err);
}

bool quarry_shard_db_write(quarry_shard_db_list_op_t *list, quarry_seq *ret, error_of *err) {
  if (!list->len) return quarry_double_fail(err, "invalid-argument", "a batch needs at least one operation");
  quarry_op *ops = quarry_alloc(list->len * sizeof *ops);
  for (size_t i = 0; i < list->len; i++) {
    quarry_shard_db_op_t *from = &list->ptr[i];
    ops[i] = op_of((quarry_op_kind)from->kind, &from->key, &from->value, from->ttl_ms.is_some ? from->ttl_ms.val : 0);
    if (!check_op(&ops[i], from->ttl_ms.is_some, err)) return false;
  }
  return check_size(ops, list->len, err) && write_all(ops, list->len, ret);
}

// ---------------------------------------------------------------------------------------------------------------------
// Cursors, snapshots and transactions: what is open, by its handle

typedef struct {
  bool is_open;
  // Of a cursor what is left of it, of a transaction what it sees.
  quarry_table table;
  size_t next;
  quarry_seq began;
  quarry_op *ops;
  size_t count;
} opened;
static opened all[MAX_OPEN];

static opened *open_one(const quarry_table *table, int32_t *handle, error_of *error) {
  if (!readable(error)) return NULL;
  for (int32_t i = 0; i < MAX_OPEN; i++) {
    if (all[i].is_open) continue;
    all[i] = (opened){.is_open = true, .began = quarry_double_.last_seq};
    quarry_table_copy(&all[i].table, table);
    *handle = i;
    return &all[i];
  }
  quarry_double_fail(error, "limit", "%d cursors, snapshots and transactions are open (limits.open_resources)", MAX_OPEN);
  return NULL;
}

static void drop(int32_t handle) {
  quarry_table_free(&all[handle].table);
  free(all[handle].ops);
  all[handle] = (opened){0};
}
void drop_cursor(int32_t handle) { drop(handle); }
void drop_snapshot(int32_t handle) { drop(handle); }
void drop_transaction(int32_t handle) { drop(handle); }

// Keeps of a fresh cursor's rows those in the range, in the order of the scan.
static bool scan_of(const quarry_table *table, quarry_optional start, quarry_optional end, quarry_optional prefix, bool descending, int32_t *handle, error_of *error) {
  opened *cursor = open_one(table, handle, error);
  if (!cursor) return false;
  quarry_row *rows = cursor->table.rows;
  size_t len = 0;
  for (size_t i = 0; i < cursor->table.len; i++) {
    quarry_bytes key = rows[i].key;
    bool wanted = (!start.some || compare(key, start.bytes) >= 0) && (!end.some || compare(key, end.bytes) < 0) &&
                  (!prefix.some || (key.len >= prefix.bytes.len && quarry_equal(quarry_view(key.ptr, prefix.bytes.len), prefix.bytes)));
    if (wanted && is_live(&rows[i])) rows[len++] = rows[i];
  }
  cursor->table.len = len;
  for (size_t i = 0; descending && i < len / 2; i++) {
    quarry_row other = rows[i];
    rows[i] = rows[len - 1 - i];
    rows[len - 1 - i] = other;
  }
  return true;
}

static bool scan_range(const quarry_table *table, quarry_shard_db_key_range_t *range, quarry_shard_db_order_t order, int32_t *handle, error_of *error) {
  quarry_optional start = {range->start.is_some, quarry_from_list(range->start.val)}, end = {range->end.is_some, quarry_from_list(range->end.val)};
  return scan_of(table, start, end, (quarry_optional){0}, order == QUARRY_DESCENDING, handle, error);
}

static bool scan_prefix(const quarry_table *table, quarry_wit_list_u8_t *prefix, quarry_shard_db_order_t order, int32_t *handle, error_of *error) {
  return scan_of(table, (quarry_optional){0}, (quarry_optional){0}, (quarry_optional){true, quarry_from_list(*prefix)}, order == QUARRY_DESCENDING, handle, error);
}

bool quarry_shard_db_scan(quarry_shard_db_key_range_t *range, quarry_shard_db_order_t order, quarry_shard_db_own_cursor_t *ret, error_of *err) {
  return scan_range(&quarry_double_.rows, range, order, &ret->__handle, err);
}
bool quarry_shard_db_scan_prefix(quarry_wit_list_u8_t *prefix, quarry_shard_db_order_t order, quarry_shard_db_own_cursor_t *ret, error_of *err) {
  return scan_prefix(&quarry_double_.rows, prefix, order, &ret->__handle, err);
}

bool quarry_shard_db_method_cursor_next(quarry_shard_db_borrow_cursor_t self, uint32_t max, quarry_shard_db_list_entry_t *ret, error_of *err) {
  opened *cursor = &all[self.__handle];
  if (!max) return quarry_double_fail(err, "invalid-argument", "a page has at least 1 entry");
  size_t left = cursor->table.len - cursor->next, wanted = max < MAX_PAGE ? max : MAX_PAGE, size = 0, count = 0;
  const quarry_row *rows = cursor->table.rows + cursor->next;
  for (; count < left && count < wanted && (!count || size <= PAGE_BYTES); count++) size += rows[count].key.len + rows[count].value.len;
  ret->len = count;
  ret->ptr = cabi_realloc(NULL, 0, _Alignof(quarry_shard_db_entry_t), count * sizeof *ret->ptr);
  for (size_t i = 0; i < count; i++) ret->ptr[i] = (quarry_shard_db_entry_t){quarry_double_give(rows[i].key), quarry_double_give(rows[i].value)};
  cursor->next += count;
  return true;
}

bool quarry_shard_db_open_snapshot(quarry_shard_db_own_snapshot_t *ret, error_of *err) { return open_one(&quarry_double_.rows, &ret->__handle, err) != NULL; }
quarry_seq quarry_shard_db_method_snapshot_seq(quarry_shard_db_borrow_snapshot_t self) { return all[self.__handle].began; }
bool quarry_shard_db_method_snapshot_get(quarry_shard_db_borrow_snapshot_t self, quarry_wit_list_u8_t *key, quarry_wit_option_list_u8_t *ret, error_of *err) {
  return get_from(&all[self.__handle].table, key, ret, err);
}
bool quarry_shard_db_method_snapshot_get_many(quarry_shard_db_borrow_snapshot_t self, quarry_wit_list_list_u8_t *keys, quarry_wit_list_option_list_u8_t *ret, error_of *err) {
  return get_many_from(&all[self.__handle].table, keys, ret, err);
}
bool quarry_shard_db_method_snapshot_scan(quarry_shard_db_borrow_snapshot_t self, quarry_shard_db_key_range_t *range, quarry_shard_db_order_t order, quarry_shard_db_own_cursor_t *ret, error_of *err) {
  return scan_range(&all[self.__handle].table, range, order, &ret->__handle, err);
}
bool quarry_shard_db_method_snapshot_scan_prefix(quarry_shard_db_borrow_snapshot_t self, quarry_wit_list_u8_t *prefix, quarry_shard_db_order_t order, quarry_shard_db_own_cursor_t *ret, error_of *err) {
  return scan_prefix(&all[self.__handle].table, prefix, order, &ret->__handle, err);
}

bool quarry_shard_db_begin(quarry_shard_db_isolation_level_t isolation, quarry_shard_db_own_transaction_t *ret, error_of *err) {
  (void)isolation;
  return quarry_double_writable(err) && open_one(&quarry_double_.rows, &ret->__handle, err);
}
bool quarry_shard_db_method_transaction_get(quarry_shard_db_borrow_transaction_t self, quarry_wit_list_u8_t *key, quarry_wit_option_list_u8_t *ret, error_of *err) {
  return get_from(&all[self.__handle].table, key, ret, err);
}
bool quarry_shard_db_method_transaction_get_many(quarry_shard_db_borrow_transaction_t self, quarry_wit_list_list_u8_t *keys, quarry_wit_list_option_list_u8_t *ret, error_of *err) {
  return get_many_from(&all[self.__handle].table, keys, ret, err);
}
bool quarry_shard_db_method_transaction_scan(quarry_shard_db_borrow_transaction_t self, quarry_shard_db_key_range_t *range, quarry_shard_db_order_t order, quarry_shard_db_own_cursor_t *ret, error_of *err) {
  return scan_range(&all[self.__handle].table, range, order, &ret->__handle, err);
}
bool quarry_shard_db_method_transaction_scan_prefix(quarry_shard_db_borrow_transaction_t self, quarry_wit_list_u8_t *prefix, quarry_shard_db_order_t order, quarry_shard_db_own_cursor_t *ret, error_of *err) {
  return scan_prefix(&all[self.__handle].table, prefix, order, &ret->__handle, err);
}

static bool transacted(quarry_shard_db_borrow_transaction_t self, quarry_op op, bool expires, error_of *err) {
  opened *tx = &all[self.__handle];
  if (!check_op(&op, expires, err)) return false;
  op.key = quarry_double_keep_bytes(op.key);
  op.value = quarry_double_keep_bytes(op.value);
  tx->ops = grown(tx->ops, (tx->count + 1) * sizeof *tx->ops);
  tx->ops[tx->count] = op;
  if (!check_size(tx->ops, tx->count + 1, err)) return false;
  tx->count++;
  apply(&tx->table, &op, tx->began);
  return true;
}
bool quarry_shard_db_method_transaction_put(quarry_shard_db_borrow_transaction_t self, quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *value, error_of *err) {
  return transacted(self, op_of(QUARRY_PUT, key, value, 0), false, err);
}
bool quarry_shard_db_method_transaction_put_for(quarry_shard_db_borrow_transaction_t self, quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *value, uint64_t ttl_ms, error_of *err) {
  return transacted(self, op_of(QUARRY_PUT, key, value, ttl_ms), true, err);
}
bool quarry_shard_db_method_transaction_remove(quarry_shard_db_borrow_transaction_t self, quarry_wit_list_u8_t *key, error_of *err) {
  return transacted(self, op_of(QUARRY_REMOVE, key, NULL, 0), false, err);
}
bool quarry_shard_db_method_transaction_merge(quarry_shard_db_borrow_transaction_t self, quarry_wit_list_u8_t *key, quarry_wit_list_u8_t *operand, error_of *err) {
  return transacted(self, op_of(QUARRY_MERGE, key, operand, 0), false, err);
}

bool quarry_shard_db_method_transaction_commit(quarry_shard_db_borrow_transaction_t self, quarry_shard_db_option_seq_t *ret, error_of *err) {
  opened *tx = &all[self.__handle];
  ret->is_some = tx->count != 0;
  if (!tx->count) return true;
  if (tx->began != quarry_double_.last_seq) {
    quarry_double_fail(err, "conflict", "another write came between");
    err->retryable = true;
    return false;
  }
  return write_all(tx->ops, tx->count, &ret->val);
}
