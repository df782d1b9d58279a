//go:build wasip1

package host

import (
	"runtime"
	"unsafe"

	"quarry/guest/internal/abi"
)

// The rest of what the host offers.

func Cluster() string       { return text(func(ret unsafe.Pointer) { shardCluster(ret) }) }
func Node() string          { return text(func(ret unsafe.Pointer) { shardNode(ret) }) }
func Module() string        { return text(func(ret unsafe.Pointer) { shardModule(ret) }) }
func Options() string       { return text(func(ret unsafe.Pointer) { shardOptions(ret) }) }
func Shard() uint32         { return shardNumber() }
func Shards() uint32        { return shardCount() }
func Generation() uint64    { return shardGeneration() }
func Revision() uint64      { return shardRevision() }
func Status() uint32        { return shardStatus() }
func OwnedFor() uint64      { return shardOwnedFor() }
func DurableSeq() uint64    { return durableSeq() }
func ReplyWhenApplied()     { callReplyWhenApplied() }
func Logs(level uint8) bool { return logEnabled(uint32(level)) != 0 }

func ShardFor(key []byte) uint32 { return shardFor(data(key), size(key)) }

func SetContentType(media string) { callSetContentType(Readable(media)) }

func Deadline() (ms uint64, some bool) {
	call(func(ret unsafe.Pointer) { callDeadline(ret) }, func(a *abi.Area) {
		if some = a.Bool(0); some {
			ms = a.U64(8)
		}
	})
	return ms, some
}

func optionalText(run func(ret unsafe.Pointer)) (got string, some bool) {
	call(run, func(a *abi.Area) {
		if some = a.Bool(0); some {
			got = a.Text(4)
		}
	})
	return got, some
}

func Traceparent() (string, bool) {
	return optionalText(func(ret unsafe.Pointer) { callTraceparent(ret) })
}

func Header(name string) (string, bool) {
	if CheckText("", name) != nil {
		return "", false
	}
	return optionalText(func(ret unsafe.Pointer) { callHeader(name, ret) })
}

func NotifyWhenDurable(seq, tag uint64) *Error {
	return try(4, func(ret unsafe.Pointer) { durableNotify(seq, tag, ret) }, nil)
}

func SetTimer(name string, after uint64, payload []byte) *Error {
	if err := CheckText("a timer's name", name); err != nil {
		return err
	}
	return try(4, func(ret unsafe.Pointer) { timersSet(name, after, data(payload), size(payload), ret) }, nil)
}

func SetDurableTimer(name string, after uint64, payload []byte) (uint64, *Error) {
	if err := CheckText("a timer's name", name); err != nil {
		return 0, err
	}
	return numbered(func(ret unsafe.Pointer) { timersSetDurable(name, after, data(payload), size(payload), ret) })
}

func CancelTimer(name string) (existed bool, err *Error) {
	if err := CheckText("a timer's name", name); err != nil {
		return false, err
	}
	err = try(4, func(ret unsafe.Pointer) { timersCancel(name, ret) }, func(a *abi.Area) { existed = a.Bool(4) })
	return existed, err
}

func TimerDue(name string) (ms uint64, some bool, err *Error) {
	if err := CheckText("a timer's name", name); err != nil {
		return 0, false, err
	}
	err = try(8, func(ret unsafe.Pointer) { timersDue(name, ret) }, func(a *abi.Area) {
		if some = a.Bool(8); some {
			ms = a.U64(16)
		}
	})
	return ms, some, err
}

// Ask calls or queries another shard: the one of the key, unless there is a shard.
func Ask(query bool, shard *uint32, method string, key, payload []byte) (reply []byte, err *Error) {
	if err := CheckText("a method", method); err != nil {
		return nil, err
	}
	err = try(4, func(ret unsafe.Pointer) {
		switch {
		case shard == nil && query:
			clusterQueryKey(data(key), size(key), method, data(payload), size(payload), ret)
		case shard == nil:
			clusterCallKey(data(key), size(key), method, data(payload), size(payload), ret)
		case query:
			clusterQuery(*shard, method, abi.Flag(key != nil), data(key), size(key), data(payload), size(payload), ret)
		default:
			clusterCall(*shard, method, abi.Flag(key != nil), data(key), size(key), data(payload), size(payload), ret)
		}
	}, func(a *abi.Area) { reply = a.Bytes(4) })
	return reply, err
}

func Log(level uint8, message string, fields []Pair) {
	fields = readable(fields)
	list := pairs(fields)
	logWrite(uint32(level), Readable(message), words(list), uint32(len(fields)))
	runtime.KeepAlive(fields)
}

func DescribeMetric(name, help string) { metricsDescribe(Readable(name), Readable(help)) }

func AddMetric(name string, labels []Pair, by uint64) {
	labels = readable(labels)
	list := pairs(labels)
	metricsAdd(Readable(name), words(list), uint32(len(labels)), by)
	runtime.KeepAlive(labels)
}

func SetMetric(name string, labels []Pair, value float64) {
	labels = readable(labels)
	list := pairs(labels)
	metricsSet(Readable(name), words(list), uint32(len(labels)), value)
	runtime.KeepAlive(labels)
}

func ObserveMetric(name string, labels []Pair, value float64) {
	labels = readable(labels)
	list := pairs(labels)
	metricsObserve(Readable(name), words(list), uint32(len(labels)), value)
	runtime.KeepAlive(labels)
}
