// Package host is what the host offers, as it is: on wasip1 its imports, elsewhere a double in memory for tests. The packages around
// it make it pleasant.
package host

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Error is an error of the host, or of a guest.
type Error struct {
	Code, Message string
	Retryable     bool
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Value is a stored value, or none.
type Value struct {
	Bytes []byte
	Some  bool
}

// Versioned is a stored value and what is known of it. Times are milliseconds since the Unix epoch; ExpiresAt is 0 for never.
type Versioned struct {
	Value                []byte
	Seq                  uint64
	CreatedAt, ExpiresAt int64
}

// Entry is a key and its value.
type Entry struct{ Key, Value []byte }

// Op is an operation of a batch. A put that expires does so after TTL milliseconds.
type Op struct {
	Kind       uint8
	Key, Value []byte
	Expires    bool
	TTL        uint64
}

// What an operation does.
const (
	Put uint8 = iota
	Remove
	Merge
)

// Range is from Start (inclusive) to End (exclusive). nil is open.
type Range struct{ Start, End []byte }

// Pair is a field of a log line, or a label of a metric.
type Pair struct{ Name, Value string }

// Reader reads keys: the database, a snapshot or a transaction.
type Reader interface {
	Get(key []byte) (Value, *Error)
	GetMany(keys [][]byte) ([]Value, *Error)
	Scan(r Range, descending bool) (Cursor, *Error)
	ScanPrefix(prefix []byte, descending bool) (Cursor, *Error)
}

// Cursor is a position in a scan.
type Cursor interface {
	Next(max uint32) ([]Entry, *Error)
	Close()
}

// Snapshot is the database at one moment.
type Snapshot interface {
	Reader
	Seq() uint64
	Close()
}

// Transaction is the database at one moment, with its own writes on top.
type Transaction interface {
	Reader
	Write(op Op) *Error
	Commit() (seq uint64, wrote bool, err *Error)
	Close()
}

var errClosed = &Error{Code: "closed", Message: "it was closed before, or its call has ended"}

// Readable is a text as the host takes it. What is not UTF-8 would end the instance at its border, so that it is replaced in what people
// read: messages, log lines, labels.
func Readable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// CheckText refuses a name that is not UTF-8: replaced, it would be another name.
func CheckText(what, text string) *Error {
	if utf8.ValidString(text) {
		return nil
	}
	return &Error{Code: "invalid-argument", Message: fmt.Sprintf("%s is UTF-8, not %.80q", what, text)}
}

// readable is the same for fields and labels.
func readable(pairs []Pair) []Pair {
	isValid := func(pair Pair) bool { return utf8.ValidString(pair.Name) && utf8.ValidString(pair.Value) }
	if !slices.ContainsFunc(pairs, func(pair Pair) bool { return !isValid(pair) }) {
		return pairs
	}
	replaced := make([]Pair, 0, len(pairs))
	for _, pair := range pairs {
		replaced = append(replaced, Pair{Readable(pair.Name), Readable(pair.Value)})
	}
	return replaced
}
