//go:build wasip1

package migration

import (
	"unsafe"

	"quarry/guest/internal/abi"
	"quarry/guest/internal/guest"
)

//go:wasmexport quarry:shard/migration@0.1.0#migrate
func exportMigrate(fromRevision uint64) unsafe.Pointer {
	done := true
	err := guest.Protect(func() (err error) {
		if guest.OnMigrate != nil {
			done, err = guest.OnMigrate(fromRevision)
		}
		return err
	})
	if err != nil {
		return guest.Failed(err)
	}
	return abi.ReturnFlag(done)
}
