// Package durability tells when writes become durable, and is the optional export that is told. A reply waits by itself, so that few guests need it.
package durability

import (
	"quarry/guest/db"
	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

// Handle registers, in an init function, what gets the tags that became durable, lowest seq first. It runs between calls.
func Handle(durable func(tags []uint64)) {
	guest.Register(&guest.OnDurable, guest.OnDurable != nil, "durability", durable)
}

// Notify asks that the handler gets `tag` once every write up to `seq` is durable. Up to 65,536 may be outstanding.
func Notify(seq db.Seq, tag uint64) error {
	return guest.Unwrap(host.NotifyWhenDurable(uint64(seq), tag))
}
