// Package cluster calls other shards, wherever they are. The caller waits, and so do the other calls of its shard. A call is never sent
// twice: after `timeout` or `outcome-unknown` it may have run. Routing errors: `unassigned`, `not-owner`, `unreachable` (it did not run), `timeout`,
// `outcome-unknown`, `call-cycle`, `call-depth`; those of the called guest are its own.
package cluster

import (
	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

// Call calls a shard. `key` may be nil.
func Call(shard uint32, method string, key, payload []byte) ([]byte, error) {
	reply, err := host.Ask(false, &shard, method, key, payload)
	return reply, guest.Unwrap(err)
}

// CallKey calls the shard that `key` belongs to.
func CallKey(key []byte, method string, payload []byte) ([]byte, error) {
	reply, err := host.Ask(false, nil, method, key, payload)
	return reply, guest.Unwrap(err)
}

// Query runs a query on a shard, over what is durable there. `key` may be nil.
func Query(shard uint32, method string, key, payload []byte) ([]byte, error) {
	reply, err := host.Ask(true, &shard, method, key, payload)
	return reply, guest.Unwrap(err)
}

// QueryKey runs a query on the shard that `key` belongs to.
func QueryKey(key []byte, method string, payload []byte) ([]byte, error) {
	reply, err := host.Ask(true, nil, method, key, payload)
	return reply, guest.Unwrap(err)
}
