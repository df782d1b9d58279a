// Package migration is the optional export of a revision that rewrites stored data in short steps, while the older one goes on serving.
package migration

import "quarry/guest/internal/guest"

// Handle registers one step, in an init function: true when the data is as this revision wants it, false to be called again. See
// wit/migration.wit for what a step may count on.
func Handle(migrate func(fromRevision uint64) (bool, error)) {
	guest.Register(&guest.OnMigrate, guest.OnMigrate != nil, "migration", migrate)
}
