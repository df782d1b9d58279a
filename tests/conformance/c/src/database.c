// The commands of the database.
#include "script.h"

// Where a command goes: none is the database.
static quarry_status on(script *in, handle **to) {
  quarry_bytes item;
  uint64_t number;
  QUARRY_TRY(args_bytes(in, &item));
  *to = NULL;
  if (!item.len) return QUARRY_OK;
  if (!number_of(item, &number)) return script_invalid(in);
  QUARRY_TRY(script_handle(in, number, to));
  return (*to)->kind == CURSOR ? script_no_handle(number) : QUARRY_OK;
}

// Where a write goes.
static quarry_status on_writer(script *in, quarry_transaction **to) {
  handle *found;
  QUARRY_TRY(on(in, &found));
  if (found && found->kind != TRANSACTION) return script_no_handle(found->number);
  *to = found ? found->transaction : NULL;
  return QUARRY_OK;
}

static quarry_status get(script *in, list *values) {
  handle *from;
  quarry_bytes key;
  quarry_optional value;
  QUARRY_TRY(on(in, &from));
  QUARRY_TRY(args_bytes(in, &key));
  QUARRY_TRY(!from                     ? quarry_get(key, &value)
             : from->kind == SNAPSHOT ? quarry_snapshot_get(from->snapshot, key, &value)
                                      : quarry_tx_get(from->transaction, key, &value));
  list_add_option(values, value);
  return QUARRY_OK;
}

static quarry_status get_many(script *in, list *values) {
  handle *from;
  QUARRY_TRY(on(in, &from));
  // No more than there are bytes left: each takes four at least.
  size_t count = 0, most = in->args.len / 4;
  quarry_bytes *keys = quarry_alloc(most * sizeof *keys);
  while (args_left(in)) QUARRY_TRY(args_bytes(in, &keys[count++]));
  quarry_optional *found = quarry_alloc(count * sizeof *found);
  QUARRY_TRY(!from                     ? quarry_get_many(keys, count, found)
             : from->kind == SNAPSHOT ? quarry_snapshot_get_many(from->snapshot, keys, count, found)
                                      : quarry_tx_get_many(from->transaction, keys, count, found));
  for (size_t i = 0; i < count; i++) list_add_option(values, found[i]);
  return QUARRY_OK;
}

static quarry_status get_versioned(script *in, list *values) {
  quarry_bytes key;
  quarry_versioned found;
  QUARRY_TRY(args_bytes(in, &key));
  QUARRY_TRY(quarry_get_versioned(key, &found));
  if (!found.some) return QUARRY_OK;
  list_add(values, found.value);
  list_add_number(values, found.seq);
  list_add(values, quarry_printf("%lld", (long long)found.created_at_ms));
  list_add_option(values, (quarry_optional){found.expires, quarry_printf("%lld", (long long)found.expires_at_ms)});
  return QUARRY_OK;
}

static quarry_status put(script *in, list *values) {
  quarry_transaction *on;
  quarry_bytes key, value;
  bool expires;
  uint64_t ttl_ms;
  quarry_seq seq;
  QUARRY_TRY(on_writer(in, &on));
  QUARRY_TRY(args_bytes(in, &key));
  QUARRY_TRY(args_bytes(in, &value));
  QUARRY_TRY(args_optional_number(in, &expires, &ttl_ms));
  if (on) return expires ? quarry_tx_put_for(on, key, value, ttl_ms) : quarry_tx_put(on, key, value);
  QUARRY_TRY(expires ? quarry_put_for(key, value, ttl_ms, &seq) : quarry_put(key, value, &seq));
  script_wrote(in, seq, values);
  return QUARRY_OK;
}

static quarry_status remove_key(script *in, list *values) {
  quarry_transaction *on;
  quarry_bytes key;
  quarry_seq seq;
  QUARRY_TRY(on_writer(in, &on));
  QUARRY_TRY(args_bytes(in, &key));
  if (on) return quarry_tx_remove(on, key);
  QUARRY_TRY(quarry_remove(key, &seq));
  script_wrote(in, seq, values);
  return QUARRY_OK;
}

static quarry_status merge(script *in, list *values) {
  quarry_transaction *on;
  quarry_bytes key, operand;
  quarry_seq seq;
  QUARRY_TRY(on_writer(in, &on));
  QUARRY_TRY(args_bytes(in, &key));
  QUARRY_TRY(args_bytes(in, &operand));
  if (on) return quarry_tx_merge(on, key, operand);
  QUARRY_TRY(quarry_merge(key, operand, &seq));
  script_wrote(in, seq, values);
  return QUARRY_OK;
}

static quarry_status write(script *in, list *values) {
  static const char *const kinds[] = {"put", "remove", "merge", NULL};
  // Each operation is four items, of four bytes at least.
  size_t count = 0, most = in->args.len / 16 + 1;
  quarry_op *ops = quarry_alloc(most * sizeof *ops);
  while (args_left(in)) {
    quarry_op op = {0};
    int kind;
    bool expires;
    QUARRY_TRY(args_choice(in, kinds, &kind));
    QUARRY_TRY(args_bytes(in, &op.key));
    QUARRY_TRY(args_bytes(in, &op.value));
    QUARRY_TRY(args_optional_number(in, &expires, &op.ttl_ms));
    // To the SDK 0 is for ever, so that it cannot hand a time to live of 0 to the host.
    if (expires && !op.ttl_ms) return quarry_fail("unsupported", "a time to live of 0 ms in a batch");
    op.kind = (quarry_op_kind)kind;
    ops[count++] = op;
  }
  quarry_seq seq;
  QUARRY_TRY(quarry_write(ops, count, &seq));
  script_wrote(in, seq, values);
  return QUARRY_OK;
}

static quarry_status args_order(script *in, quarry_order *order) {
  static const char *const orders[] = {"ascending", "descending", NULL};
  int place;
  QUARRY_TRY(args_choice(in, orders, &place));
  *order = (quarry_order)place;
  return QUARRY_OK;
}

static quarry_status scan(script *in, list *values) {
  (void)values;
  handle *from, opened = {.kind = CURSOR};
  uint64_t number;
  quarry_range range;
  quarry_order order;
  QUARRY_TRY(on(in, &from));
  QUARRY_TRY(args_number(in, &number));
  QUARRY_TRY(args_option(in, &range.start));
  QUARRY_TRY(args_option(in, &range.end));
  QUARRY_TRY(args_order(in, &order));
  QUARRY_TRY(!from                     ? quarry_scan(range, order, &opened.cursor)
             : from->kind == SNAPSHOT ? quarry_snapshot_scan(from->snapshot, range, order, &opened.cursor)
                                      : quarry_tx_scan(from->transaction, range, order, &opened.cursor));
  script_open(in, number, opened);
  return QUARRY_OK;
}

static quarry_status scan_prefix(script *in, list *values) {
  (void)values;
  handle *from, opened = {.kind = CURSOR};
  uint64_t number;
  quarry_bytes prefix;
  quarry_order order;
  QUARRY_TRY(on(in, &from));
  QUARRY_TRY(args_number(in, &number));
  QUARRY_TRY(args_bytes(in, &prefix));
  QUARRY_TRY(args_order(in, &order));
  QUARRY_TRY(!from                     ? quarry_scan_prefix(prefix, order, &opened.cursor)
             : from->kind == SNAPSHOT ? quarry_snapshot_scan_prefix(from->snapshot, prefix, order, &opened.cursor)
                                      : quarry_tx_scan_prefix(from->transaction, prefix, order, &opened.cursor));
  script_open(in, number, opened);
  return QUARRY_OK;
}

static quarry_status next(script *in, list *values) {
  uint64_t number, max;
  handle *from;
  QUARRY_TRY(args_number(in, &number));
  QUARRY_TRY(script_handle(in, number, &from));
  if (from->kind != CURSOR) return script_no_handle(number);
  QUARRY_TRY(args_number(in, &max));
  for (uint64_t count = 0; count < max; count++) {
    quarry_entry entry;
    bool found;
    QUARRY_TRY(quarry_next(from->cursor, &entry, &found));
    if (!found) break;
    list_add(values, entry.key);
    list_add(values, entry.value);
  }
  return QUARRY_OK;
}

static quarry_status open_snapshot(script *in, list *values) {
  handle opened = {.kind = SNAPSHOT};
  uint64_t number;
  QUARRY_TRY(args_number(in, &number));
  QUARRY_TRY(quarry_open_snapshot(&opened.snapshot));
  script_open(in, number, opened);
  list_add_number(values, quarry_snapshot_seq(opened.snapshot));
  return QUARRY_OK;
}

static quarry_status begin(script *in, list *values) {
  (void)values;
  static const char *const isolations[] = {"snapshot", "serializable", NULL};
  handle opened = {.kind = TRANSACTION};
  uint64_t number;
  int isolation;
  QUARRY_TRY(args_number(in, &number));
  QUARRY_TRY(args_choice(in, isolations, &isolation));
  QUARRY_TRY(quarry_begin((quarry_isolation)isolation, &opened.transaction));
  script_open(in, number, opened);
  return QUARRY_OK;
}

static quarry_status commit(script *in, list *values) {
  uint64_t number;
  handle *of;
  quarry_seq seq;
  QUARRY_TRY(args_number(in, &number));
  QUARRY_TRY(script_handle(in, number, &of));
  if (of->kind != TRANSACTION) return script_no_handle(number);
  QUARRY_TRY(quarry_commit(of->transaction, &seq));
  if (seq) in->last_seq = seq;
  list_add_option(values, (quarry_optional){seq != 0, quarry_printf("%llu", (unsigned long long)seq)});
  return QUARRY_OK;
}

static quarry_status drop(script *in, list *values) {
  (void)values;
  uint64_t number;
  QUARRY_TRY(args_number(in, &number));
  return script_close(in, number);
}

static quarry_status page(script *in, list *values) {
  (void)in;
  (void)values;
  return quarry_fail("unsupported", "the SDK has cursors, whose pages it takes by itself");
}

const command DATABASE[] = {
    {"db.get", get},
    {"db.get-many", get_many},
    {"db.get-versioned", get_versioned},
    {"db.put", put},
    {"db.remove", remove_key},
    {"db.merge", merge},
    {"db.write", write},
    {"db.scan", scan},
    {"db.scan-prefix", scan_prefix},
    {"cursor.next", next},
    {"cursor.page", page},
    {"db.open-snapshot", open_snapshot},
    {"db.begin", begin},
    {"transaction.commit", commit},
    {"drop", drop},
    {NULL, NULL},
};
