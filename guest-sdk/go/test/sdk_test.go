package test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	quarry "quarry/guest"
	"quarry/guest/db"
	"quarry/guest/durability"
	"quarry/guest/metrics"
	"quarry/guest/quarrytest"
	"quarry/guest/timers"
)

// The handler of the test that runs.
var handler quarry.Handler

var durable []uint64
var fired []string

func init() {
	quarry.Handle(func(c *quarry.Call) (quarry.Reply, error) { return handler(c) })
	durability.Handle(func(tags []uint64) { durable = append(durable, tags...) })
	timers.Handle(func(name string, payload []byte, _ time.Time) error {
		fired = append(fired, name)
		if name == "fails" {
			return errors.New("not yet")
		}
		return nil
	})
}

func run(t *testing.T, body func() error) *quarry.Error {
	t.Helper()
	handler = func(*quarry.Call) (quarry.Reply, error) { return quarry.Reply{}, body() }
	_, err := quarrytest.Call("run", "", nil)
	return err
}

func TestErrorsReachTheCaller(t *testing.T) {
	own := quarry.Errorf("overdraft", "the account has %d", 3)
	again := &quarry.Error{Code: "busy", Message: "later", Retryable: true}
	var none *quarry.Error
	for _, row := range []struct {
		err           error
		code, message string
		retryable     bool
	}{
		{own, "overdraft", "the account has 3", false},
		{again, "busy", "later", true},
		{fmt.Errorf("paying: %w", again), "busy", "paying: busy: later", true},
		{errors.New("plain"), "error", "plain", false},
		{fmt.Errorf("odd: %w", error(none)), "error", "odd: %!w(*host.Error=<nil>)", false},
	} {
		quarrytest.Reset(t)
		if row.code == "error" && row.err.Error() != row.message {
			row.message = row.err.Error()
		}
		got := run(t, func() error { return row.err })
		if got == nil || got.Code != row.code || got.Message != row.message || got.Retryable != row.retryable {
			t.Errorf("%v: %+v", row.err, got)
		}
	}
	if !quarry.IsCode(fmt.Errorf("wrapped: %w", own), "overdraft") || quarry.IsCode(errors.New("overdraft"), "overdraft") {
		t.Error("IsCode")
	}
}

func TestANilErrorIsNone(t *testing.T) {
	quarrytest.Reset(t)
	var none *quarry.Error
	if err := run(t, func() error { return none }); err != nil {
		t.Fatal(err)
	}
}

func TestTextThatIsNoUTF8IsRefusedOrReplaced(t *testing.T) {
	quarrytest.Reset(t)
	const half = "\xff half"
	if err := run(t, func() error { return timers.Set(half, time.Second, nil) }); err == nil || err.Code != "invalid-argument" {
		t.Fatal(err)
	}
	quarry.Logger.Info(half)
	if lines := quarrytest.Log(); len(lines) != 1 || lines[0] != "\uFFFD half" {
		t.Fatalf("%q", lines)
	}
}

func TestAPanicIsAnErrorWithItsStackInTheLog(t *testing.T) {
	quarrytest.Reset(t)
	err := run(t, func() error {
		var none map[string]int
		none["a"] = 1
		return nil
	})
	if err == nil || err.Code != "panic" || !strings.Contains(err.Message, "nil map") {
		t.Fatal(err)
	}
	if lines := quarrytest.Log(); len(lines) != 1 || !strings.Contains(lines[0], "sdk_test.go") {
		t.Fatal(lines)
	}
	if err := run(t, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestATransactionBeginsAgainOnAConflict(t *testing.T) {
	quarrytest.Reset(t)
	attempts := 0
	err := run(t, func() error {
		return db.Transact(db.Serializable, func(tx *db.Tx) error {
			attempts++
			if attempts < 3 {
				if _, err := db.Put([]byte("other"), nil); err != nil {
					return err
				}
			}
			return tx.Put([]byte("a"), []byte{byte(attempts)})
		})
	})
	value, _, _ := db.Get([]byte("a"))
	if err != nil || attempts != 3 || len(value) != 1 || value[0] != 3 {
		t.Fatal(err, attempts, value)
	}
	attempts = 0
	err = run(t, func() error {
		return db.Transact(db.Serializable, func(tx *db.Tx) error {
			attempts++
			_, _ = db.Put([]byte("other"), nil)
			return tx.Remove([]byte("a"))
		})
	})
	if err == nil || err.Code != "conflict" || attempts != db.MaxAttempts {
		t.Fatal(err, attempts)
	}
	if err := run(t, func() error {
		return db.Transact(db.Serializable, func(tx *db.Tx) error { _ = tx.Remove([]byte("a")); return errors.New("no") })
	}); err == nil {
		t.Fatal("an error of the body was lost")
	}
	if _, found, _ := db.Get([]byte("a")); !found {
		t.Fatal("a body that failed was committed")
	}
}

func TestATimeToLiveIsAtLeastAMillisecond(t *testing.T) {
	for _, row := range []struct {
		ttl  time.Duration
		code string
	}{{-time.Second, "invalid-argument"}, {0, "invalid-argument"}, {time.Millisecond - 1, "invalid-argument"}, {time.Millisecond, ""}} {
		quarrytest.Reset(t)
		key := []byte("a")
		for name, put := range map[string]func() error{
			"put":   func() error { _, err := db.PutFor(key, nil, row.ttl); return err },
			"batch": func() error { var b db.Batch; b.PutFor(key, nil, row.ttl); _, err := b.Write(); return err },
			"transaction": func() error {
				return db.Transact(db.Serializable, func(tx *db.Tx) error { return tx.PutFor(key, nil, row.ttl) })
			},
		} {
			err := run(t, put)
			if (err == nil) != (row.code == "") || err != nil && err.Code != row.code {
				t.Errorf("%s for %v: %v", name, row.ttl, err)
			}
		}
		stored, err := db.GetVersioned(key)
		if err != nil || (stored != nil) != (row.code == "") || stored != nil && stored.Expires.Sub(stored.Created) != row.ttl {
			t.Errorf("%v: %v, %v", row.ttl, stored, err)
		}
	}
}

func TestWhatACallLeavesOpenIsClosed(t *testing.T) {
	quarrytest.Reset(t)
	var left *db.Cursor
	// More in all than may be open at once.
	for range 200 {
		if err := run(t, func() (err error) {
			left, err = db.Scan(db.Range{}, db.Ascending)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := left.Next(); !quarry.IsCode(err, "closed") {
		t.Fatal(err)
	}
}

func TestScansGoOverPages(t *testing.T) {
	quarrytest.Reset(t)
	var batch db.Batch
	for n := range 3_000 {
		batch.Put(fmt.Appendf(nil, "%04d", n), nil)
	}
	if err := run(t, func() error {
		if _, err := batch.Write(); err != nil {
			return err
		}
		cursor, err := db.ScanPrefix(nil, db.Descending)
		if err != nil {
			return err
		}
		defer cursor.Close()
		expected := 2_999
		for entry, err := range cursor.All() {
			if err != nil || string(entry.Key) != fmt.Sprintf("%04d", expected) {
				return fmt.Errorf("%s, %v, at %d", entry.Key, err, expected)
			}
			expected--
		}
		if expected != -1 {
			return fmt.Errorf("ended at %d", expected)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestTagsTimersAndMetrics(t *testing.T) {
	quarrytest.Reset(t)
	durable, fired = nil, nil
	if err := run(t, func() error {
		for _, tag := range []uint64{7, 8} {
			seq, err := db.Put([]byte("a"), nil)
			if err != nil {
				return err
			}
			if err := durability.Notify(seq, tag); err != nil {
				return err
			}
		}
		metrics.Add("seen", 2)
		if _, err := timers.SetDurable("fails", 2*time.Second, nil); err != nil {
			return err
		}
		return timers.Set("once", time.Second, nil)
	}); err != nil {
		t.Fatal(err)
	}
	quarrytest.MakeDurable()
	if fmt.Sprint(durable) != "[7 8]" || quarrytest.Metric("seen") != 2 {
		t.Fatal(durable, quarrytest.Metric("seen"))
	}
	_ = quarrytest.Advance(time.Second)
	if err := quarrytest.Advance(time.Second); err == nil || fmt.Sprint(fired) != "[once fails]" {
		t.Fatal(err, fired)
	}
	// Again a second after it failed, and then after two.
	for _, row := range []struct {
		after time.Duration
		fired int
	}{{999 * time.Millisecond, 2}, {time.Millisecond, 3}, {2*time.Second - 1, 3}, {1, 4}} {
		if _ = quarrytest.Advance(row.after); len(fired) != row.fired {
			t.Fatal(row, fired)
		}
	}
	_, once, _ := timers.Due("once")
	_, again, _ := timers.Due("fails")
	if once || !again {
		t.Fatal("which timers are left", once, again)
	}
}

func TestACrashTakesWhatIsNotDurable(t *testing.T) {
	quarrytest.Reset(t)
	durable, fired = nil, nil
	memory := 0
	quarrytest.OnFresh(t, func() { memory = 0 })
	put := func(key string) {
		t.Helper()
		if err := run(t, func() error {
			memory++
			seq, err := db.Put([]byte(key), nil)
			if err != nil {
				return err
			}
			if _, err := timers.SetDurable("later "+key, time.Second, nil); err != nil {
				return err
			}
			return errors.Join(durability.Notify(seq, uint64(memory)), timers.Set("soon", time.Second, nil))
		}); err != nil {
			t.Fatal(err)
		}
	}
	there := func(key string) bool {
		_, found, _ := db.Get([]byte(key))
		_, due, _ := timers.Due("later " + key)
		if found != due {
			t.Fatalf("%s: found %v, due %v", key, found, due)
		}
		return found
	}
	put("a")
	if db.DurableSeq() != 0 {
		t.Fatal("durable before the test said so")
	}
	quarrytest.MakeDurable()
	put("b")
	if err := quarrytest.Crash(); err != nil || !there("a") || there("b") || memory != 0 {
		t.Fatal(err, there("a"), there("b"), memory)
	}
	quarrytest.MakeDurable()
	put("c")
	if err := quarrytest.Restart("moving"); err != nil || !there("a") || !there("c") || memory != 0 {
		t.Fatal(err, there("c"), memory)
	}
	if fmt.Sprint(durable) != "[1 1]" {
		t.Fatal(durable)
	}
	// In memory it was gone with the instance.
	if _ = quarrytest.Advance(time.Second); fmt.Sprint(fired) != "[later a later c]" {
		t.Fatal(fired)
	}
	if !quarrytest.Now().Equal(time.UnixMilli(1_700_000_001_000)) {
		t.Fatal(quarrytest.Now())
	}
}

func TestLimitsAreTheHosts(t *testing.T) {
	quarrytest.Reset(t)
	for code, do := range map[string]func() error{
		"invalid-key":       func() error { _, err := db.Put(nil, nil); return err },
		"invalid-value":     func() error { _, err := db.Put([]byte("a"), make([]byte, 16<<20+1)); return err },
		"invalid-argument":  func() error { _, err := new(db.Batch).Write(); return err },
		"no-merge-operator": func() error { _, err := db.Merge([]byte("a"), nil); return err },
	} {
		if err := run(t, do); err == nil || err.Code != code {
			t.Errorf("%s: %v", code, err)
		}
	}
}
