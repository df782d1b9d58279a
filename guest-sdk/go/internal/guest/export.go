//go:build wasip1

package guest

import (
	"unsafe"

	"quarry/guest/internal/abi"
	"quarry/guest/internal/host"
)

// ExportCall runs a call or a query as the host makes it.
func ExportCall(handler Handler, method, methodLen, hasKey, key, keyLen, payload, payloadLen uint32) unsafe.Pointer {
	name := abi.Text(method, methodLen)
	var routing []byte
	if hasKey != 0 {
		routing = abi.Bytes(key, keyLen)
	}
	body := abi.Bytes(payload, payloadLen)
	abi.Took()
	reply, err := RunCall(handler, name, routing, body)
	if err != nil {
		return Failed(err)
	}
	return abi.ReturnBytes(reply)
}

// Failed is the result that is an error.
func Failed(err *host.Error) unsafe.Pointer {
	return abi.ReturnError(host.Readable(err.Code), host.Readable(err.Message), err.Retryable)
}

// Ended is the result of what gives nothing but an error.
func Ended(err *host.Error) unsafe.Pointer {
	if err != nil {
		return Failed(err)
	}
	return abi.ReturnFlag(false)
}
