//go:build wasip1

package options

import (
	"unsafe"

	"quarry/guest/internal/abi"
	"quarry/guest/internal/guest"
	"quarry/guest/internal/host"
)

//go:wasmexport quarry:shard/options@0.1.0#validate
func exportValidate(options, optionsLen uint32) unsafe.Pointer {
	given := abi.Text(options, optionsLen)
	abi.Took()
	err := guest.Protect(func() error {
		if guest.OnOptions == nil {
			return nil
		}
		return guest.OnOptions(given)
	})
	if err != nil {
		return abi.ReturnText(host.Readable(err.Message))
	}
	return abi.ReturnFlag(false)
}
