// Package handoff is the optional export that carries an instance's memory over a swap, to another revision that exports it too.
package handoff

import "quarry/guest/internal/guest"

// Handle registers, in an init function, what gives the memory, in a form that other revisions understand and leaving the instance as it was,
// and what takes it, after start and before the first call.
func Handle(suspend func() ([]byte, error), resume func(fromRevision uint64, state []byte) error) {
	isSet := guest.OnSuspend != nil || guest.OnResume != nil
	guest.Register(&guest.OnSuspend, isSet, "handoff", suspend)
	guest.Register(&guest.OnResume, isSet, "handoff", resume)
}
