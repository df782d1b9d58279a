#include "state.h"

#include <stdlib.h>

static uint8_t *memory;
static size_t memory_len;
static list seen = {.is_kept = true};
static size_t event;

quarry_bytes state_memory(void) { return quarry_view(memory, memory_len); }

void state_remember(quarry_bytes value) {
  uint8_t *fresh = malloc(value.len ? value.len : 1);
  if (!fresh) abort();
  if (value.len) memcpy(fresh, value.ptr, value.len);
  free(memory);
  memory = fresh;
  memory_len = value.len;
}

list *state_event(void) {
  event = list_open(&seen);
  return &seen;
}

void state_noted(void) { list_close(&seen, event); }

const list *state_seen(void) { return &seen; }
