// Package quarry is for writing the logic of a Quarry shard in Go. It runs as a WebAssembly component inside each shard, next to the
// shard's database; calls reach it one at a time.
//
//	func init() { quarry.Handle(call) }
//
//	func call(c *quarry.Call) (quarry.Reply, error) {
//		switch c.Method {
//		case "hello":
//			return quarry.Text("world"), nil
//		}
//		return quarry.Reply{}, c.UnknownMethod()
//	}
//
//	func main() {} // never runs
//
// The database is in package db. Each optional export of a guest is a package with a function Handle: queries, lifecycle, options,
// durability, timers, handoff, migration. A guest that does not import one does not export it.
//
// # Errors and panics
//
// An [Error] goes to the caller as it is, an error that wraps one keeps its code, and any other has the code `error`. A panic becomes the
// error `panic`, with its stack in the log; the instance and its memory stay, as a server's do when one of its requests panics. Write handlers
// so that their own state is whole after a panic, or take it from the database. What Go cannot recover from (out of memory, a stack
// that overflows after some ten thousand calls, a deadlock, a concurrent write to a map, os.Exit) is a trap: it fails the call and replaces the
// instance.
//
// # Goroutines
//
// They run while a call does, and stand still between calls. A call that waits for something that no goroutine will do is a deadlock.
package quarry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

// Call is a call or a query.
type Call = guest.Call

// Reply is what a call gives back. The zero value is no bytes.
type Reply = guest.Reply

// Handler runs a call or a query.
type Handler = guest.Handler

// Error is an error of the host, or one that a guest gives to its caller. Code is stable and in kebab case: up to 64 bytes of a-z, 0-9
// and -. Message is for a person: up to 8 KiB. Retryable says whether the same request may succeed when it is made again.
//
// The host's codes: `invalid-key`, `invalid-value`, `invalid-argument`, `limit`, `conflict`, `read-only`, `no-merge-operator`, `closed`, `fenced`,
// `unavailable`, `internal`, and those of package cluster.
type Error = host.Error

// Errorf is an error of the guest's own.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// InvalidPayload is the error for a payload that is not what the method takes.
func InvalidPayload(format string, args ...any) *Error {
	return Errorf("invalid-payload", "the payload was not understood: "+format, args...)
}

// IsCode says whether `err` is, or wraps, an [Error] of this code.
func IsCode(err error, code string) bool {
	var known *Error
	return errors.As(err, &known) && known != nil && known.Code == code
}

// Handle registers the handler of calls. Call it in an init function: main does not run.
func Handle(handler Handler) {
	guest.Register(&guest.OnCall, guest.OnCall != nil, "calls", handler)
}

// Bytes is a reply of raw bytes.
func Bytes(body []byte) Reply { return Reply{Body: body} }

// Text is a reply of text, as `text/plain; charset=utf-8`.
func Text(text any) Reply {
	return Reply{Body: fmt.Append(nil, text), ContentType: "text/plain; charset=utf-8"}
}

// JSON is a reply of JSON. Fails with `invalid-json` where the value has no JSON form.
func JSON(value any) (Reply, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return Reply{}, Errorf("invalid-json", "%v", err)
	}
	return Reply{Body: body, ContentType: "application/json"}, nil
}

// ClusterName is the cluster's name.
func ClusterName() string { return host.Cluster() }

// NodeName is the node's name.
func NodeName() string { return host.Node() }

// ModuleName is the name of this module within its revision.
func ModuleName() string { return host.Module() }

// Options are the module's options as deployed: a JSON object, `{}` where there are none.
func Options() string { return host.Options() }

// Shard is this shard's number, from 0.
func Shard() uint32 { return host.Shard() }

// Shards is how many shards the cluster has.
func Shards() uint32 { return host.Shards() }

// ShardFor is the shard that a key belongs to.
func ShardFor(key []byte) uint32 { return host.ShardFor(key) }

// Generation is the lease's generation: it grows with each owner. 0 without leases.
func Generation() uint64 { return host.Generation() }

// Revision is the revision that this instance belongs to.
func Revision() uint64 { return host.Revision() }

// OwnedFor is how long this node is sure to own the shard; 0 once its deadline has passed, the longest duration without leases.
func OwnedFor() time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(min(host.OwnedFor(), most)) * time.Millisecond
}

// Status is how a shard is on this node.
type Status uint8

// It serves calls; it is being closed or moved; another writer has its database.
const (
	Running Status = iota
	Stopping
	Fenced
)

// ShardStatus is whether this shard goes on.
func ShardStatus() Status { return Status(host.Status()) }
