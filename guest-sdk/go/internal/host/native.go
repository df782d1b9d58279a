//go:build !wasip1

package host

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"
)

// The double for tests: a shard in memory, with the limits and errors of the host that handlers meet. Package quarrytest drives it.

// Double is what a test can see and set.
type Double struct {
	rows map[string]row
	seq  uint64
	// What a crash leaves: the rows, timers and the seq of when everything was durable last.
	durableRows   map[string]row
	durableTimers map[string]Timer
	durable       uint64
	// Lines of the log.
	Log []Line
	// Tags by the seq that they wait for.
	Tags []Tag
	// Timers by name.
	Timers map[string]Timer
	// Metrics by name: the sum of a counter, the last value of a gauge or a histogram.
	Metrics map[string]float64
	// What the call in progress set.
	ContentType string
	WhenApplied bool
	// What a test sets.
	Headers  map[string]string
	Options  string
	Now      time.Time
	ReadOnly bool
	// Asked gets calls to other shards.
	Asked func(query bool, shard *uint32, method string, key, payload []byte) ([]byte, *Error)
	open  map[interface{ Close() }]struct{}
}

type row struct {
	value            []byte
	seq              uint64
	created, expires int64
}

// Line is a line of the log.
type Line struct {
	Level   uint8
	Message string
	Fields  []Pair
}

// Tag is what `durability.Notify` asked for.
type Tag struct{ Seq, Tag uint64 }

// Timer is a timer that was set.
type Timer struct {
	Payload  []byte
	Due      time.Time
	Durable  bool
	Failures uint
}

// Test is the host of the tests of this process.
var Test = NewDouble()

// NewDouble is an empty shard.
func NewDouble() *Double {
	return &Double{
		rows: map[string]row{}, durableRows: map[string]row{}, durableTimers: map[string]Timer{}, Timers: map[string]Timer{}, Metrics: map[string]float64{}, Headers: map[string]string{},
		Options: "{}", Now: time.UnixMilli(1_700_000_000_000), open: map[interface{ Close() }]struct{}{},
	}
}

// Settle makes every write durable.
func (d *Double) Settle() {
	d.durable, d.durableRows, d.durableTimers = d.seq, maps.Clone(d.rows), map[string]Timer{}
	for name, timer := range d.Timers {
		if timer.Durable {
			d.durableTimers[name] = timer
		}
	}
}

// Forget takes away what was not durable, as a crash does. Numbers of writes are not given out twice.
func (d *Double) Forget() {
	d.rows, d.Timers, d.Tags = maps.Clone(d.durableRows), maps.Clone(d.durableTimers), nil
}

// Close takes away what ends with an instance.
func (d *Double) Close() {
	d.Tags = nil
	maps.DeleteFunc(d.Timers, func(_ string, timer Timer) bool { return !timer.Durable })
}

// Fired removes a durable timer that was done, in a write of its own.
func (d *Double) Fired(name string) {
	delete(d.Timers, name)
	d.seq++
}

// EndCall closes what a call left open.
func EndCall() {
	for it := range Test.open {
		it.Close()
	}
}

const (
	maxKey, maxValue, maxOpen = 65_535, 16 << 20, 64
	maxBatch, maxOps          = 32 << 20, 65_536
	maxTimers, maxTags        = 10_000, 65_536
)

func fail(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Retryable: code == "conflict"}
}

func checkKey(key []byte) *Error {
	if len(key) == 0 || len(key) > maxKey {
		return fail("invalid-key", "a key has 1 to %d bytes, not %d", maxKey, len(key))
	}
	return nil
}

func check(op Op) *Error {
	if Test.ReadOnly {
		return fail("read-only", "a query cannot write")
	}
	if err := checkKey(op.Key); err != nil {
		return err
	}
	if len(op.Value) > maxValue {
		return fail("invalid-value", "a value has up to %d bytes, not %d (limits.value)", maxValue, len(op.Value))
	}
	if op.Expires && op.TTL == 0 {
		return fail("invalid-argument", "a time to live is at least 1 ms")
	}
	if op.Kind == Merge {
		return fail("no-merge-operator", "the cluster has no merge operator (merge_operator)")
	}
	return nil
}

func checkAll(ops []Op) *Error {
	size := 0
	for _, op := range ops {
		size += 64 + len(op.Key) + len(op.Value)
	}
	if len(ops) > maxOps || size > maxBatch {
		return fail("limit", "a batch has up to %d operations and %d bytes, not %d and %d (limits.batch)", maxOps, maxBatch, len(ops), size)
	}
	return nil
}

func (d *Double) apply(ops []Op) uint64 {
	d.seq++
	now := d.Now.UnixMilli()
	for _, op := range ops {
		if op.Kind == Remove {
			delete(d.rows, string(op.Key))
			continue
		}
		row := row{value: slices.Clone(op.Value), seq: d.seq, created: now}
		if op.Expires {
			row.expires = now + int64(op.TTL)
		}
		d.rows[string(op.Key)] = row
	}
	return d.seq
}

func (d *Double) live(rows map[string]row, key string) (row, bool) {
	found, some := rows[key]
	return found, some && (found.expires == 0 || d.Now.UnixMilli() < found.expires)
}

// ---------------------------------------------------------------------------------------------------------------------

// DB is the shard's database.
var DB Reader = view{}

// A view of rows: of now, or of a moment.
type view struct{ rows map[string]row }

func (v view) table() map[string]row {
	if v.rows != nil {
		return v.rows
	}
	return Test.rows
}

func (v view) Get(key []byte) (Value, *Error) {
	if err := checkKey(key); err != nil {
		return Value{}, err
	}
	found, some := Test.live(v.table(), string(key))
	if !some {
		return Value{}, nil
	}
	return Value{Bytes: append([]byte{}, found.value...), Some: true}, nil
}

func (v view) GetMany(keys [][]byte) ([]Value, *Error) {
	if len(keys) > 1024 {
		return nil, fail("limit", "up to 1024 keys can be read at once, not %d", len(keys))
	}
	values := make([]Value, len(keys))
	for i, key := range keys {
		value, err := v.Get(key)
		if err != nil {
			return nil, err
		}
		values[i] = value
	}
	return values, nil
}

func (v view) Scan(r Range, descending bool) (Cursor, *Error) {
	return v.scan(descending, func(key []byte) bool {
		return (r.Start == nil || bytes.Compare(key, r.Start) >= 0) && (r.End == nil || bytes.Compare(key, r.End) < 0)
	})
}

func (v view) ScanPrefix(prefix []byte, descending bool) (Cursor, *Error) {
	return v.scan(descending, func(key []byte) bool { return bytes.HasPrefix(key, prefix) })
}

func (v view) scan(descending bool, wanted func(key []byte) bool) (Cursor, *Error) {
	if err := room(); err != nil {
		return nil, err
	}
	made := &listing{}
	for key := range v.table() {
		if found, some := Test.live(v.table(), key); some && wanted([]byte(key)) {
			made.entries = append(made.entries, Entry{Key: []byte(key), Value: slices.Clone(found.value)})
		}
	}
	sort.Slice(made.entries, func(a, b int) bool {
		return (bytes.Compare(made.entries[a].Key, made.entries[b].Key) < 0) != descending
	})
	Test.open[made] = struct{}{}
	return made, nil
}

func room() *Error {
	if len(Test.open) >= maxOpen {
		return fail("limit", "up to %d cursors, snapshots and transactions may be open (limits.open_resources)", maxOpen)
	}
	return nil
}

type listing struct {
	entries []Entry
	closed  bool
}

func (l *listing) Next(max uint32) ([]Entry, *Error) {
	if l.closed {
		return nil, errClosed
	}
	count := min(int(max), len(l.entries))
	page := l.entries[:count]
	l.entries = l.entries[count:]
	return page, nil
}

func (l *listing) Close() { l.closed = true; delete(Test.open, l) }

// GetVersioned gives nil where there is no such key.
func GetVersioned(key []byte) (*Versioned, *Error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	found, some := Test.live(Test.rows, string(key))
	if !some {
		return nil, nil
	}
	return &Versioned{Value: slices.Clone(found.value), Seq: found.seq, CreatedAt: found.created, ExpiresAt: found.expires}, nil
}

// Write applies one operation.
func Write(op Op) (uint64, *Error) {
	if err := check(op); err != nil {
		return 0, err
	}
	return Test.apply([]Op{op}), nil
}

// WriteAll applies all operations or none.
func WriteAll(ops []Op) (uint64, *Error) {
	if len(ops) == 0 {
		return 0, fail("invalid-argument", "a batch has at least one operation")
	}
	if err := checkAll(ops); err != nil {
		return 0, err
	}
	for _, op := range ops {
		if err := check(op); err != nil {
			return 0, err
		}
	}
	return Test.apply(ops), nil
}

func copied() map[string]row {
	rows := make(map[string]row, len(Test.rows))
	for key, row := range Test.rows {
		rows[key] = row
	}
	return rows
}

type moment struct {
	view
	seq uint64
}

// OpenSnapshot opens a view that later writes do not change.
func OpenSnapshot() (Snapshot, *Error) {
	if err := room(); err != nil {
		return nil, err
	}
	made := &moment{view{copied()}, Test.seq}
	Test.open[made] = struct{}{}
	return made, nil
}

func (m *moment) Seq() uint64 { return m.seq }
func (m *moment) Close()      { delete(Test.open, m) }

// A transaction that conflicts with any write since it began: what a handler alone in its shard never meets, but a test can make.
type pending struct {
	view
	began  uint64
	ops    []Op
	closed bool
}

// Begin begins a transaction.
func Begin(bool) (Transaction, *Error) {
	if Test.ReadOnly {
		return nil, fail("read-only", "a query cannot begin a transaction")
	}
	if err := room(); err != nil {
		return nil, err
	}
	made := &pending{view: view{copied()}, began: Test.seq}
	Test.open[made] = struct{}{}
	return made, nil
}

func (p *pending) Write(op Op) *Error {
	if p.closed {
		return errClosed
	}
	if err := check(op); err != nil {
		return err
	}
	if err := checkAll(append(p.ops, op)); err != nil {
		return err
	}
	op.Key, op.Value = slices.Clone(op.Key), slices.Clone(op.Value)
	p.ops = append(p.ops, op)
	if op.Kind == Remove {
		delete(p.rows, string(op.Key))
	} else {
		p.rows[string(op.Key)] = row{value: op.Value}
	}
	return nil
}

func (p *pending) Commit() (uint64, bool, *Error) {
	if p.closed {
		return 0, false, errClosed
	}
	defer p.Close()
	if len(p.ops) == 0 {
		return 0, false, nil
	}
	if Test.seq != p.began {
		return 0, false, fail("conflict", "another write came between")
	}
	return Test.apply(p.ops), true, nil
}

func (p *pending) Close() { p.closed = true; delete(Test.open, p) }
