//go:build wasip1

package host

import (
	"runtime"
	"unsafe"

	"quarry/guest/internal/abi"
)

// call runs an import that writes its result, and reads it before its memory is used again.
func call(run func(ret unsafe.Pointer), read func(a *abi.Area)) {
	area := new(abi.Area)
	abi.Calling()
	run(area.Pointer())
	read(area)
	abi.Read()
}

// try is call for a result, whose value or error begins at `offset`. The error is read here.
func try(offset uintptr, run func(ret unsafe.Pointer), read func(a *abi.Area)) (failed *Error) {
	call(run, func(a *abi.Area) {
		if a.Bool(0) {
			failed = &Error{Code: a.Text(offset), Message: a.Text(offset + 8), Retryable: a.Bool(offset + 16)}
		} else if read != nil {
			read(a)
		}
	})
	return failed
}

func data(bytes []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(bytes)) }
func size(bytes []byte) uint32         { return uint32(len(bytes)) }

func text(run func(ret unsafe.Pointer)) (got string) {
	call(run, func(a *abi.Area) { got = a.Text(0) })
	return got
}

// list lowers lists within a list.
func list(keys [][]byte) []uint32 {
	words := make([]uint32, 0, 2*len(keys))
	for _, key := range keys {
		words = append(words, abi.Address(key), size(key))
	}
	return words
}

func words(list []uint32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(list)) }

func pairs(from []Pair) []uint32 {
	words := make([]uint32, 0, 4*len(from))
	for _, pair := range from {
		words = append(words, abi.AddressOf(pair.Name), uint32(len(pair.Name)), abi.AddressOf(pair.Value), uint32(len(pair.Value)))
	}
	return words
}

// What a call opened and did not close yet. The host closes it with the call, and the handles are given back with it.
var open = map[interface{ Close() }]struct{}{}

// EndCall closes what a call left open.
func EndCall() {
	for it := range open {
		it.Close()
	}
}

// ---------------------------------------------------------------------------------------------------------------------

// DB is the shard's database.
var DB Reader = db{}

type db struct{}

func getWith(run func(ret unsafe.Pointer)) (value Value, err *Error) {
	err = try(4, run, func(a *abi.Area) {
		if value.Some = a.Bool(4); value.Some {
			value.Bytes = a.Bytes(8)
		}
	})
	return value, err
}

func getManyWith(run func(ret unsafe.Pointer)) (values []Value, err *Error) {
	err = try(4, run, func(a *abi.Area) {
		count := a.U32(8)
		words := abi.Words(a.U32(4), count, 3)
		values = make([]Value, count)
		for i := range values {
			// An option is a byte and three that say nothing.
			if words[3*i]&0xff != 0 {
				values[i] = Value{Some: true, Bytes: abi.Bytes(words[3*i+1], words[3*i+2])}
			}
		}
	})
	return values, err
}

func scanWith(run func(ret unsafe.Pointer)) (Cursor, *Error) {
	made := &cursor{}
	if err := try(4, run, func(a *abi.Area) { made.handle = a.U32(4) }); err != nil {
		return nil, err
	}
	open[made] = struct{}{}
	return made, nil
}

func (db) Get(key []byte) (Value, *Error) {
	return getWith(func(ret unsafe.Pointer) { dbGet(data(key), size(key), ret) })
}

func (db) GetMany(keys [][]byte) ([]Value, *Error) {
	list := list(keys)
	defer runtime.KeepAlive(keys)
	return getManyWith(func(ret unsafe.Pointer) { dbGetMany(words(list), uint32(len(keys)), ret) })
}

func (db) Scan(r Range, descending bool) (Cursor, *Error) {
	return scanWith(func(ret unsafe.Pointer) {
		dbScan(abi.Flag(r.Start != nil), data(r.Start), size(r.Start), abi.Flag(r.End != nil), data(r.End), size(r.End), abi.Flag(descending), ret)
	})
}

func (db) ScanPrefix(prefix []byte, descending bool) (Cursor, *Error) {
	return scanWith(func(ret unsafe.Pointer) { dbScanPrefix(data(prefix), size(prefix), abi.Flag(descending), ret) })
}

// GetVersioned gives nil where there is no such key.
func GetVersioned(key []byte) (got *Versioned, err *Error) {
	err = try(8, func(ret unsafe.Pointer) { dbGetVersioned(data(key), size(key), ret) }, func(a *abi.Area) {
		if !a.Bool(8) {
			return
		}
		got = &Versioned{Value: a.Bytes(16), Seq: a.U64(24), CreatedAt: int64(a.U64(32))}
		if a.Bool(40) {
			got.ExpiresAt = int64(a.U64(48))
		}
	})
	return got, err
}

// Write applies one operation.
func Write(op Op) (uint64, *Error) {
	return numbered(func(ret unsafe.Pointer) {
		switch {
		case op.Kind == Put && op.Expires:
			dbPutFor(data(op.Key), size(op.Key), data(op.Value), size(op.Value), op.TTL, ret)
		case op.Kind == Put:
			dbPut(data(op.Key), size(op.Key), data(op.Value), size(op.Value), ret)
		case op.Kind == Remove:
			dbRemove(data(op.Key), size(op.Key), ret)
		default:
			dbMerge(data(op.Key), size(op.Key), data(op.Value), size(op.Value), ret)
		}
	})
}

func numbered(run func(ret unsafe.Pointer)) (seq uint64, err *Error) {
	err = try(8, run, func(a *abi.Area) { seq = a.U64(8) })
	return seq, err
}

// WriteAll applies all operations or none.
func WriteAll(ops []Op) (uint64, *Error) {
	// kind, key, value, and from the 24th byte on the time to live: ten words, aligned to eight bytes.
	list := make([]uint64, 5*len(ops))
	for i, op := range ops {
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&list[5*i])), 10)
		words[0] = uint32(op.Kind)
		words[1], words[2] = abi.Address(op.Key), size(op.Key)
		words[3], words[4] = abi.Address(op.Value), size(op.Value)
		words[6] = abi.Flag(op.Expires)
		list[5*i+4] = op.TTL
	}
	defer runtime.KeepAlive(ops)
	return numbered(func(ret unsafe.Pointer) { dbWrite(unsafe.Pointer(unsafe.SliceData(list)), uint32(len(ops)), ret) })
}

type cursor struct {
	handle uint32
	closed bool
}

func (c *cursor) Next(max uint32) (entries []Entry, err *Error) {
	if c.closed {
		return nil, errClosed
	}
	err = try(4, func(ret unsafe.Pointer) { cursorNext(c.handle, max, ret) }, func(a *abi.Area) {
		count := a.U32(8)
		words := abi.Words(a.U32(4), count, 4)
		entries = make([]Entry, count)
		for i := range entries {
			entries[i] = Entry{Key: abi.Bytes(words[4*i], words[4*i+1]), Value: abi.Bytes(words[4*i+2], words[4*i+3])}
		}
	})
	return entries, err
}

func (c *cursor) Close() {
	if !c.closed {
		c.closed = true
		delete(open, c)
		cursorDrop(c.handle)
	}
}

// ---------------------------------------------------------------------------------------------------------------------

type snapshot struct {
	handle uint32
	closed bool
}

// OpenSnapshot opens a view that later writes do not change.
func OpenSnapshot() (Snapshot, *Error) {
	made := &snapshot{}
	if err := try(4, func(ret unsafe.Pointer) { dbOpenSnapshot(ret) }, func(a *abi.Area) { made.handle = a.U32(4) }); err != nil {
		return nil, err
	}
	open[made] = struct{}{}
	return made, nil
}

func (s *snapshot) Seq() uint64 {
	if s.closed {
		return 0
	}
	return snapshotSeq(s.handle)
}

func (s *snapshot) Get(key []byte) (Value, *Error) {
	if s.closed {
		return Value{}, errClosed
	}
	return getWith(func(ret unsafe.Pointer) { snapshotGet(s.handle, data(key), size(key), ret) })
}

func (s *snapshot) GetMany(keys [][]byte) ([]Value, *Error) {
	if s.closed {
		return nil, errClosed
	}
	list := list(keys)
	defer runtime.KeepAlive(keys)
	return getManyWith(func(ret unsafe.Pointer) { snapshotGetMany(s.handle, words(list), uint32(len(keys)), ret) })
}

func (s *snapshot) Scan(r Range, descending bool) (Cursor, *Error) {
	if s.closed {
		return nil, errClosed
	}
	return scanWith(func(ret unsafe.Pointer) {
		snapshotScan(s.handle, abi.Flag(r.Start != nil), data(r.Start), size(r.Start), abi.Flag(r.End != nil), data(r.End), size(r.End), abi.Flag(descending), ret)
	})
}

func (s *snapshot) ScanPrefix(prefix []byte, descending bool) (Cursor, *Error) {
	if s.closed {
		return nil, errClosed
	}
	return scanWith(func(ret unsafe.Pointer) {
		snapshotScanPrefix(s.handle, data(prefix), size(prefix), abi.Flag(descending), ret)
	})
}

func (s *snapshot) Close() {
	if !s.closed {
		s.closed = true
		delete(open, s)
		snapshotDrop(s.handle)
	}
}

type transaction struct {
	handle uint32
	closed bool
}

// Begin begins a transaction.
func Begin(serializable bool) (Transaction, *Error) {
	made := &transaction{}
	if err := try(4, func(ret unsafe.Pointer) { dbBegin(abi.Flag(serializable), ret) }, func(a *abi.Area) { made.handle = a.U32(4) }); err != nil {
		return nil, err
	}
	open[made] = struct{}{}
	return made, nil
}

func (t *transaction) Get(key []byte) (Value, *Error) {
	if t.closed {
		return Value{}, errClosed
	}
	return getWith(func(ret unsafe.Pointer) { transactionGet(t.handle, data(key), size(key), ret) })
}

func (t *transaction) GetMany(keys [][]byte) ([]Value, *Error) {
	if t.closed {
		return nil, errClosed
	}
	list := list(keys)
	defer runtime.KeepAlive(keys)
	return getManyWith(func(ret unsafe.Pointer) { transactionGetMany(t.handle, words(list), uint32(len(keys)), ret) })
}

func (t *transaction) Scan(r Range, descending bool) (Cursor, *Error) {
	if t.closed {
		return nil, errClosed
	}
	return scanWith(func(ret unsafe.Pointer) {
		transactionScan(t.handle, abi.Flag(r.Start != nil), data(r.Start), size(r.Start), abi.Flag(r.End != nil), data(r.End), size(r.End), abi.Flag(descending), ret)
	})
}

func (t *transaction) ScanPrefix(prefix []byte, descending bool) (Cursor, *Error) {
	if t.closed {
		return nil, errClosed
	}
	return scanWith(func(ret unsafe.Pointer) {
		transactionScanPrefix(t.handle, data(prefix), size(prefix), abi.Flag(descending), ret)
	})
}

func (t *transaction) Write(op Op) *Error {
	if t.closed {
		return errClosed
	}
	return try(4, func(ret unsafe.Pointer) {
		switch {
		case op.Kind == Put && op.Expires:
			transactionPutFor(t.handle, data(op.Key), size(op.Key), data(op.Value), size(op.Value), op.TTL, ret)
		case op.Kind == Put:
			transactionPut(t.handle, data(op.Key), size(op.Key), data(op.Value), size(op.Value), ret)
		case op.Kind == Remove:
			transactionRemove(t.handle, data(op.Key), size(op.Key), ret)
		default:
			transactionMerge(t.handle, data(op.Key), size(op.Key), data(op.Value), size(op.Value), ret)
		}
	}, nil)
}

func (t *transaction) Commit() (seq uint64, wrote bool, err *Error) {
	if t.closed {
		return 0, false, errClosed
	}
	err = try(8, func(ret unsafe.Pointer) { transactionCommit(t.handle, ret) }, func(a *abi.Area) {
		if wrote = a.Bool(8); wrote {
			seq = a.U64(16)
		}
	})
	t.Close()
	return seq, wrote, err
}

func (t *transaction) Close() {
	if !t.closed {
		t.closed = true
		delete(open, t)
		transactionDrop(t.handle)
	}
}
