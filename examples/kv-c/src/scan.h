// What a scan is asked for.
#ifndef KV_SCAN_H
#define KV_SCAN_H

#include "quarry.h"

typedef struct {
  // Only keys that start with this. Not together with a range.
  quarry_optional prefix;
  quarry_range range;
  quarry_order order;
  // Entries at most: 1 to 100,000, and 1,000 unless set.
  uint32_t limit;
} scan_request;

// Reads `{"prefix": "a", "start": "b", "end": "c", "limit": 10, "reverse": true}`, each field optional; no payload is the whole
// shard. Fails with `invalid-payload`.
quarry_status scan_read(quarry_bytes payload, scan_request *request);

#endif
