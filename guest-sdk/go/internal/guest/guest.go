// Package guest is a guest's handlers, and how they run. The host comes in by the exports of the packages around, a test by package
// quarrytest.
package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"quarry/guest/internal/host"
)

// Call is a call or a query.
type Call struct {
	Method string
	// Key is the routing key; nil when the caller named a shard.
	Key     []byte
	Payload []byte
}

// RequiredKey is the routing key, or the error `missing-key`.
func (c *Call) RequiredKey() ([]byte, error) {
	if c.Key == nil {
		return nil, &host.Error{Code: "missing-key", Message: fmt.Sprintf("`%s` needs a key: call it with a key, not with a shard", c.Method)}
	}
	return c.Key, nil
}

// JSON reads the payload into `to`. Fails with `invalid-payload`.
func (c *Call) JSON(to any) error {
	if err := json.Unmarshal(c.Payload, to); err != nil {
		return &host.Error{Code: "invalid-payload", Message: "the payload was not understood: " + err.Error()}
	}
	return nil
}

// UnknownMethod is the error for a method that the guest does not have.
func (c *Call) UnknownMethod() error {
	return &host.Error{Code: "unknown-method", Message: fmt.Sprintf("there is no method `%s`", c.Method)}
}

// TimeLeft is how long the caller still waits; false outside of a call.
func (*Call) TimeLeft() (time.Duration, bool) {
	ms, some := host.Deadline()
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond, some
}

// Header is a header of the request, by name in any case: `content-type`, `accept`, `traceparent`, `tracestate`, `idempotency-key`, and all
// that begin with `x-`.
func (*Call) Header(name string) (string, bool) { return host.Header(name) }

// Traceparent is the caller's W3C trace context.
func (*Call) Traceparent() (string, bool) { return host.Traceparent() }

// Reply is what a call gives back. The zero value is no bytes.
type Reply struct {
	Body []byte
	// ContentType is the media type: up to 128 bytes of printable ASCII, `application/octet-stream` unless set.
	ContentType string
	// WhenApplied lets the reply leave before the writes that it shows are durable. A caller that asked for durable still waits.
	WhenApplied bool
}

// Handler runs a call or a query.
type Handler func(*Call) (Reply, error)

// What the guest's packages registered. Each is nil where it is not exported.
var (
	OnCall, OnQuery Handler
	OnStart         func() error
	OnStop          func(reason string)
	OnOptions       func(options string) error
	OnDurable       func(tags []uint64)
	OnTimer         func(name string, payload []byte, due time.Time) error
	OnSuspend       func() ([]byte, error)
	OnResume        func(fromRevision uint64, state []byte) error
	OnMigrate       func(fromRevision uint64) (bool, error)
)

// Register sets a handler, once.
func Register[T any](to *T, isSet bool, what string, handler T) {
	if isSet {
		panic("quarry: the handler of " + what + " is registered twice")
	}
	*to = handler
}

// RunCall runs a handler of calls or queries.
func RunCall(handler Handler, method string, key, payload []byte) ([]byte, *host.Error) {
	var reply Reply
	err := Protect(func() (err error) {
		if handler == nil {
			return &host.Error{Code: "unknown-method", Message: "the guest registered no handler: write `func init() { quarry.Handle(call) }`, and `queries.Handle(query)` for queries"}
		}
		reply, err = handler(&Call{Method: method, Key: key, Payload: payload})
		return err
	})
	if err != nil {
		return nil, err
	}
	if reply.ContentType != "" {
		host.SetContentType(reply.ContentType)
	}
	if reply.WhenApplied {
		host.ReplyWhenApplied()
	}
	return reply.Body, nil
}

// Protect runs a handler. A panic becomes the error `panic`, with its stack in the log: memory is safe after it, and goroutines, deferred
// functions and locks are as after any panic that is recovered from. What the runtime cannot recover from (no memory left, a deadlock,
// a concurrent write to a map) ends the instance: a trap.
func Protect(run func() error) (failed *host.Error) {
	defer host.EndCall()
	defer func() {
		if reason := recover(); reason != nil {
			host.Log(4, fmt.Sprintf("panic: %v\n%s", reason, debug.Stack()), nil)
			failed = &host.Error{Code: "panic", Message: fmt.Sprintf("the guest panicked: %v", reason)}
		}
	}()
	return Wrap(run())
}

// Wrap makes any error one of a guest: one that is none has the code `error`.
func Wrap(err error) *host.Error {
	// A nil of its type in an interface is no nil, and no error either.
	if bare, is := err.(*host.Error); err == nil || is && bare == nil {
		return nil
	}
	var known *host.Error
	if errors.As(err, &known) && known != nil {
		if known.Error() == err.Error() {
			return known
		}
		// Wrapped: the text around it says more.
		return &host.Error{Code: known.Code, Message: err.Error(), Retryable: known.Retryable}
	}
	return &host.Error{Code: "error", Message: err.Error()}
}

// Unwrap makes an error of the host an error, which nil stays.
func Unwrap(err *host.Error) error {
	if err == nil {
		return nil
	}
	return err
}
