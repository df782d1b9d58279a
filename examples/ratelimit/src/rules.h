// The rules of a deployment, from its options: `{"*":"10/1s","free:*":"3/1m"}`. `{}` is `{"*":"10/1s"}`.
#ifndef RULES_H
#define RULES_H

#include "bucket.h"
#include "quarry.h"

// Finds the rule of a key: the one whose pattern is the key, else the one with the longest beginning of it. `*found` is false where
// none fits. Gives no bytes when all is well, else what is wrong with the options; every rule is checked, whatever the key.
quarry_bytes rules_find(quarry_bytes options, quarry_bytes key, bucket_rule *rule, bool *found);

#endif
