// The guest of the conformance kit in Go: what ../README.md says, on the guest SDK.
package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	quarry "quarry/guest"
	"quarry/guest/db"
	"quarry/guest/durability"
	"quarry/guest/handoff"
	"quarry/guest/lifecycle"
	"quarry/guest/migration"
	"quarry/guest/options"
	"quarry/guest/queries"
	"quarry/guest/timers"
)

func init() {
	quarry.Handle(request)
	queries.Handle(request)
	lifecycle.Handle(start, stop)
	options.Handle(validate)
	durability.Handle(durable)
	timers.Handle(fire)
	handoff.Handle(suspend, resume)
	migration.Handle(migrate)
}

// Never runs: the host calls what init registered.
func main() {}

func request(c *quarry.Call) (quarry.Reply, error) {
	switch c.Method {
	case "run":
		return run(c.Payload, c)
	case "echo":
		return quarry.Bytes(list([]byte(c.Method), option(c.Key, c.Key != nil), c.Payload)), nil
	}
	return quarry.Reply{}, c.UnknownMethod()
}

func start() error {
	note("start")
	_, err := runStored("on-start")
	return err
}

func stop(reason string) {
	// Whatever comes of either: there is nobody to tell.
	func() {
		defer func() { _ = recover() }()
		_, _ = runStored("on-stop")
	}()
	_, _ = db.Put([]byte("stopped"), []byte(reason))
}

func validate(options string) error {
	if strings.Contains(options, `"refuse"`) {
		return fmt.Errorf("refused: %s", options)
	}
	return nil
}

func durable(tags []uint64) {
	event := []string{"durable"}
	for _, tag := range tags {
		event = append(event, strconv.FormatUint(tag, 10))
	}
	note(event...)
}

func fire(name string, payload []byte, due time.Time) error {
	note("fire", name, string(payload), strconv.FormatInt(due.UnixMilli(), 10))
	_, err := run(payload, &quarry.Call{})
	return err
}

func suspend() ([]byte, error) {
	_, err := runStored("on-suspend")
	return memory, err
}

func resume(fromRevision uint64, state []byte) error {
	note("resume", strconv.FormatUint(fromRevision, 10))
	if _, err := runStored("on-resume"); err != nil {
		return err
	}
	memory = state
	return nil
}

func migrate(fromRevision uint64) (bool, error) {
	note("migrate", strconv.FormatUint(fromRevision, 10))
	found, err := runStored("on-migrate")
	return !found, err
}
