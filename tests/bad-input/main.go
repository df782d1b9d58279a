// A guest that gives the SDK and the host what they do not take, one method a fault. What its caller has to see stands in `.ci/bad-input.py`.
package main

import (
	"bytes"
	"errors"
	"time"

	quarry "quarry/guest"
	"quarry/guest/cluster"
	"quarry/guest/db"
	"quarry/guest/durability"
	"quarry/guest/metrics"
	"quarry/guest/timers"
)

const (
	tooMuch = 16<<20 + 1
	half    = "\xff is no text"
)

var (
	a     = []byte("a")
	alive int
)

func init() {
	quarry.Handle(call)
	// So that tags can be asked for, and timers set.
	durability.Handle(func([]uint64) {})
	timers.Handle(func(string, []byte, time.Time) error { return nil })
}

func main() {}

func call(c *quarry.Call) (quarry.Reply, error) {
	if c.Method == "alive" {
		alive++
		return quarry.Text(alive), nil
	}
	if c.Method == "return-too-much" {
		return quarry.Bytes(make([]byte, tooMuch)), nil
	}
	if c.Method == "content-type" {
		return quarry.Reply{ContentType: half}, nil
	}
	if c.Method == "return-function" {
		return quarry.JSON(func() {})
	}
	return quarry.Reply{}, fault(c)
}

func fault(c *quarry.Call) (err error) {
	switch c.Method {
	case "return-none":
	case "raise-types":
		err = quarry.Errorf("Not Good", "no")
	case "raise-surrogate":
		err = quarry.Errorf("mine", "%s", half)
	case "raise-plain":
		err = errors.New(half)
	case "panic":
		var none map[string]int
		none["a"] = 1
	case "nil-error":
		var none *quarry.Error
		err = none
	case "key-none":
		_, _, err = db.Get(nil)
	case "key-empty":
		_, _, err = db.Get([]byte{})
	case "key-large":
		_, _, err = db.Get(bytes.Repeat(a, 70_000))
	case "value-large":
		_, err = db.Put(a, make([]byte, tooMuch))
	case "ttl-zero":
		_, err = db.PutFor(a, a, 0)
	case "ttl-below":
		_, err = db.PutFor(a, a, -time.Second)
	case "many-too-many":
		_, err = db.GetMany(make([][]byte, 1025)...)
	case "batch-empty":
		_, err = new(db.Batch).Write()
	case "no-merge":
		_, err = db.Merge(a, a)
	case "seq-ahead":
		err = durability.Notify(1<<64-1, 1)
	case "timer-name-empty":
		err = timers.Set("", time.Second, nil)
	case "timer-name-bytes":
		err = timers.Set(half, time.Second, nil)
	case "timer-cancel":
		_, err = timers.Cancel(half)
	case "call-method":
		_, err = cluster.CallKey(a, half, nil)
	case "call-shard":
		_, err = cluster.Call(1<<32-1, "a", nil, nil)
	case "header-bytes":
		c.Header(half)
	case "metric-name":
		metrics.Add(half, 1, metrics.Label{Name: half, Value: half})
	case "payload-json":
		var to map[string]int
		err = c.JSON(&to)
	case "log-anything":
		quarry.Logger.Info(half, half, half)
	default:
		err = c.UnknownMethod()
	}
	return err
}
