// Page views: events that are written, and what can be asked of them.
//
// The routing key of a call is the site.
//
//	method                   payload                                                  reply
//	record                   {"page":"/tea","ms":12,"at":"2026-01-02T15:04:05Z"},     {"recorded":1}
//	                         or up to 500 of them in an array; at is now if not given
//	totals, also as a query  {"from":"2026-01-02T15:00:00Z","to":"..."}               {"views":3,"ms":60,"mean_ms":20}
//	top, also as a query     the same, and "n":10                                     {"pages":[{"page":"/tea","views":2,"ms":30}]}
//	events, also as a query  {"from":"...","to":"...","limit":100}                    a line of JSON per event, the oldest first
//	audit, also as a query   -                                                        {"views":3,"counted":3,"agrees":true}
//
// From is inclusive and to exclusive; both are optional. Totals and top read counts that are kept by hour and page, so they take whole hours.
//
// What holds at every moment, and after every crash: the counts of an hour and a page are those of its events. Both are one write, and a
// query sees them at one moment.
package main

import (
	quarry "quarry/guest"
	"quarry/guest/lifecycle"
	"quarry/guest/metrics"
	"quarry/guest/queries"
)

func init() {
	quarry.Handle(call)
	queries.Handle(query)
	lifecycle.Handle(start, nil)
}

// Never runs: the host calls what init registered.
func main() {}

// On the node's /metrics these are quarry_guest_views_recorded_total and so on, the sum of all shards of the node.
func start() error {
	metrics.Describe("views_recorded", "Views that were recorded.")
	metrics.Describe("views_refused", "Calls to record that were refused.")
	metrics.Describe("views_batch", "Views that came in one call.")
	metrics.Describe("views_read", "Counts and events that an answer was made of.")
	return nil
}

func call(c *quarry.Call) (quarry.Reply, error) {
	if c.Method != "record" {
		// What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
		return query(c)
	}
	site, err := siteOf(c)
	if err != nil {
		return quarry.Reply{}, err
	}
	events, err := readEvents(c.Payload)
	if err != nil {
		metrics.Add("views_refused", 1)
		return quarry.Reply{}, err
	}
	if err := site.record(events); err != nil {
		return quarry.Reply{}, err
	}
	metrics.Add("views_recorded", uint64(len(events)))
	metrics.Observe("views_batch", float64(len(events)))
	return quarry.JSON(map[string]int{"recorded": len(events)})
}

func query(c *quarry.Call) (quarry.Reply, error) {
	ask, known := map[string]func(site, span) (quarry.Reply, error){
		"totals": site.totals, "top": site.top, "events": site.events, "audit": site.audit,
	}[c.Method]
	if !known {
		return quarry.Reply{}, c.UnknownMethod()
	}
	site, err := siteOf(c)
	if err != nil {
		return quarry.Reply{}, err
	}
	wanted, err := readSpan(c.Payload)
	if err != nil {
		return quarry.Reply{}, err
	}
	return ask(site, wanted)
}
