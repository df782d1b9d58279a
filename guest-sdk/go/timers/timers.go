// Package timers sets timers of this module in this shard, and is the optional export that gets them when they are due. A name of 1 to 256
// bytes has one timer: setting it again replaces it. A payload has up to 64 KiB. A timer fires between calls, never early.
//
// Where the shard has all the timers that it may have (10,000, limits.timers), Set and SetDurable fail with the code limit, which is
// retryable: there is room again once a timer has fired or was cancelled.
package timers

import (
	"time"

	"quarry/guest/db"
	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

// Handle registers what runs when a timer is due, in an init function. After an error a durable timer is tried again.
func Handle(fire func(name string, payload []byte, due time.Time) error) {
	guest.Register(&guest.OnTimer, guest.OnTimer != nil, "timers", fire)
}

// Set sets a timer in memory: forgotten when the shard closes or moves, and after a trap.
func Set(name string, after time.Duration, payload []byte) error {
	return guest.Unwrap(host.SetTimer(name, milliseconds(after), payload))
}

// SetDurable sets a timer in the database: it fires at least once, wherever the shard is then.
func SetDurable(name string, after time.Duration, payload []byte) (db.Seq, error) {
	seq, err := host.SetDurableTimer(name, milliseconds(after), payload)
	return db.Seq(seq), guest.Unwrap(err)
}

// Cancel removes a timer, and says whether there was one.
func Cancel(name string) (bool, error) {
	existed, err := host.CancelTimer(name)
	return existed, guest.Unwrap(err)
}

// Due is when a timer is due; false where there is none.
func Due(name string) (time.Time, bool, error) {
	ms, some, err := host.TimerDue(name)
	if err != nil || !some {
		return time.Time{}, false, guest.Unwrap(err)
	}
	return time.UnixMilli(int64(ms)), true, nil
}

// Up, as a timer never fires early.
func milliseconds(after time.Duration) uint64 {
	if after <= 0 {
		return 0
	}
	return uint64((after-1)/time.Millisecond) + 1
}
