// How often something may happen, by key.
//
// | method | payload | reply |
// |---|---|---|
// | `take` | how many, 1 if empty | `{"allowed":true,"remaining":2,"retry_after_ms":0}` |
// | `peek`, also as a query | the same | the same, and nothing is taken |
// | `totals`, also as a query | - | `{"allowed":3,"refused":1}`: tokens that were asked for, since ever |
// | `forget` | - | -; the bucket is full, and the totals are zero |
//
// What holds: of a rule `N/T`, in any time t at most N + N * t / T tokens are taken, but for what a crash forgets (limiter.c, `take`).
#include "limiter.h"

QUARRY_EXPORT_CALL(limiter_call)
QUARRY_EXPORT_QUERY(limiter_query)
QUARRY_EXPORT_OPTIONS(limiter_validate)
