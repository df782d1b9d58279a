// Package lifecycle is the optional export of the start and stop of an instance. The database is open during both.
package lifecycle

import "quarry/guest/internal/guest"

// Handle registers, in an init function, what runs before the first call, and what runs after the last one with its reason: `stopping`,
// `moving`, `fenced`, `swapping`, or one that comes later. Either may be nil. An error of start keeps the shard from serving; it is tried again.
func Handle(start func() error, stop func(reason string)) {
	isSet := guest.OnStart != nil || guest.OnStop != nil
	guest.Register(&guest.OnStart, isSet, "lifecycle", start)
	guest.Register(&guest.OnStop, isSet, "lifecycle", stop)
}
