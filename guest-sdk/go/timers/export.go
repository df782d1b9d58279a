//go:build wasip1

package timers

import (
	"time"
	"unsafe"

	"quarry/guest/internal/abi"
	"quarry/guest/internal/guest"
)

//go:wasmexport quarry:shard/timer-events@0.1.0#fire
func exportFire(name, nameLen, payload, payloadLen uint32, due uint64) unsafe.Pointer {
	timer, body := abi.Text(name, nameLen), abi.Bytes(payload, payloadLen)
	abi.Took()
	return guest.Ended(guest.Protect(func() error {
		if guest.OnTimer == nil {
			return nil
		}
		return guest.OnTimer(timer, body, time.UnixMilli(int64(due)))
	}))
}
