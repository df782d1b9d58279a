// What the files of the double share.
#ifndef QUARRY_DOUBLE_H
#define QUARRY_DOUBLE_H

#include "../src/internal.h"
#include "quarry_test.h"

// A row: bytes that are never changed, and so shared by all tables that have it.
typedef struct {
  quarry_bytes key;
  quarry_bytes value;
  quarry_seq seq;
  uint64_t created_ms;
  // 0 for never.
  uint64_t expires_ms;
} quarry_row;
// Rows in the order of their keys.
typedef struct {
  quarry_row *rows;
  size_t len;
  size_t room;
} quarry_table;

typedef struct {
  uint64_t now_ms;
  quarry_seq last_seq;
  quarry_seq durable_seq;
  bool read_only;
  // Where no database is open: while options are checked.
  bool closed;
  quarry_table rows;
  quarry_table durable_rows;
} quarry_double;
extern quarry_double quarry_double_;

// Where the host hands over to: the canonical ABI's allocator.
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t new_size);
// What the guest gets: a copy in its handler's memory.
quarry_wit_list_u8_t quarry_double_give(quarry_bytes bytes);
// An error of the host. The message is made as by `quarry_printf`.
bool quarry_double_fail(quarry_shard_types_error_t *error, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Whether this may write now; else the error.
bool quarry_double_writable(quarry_shard_types_error_t *error);

// Memory of the test, which ends with it; out of it the process ends.
void *quarry_double_keep(size_t len);
quarry_bytes quarry_double_keep_bytes(quarry_bytes bytes);
void quarry_double_forget(void);

void quarry_table_copy(quarry_table *to, const quarry_table *from);
void quarry_table_free(quarry_table *table);
// Gives all of a test back.
void quarry_double_end(void);
// The test that runs now, for what it says.
void quarry_double_named(const char *name);

#endif
