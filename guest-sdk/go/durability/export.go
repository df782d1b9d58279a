//go:build wasip1

package durability

import (
	"quarry/guest/internal/abi"
	"quarry/guest/internal/guest"
)

//go:wasmexport quarry:shard/durable-events@0.1.0#durable
func exportDurable(tags, count uint32) {
	given := abi.Numbers(tags, count)
	abi.Took()
	guest.Protect(func() error {
		if guest.OnDurable != nil {
			guest.OnDurable(given)
		}
		return nil
	})
}
