#include "bucket.h"

bucket_taken bucket_take(bucket_rule rule, uint64_t full_at_ns, uint64_t now_ns, uint64_t tokens) {
  uint64_t capacity = rule.limit * rule.interval_ns;
  // What is missing, as the time for it to come back. After a clock that went back, or under a smaller rule, no more than a whole bucket.
  uint64_t missing = full_at_ns > now_ns ? full_at_ns - now_ns : 0;
  if (missing > capacity) missing = capacity;
  bucket_taken taken = {0};
  taken.allowed = tokens <= (capacity - missing) / rule.interval_ns;
  if (taken.allowed) {
    missing += tokens * rule.interval_ns;
  } else if (tokens <= rule.limit) {
    taken.retry_after_ns = missing + tokens * rule.interval_ns - capacity;
  } else {
    taken.retry_after_ns = UINT64_MAX;
  }
  taken.remaining = (capacity - missing) / rule.interval_ns;
  taken.full_at_ns = now_ns + missing;
  return taken;
}
