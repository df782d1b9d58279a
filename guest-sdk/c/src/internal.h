// What the files of the SDK share.
#ifndef QUARRY_INTERNAL_H
#define QUARRY_INTERNAL_H

#include <stdarg.h>
#include <stdlib.h>

#include "../bindings/quarry_wit.h"
#include "../quarry.h"

// Memory that is given back all at once.
typedef struct quarry_block quarry_block;
typedef struct {
  quarry_block *newest;
} quarry_arena;

// Traps where there is no memory left. `align` is a power of two, up to 8.
void *quarry_arena_alloc(quarry_arena *arena, size_t len, size_t align);
void quarry_arena_free(quarry_arena *arena);
// Makes its memory that of the handler: a reply may point to it.
void quarry_arena_keep(quarry_arena *arena);

// Where what the host gives comes to lie: the handler's memory, or for a moment that of a cursor.
extern quarry_arena *quarry_arena_of_host;
// Ends the handler's memory.
void quarry_memory_end(void);
// Drops the cursors, snapshots and transactions that the handler left open. Not after it returned: the host takes no calls then.
void quarry_db_end(void);

quarry_bytes quarry_vprintf(const char *format, va_list args);

// The name as the host takes it. Fails with `invalid-argument` for what is no name. `what` says what it is the name of.
quarry_status quarry_name(const char *what, const char *name, quarry_wit_string_t *to);
// The text, with U+FFFD in the place of what is not UTF-8.
quarry_bytes quarry_readable(quarry_bytes text);

// An error of the host, in the handler's memory.
quarry_status quarry_from_host(const quarry_shard_types_error_t *error);

// Views of the two layers are alike, but for their names.
static inline quarry_wit_list_u8_t quarry_to_list(quarry_bytes bytes) { return (quarry_wit_list_u8_t){(uint8_t *)bytes.ptr, bytes.len}; }
static inline quarry_bytes quarry_from_list(quarry_wit_list_u8_t list) { return quarry_view(list.ptr, list.len); }
static inline quarry_wit_string_t quarry_to_string(quarry_bytes bytes) { return (quarry_wit_string_t){(uint8_t *)bytes.ptr, bytes.len}; }
static inline quarry_bytes quarry_from_string(quarry_wit_string_t text) { return quarry_view(text.ptr, text.len); }

#endif
