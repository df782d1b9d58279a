package main

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	quarry "quarry/guest"
	"quarry/guest/db"
	"quarry/guest/metrics"
)

// site is what is kept of a site, under its name and a slash, which no name has:
//
//	n                  how many events there were: the number of the last one
//	e TIME NUMBER      an event, by time in milliseconds
//	h HOUR PAGE        the counts of a page in an hour
//
// Times and numbers have 8 bytes, the highest first, so that keys sort as they do.
type site string

// counts is what is kept of the views of a page in an hour.
type counts struct{ views, ms uint64 }

func (s site) record(events []event) error {
	last, err := s.number()
	if err != nil {
		return err
	}
	var batch db.Batch
	added := map[string]counts{}
	for _, one := range events {
		last++
		value, err := json.Marshal(one)
		if err != nil {
			return err
		}
		batch.Put(s.key('e', uint64(one.At.UnixMilli()), binary.BigEndian.AppendUint64(nil, last)), value)
		key := string(s.key('h', hourOf(one.At), []byte(one.Page)))
		added[key] = added[key].plus(counts{1, one.MS})
	}
	keys := make([][]byte, 0, len(added))
	for key := range added {
		keys = append(keys, []byte(key))
	}
	values, err := db.GetMany(keys...)
	if err != nil {
		return err
	}
	// Calls of a shard run one at a time: nobody counts in between.
	for i, key := range keys {
		before, err := readCounts(values[i])
		if err != nil {
			return err
		}
		batch.Put(key, before.plus(added[string(key)]).value())
	}
	batch.Put(s.key('n', 0, nil), binary.BigEndian.AppendUint64(nil, last))
	_, err = batch.Write()
	return err
}

func (s site) totals(wanted span) (quarry.Reply, error) {
	var sum counts
	err := s.count(wanted, func(_ string, of counts) { sum = sum.plus(of) })
	if err != nil {
		return quarry.Reply{}, err
	}
	return quarry.JSON(struct {
		Views uint64  `json:"views"`
		MS    uint64  `json:"ms"`
		Mean  float64 `json:"mean_ms"`
	}{sum.views, sum.ms, float64(sum.ms) / float64(max(sum.views, 1))})
}

func (s site) top(wanted span) (quarry.Reply, error) {
	type page struct {
		Page  string `json:"page"`
		Views uint64 `json:"views"`
		MS    uint64 `json:"ms"`
	}
	sums := map[string]counts{}
	if err := s.count(wanted, func(page string, of counts) { sums[page] = sums[page].plus(of) }); err != nil {
		return quarry.Reply{}, err
	}
	pages := make([]page, 0, len(sums))
	for name, of := range sums {
		pages = append(pages, page{name, of.views, of.ms})
	}
	slices.SortFunc(pages, func(a, b page) int {
		return cmp.Or(cmp.Compare(b.Views, a.Views), cmp.Compare(a.Page, b.Page))
	})
	return quarry.JSON(map[string][]page{"pages": pages[:min(len(pages), wanted.N)]})
}

func (s site) events(wanted span) (quarry.Reply, error) {
	between := db.Range{Start: s.key('e', milliseconds(wanted.From), nil), End: s.key('e', milliseconds(wanted.To), nil)}
	cursor, err := db.Scan(between, db.Ascending)
	if err != nil {
		return quarry.Reply{}, err
	}
	defer cursor.Close()
	var lines []byte
	read := 0
	for entry, err := range cursor.All() {
		if err != nil {
			return quarry.Reply{}, err
		}
		lines = append(append(lines, entry.Value...), '\n')
		if read++; read == wanted.Limit {
			break
		}
	}
	metrics.Observe("views_read", float64(read))
	return quarry.Reply{Body: lines, ContentType: "application/jsonl"}, nil
}

// audit counts the events again, by hour and page, and compares. A query is over one moment anyway; a snapshot makes it so in a call, too.
func (s site) audit(span) (quarry.Reply, error) {
	view, err := db.OpenSnapshot()
	if err != nil {
		return quarry.Reply{}, err
	}
	defer view.Close()
	counted := map[string]counts{}
	err = each(view, s.prefix('e'), func(entry db.Entry) error {
		var one event
		if err := json.Unmarshal(entry.Value, &one); err != nil {
			return quarry.Errorf("invalid-data", "an event was not understood: %v", err)
		}
		key := string(s.key('h', hourOf(one.At), []byte(one.Page)))
		counted[key] = counted[key].plus(counts{1, one.MS})
		return nil
	})
	if err != nil {
		return quarry.Reply{}, err
	}
	var kept, recount uint64
	for _, of := range counted {
		recount += of.views
	}
	agrees := true
	err = each(view, s.prefix('h'), func(entry db.Entry) error {
		of, err := readCounts(entry.Value)
		kept += of.views
		agrees = agrees && of == counted[string(entry.Key)]
		return err
	})
	if err != nil {
		return quarry.Reply{}, err
	}
	return quarry.JSON(struct {
		Views   uint64 `json:"views"`
		Counted uint64 `json:"counted"`
		Agrees  bool   `json:"agrees"`
	}{kept, recount, agrees && kept == recount})
}

// count goes through the counts of a span.
func (s site) count(wanted span, each func(page string, of counts)) error {
	from, to, err := wanted.hours()
	if err != nil {
		return err
	}
	cursor, err := db.Scan(db.Range{Start: s.key('h', from, nil), End: s.key('h', to, nil)}, db.Ascending)
	if err != nil {
		return err
	}
	defer cursor.Close()
	read := 0
	for entry, err := range cursor.All() {
		if err != nil {
			return err
		}
		of, err := readCounts(entry.Value)
		if err != nil {
			return err
		}
		each(string(entry.Key[len(s.prefix('h'))+8:]), of)
		read++
	}
	metrics.Observe("views_read", float64(read))
	return nil
}

func (s site) number() (uint64, error) {
	value, found, err := db.Get(s.key('n', 0, nil))
	if err != nil || !found {
		return 0, err
	}
	if len(value) != 8 {
		return 0, quarry.Errorf("invalid-data", "a number has 8 bytes, not %d", len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

func (s site) prefix(kind byte) []byte { return append([]byte(s), '/', kind) }

func (s site) key(kind byte, number uint64, rest []byte) []byte {
	return append(binary.BigEndian.AppendUint64(s.prefix(kind), number), rest...)
}

func each(view *db.Snapshot, prefix []byte, do func(db.Entry) error) error {
	cursor, err := view.ScanPrefix(prefix, db.Ascending)
	if err != nil {
		return err
	}
	defer cursor.Close()
	for entry, err := range cursor.All() {
		if err == nil {
			err = do(entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c counts) plus(other counts) counts { return counts{c.views + other.views, c.ms + other.ms} }

func (c counts) value() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.views), c.ms)
}

// readCounts reads counts; there are none where there is no value.
func readCounts(value []byte) (counts, error) {
	switch len(value) {
	case 0:
		return counts{}, nil
	case 16:
		return counts{binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:])}, nil
	}
	return counts{}, quarry.Errorf("invalid-data", "counts have 16 bytes, not %d", len(value))
}

// hourOf is the hour of a time that is not before 1970.
func hourOf(at time.Time) uint64 { return uint64(at.Unix() / 3600) }

// milliseconds, up, so that a bound within a millisecond does not take in what comes before it.
func milliseconds(at time.Time) uint64 {
	return uint64(at.Add(time.Millisecond - time.Nanosecond).UnixMilli())
}
