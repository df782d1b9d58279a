// Package queries is the optional export of read-only calls. They run on several further instances, over a snapshot of the database, in
// parallel with the writer and with each other, and share no memory with the instance that runs the calls. Writes fail with `read-only`.
package queries

import (
	quarry "quarry/guest"
	"quarry/guest/internal/guest"
)

// Handle registers the handler of queries, in an init function.
func Handle(handler quarry.Handler) {
	guest.Register(&guest.OnQuery, guest.OnQuery != nil, "queries", handler)
}
