// Package db is the shard's database: ordered byte keys and values.
//
// A write is visible to this shard at once and durable later; a reply waits by itself until every write that it may show is durable. Calls of a
// shard run one at a time, so that a read followed by a write loses no update. Keys have 1 byte to 64 KiB, values up to 16 MiB. What is handed out is
// the caller's own, and what is handed in is only read.
package db

import (
	"time"

	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

// Seq is the number of a write: higher is later, unique for the life of the data.
type Seq uint64

// DurableSeq is the newest write up to which every write is durable.
func DurableSeq() Seq { return Seq(host.DurableSeq()) }

// Get reads a key. An expired value reads as none.
func Get(key []byte) (value []byte, found bool, err error) { return get(host.DB, key) }

// GetMany reads up to 1,024 keys, in their order, concurrently. nil for a key that is not there, and never for one that is.
func GetMany(keys ...[]byte) ([][]byte, error) { return getMany(host.DB, keys) }

// Versioned is a stored value and what is known of it. Expires is the zero time for never.
type Versioned struct {
	Value            []byte
	Seq              Seq
	Created, Expires time.Time
}

// GetVersioned reads a key; nil where it is not there.
func GetVersioned(key []byte) (*Versioned, error) {
	got, err := host.GetVersioned(key)
	if err != nil || got == nil {
		return nil, guest.Unwrap(err)
	}
	versioned := &Versioned{Value: got.Value, Seq: Seq(got.Seq), Created: time.UnixMilli(got.CreatedAt)}
	if got.ExpiresAt != 0 {
		versioned.Expires = time.UnixMilli(got.ExpiresAt)
	}
	return versioned, nil
}

// Put stores a value. An empty value is a value.
func Put(key, value []byte) (Seq, error) {
	return write(host.Op{Kind: host.Put, Key: key, Value: value})
}

// PutFor stores a value that expires after `ttl`. Less than a millisecond fails with `invalid-argument`.
func PutFor(key, value []byte, ttl time.Duration) (Seq, error) {
	return write(expiring(key, value, ttl))
}

// Remove deletes a key, whether it exists or not.
func Remove(key []byte) (Seq, error) { return write(host.Op{Kind: host.Remove, Key: key}) }

// Merge hands an operand to the cluster's merge operator.
func Merge(key, operand []byte) (Seq, error) {
	return write(host.Op{Kind: host.Merge, Key: key, Value: operand})
}

// Batch is operations that are applied together. The zero value is empty.
type Batch struct{ ops []host.Op }

// Put adds the storing of a value. Later operations on a key win.
func (b *Batch) Put(key, value []byte) {
	b.ops = append(b.ops, host.Op{Kind: host.Put, Key: key, Value: value})
}

// PutFor adds the storing of a value that expires.
func (b *Batch) PutFor(key, value []byte, ttl time.Duration) {
	b.ops = append(b.ops, expiring(key, value, ttl))
}

// Remove adds the removal of a key.
func (b *Batch) Remove(key []byte) { b.ops = append(b.ops, host.Op{Kind: host.Remove, Key: key}) }

// Merge adds a merge operand.
func (b *Batch) Merge(key, operand []byte) {
	b.ops = append(b.ops, host.Op{Kind: host.Merge, Key: key, Value: operand})
}

// Len is how many operations there are.
func (b *Batch) Len() int { return len(b.ops) }

// Write applies all operations or none, with one seq: 1 to 65,536 of them, up to 32 MiB.
func (b *Batch) Write() (Seq, error) {
	seq, err := host.WriteAll(b.ops)
	return Seq(seq), guest.Unwrap(err)
}

func write(op host.Op) (Seq, error) {
	seq, err := host.Write(op)
	return Seq(seq), guest.Unwrap(err)
}

func get(from host.Reader, key []byte) ([]byte, bool, error) {
	value, err := from.Get(key)
	return value.Bytes, value.Some, guest.Unwrap(err)
}

func getMany(from host.Reader, keys [][]byte) ([][]byte, error) {
	values, err := from.GetMany(keys)
	if err != nil {
		return nil, err
	}
	got := make([][]byte, len(values))
	for i, value := range values {
		if value.Some {
			got[i] = value.Bytes
		}
	}
	return got, nil
}

// Less than a millisecond is 0, which the host refuses.
func expiring(key, value []byte, ttl time.Duration) host.Op {
	return host.Op{Kind: host.Put, Key: key, Value: value, Expires: true, TTL: uint64(max(ttl, 0) / time.Millisecond)}
}
