package main

import (
	"math"
	"time"

	quarry "quarry/guest"
	"quarry/guest/db"
)

// A command: gives the values of its result.
type command func(*script, *arguments) ([][]byte, error)

func databaseCommand(name string) command {
	switch name {
	case "db.get":
		return get
	case "db.get-many":
		return getMany
	case "db.get-versioned":
		return getVersioned
	case "db.put":
		return put
	case "db.remove":
		return remove
	case "db.merge":
		return merge
	case "db.write":
		return write
	case "db.scan":
		return scan
	case "db.scan-prefix":
		return scanPrefix
	case "cursor.next":
		return next
	case "cursor.page":
		return page
	case "db.open-snapshot":
		return openSnapshot
	case "db.begin":
		return begin
	case "transaction.commit":
		return commit
	case "drop":
		return drop
	}
	return nil
}

// What reads: the database, a snapshot or a transaction.
type reader interface {
	Get(key []byte) ([]byte, bool, error)
	GetMany(keys ...[]byte) ([][]byte, error)
	Scan(db.Range, db.Order) (*db.Cursor, error)
	ScanPrefix(prefix []byte, order db.Order) (*db.Cursor, error)
}

type database struct{}

func (database) Get(key []byte) ([]byte, bool, error)            { return db.Get(key) }
func (database) GetMany(keys ...[]byte) ([][]byte, error)        { return db.GetMany(keys...) }
func (database) Scan(r db.Range, o db.Order) (*db.Cursor, error) { return db.Scan(r, o) }
func (database) ScanPrefix(prefix []byte, o db.Order) (*db.Cursor, error) {
	return db.ScanPrefix(prefix, o)
}

// Where a command goes.
func (s *script) on(args *arguments) (reader, error) {
	item := args.bytes()
	if len(item) == 0 {
		return database{}, args.err
	}
	number := args.numberOf(item)
	if args.err != nil {
		return nil, args.err
	}
	on, reads := s.handles[number].(reader)
	if !reads {
		return nil, noHandle(number)
	}
	return on, nil
}

// Where a write goes: nil is the database.
func (s *script) onWriter(args *arguments) (*db.Tx, error) {
	item := args.bytes()
	if len(item) == 0 {
		return nil, args.err
	}
	number := args.numberOf(item)
	if args.err != nil {
		return nil, args.err
	}
	tx, writes := s.handles[number].(*db.Tx)
	if !writes {
		return nil, noHandle(number)
	}
	return tx, nil
}

func get(s *script, args *arguments) ([][]byte, error) {
	on, err := s.on(args)
	key := args.bytes()
	if err := first(err, args.err); err != nil {
		return nil, err
	}
	value, found, err := on.Get(key)
	return [][]byte{option(value, found)}, err
}

func getMany(s *script, args *arguments) ([][]byte, error) {
	on, err := s.on(args)
	if err != nil {
		return nil, err
	}
	values, err := on.GetMany(args.items...)
	for i, value := range values {
		values[i] = option(value, value != nil)
	}
	return values, err
}

func getVersioned(_ *script, args *arguments) ([][]byte, error) {
	key := args.bytes()
	if args.err != nil {
		return nil, args.err
	}
	found, err := db.GetVersioned(key)
	if err != nil || found == nil {
		return nil, err
	}
	expires := option(number(found.Expires.UnixMilli()), !found.Expires.IsZero())
	return [][]byte{found.Value, number(found.Seq), number(found.Created.UnixMilli()), expires}, nil
}

func put(s *script, args *arguments) ([][]byte, error) {
	tx, err := s.onWriter(args)
	key, value := args.bytes(), args.bytes()
	ms, expires := args.optionalNumber()
	if err := first(err, args.err); err != nil {
		return nil, err
	}
	switch {
	case tx == nil && expires:
		return s.wrote(db.PutFor(key, value, milliseconds(ms)))
	case tx == nil:
		return s.wrote(db.Put(key, value))
	case expires:
		return nil, tx.PutFor(key, value, milliseconds(ms))
	}
	return nil, tx.Put(key, value)
}

func remove(s *script, args *arguments) ([][]byte, error) {
	tx, err := s.onWriter(args)
	key := args.bytes()
	if err := first(err, args.err); err != nil {
		return nil, err
	}
	if tx == nil {
		return s.wrote(db.Remove(key))
	}
	return nil, tx.Remove(key)
}

func merge(s *script, args *arguments) ([][]byte, error) {
	tx, err := s.onWriter(args)
	key, operand := args.bytes(), args.bytes()
	if err := first(err, args.err); err != nil {
		return nil, err
	}
	if tx == nil {
		return s.wrote(db.Merge(key, operand))
	}
	return nil, tx.Merge(key, operand)
}

func write(s *script, args *arguments) ([][]byte, error) {
	var batch db.Batch
	for args.left() {
		kind := args.choice("put", "remove", "merge")
		key, value := args.bytes(), args.bytes()
		ms, expires := args.optionalNumber()
		switch {
		case kind == 0 && expires:
			batch.PutFor(key, value, milliseconds(ms))
		case kind == 0:
			batch.Put(key, value)
		case kind == 1:
			batch.Remove(key)
		default:
			batch.Merge(key, value)
		}
	}
	if args.err != nil {
		return nil, args.err
	}
	return s.wrote(batch.Write())
}

func scan(s *script, args *arguments) ([][]byte, error) {
	on, err := s.on(args)
	handle, bounds, order := args.number(), db.Range{Start: args.option(), End: args.option()}, args.order()
	if err := first(err, args.err); err != nil {
		return nil, err
	}
	return s.scanned(handle)(on.Scan(bounds, order))
}

func scanPrefix(s *script, args *arguments) ([][]byte, error) {
	on, err := s.on(args)
	handle, prefix, order := args.number(), args.bytes(), args.order()
	if err := first(err, args.err); err != nil {
		return nil, err
	}
	return s.scanned(handle)(on.ScanPrefix(prefix, order))
}

func (s *script) scanned(handle uint64) func(*db.Cursor, error) ([][]byte, error) {
	return func(cursor *db.Cursor, err error) ([][]byte, error) {
		if err == nil {
			s.open(handle, cursor)
		}
		return nil, err
	}
}

func page(*script, *arguments) ([][]byte, error) {
	return nil, quarry.Errorf("unsupported", "the SDK has cursors, whose pages it takes by itself")
}

func next(s *script, args *arguments) ([][]byte, error) {
	handle, most := args.number(), args.number()
	if args.err != nil {
		return nil, args.err
	}
	cursor, is := s.handles[handle].(*db.Cursor)
	if !is {
		return nil, noHandle(handle)
	}
	var values [][]byte
	for ; most > 0; most-- {
		entry, found, err := cursor.Next()
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		values = append(values, entry.Key, entry.Value)
	}
	return values, nil
}

func openSnapshot(s *script, args *arguments) ([][]byte, error) {
	handle := args.number()
	if args.err != nil {
		return nil, args.err
	}
	snapshot, err := db.OpenSnapshot()
	if err != nil {
		return nil, err
	}
	s.open(handle, snapshot)
	return [][]byte{number(snapshot.Seq())}, nil
}

func begin(s *script, args *arguments) ([][]byte, error) {
	handle, isolation := args.number(), db.Isolation(args.choice("snapshot", "serializable") == 1)
	if args.err != nil {
		return nil, args.err
	}
	tx, err := db.Begin(isolation)
	if err == nil {
		s.open(handle, tx)
	}
	return nil, err
}

func commit(s *script, args *arguments) ([][]byte, error) {
	handle := args.number()
	if args.err != nil {
		return nil, args.err
	}
	tx, is := s.handles[handle].(*db.Tx)
	if !is {
		return nil, noHandle(handle)
	}
	seq, wrote, err := tx.Commit()
	if err != nil {
		return nil, err
	}
	if wrote {
		s.lastSeq = seq
	}
	return [][]byte{option(number(seq), wrote)}, nil
}

func drop(s *script, args *arguments) ([][]byte, error) {
	handle := args.number()
	if args.err != nil {
		return nil, args.err
	}
	return nil, s.close(handle)
}

func (a *arguments) order() db.Order {
	return db.Order(a.choice("ascending", "descending") == 1)
}

// As the SDK takes times: the longest one is far beyond what the host does.
func milliseconds(count uint64) time.Duration {
	return time.Duration(min(count, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}

// The first of two errors that is one: of a handle, or of arguments. What is no script goes before what the script opened.
func first(err, args error) error {
	if args != nil {
		return args
	}
	return err
}
