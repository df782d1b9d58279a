// What an instance remembers: a field, and what happened to it.
#ifndef STATE_H
#define STATE_H

#include "form.h"

// The field.
quarry_bytes state_memory(void);
// Sets the field.
void state_remember(quarry_bytes value);
// Notes an event: what is added to the list between these.
list *state_event(void);
void state_noted(void);
// The events so far, oldest first.
const list *state_seen(void);

#endif
