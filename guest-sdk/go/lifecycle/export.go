//go:build wasip1

package lifecycle

import (
	"unsafe"

	"quarry/guest/internal/abi"
	"quarry/guest/internal/guest"
)

//go:wasmexport quarry:shard/lifecycle@0.1.0#start
func exportStart() unsafe.Pointer {
	return guest.Ended(guest.Protect(func() error {
		if guest.OnStart == nil {
			return nil
		}
		return guest.OnStart()
	}))
}

//go:wasmexport quarry:shard/lifecycle@0.1.0#stop
func exportStop(reason, reasonLen uint32) {
	why := abi.Text(reason, reasonLen)
	abi.Took()
	guest.Protect(func() error {
		if guest.OnStop != nil {
			guest.OnStop(why)
		}
		return nil
	})
}
