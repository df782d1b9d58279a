//go:build wasip1

// Package abi is the border to the host: memory for what it hands over, and values as they cross.
//
// It is written from the canonical ABI of the component model. The host hands a list or a string over by asking for memory with
// the export `cabi_realloc`, in the midst of a call of ours. Nothing may then run but the allocation itself: no import can be called
// (the component model forbids it), so no clock can be read, so the scheduler and the collector must not run. Hence the memory is not
// Go's: it is taken from the runtime's break, as its heap is, and used again for each call. What lies in it is copied before it is used.
package abi

import "unsafe"

// Of the host: bytes up to `end` from `at` on are free. Plain numbers, as a pointer would bring a write barrier along.
var (
	at    uintptr
	end   uintptr
	begin uintptr
	size  uintptr
)

// Enough for most calls, so that they cost nothing.
var first [32 << 10]uint64

// How many calls of imports have results that were not read yet. Goroutines may interleave them.
var unread int

// Of the adapter for WASI, which asks twice, before the runtime has begun, and keeps it: its state and its stack, a page each.
var (
	adapter   [(128 << 10) / 8]uint64
	adapterAt uintptr
)

const page = 64 << 10

//go:wasmexport cabi_realloc
//go:nosplit
func realloc(old, oldSize, align, newSize uint32) uint32 {
	if newSize == 0 {
		// Of no length: any address but 0 that is aligned.
		return align
	}
	if begin == 0 {
		begin = uintptr(unsafe.Pointer(&first))
		size = unsafe.Sizeof(first)
		at, end = begin, begin+size
	}
	mask := uintptr(align) - 1
	place := (at + mask) &^ mask
	if place > end || uintptr(newSize) > end-place {
		// Twice as much as before at least: what is left behind is no more than what is in use.
		wanted := (uintptr(newSize) + page - 1) &^ (page - 1)
		if wanted < 2*size {
			wanted = 2 * size
		}
		begin = sbrk(wanted)
		if begin == 0 {
			trap()
		}
		size, end, place = wanted, begin+wanted, begin
	}
	at = place + uintptr(newSize)
	for i := uintptr(0); i < uintptr(oldSize) && i < uintptr(newSize); i++ {
		*(*byte)(unsafe.Pointer(place + i)) = *(*byte)(unsafe.Pointer(uintptr(old) + i))
	}
	return uint32(place)
}

//go:wasmexport cabi_realloc_adapter
//go:nosplit
func reallocAdapter(_, _, align, newSize uint32) uint32 {
	if adapterAt == 0 {
		adapterAt = uintptr(unsafe.Pointer(&adapter))
	}
	mask := uintptr(align) - 1
	place := (adapterAt + mask) &^ mask
	if place+uintptr(newSize) <= uintptr(unsafe.Pointer(&adapter))+unsafe.Sizeof(adapter) {
		adapterAt = place + uintptr(newSize)
		return uint32(place)
	}
	// The break gives whole pages, which every alignment that is asked for divides.
	place = sbrk((uintptr(newSize) + page - 1) &^ (page - 1))
	if place == 0 {
		trap()
	}
	return uint32(place)
}

// The runtime's own way to its break. It gives 0 where the instance may have no more memory.
func sbrk(bytes uintptr) uintptr

// Ends the instance.
func trap()

// Calling says that an import is about to be called whose result lies in memory of the host.
func Calling() { unread++ }

// Read says that the result was read.
func Read() {
	unread--
	if unread == 0 {
		at = begin
	}
}

// Took says that the arguments of an export were read.
func Took() {
	if unread == 0 {
		at = begin
	}
}
