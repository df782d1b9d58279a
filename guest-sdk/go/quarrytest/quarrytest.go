//go:build !wasip1

// Package quarrytest runs a guest's handlers without a host, for `go test`: the database, log, timers and metrics are in memory, with the limits and
// errors of the host that handlers meet. There is one shard a process, so that tests that use it do not run in parallel.
package quarrytest

import (
	"sort"
	"testing"
	"time"

	quarry "quarry/guest"
	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

// Reset makes an empty shard for a test.
func Reset(t testing.TB) {
	t.Helper()
	host.Test = host.NewDouble()
}

// Call runs a call. An empty key is none.
func Call(method, key string, payload []byte) (quarry.Reply, *quarry.Error) {
	return run(guest.OnCall, method, key, payload)
}

// Query runs a query: it cannot write.
func Query(method, key string, payload []byte) (quarry.Reply, *quarry.Error) {
	host.Test.ReadOnly = true
	defer func() { host.Test.ReadOnly = false }()
	return run(guest.OnQuery, method, key, payload)
}

func run(handler guest.Handler, method, key string, payload []byte) (quarry.Reply, *quarry.Error) {
	host.Test.ContentType, host.Test.WhenApplied = "", false
	var routing []byte
	if key != "" {
		routing = []byte(key)
	}
	body, err := guest.RunCall(handler, method, routing, payload)
	if err != nil {
		return quarry.Reply{}, err
	}
	return quarry.Reply{Body: body, ContentType: host.Test.ContentType, WhenApplied: host.Test.WhenApplied}, nil
}

// OnFresh registers what puts the guest's variables back to how a program begins with them. It runs wherever a host would make a fresh
// instance, until the test ends; without it they stay, as they are those of the test's process.
func OnFresh(t testing.TB, reset func()) {
	t.Helper()
	t.Cleanup(func() { fresh = nil })
	fresh = reset
}

var fresh func()

// Restart stops the guest cleanly and starts it again over the same data: every write is durable then, and timers in memory are gone. `reason`
// is what the handler of lifecycle gets for its stop. Gives the error that keeps the guest from starting.
func Restart(reason string) error {
	MakeDurable()
	if guest.OnStop != nil {
		_ = guest.Protect(func() error { guest.OnStop(reason); return nil })
	}
	host.Test.Settle()
	host.Test.Close()
	return start()
}

// Crash is what a crash of the node does: nothing is stopped, the writes and timers that were not durable are gone, and the guest starts over
// the rest.
func Crash() error {
	host.EndCall()
	host.Test.Forget()
	return start()
}

func start() error {
	if fresh != nil {
		fresh()
	}
	if guest.OnStart != nil {
		if err := guest.Protect(guest.OnStart); err != nil {
			return err
		}
	}
	for done := guest.OnMigrate == nil; !done; {
		if err := guest.Protect(func() (err error) { done, err = guest.OnMigrate(0); return err }); err != nil {
			return err
		}
	}
	return nil
}

// Now is the time on the host's clock, which [Advance] moves. `time.Now` of a handler stays the machine's: have the guest call a variable,
// `var now = time.Now`, and set that to Now in its tests; or run them in a bubble of testing/synctest.
func Now() time.Time { return host.Test.Now }

// A durable timer that fails is tried again after a second, doubled each time up to a minute.
const retry, retryMax = time.Second, time.Minute

// Advance moves the time, and fires the timers that are due by then, each at its moment. It gives the first error of one; such a timer is gone
// if it is in memory, and is tried again if it is durable.
func Advance(by time.Duration) error {
	until := host.Test.Now.Add(by)
	var first error
	for guest.OnTimer != nil {
		name, timer := next(until)
		if name == "" {
			break
		}
		if timer.Due.After(host.Test.Now) {
			host.Test.Now = timer.Due
		}
		if err := fire(name, timer); err != nil && first == nil {
			first = err
		}
	}
	host.Test.Now = until
	return first
}

// The timer that is due first, if one is by then. No timer has an empty name.
func next(until time.Time) (due string, first host.Timer) {
	for name, timer := range host.Test.Timers {
		isBefore := due == "" || timer.Due.Before(first.Due) || timer.Due.Equal(first.Due) && name < due
		if !timer.Due.After(until) && isBefore {
			due, first = name, timer
		}
	}
	return due, first
}

func fire(name string, timer host.Timer) error {
	if !timer.Durable {
		delete(host.Test.Timers, name)
	}
	err := guest.Protect(func() error { return guest.OnTimer(name, timer.Payload, timer.Due) })
	// Unless the handler set it anew, or cancelled it.
	now, there := host.Test.Timers[name]
	if timer.Durable && there && now.Due.Equal(timer.Due) {
		if err == nil {
			host.Test.Fired(name)
		} else {
			now.Due = host.Test.Now.Add(min(retry<<min(now.Failures, 6), retryMax))
			now.Failures++
			host.Test.Timers[name] = now
		}
	}
	return guest.Unwrap(err)
}

// MakeDurable makes every write durable, and gives the tags that wait for that to the handler of durability, lowest seq first.
func MakeDurable() {
	host.Test.Settle()
	waiting := host.Test.Tags
	host.Test.Tags = nil
	sort.SliceStable(waiting, func(a, b int) bool { return waiting[a].Seq < waiting[b].Seq })
	tags := make([]uint64, len(waiting))
	for i, tag := range waiting {
		tags[i] = tag.Tag
	}
	if len(tags) > 0 && guest.OnDurable != nil {
		_ = guest.Protect(func() error { guest.OnDurable(tags); return nil })
	}
}

// Answer gets the calls and queries of other shards. `shard` is nil where the key says which.
func Answer(handler func(query bool, shard *uint32, method string, key, payload []byte) ([]byte, *quarry.Error)) {
	host.Test.Asked = handler
}

// SetHeader sets a header of the calls that follow, by its name in lower case.
func SetHeader(name, value string) { host.Test.Headers[name] = value }

// SetOptions sets the module's options, a JSON object.
func SetOptions(options string) { host.Test.Options = options }

// Log is the messages of the log so far.
func Log() []string {
	var lines []string
	for _, line := range host.Test.Log {
		lines = append(lines, line.Message)
	}
	return lines
}

// Metric is the sum of a counter, or the last value of a gauge or a histogram, over all labels.
func Metric(name string) float64 { return host.Test.Metrics[name] }
