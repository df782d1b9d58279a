package main

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"time"
	"unicode/utf8"

	quarry "quarry/guest"
)

const (
	// Events of a call at most.
	maxBatch = 500
	// The longest page, in bytes.
	maxPage = 200
	// The longest view, in milliseconds.
	maxMS = 3_600_000
	// Pages or events of an answer that does not say how many it wants.
	usualN, usualLimit = 10, 100
	// Pages or events of an answer at most.
	maxN, maxLimit = 100, 1_000
)

var (
	sites = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	// Times are kept in milliseconds, and sort as unsigned numbers.
	firstTime, lastTime = time.UnixMilli(0), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// event is a page that was seen.
type event struct {
	Page string    `json:"page"`
	MS   uint64    `json:"ms"`
	At   time.Time `json:"at"`
}

// span is what an answer is about.
type span struct {
	From, To time.Time
	N, Limit int
}

func siteOf(c *quarry.Call) (site, error) {
	key, err := c.RequiredKey()
	if err != nil {
		return "", err
	}
	if !sites.Match(key) {
		return "", quarry.Errorf("invalid-site", "a site has 1 to 100 of A-Z a-z 0-9 . _ -, not %.200q", key)
	}
	return site(key), nil
}

func readEvents(payload []byte) ([]event, error) {
	var events []event
	if trimmed := bytes.TrimLeft(payload, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := read(payload, &events); err != nil {
			return nil, err
		}
	} else {
		events = make([]event, 1)
		if err := read(payload, &events[0]); err != nil {
			return nil, err
		}
	}
	if len(events) < 1 || len(events) > maxBatch {
		return nil, quarry.InvalidPayload("1 to %d events, not %d", maxBatch, len(events))
	}
	now := time.Now()
	for i := range events {
		one := &events[i]
		if one.At.IsZero() {
			one.At = now
		}
		// As it is in the key, so that a span means the same for keys and for what they show.
		one.At = one.At.UTC().Truncate(time.Millisecond)
		switch {
		case one.Page == "" || len(one.Page) > maxPage || !utf8.ValidString(one.Page):
			return nil, quarry.InvalidPayload("`page` of event %d has 1 to %d bytes, not %d", i, maxPage, len(one.Page))
		case one.MS > maxMS:
			return nil, quarry.InvalidPayload("`ms` of event %d is up to %d, not %d", i, maxMS, one.MS)
		case one.At.Before(firstTime) || !one.At.Before(lastTime):
			return nil, quarry.InvalidPayload("`at` of event %d is from %v to %v", i, firstTime.UTC(), lastTime)
		}
	}
	return events, nil
}

func readSpan(payload []byte) (span, error) {
	wanted := span{From: firstTime, To: lastTime, N: usualN, Limit: usualLimit}
	if len(payload) > 0 {
		if err := read(payload, &wanted); err != nil {
			return span{}, err
		}
	}
	switch {
	case wanted.From.Before(firstTime) || wanted.To.After(lastTime):
		return span{}, quarry.InvalidPayload("`from` and `to` are from %v to %v", firstTime.UTC(), lastTime)
	case wanted.N < 1 || wanted.N > maxN:
		return span{}, quarry.InvalidPayload("`n` is 1 to %d, not %d", maxN, wanted.N)
	case wanted.Limit < 1 || wanted.Limit > maxLimit:
		return span{}, quarry.InvalidPayload("`limit` is 1 to %d, not %d", maxLimit, wanted.Limit)
	}
	return wanted, nil
}

// hours is the span in hours, which it has to be made of.
func (s span) hours() (from, to uint64, err error) {
	for _, at := range []time.Time{s.From, s.To} {
		if !at.Truncate(time.Hour).Equal(at) {
			return 0, 0, quarry.InvalidPayload("`from` and `to` are whole hours here, not %v: counts are kept by the hour", at.UTC())
		}
	}
	return hourOf(s.From), hourOf(s.To), nil
}

// read reads JSON more strictly than by itself: a misspelt bound would show everything.
func read(payload []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return quarry.InvalidPayload("%v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return quarry.InvalidPayload("there is something behind the JSON")
	}
	return nil
}
