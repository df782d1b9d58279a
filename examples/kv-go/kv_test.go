package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"quarry/guest/quarrytest"
)

func put(t *testing.T, key string, value []byte) {
	t.Helper()
	if _, err := quarrytest.Call("put", key, value); err != nil {
		t.Fatal(err)
	}
}

func TestPutsGetsAndDeletes(t *testing.T) {
	quarrytest.Reset(t)
	put(t, "a", []byte{0, 255})
	put(t, "empty", nil)
	for key, expected := range map[string][]byte{"a": {0, 255}, "empty": {}} {
		called, err := quarrytest.Call("get", key, nil)
		queried, queryErr := quarrytest.Query("get", key, nil)
		if err != nil || queryErr != nil || !bytes.Equal(called.Body, expected) || !bytes.Equal(queried.Body, expected) {
			t.Errorf("%s: %v %v, %v %v", key, called.Body, err, queried.Body, queryErr)
		}
	}
	if _, err := quarrytest.Call("delete", "a", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := quarrytest.Query("get", "a", nil); err == nil || err.Code != "not-found" {
		t.Fatal(err)
	}
}

func TestScans(t *testing.T) {
	quarrytest.Reset(t)
	for _, key := range []string{"a/1", "a/2", "b/1", "b/2"} {
		put(t, key, []byte("value of "+key))
	}
	for payload, expected := range map[string]string{
		``:                "a/1 a/2 b/1 b/2",
		`{}`:              "a/1 a/2 b/1 b/2",
		`{"prefix":"a/"}`: "a/1 a/2",
		`{"prefix":"a/","reverse":true,"limit":1}`: "a/2",
		`{"start":"a/2"}`:                          "a/2 b/1 b/2",
		`{"start":"a/2","end":"b/2"}`:              "a/2 b/1",
		`{"end":"b/1","reverse":true}`:             "a/2 a/1",
		`{"start":"c","end":"a"}`:                  "",
		`{"prefix":null,"limit":null}`:             "a/1 a/2 b/1 b/2",
		` { "prefix" : "\u0061\/" } `:              "a/1 a/2",
	} {
		reply, err := quarrytest.Query("scan", "", []byte(payload))
		if err != nil || reply.ContentType != "application/jsonl" {
			t.Errorf("%s: %v %s", payload, err, reply.ContentType)
			continue
		}
		var keys []string
		for line := range strings.Lines(string(reply.Body)) {
			keys = append(keys, strings.Split(line, `"`)[3])
		}
		if got := strings.Join(keys, " "); got != expected {
			t.Errorf("%s: %q, not %q", payload, got, expected)
		}
	}
}

func TestShowsWhatIsNoText(t *testing.T) {
	for value, expected := range map[string]string{
		"\xff":            `"value_base64":"/w=="`,
		"\"\\/\x01\n\x7f": `"value":"\"\\/\u0001\n` + "\x7f" + `"`,
		"ä€😀\u2028<>&":    `"value":"ä€😀` + "\u2028" + `<>&"`,
	} {
		quarrytest.Reset(t)
		put(t, "k", []byte(value))
		reply, err := quarrytest.Query("scan", "", nil)
		if err != nil || string(reply.Body) != `{"key":"k",`+expected+"}\n" {
			t.Errorf("%q: %s %v", value, reply.Body, err)
		}
	}
}

func TestEndsAScanAtItsLimits(t *testing.T) {
	quarrytest.Reset(t)
	for n := range 1_100 {
		put(t, fmt.Sprintf("%04d", n), nil)
	}
	for payload, expected := range map[string]int{``: 1_000, `{"limit":100000}`: 1_100} {
		reply, err := quarrytest.Query("scan", "", []byte(payload))
		if err != nil || bytes.Count(reply.Body, []byte("\n")) != expected {
			t.Errorf("%s: %d, %v", payload, bytes.Count(reply.Body, []byte("\n")), err)
		}
	}
	quarrytest.Reset(t)
	for _, key := range []string{"a", "b", "c"} {
		put(t, key, bytes.Repeat([]byte("x"), 3<<20))
	}
	if _, err := quarrytest.Query("scan", "", nil); err == nil || err.Code != "reply-too-large" || !strings.Contains(err.Message, "at most 2") {
		t.Error(err)
	}
}

func TestRefusesWhatItDoesNotUnderstand(t *testing.T) {
	quarrytest.Reset(t)
	for _, row := range []struct{ method, payload, code string }{
		{"scan", `{`, "invalid-payload"},
		{"scan", `null`, "invalid-payload"},
		{"scan", `{} x`, "invalid-payload"},
		{"scan", `{"limit":0}`, "invalid-payload"},
		{"scan", `{"limit":100001}`, "invalid-payload"},
		{"scan", `{"limit":1.0}`, "invalid-payload"},
		{"scan", `{"limit":"1"}`, "invalid-payload"},
		{"scan", `{"limits":1}`, "invalid-payload"},
		{"scan", `{"Prefix":"a"}`, "invalid-payload"},
		{"scan", `{"prefix":"a","prefix":"b"}`, "invalid-payload"},
		{"scan", `{"prefix":"a","start":"b"}`, "invalid-payload"},
		{"scan", `{"reverse":null}`, "invalid-payload"},
		{"scan", `{"prefix":"\ud800"}`, "invalid-payload"},
		{"scan", "{\"prefix\":\"\xff\"}", "invalid-payload"},
		{"put", "value", "missing-key"},
		{"get", "", "missing-key"},
		{"delete", "", "missing-key"},
		{"copy", "", "unknown-method"},
	} {
		if _, err := quarrytest.Call(row.method, "", []byte(row.payload)); err == nil || err.Code != row.code {
			t.Errorf("%s %s: %v, not %s", row.method, row.payload, err, row.code)
		}
	}
}
