// Token buckets: a bucket holds `limit` tokens, and one comes back every `interval_ns`. Nothing here knows of a clock or a database.
#ifndef BUCKET_H
#define BUCKET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  // Tokens of a full bucket.
  uint64_t limit;
  // Nanoseconds for one token to come back. `limit * interval_ns` is at most a day.
  uint64_t interval_ns;
} bucket_rule;

typedef struct {
  bool allowed;
  // Tokens that are left.
  uint64_t remaining;
  // When the bucket is full again: all that has to be known of it. A bucket that is not stored is full.
  uint64_t full_at_ns;
  // How long until as many tokens are there; 0 where they were taken.
  uint64_t retry_after_ns;
} bucket_taken;

// Takes `tokens` from a bucket, all or none; 0 only looks. In any time t at most `limit + t / interval_ns` are taken.
bucket_taken bucket_take(bucket_rule rule, uint64_t full_at_ns, uint64_t now_ns, uint64_t tokens);

#endif
