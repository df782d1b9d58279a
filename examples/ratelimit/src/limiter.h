// The methods of the limiter.
#ifndef LIMITER_H
#define LIMITER_H

#include "quarry.h"

quarry_status limiter_call(const quarry_call *call, quarry_reply *reply);
quarry_status limiter_query(const quarry_call *call, quarry_reply *reply);
// What is wrong with options; no bytes where nothing is.
quarry_bytes limiter_validate(quarry_bytes options);

#endif
