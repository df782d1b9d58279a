package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"quarry/guest/quarrytest"
)

const day = "2026-01-02T"

func record(t *testing.T, site string, events ...string) {
	t.Helper()
	for _, payload := range events {
		if _, err := quarrytest.Call("record", site, []byte(payload)); err != nil {
			t.Fatal(payload, err)
		}
	}
}

// ask asks in a query and in a call, which have to agree.
func ask(t *testing.T, method, site, payload string) string {
	t.Helper()
	queried, err := quarrytest.Query(method, site, []byte(payload))
	if err != nil {
		t.Fatal(method, payload, err)
	}
	called, err := quarrytest.Call(method, site, []byte(payload))
	if err != nil || string(called.Body) != string(queried.Body) {
		t.Fatalf("%s %s: %s as a query, %s %v as a call", method, payload, queried.Body, called.Body, err)
	}
	return string(queried.Body)
}

func viewed(page, at string, ms int) string {
	return fmt.Sprintf(`{"page":"%s","ms":%d,"at":"%s%sZ"}`, page, ms, day, at)
}

func between(from, to, rest string) string {
	return fmt.Sprintf(`{"from":"%s%sZ","to":"%s%sZ"%s}`, day, from, day, to, rest)
}

func TestCountsByHourAndPage(t *testing.T) {
	quarrytest.Reset(t)
	record(t, "shop", viewed("/tea", "09:59:59.999", 10), viewed("/tea", "10:00:00", 20), viewed("/cake", "10:30:00", 30))
	record(t, "shop", "["+viewed("/tea", "11:00:00", 40)+","+viewed("/tea", "11:10:00", 60)+"]")
	record(t, "shop2", viewed("/tea", "10:00:00", 1))
	for _, row := range []struct{ method, payload, expected string }{
		{"totals", ``, `{"views":5,"ms":160,"mean_ms":32}`},
		{"totals", between("10:00:00", "11:00:00", ""), `{"views":2,"ms":50,"mean_ms":25}`},
		{"totals", between("10:00:00", "12:00:00", ""), `{"views":4,"ms":150,"mean_ms":37.5}`},
		{"totals", between("11:00:00", "10:00:00", ""), `{"views":0,"ms":0,"mean_ms":0}`},
		{"totals", between("12:00:00", "13:00:00", ""), `{"views":0,"ms":0,"mean_ms":0}`},
		{"top", ``, `{"pages":[{"page":"/tea","views":4,"ms":130},{"page":"/cake","views":1,"ms":30}]}`},
		{"top", `{"n":1}`, `{"pages":[{"page":"/tea","views":4,"ms":130}]}`},
		{"top", between("10:00:00", "11:00:00", ""), `{"pages":[{"page":"/cake","views":1,"ms":30},{"page":"/tea","views":1,"ms":20}]}`},
		{"top", between("12:00:00", "13:00:00", ""), `{"pages":[]}`},
		{"audit", ``, `{"views":5,"counted":5,"agrees":true}`},
	} {
		if got := ask(t, row.method, "shop", row.payload); got != row.expected {
			t.Errorf("%s %s: %s, not %s", row.method, row.payload, got, row.expected)
		}
	}
	if got := ask(t, "totals", "shop2", ""); got != `{"views":1,"ms":1,"mean_ms":1}` {
		t.Error(got)
	}
}

func TestListsEventsByTime(t *testing.T) {
	quarrytest.Reset(t)
	// They may come late, and two at one time.
	record(t, "shop", viewed("/c", "10:00:02", 1), viewed("/a", "10:00:00", 1), viewed("/b", "10:00:01", 1), viewed("/b2", "10:00:01", 1), viewed("/d", "10:00:03.0009", 1))
	for _, row := range []struct{ payload, expected string }{
		{``, "/a /b /b2 /c /d"},
		{`{"limit":2}`, "/a /b"},
		{between("10:00:01", "10:00:02", ""), "/b /b2"},
		{between("10:00:00.0001", "10:00:01.0001", ""), "/b /b2"},
		{between("10:00:02", "10:00:01", ""), ""},
		{between("10:00:03.0005", "10:00:04", ""), ""},
		{between("10:00:03", "10:00:03.001", ""), "/d"},
	} {
		var pages []string
		for line := range strings.Lines(ask(t, "events", "shop", row.payload)) {
			var one event
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			pages = append(pages, one.Page)
		}
		if got := strings.Join(pages, " "); got != row.expected {
			t.Errorf("%s: %q, not %q", row.payload, got, row.expected)
		}
	}
}

func TestTakesTheTimeWhereNoneIsGiven(t *testing.T) {
	quarrytest.Reset(t)
	before := time.Now().Truncate(time.Millisecond)
	record(t, "shop", `{"page":"/tea"}`)
	var one event
	if err := json.Unmarshal([]byte(ask(t, "events", "shop", "")), &one); err != nil {
		t.Fatal(err)
	}
	if one.At.Before(before) || one.At.After(time.Now()) {
		t.Error(one.At)
	}
}

func TestCountsAreThoseOfTheEvents(t *testing.T) {
	quarrytest.Reset(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	views := 0
	for range 50 {
		var batch []string
		for range 1 + random.IntN(20) {
			batch = append(batch, viewed(fmt.Sprintf("/%d", random.IntN(4)), fmt.Sprintf("%02d:%02d:00", random.IntN(24), random.IntN(60)), random.IntN(100)))
		}
		record(t, "shop", "["+strings.Join(batch, ",")+"]")
		views += len(batch)
		if got, expected := ask(t, "audit", "shop", ""), fmt.Sprintf(`{"views":%d,"counted":%d,"agrees":true}`, views, views); got != expected {
			t.Fatalf("seed %d: %s, not %s", seed, got, expected)
		}
	}
	if got := quarrytest.Metric("views_recorded"); got != float64(views) {
		t.Errorf("seed %d: %v recorded, not %d", seed, got, views)
	}
}

func TestRefusesWhatItDoesNotUnderstand(t *testing.T) {
	many := "[" + strings.Repeat(viewed("/tea", "10:00:00", 1)+",", 500) + viewed("/tea", "10:00:00", 1) + "]"
	for _, row := range []struct{ method, site, payload, code string }{
		{"record", "", `{"page":"/tea"}`, "missing-key"},
		{"record", "a/b", `{"page":"/tea"}`, "invalid-site"},
		{"record", "shop", ``, "invalid-payload"},
		{"record", "shop", `[]`, "invalid-payload"},
		{"record", "shop", `{}`, "invalid-payload"},
		{"record", "shop", `{"page":"/tea"} x`, "invalid-payload"},
		{"record", "shop", `{"page":"` + strings.Repeat("p", 201) + `"}`, "invalid-payload"},
		{"record", "shop", `{"page":"/tea","ms":-1}`, "invalid-payload"},
		{"record", "shop", `{"page":"/tea","ms":3600001}`, "invalid-payload"},
		{"record", "shop", `{"page":"/tea","at":"now"}`, "invalid-payload"},
		{"record", "shop", `{"page":"/tea","at":"1969-12-31T23:59:59Z"}`, "invalid-payload"},
		{"record", "shop", `{"page":"/tea","at":"2200-01-01T00:00:00Z"}`, "invalid-payload"},
		{"record", "shop", `{"page":"/tea","user":"ann"}`, "invalid-payload"},
		{"record", "shop", many, "invalid-payload"},
		{"totals", "shop", `{"from":"2026-01-02T15:00:01Z"}`, "invalid-payload"},
		{"top", "shop", `{"n":0}`, "invalid-payload"},
		{"top", "shop", `{"n":101}`, "invalid-payload"},
		{"events", "shop", `{"limit":1001}`, "invalid-payload"},
		{"events", "shop", `{"from":"2300-01-01T00:00:00Z","to":"2400-01-01T00:00:00Z"}`, "invalid-payload"},
		{"events", "shop", `{"since":1}`, "invalid-payload"},
		{"sum", "shop", ``, "unknown-method"},
	} {
		quarrytest.Reset(t)
		if _, err := quarrytest.Call(row.method, row.site, []byte(row.payload)); err == nil || err.Code != row.code {
			t.Errorf("%s %.60s: %v, not %s", row.method, row.payload, err, row.code)
		}
		if got := ask(t, "totals", "shop", ""); got != `{"views":0,"ms":0,"mean_ms":0}` {
			t.Errorf("%s %.60s was refused, and counts: %s", row.method, row.payload, got)
		}
	}
}
