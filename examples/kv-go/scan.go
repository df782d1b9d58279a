package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf8"

	quarry "quarry/guest"
	"quarry/guest/db"
)

const (
	// Entries of a scan that does not say how many it wants.
	defaultLimit = 1_000
	// Entries of a scan at most.
	maxLimit = 100_000
	// Entries of this size together fail a scan, which says how many fit.
	maxReplyBytes = 8 << 20
)

// scanRequest is what to scan. All of it is optional.
type scanRequest struct {
	// Only keys that start with this. Not together with Start or End.
	Prefix *string
	// The first key, and the one before which to end.
	Start, End *string
	// How many entries at most.
	Limit int
	// Whether to begin with the highest key.
	Reverse bool
}

func scan(payload []byte) (quarry.Reply, error) {
	request := scanRequest{Limit: defaultLimit}
	if len(payload) > 0 {
		if err := request.read(payload); err != nil {
			return quarry.Reply{}, err
		}
	}
	if request.Limit < 1 || request.Limit > maxLimit {
		return quarry.Reply{}, quarry.InvalidPayload("`limit` is 1 to %d, not %d", maxLimit, request.Limit)
	}
	cursor, err := request.open()
	if err != nil {
		return quarry.Reply{}, err
	}
	defer cursor.Close()
	var lines []byte
	count := 0
	for entry, err := range cursor.All() {
		if err != nil {
			return quarry.Reply{}, err
		}
		if count > 0 && len(lines)+len(entry.Key)+len(entry.Value) > maxReplyBytes {
			return quarry.Reply{}, quarry.Errorf("reply-too-large",
				"the reply would be larger than %d bytes at entry %d of %d: ask for at most %d", maxReplyBytes, count+1, request.Limit, count)
		}
		lines = appendLine(lines, entry)
		if count++; count == request.Limit {
			break
		}
	}
	return quarry.Reply{Body: lines, ContentType: "application/jsonl"}, nil
}

func (r *scanRequest) open() (*db.Cursor, error) {
	order := db.Order(r.Reverse)
	if r.Prefix == nil {
		return db.Scan(db.Range{Start: bound(r.Start), End: bound(r.End)}, order)
	}
	if r.Start != nil || r.End != nil {
		return nil, quarry.InvalidPayload("give `prefix`, or `start` and `end`, and not both")
	}
	return db.ScanPrefix([]byte(*r.Prefix), order)
}

func bound(key *string) []byte {
	if key == nil {
		return nil
	}
	return []byte(*key)
}

// read is strict where encoding/json is not: about the case of names, about what is there twice, and about text that is not UTF-8. So the
// service takes what it takes in every other language.
func (r *scanRequest) read(payload []byte) error {
	if !utf8.Valid(payload) || hasLoneSurrogate(payload) {
		return quarry.InvalidPayload("it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return quarry.InvalidPayload("an object is expected")
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return quarry.InvalidPayload("%v", err)
		}
		name := token.(string)
		if seen[name] {
			return quarry.InvalidPayload("`%s` is there twice", name)
		}
		seen[name] = true
		if err := r.field(decoder, name); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return quarry.InvalidPayload("%v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return quarry.InvalidPayload("something follows the object")
	}
	return nil
}

func (r *scanRequest) field(decoder *json.Decoder, name string) error {
	var err error
	switch name {
	case "prefix":
		err = decoder.Decode(&r.Prefix)
	case "start":
		err = decoder.Decode(&r.Start)
	case "end":
		err = decoder.Decode(&r.End)
	case "limit":
		var number any
		if err = decoder.Decode(&number); err == nil && number != nil {
			digits, _ := number.(json.Number)
			r.Limit, err = strconv.Atoi(string(digits))
		}
	case "reverse":
		var flag *bool
		if err = decoder.Decode(&flag); err == nil && flag == nil {
			return quarry.InvalidPayload("`reverse` is true or false")
		}
		if flag != nil {
			r.Reverse = *flag
		}
	default:
		return quarry.InvalidPayload("there is no field `%s`: there are `prefix`, `start`, `end`, `limit` and `reverse`", name)
	}
	if err != nil {
		return quarry.InvalidPayload("`%s`: %v", name, err)
	}
	return nil
}
