//go:build !wasip1

package host

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// The rest of what the double offers.

var logging sync.Mutex

func Cluster() string       { return "test" }
func Node() string          { return "test" }
func Module() string        { return "main" }
func Options() string       { return Test.Options }
func Shard() uint32         { return 0 }
func Shards() uint32        { return 1 }
func Generation() uint64    { return 0 }
func Revision() uint64      { return 1 }
func Status() uint32        { return 0 }
func OwnedFor() uint64      { return 1<<64 - 1 }
func DurableSeq() uint64    { return Test.durable }
func ReplyWhenApplied()     { Test.WhenApplied = true }
func Logs(level uint8) bool { return true }

// ShardFor is 0, as there is one shard; the hash of the host is not here.
func ShardFor([]byte) uint32 { return 0 }

func SetContentType(media string) { Test.ContentType = media }

func Deadline() (uint64, bool) { return 30_000, true }

func Traceparent() (string, bool) { return Header("traceparent") }

func Header(name string) (string, bool) {
	value, some := Test.Headers[strings.ToLower(name)]
	return value, some
}

func NotifyWhenDurable(seq, tag uint64) *Error {
	if Test.ReadOnly {
		return fail("read-only", "a query cannot ask for notifications")
	}
	if seq > Test.seq {
		return fail("invalid-argument", "seq %d was not given out yet; the newest write is %d", seq, Test.seq)
	}
	if len(Test.Tags) >= maxTags {
		return fail("limit", "%d notifications are outstanding (limits.notifications)", maxTags)
	}
	Test.Tags = append(Test.Tags, Tag{seq, tag})
	return nil
}

func setTimer(name string, after uint64, payload []byte, durable bool) *Error {
	if err := CheckText("a timer's name", name); err != nil {
		return err
	}
	if Test.ReadOnly {
		return fail("read-only", "a query cannot set timers")
	}
	if len(name) == 0 || len(name) > 256 || len(payload) > 64<<10 {
		return fail("invalid-argument", "a timer's name has 1 to 256 bytes, not %d, its payload up to 65536, not %d", len(name), len(payload))
	}
	if _, known := Test.Timers[name]; !known && len(Test.Timers) >= maxTimers {
		full := fail("limit", "%d timers are set (limits.timers)", maxTimers)
		full.Retryable = true
		return full
	}
	if was := Test.Timers[name]; was.Durable && !durable {
		Test.seq++
	}
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	due := Test.Now.Add(time.Duration(min(after, most)) * time.Millisecond)
	Test.Timers[name] = Timer{Payload: slices.Clone(payload), Due: due, Durable: durable}
	return nil
}

func SetTimer(name string, after uint64, payload []byte) *Error {
	return setTimer(name, after, payload, false)
}

func SetDurableTimer(name string, after uint64, payload []byte) (uint64, *Error) {
	if err := setTimer(name, after, payload, true); err != nil {
		return 0, err
	}
	Test.seq++
	return Test.seq, nil
}

func CancelTimer(name string) (bool, *Error) {
	if err := CheckText("a timer's name", name); err != nil {
		return false, err
	}
	if Test.ReadOnly {
		return false, fail("read-only", "a query cannot cancel timers")
	}
	timer, existed := Test.Timers[name]
	if timer.Durable {
		Test.seq++
	}
	delete(Test.Timers, name)
	return existed, nil
}

func TimerDue(name string) (uint64, bool, *Error) {
	timer, some := Test.Timers[name]
	if !some {
		return 0, false, nil
	}
	return uint64(timer.Due.UnixMilli()), true, nil
}

// Ask calls or queries another shard.
func Ask(query bool, shard *uint32, method string, key, payload []byte) ([]byte, *Error) {
	if err := CheckText("a method", method); err != nil {
		return nil, err
	}
	if Test.ReadOnly && !query {
		return nil, fail("read-only", "a query cannot call other shards: it can query them")
	}
	if Test.Asked == nil {
		return nil, fail("unreachable", "there is no other shard: set one with quarrytest.Answer")
	}
	return Test.Asked(query, shard, method, key, payload)
}

func Log(level uint8, message string, fields []Pair) {
	logging.Lock()
	defer logging.Unlock()
	Test.Log = append(Test.Log, Line{level, Readable(message), slices.Clone(readable(fields))})
}

func DescribeMetric(string, string) {}

func AddMetric(name string, _ []Pair, by uint64)         { Test.Metrics[name] += float64(by) }
func SetMetric(name string, _ []Pair, value float64)     { Test.Metrics[name] = value }
func ObserveMetric(name string, _ []Pair, value float64) { Test.Metrics[name] = value }
