// The ways in which a guest can end.
#ifndef ENDS_H
#define ENDS_H

#include <stdint.h>

// Calls itself without an end.
uint64_t end_recurse(uint64_t depth);
// Takes memory without an end.
_Noreturn void end_allocate(void);
// Computes without an end.
_Noreturn void end_spin(void);

#endif
