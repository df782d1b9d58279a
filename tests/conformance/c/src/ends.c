#include "ends.h"

#include <stdlib.h>
#include <string.h>

// Read each time, so that no optimiser sees where the call goes.
static uint64_t (*volatile deeper)(uint64_t) = end_recurse;

uint64_t end_recurse(uint64_t depth) {
  volatile uint64_t frame[16];
  frame[depth % 16] = depth;
  uint64_t below = deeper(depth + 1);
  return below ^ frame[depth % 16];
}

_Noreturn void end_allocate(void) {
  for (;;) {
    char *volatile held = malloc(1 << 20);
    if (!held) abort();
    memset(held, 1, 1 << 20);
  }
}

_Noreturn void end_spin(void) {
  for (volatile uint64_t turns = 0;;) turns = turns + 1;
}
