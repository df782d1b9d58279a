//go:build wasip1

package queries

import (
	"unsafe"

	"quarry/guest/internal/guest"
)

//go:wasmexport quarry:shard/queries@0.1.0#query
func exportQuery(method, methodLen, hasKey, key, keyLen, payload, payloadLen uint32) unsafe.Pointer {
	return guest.ExportCall(guest.OnQuery, method, methodLen, hasKey, key, keyLen, payload, payloadLen)
}
