// A host for tests: a database of a few keys, with expiry and the merge operator `u64-add`, and a clock that stands still.
#ifndef HOST_H
#define HOST_H

#include "quarry.h"

// An empty database, options, and no limit of time.
void host_begin(const char *options);
void host_advance(uint64_t ms);
// How many keys have a value.
size_t host_live(void);
// Runs a method, and gives its reply or, after `! `, the code of its error. Lasts until the next run.
const char *host_call(const char *method, const char *key, const char *payload);
const char *host_query(const char *method, const char *key, const char *payload);
// Whether the last reply may leave before it is durable.
bool host_was_applied(void);

#endif
