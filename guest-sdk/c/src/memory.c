// Memory of a handler: all that the host hands over and all that this SDK makes, given back in one go when the handler ends.
#include "internal.h"

struct quarry_block {
  quarry_block *older;
  size_t size;
  size_t used;
  _Alignas(8) uint8_t data[];
};

// The first bytes of each handler cost no `malloc`. Most handlers need no more.
enum { FIRST_BYTES = 16 * 1024, BLOCK_BYTES = 64 * 1024 };
static _Alignas(8) uint8_t first[FIRST_BYTES];
static size_t first_used;

static quarry_arena of_handler;
quarry_arena *quarry_arena_of_host = &of_handler;

void *quarry_arena_alloc(quarry_arena *arena, size_t len, size_t align) {
  if (arena == &of_handler) {
    size_t at = (first_used + align - 1) & ~(align - 1);
    if (at <= FIRST_BYTES && len <= FIRST_BYTES - at) {
      first_used = at + len;
      return first + at;
    }
  }
  quarry_block *block = arena->newest;
  if (block) {
    size_t at = (block->used + align - 1) & ~(align - 1);
    if (at <= block->size && len <= block->size - at) {
      block->used = at + len;
      return block->data + at;
    }
  }
  // What is large gets a block of its own, behind the newest one, which goes on to be filled.
  bool is_large = len > BLOCK_BYTES / 4;
  size_t size = is_large ? len : BLOCK_BYTES;
  quarry_block *fresh = size > SIZE_MAX - sizeof *fresh ? NULL : malloc(sizeof *fresh + size);
  if (!fresh) __builtin_trap();
  fresh->size = size;
  fresh->used = len;
  if (is_large && block) {
    fresh->older = block->older;
    block->older = fresh;
  } else {
    fresh->older = block;
    arena->newest = fresh;
  }
  return fresh->data;
}

void quarry_arena_free(quarry_arena *arena) {
  while (arena->newest) {
    quarry_block *older = arena->newest->older;
    free(arena->newest);
    arena->newest = older;
  }
}

void quarry_arena_keep(quarry_arena *arena) {
  while (arena->newest) {
    quarry_block *block = arena->newest;
    arena->newest = block->older;
    block->older = of_handler.newest;
    of_handler.newest = block;
  }
}

void quarry_memory_end(void) {
  quarry_arena_free(&of_handler);
  first_used = 0;
}

void *quarry_alloc(size_t len) { return quarry_arena_alloc(&of_handler, len, 8); }

quarry_bytes quarry_copy(quarry_bytes bytes) {
  if (!bytes.len) return quarry_view("", 0);
  return quarry_view(memcpy(quarry_alloc(bytes.len), bytes.ptr, bytes.len), bytes.len);
}

// The canonical ABI: the host asks here for memory for what it hands over. In place of the one of the bindings, which is weak.
#ifdef __wasm__
__attribute__((export_name("cabi_realloc")))
#endif
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t new_size) {
  // Of no length: any pointer but NULL that is aligned.
  if (!new_size) return (void *)align;
  void *fresh = quarry_arena_alloc(quarry_arena_of_host, new_size, align);
  if (old && old_size) memcpy(fresh, old, old_size < new_size ? old_size : new_size);
  return fresh;
}

// The bindings name an object with the description of their world, so that it is linked. `quarry build` adds the description.
void __component_type_object_force_link_quarry_wit(void) {}
