package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	quarry "quarry/guest"
	"quarry/guest/cluster"
	"quarry/guest/db"
	"quarry/guest/durability"
	"quarry/guest/metrics"
	"quarry/guest/timers"
)

// Random bytes that a step may ask for.
const randomMax = 1024

// When this instance began, on the monotonic clock.
var began = time.Now()

func otherCommand(name string) command {
	switch name {
	case "durability.durable-seq":
		return durableSeq
	case "durability.notify-when-durable":
		return notify
	case "timers.set":
		return setTimer
	case "timers.set-durable":
		return setDurableTimer
	case "timers.cancel":
		return cancelTimer
	case "timers.due-ms":
		return timerDue
	case "cluster":
		return toShard
	case "cluster-key":
		return toKey
	case "metrics":
		return measure
	case "log":
		return writeLog
	case "print":
		return printLine
	case "shard":
		return place
	case "shard.shard-for":
		return shardFor
	case "current-call":
		return thisCall
	case "current-call.set-content-type":
		return setContentType
	case "current-call.reply-when-applied":
		return replyWhenApplied
	case "memory":
		return remember
	case "seen":
		return func(*script, *arguments) ([][]byte, error) { return seen, nil }
	case "clock":
		return clock
	case "random":
		return random
	case "raise":
		return raise
	case "throw":
		return func(_ *script, args *arguments) ([][]byte, error) { panic(args.text()) }
	case "abort":
		return func(*script, *arguments) ([][]byte, error) { return nil, abort() }
	case "recurse":
		return func(*script, *arguments) ([][]byte, error) { return [][]byte{number(recurse(0))}, nil }
	case "allocate":
		return func(*script, *arguments) ([][]byte, error) { return nil, allocate() }
	case "spin":
		return func(*script, *arguments) ([][]byte, error) { return nil, spin() }
	}
	return nil
}

func durableSeq(*script, *arguments) ([][]byte, error) {
	return [][]byte{number(db.DurableSeq())}, nil
}

func notify(s *script, args *arguments) ([][]byte, error) {
	seq := s.lastSeq
	if item := args.bytes(); len(item) > 0 {
		seq = db.Seq(args.numberOf(item))
	}
	tag := args.number()
	if args.err != nil {
		return nil, args.err
	}
	return nil, durability.Notify(seq, tag)
}

func setTimer(_ *script, args *arguments) ([][]byte, error) {
	name, after, payload := args.text(), milliseconds(args.number()), args.bytes()
	if args.err != nil {
		return nil, args.err
	}
	return nil, timers.Set(name, after, payload)
}

func setDurableTimer(s *script, args *arguments) ([][]byte, error) {
	name, after, payload := args.text(), milliseconds(args.number()), args.bytes()
	if args.err != nil {
		return nil, args.err
	}
	return s.wrote(timers.SetDurable(name, after, payload))
}

func cancelTimer(_ *script, args *arguments) ([][]byte, error) {
	name := args.text()
	if args.err != nil {
		return nil, args.err
	}
	existed, err := timers.Cancel(name)
	return [][]byte{flag(existed)}, err
}

func timerDue(_ *script, args *arguments) ([][]byte, error) {
	name := args.text()
	if args.err != nil {
		return nil, args.err
	}
	due, found, err := timers.Due(name)
	return [][]byte{option(number(due.UnixMilli()), found)}, err
}

func toShard(_ *script, args *arguments) ([][]byte, error) {
	ask, shard, key := cluster.Call, uint32(0), []byte(nil)
	if args.choice("call", "query") == 1 {
		ask = cluster.Query
	}
	shard, key = args.shard(), args.option()
	method, payload := args.text(), args.bytes()
	if args.err != nil {
		return nil, args.err
	}
	reply, err := ask(shard, method, key, payload)
	return [][]byte{reply}, err
}

func toKey(_ *script, args *arguments) ([][]byte, error) {
	ask := cluster.CallKey
	if args.choice("call", "query") == 1 {
		ask = cluster.QueryKey
	}
	key, method, payload := args.bytes(), args.text(), args.bytes()
	if args.err != nil {
		return nil, args.err
	}
	reply, err := ask(key, method, payload)
	return [][]byte{reply}, err
}

func measure(_ *script, args *arguments) ([][]byte, error) {
	what, name := args.choice("describe", "add", "set", "observe"), args.text()
	var run func()
	switch what {
	case 0:
		help := args.text()
		run = func() { metrics.Describe(name, help) }
	case 1:
		by, labels := args.number(), args.labels()
		run = func() { metrics.Add(name, by, labels...) }
	case 2:
		value, labels := args.decimal(), args.labels()
		run = func() { metrics.Set(name, value, labels...) }
	default:
		value, labels := args.decimal(), args.labels()
		run = func() { metrics.Observe(name, value, labels...) }
	}
	if args.err == nil {
		run()
	}
	return nil, args.err
}

// All that are left, two by two.
func (a *arguments) labels() (labels []metrics.Label) {
	for a.left() {
		labels = append(labels, metrics.Label{Name: a.text(), Value: a.text()})
	}
	return labels
}

func writeLog(_ *script, args *arguments) ([][]byte, error) {
	levels := []slog.Level{slog.LevelDebug - 4, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	level, message := levels[args.choice("trace", "debug", "info", "warn", "error")], args.text()
	var fields []slog.Attr
	for args.left() {
		fields = append(fields, slog.String(args.text(), args.text()))
	}
	if args.err != nil {
		return nil, args.err
	}
	enabled := quarry.Logger.Enabled(context.Background(), level)
	quarry.Logger.LogAttrs(context.Background(), level, message, fields...)
	return [][]byte{flag(enabled)}, nil
}

func printLine(_ *script, args *arguments) ([][]byte, error) {
	to := os.Stdout
	if args.choice("out", "err") == 1 {
		to = os.Stderr
	}
	line := args.text()
	if args.err != nil {
		return nil, args.err
	}
	if _, err := fmt.Fprintln(to, line); err != nil {
		return nil, quarry.Errorf("write-failed", "%v", err)
	}
	return nil, nil
}

func place(*script, *arguments) ([][]byte, error) {
	// Without leases the longest time that the SDK has.
	owned := uint64(quarry.OwnedFor() / time.Millisecond)
	if owned == math.MaxInt64/uint64(time.Millisecond) {
		owned = math.MaxUint64
	}
	statuses := map[quarry.Status]string{quarry.Running: "running", quarry.Stopping: "stopping", quarry.Fenced: "fenced"}
	return [][]byte{
		[]byte(quarry.ClusterName()),
		number(quarry.Shard()),
		number(quarry.Shards()),
		[]byte(quarry.NodeName()),
		number(quarry.Generation()),
		[]byte(quarry.ModuleName()),
		number(quarry.Revision()),
		[]byte(quarry.Options()),
		[]byte(statuses[quarry.ShardStatus()]),
		number(owned),
	}, nil
}

func shardFor(_ *script, args *arguments) ([][]byte, error) {
	key := args.bytes()
	if args.err != nil {
		return nil, args.err
	}
	return [][]byte{number(quarry.ShardFor(key))}, nil
}

func thisCall(s *script, args *arguments) ([][]byte, error) {
	name := args.text()
	if args.err != nil {
		return nil, args.err
	}
	left, waits := s.call.TimeLeft()
	return [][]byte{
		option(number(left.Milliseconds()), waits),
		optionOfText(s.call.Traceparent()),
		optionOfText(s.call.Header(name)),
	}, nil
}

func setContentType(s *script, args *arguments) ([][]byte, error) {
	s.reply.ContentType = args.text()
	return nil, args.err
}

func replyWhenApplied(s *script, _ *arguments) ([][]byte, error) {
	s.reply.WhenApplied = true
	return nil, nil
}

func remember(_ *script, args *arguments) ([][]byte, error) {
	value := args.option()
	if args.err != nil {
		return nil, args.err
	}
	if value != nil {
		memory = value
	}
	return [][]byte{memory}, nil
}

func clock(*script, *arguments) ([][]byte, error) {
	return [][]byte{number(time.Now().UnixMilli()), number(time.Since(began).Nanoseconds())}, nil
}

func random(_ *script, args *arguments) ([][]byte, error) {
	count := args.number()
	if args.err != nil || count > randomMax {
		return nil, invalid()
	}
	bytes := make([]byte, count)
	if _, err := rand.Read(bytes); err != nil {
		return nil, quarry.Errorf("unsupported", "%v", err)
	}
	return [][]byte{bytes}, nil
}

func raise(_ *script, args *arguments) ([][]byte, error) {
	raised := &quarry.Error{Code: args.text(), Message: args.text(), Retryable: args.choice("0", "1") == 1}
	if args.err != nil {
		return nil, args.err
	}
	return nil, failure{raised}
}
