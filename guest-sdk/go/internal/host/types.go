// Package host is what the host offers, as it is: on wasip1 its imports, elsewhere a double in memory for tests. The packages around
// it make it pleasant.
package host

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
