//go:build wasip1

package handoff

import (
	"unsafe"

	"quarry/guest/internal/abi"
	"quarry/guest/internal/guest"
)

//go:wasmexport quarry:shard/handoff@0.1.0#suspend
func exportSuspend() unsafe.Pointer {
	var state []byte
	err := guest.Protect(func() (err error) {
		if guest.OnSuspend != nil {
			state, err = guest.OnSuspend()
		}
		return err
	})
	if err != nil {
		return guest.Failed(err)
	}
	return abi.ReturnBytes(state)
}

//go:wasmexport quarry:shard/handoff@0.1.0#resume
func exportResume(fromRevision uint64, state, stateLen uint32) unsafe.Pointer {
	given := abi.Bytes(state, stateLen)
	abi.Took()
	return guest.Ended(guest.Protect(func() error {
		if guest.OnResume == nil {
			return nil
		}
		return guest.OnResume(fromRevision, given)
	}))
}
