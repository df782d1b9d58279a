package db

import (
	"iter"
	"time"

	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

// Entries that the host is asked for at once: few at first, for scans that end soon.
const firstPage, largestPage = 16, 1024

// Entry is a key and its value.
type Entry = host.Entry

// Range is from Start (inclusive) to End (exclusive). nil is open, and the zero value every key.
type Range = host.Range

// Order is the direction of a scan, by key.
type Order bool

// Lowest or highest key first.
const (
	Ascending  Order = false
	Descending Order = true
)

// Cursor is a position in a scan, over the database as it was when it was opened. It ends with its call; up to 64 cursors, snapshots and
// transactions may be open.
type Cursor struct {
	host  host.Cursor
	page  []Entry
	ask   uint32
	ended bool
}

// Scan reads a range of keys.
//
//	cursor, err := db.Scan(db.Range{}, db.Ascending)
//	if err != nil {
//		return err
//	}
//	defer cursor.Close()
//	for entry, err := range cursor.All() {
func Scan(r Range, order Order) (*Cursor, error) { return scan(host.DB.Scan(r, bool(order))) }

// ScanPrefix reads the keys that start with `prefix`. An empty prefix is every key.
func ScanPrefix(prefix []byte, order Order) (*Cursor, error) {
	return scan(host.DB.ScanPrefix(prefix, bool(order)))
}

func scan(from host.Cursor, err *host.Error) (*Cursor, error) {
	if err != nil {
		return nil, err
	}
	return &Cursor{host: from, ask: firstPage}, nil
}

// Next is the next entry; false at the end.
func (c *Cursor) Next() (Entry, bool, error) {
	if len(c.page) == 0 && !c.ended {
		page, err := c.host.Next(c.ask)
		if err != nil {
			return Entry{}, false, err
		}
		c.page, c.ended = page, len(page) == 0
		c.ask = min(c.ask*4, largestPage)
	}
	if len(c.page) == 0 {
		return Entry{}, false, nil
	}
	entry := c.page[0]
	c.page = c.page[1:]
	return entry, true, nil
}

// All is the entries from here on. An error is the last one.
func (c *Cursor) All() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for {
			entry, found, err := c.Next()
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !found || !yield(entry, nil) {
				return
			}
		}
	}
}

// Close ends the scan before its call does. More than once is fine.
func (c *Cursor) Close() { c.host.Close() }

// Snapshot is the database at one moment. It ends with its call.
type Snapshot struct{ host host.Snapshot }

// OpenSnapshot opens a view that later writes do not change.
func OpenSnapshot() (*Snapshot, error) {
	made, err := host.OpenSnapshot()
	if err != nil {
		return nil, err
	}
	return &Snapshot{made}, nil
}

// Seq is the last write that the snapshot shows.
func (s *Snapshot) Seq() Seq { return Seq(s.host.Seq()) }

// Get is as [Get], then.
func (s *Snapshot) Get(key []byte) (value []byte, found bool, err error) { return get(s.host, key) }

// GetMany is as [GetMany], then.
func (s *Snapshot) GetMany(keys ...[]byte) ([][]byte, error) { return getMany(s.host, keys) }

// Scan is as [Scan], then.
func (s *Snapshot) Scan(r Range, order Order) (*Cursor, error) {
	return scan(s.host.Scan(r, bool(order)))
}

// ScanPrefix is as [ScanPrefix], then.
func (s *Snapshot) ScanPrefix(prefix []byte, order Order) (*Cursor, error) {
	return scan(s.host.ScanPrefix(prefix, bool(order)))
}

// Close ends it before its call does. More than once is fine.
func (s *Snapshot) Close() { s.host.Close() }

// Isolation is what counts as a conflict.
type Isolation bool

// SnapshotIsolation finds two writes of one key, Serializable also reads that changed.
const (
	SnapshotIsolation Isolation = false
	Serializable      Isolation = true
)

// MaxAttempts is how often [Transact] begins before it gives the conflict to its caller.
const MaxAttempts = 10

// Tx is a transaction: the database as it was at the beginning, with its own writes on top. Older than 10 s it fails with `limit`.
type Tx struct{ host host.Transaction }

// Transact runs `body` in a transaction and commits it. On a conflict it begins again, up to [MaxAttempts] times in all, so that `body` must
// not do anything that cannot be done twice. An error or a panic of `body` changes nothing.
func Transact(isolation Isolation, body func(*Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := once(isolation, body)
		if known := guest.Wrap(err); known == nil || known.Code != "conflict" || attempt == MaxAttempts {
			return err
		}
	}
}

func once(isolation Isolation, body func(*Tx) error) error {
	tx, err := Begin(isolation)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := body(tx); err != nil {
		return err
	}
	_, _, err = tx.Commit()
	return err
}

// Begin begins a transaction by hand. Fails with `read-only` in a query.
func Begin(isolation Isolation) (*Tx, error) {
	made, err := host.Begin(bool(isolation))
	if err != nil {
		return nil, err
	}
	return &Tx{made}, nil
}

// Get is as [Get]. Under Serializable the key counts as read.
func (t *Tx) Get(key []byte) (value []byte, found bool, err error) { return get(t.host, key) }

// GetMany is as [GetMany].
func (t *Tx) GetMany(keys ...[]byte) ([][]byte, error) { return getMany(t.host, keys) }

// Scan is as [Scan], with the writes so far. Under Serializable the range counts as read.
func (t *Tx) Scan(r Range, order Order) (*Cursor, error) { return scan(t.host.Scan(r, bool(order))) }

// ScanPrefix is as [ScanPrefix], with the writes so far.
func (t *Tx) ScanPrefix(prefix []byte, order Order) (*Cursor, error) {
	return scan(t.host.ScanPrefix(prefix, bool(order)))
}

// Write applies a batch at the commit.
func (t *Tx) Write(b *Batch) error {
	for _, op := range b.ops {
		if err := t.host.Write(op); err != nil {
			return err
		}
	}
	return nil
}

// Put stores a value at the commit.
func (t *Tx) Put(key, value []byte) error {
	return guest.Unwrap(t.host.Write(host.Op{Kind: host.Put, Key: key, Value: value}))
}

// PutFor stores a value at the commit, that expires `ttl` after it.
func (t *Tx) PutFor(key, value []byte, ttl time.Duration) error {
	return guest.Unwrap(t.host.Write(expiring(key, value, ttl)))
}

// Remove removes a key at the commit.
func (t *Tx) Remove(key []byte) error {
	return guest.Unwrap(t.host.Write(host.Op{Kind: host.Remove, Key: key}))
}

// Merge merges an operand at the commit.
func (t *Tx) Merge(key, operand []byte) error {
	return guest.Unwrap(t.host.Write(host.Op{Kind: host.Merge, Key: key, Value: operand}))
}

// Commit applies the writes, all or none; false when there were none. `conflict` when another write came between. It is over either way.
func (t *Tx) Commit() (Seq, bool, error) {
	seq, wrote, err := t.host.Commit()
	return Seq(seq), wrote, guest.Unwrap(err)
}

// Rollback ends it without its writes. After a commit it does nothing.
func (t *Tx) Rollback() { t.host.Close() }
