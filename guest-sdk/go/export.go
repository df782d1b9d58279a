//go:build wasip1

package quarry

import (
	"unsafe"

	"quarry/guest/internal/guest"
)

//go:wasmexport quarry:shard/handler@0.1.0#call
func exportCall(method, methodLen, hasKey, key, keyLen, payload, payloadLen uint32) unsafe.Pointer {
	return guest.ExportCall(guest.OnCall, method, methodLen, hasKey, key, keyLen, payload, payloadLen)
}
