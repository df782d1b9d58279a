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

// Restart runs the handlers of lifecycle, as when a shard opens. Memory in variables stays: it is the test's process.
func Restart(reason string) error {
	if guest.OnStop != nil {
		guest.OnStop(reason)
	}
	if guest.OnStart == nil {
		return nil
	}
	return guest.Unwrap(guest.Protect(guest.OnStart))
}

// Advance moves the time, and fires the timers that are due, the earliest first. It gives the first error of one; that timer is gone if
// it is in memory, and stays if it is durable.
func Advance(by time.Duration) error {
	host.Test.Now = host.Test.Now.Add(by)
	var due []string
	for name, timer := range host.Test.Timers {
		if !timer.Due.After(host.Test.Now) {
			due = append(due, name)
		}
	}
	sort.Slice(due, func(a, b int) bool { return host.Test.Timers[due[a]].Due.Before(host.Test.Timers[due[b]].Due) })
	var first error
	for _, name := range due {
		timer, still := host.Test.Timers[name]
		if !still || guest.OnTimer == nil {
			continue
		}
		delete(host.Test.Timers, name)
		err := guest.Protect(func() error { return guest.OnTimer(name, timer.Payload, timer.Due) })
		if _, again := host.Test.Timers[name]; err != nil && timer.Durable && !again {
			host.Test.Timers[name] = timer
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

// MakeDurable gives the tags that wait to the handler of durability, lowest seq first.
func MakeDurable() {
	waiting := host.Test.Tags
	host.Test.Tags = nil
	sort.SliceStable(waiting, func(a, b int) bool { return waiting[a].Seq < waiting[b].Seq })
	tags := make([]uint64, len(waiting))
	for i, tag := range waiting {
		tags[i] = tag.Tag
	}
	if len(tags) > 0 && guest.OnDurable != nil {
		guest.OnDurable(tags)
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
