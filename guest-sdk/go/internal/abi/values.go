//go:build wasip1

package abi

import "unsafe"

// Area is where an import writes its result.
type Area [8]uint64

// Pointer is the area's address.
func (a *Area) Pointer() unsafe.Pointer { return unsafe.Pointer(a) }

// Bool reads a truth value, or whether a result is an error or an option is some.
func (a *Area) Bool(offset uintptr) bool { return *(*uint8)(unsafe.Add(a.Pointer(), offset)) != 0 }

// U32 reads a number, an address or a handle.
func (a *Area) U32(offset uintptr) uint32 { return *(*uint32)(unsafe.Add(a.Pointer(), offset)) }

// U64 reads a number.
func (a *Area) U64(offset uintptr) uint64 { return *(*uint64)(unsafe.Add(a.Pointer(), offset)) }

// Bytes copies a list of bytes; never nil.
func (a *Area) Bytes(offset uintptr) []byte { return Bytes(a.U32(offset), a.U32(offset+4)) }

// Text copies a string.
func (a *Area) Text(offset uintptr) string { return Text(a.U32(offset), a.U32(offset+4)) }

// Bytes copies a list of bytes that the host handed over; never nil.
func Bytes(address, length uint32) []byte {
	to := make([]byte, length)
	if length > 0 {
		copy(to, view[byte](address, length))
	}
	return to
}

// Text copies a string that the host handed over.
func Text(address, length uint32) string {
	if length == 0 {
		return ""
	}
	return string(view[byte](address, length))
}

// Numbers copies a list of numbers.
func Numbers(address, length uint32) []uint64 {
	to := make([]uint64, length)
	if length > 0 {
		copy(to, view[uint64](address, length))
	}
	return to
}

// Words shows a list of records as words, each of which has `words` of them.
func Words(address, length, words uint32) []uint32 {
	if length == 0 {
		return nil
	}
	return view[uint32](address, length*words)
}

func view[T any](address, length uint32) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(uintptr(address))), length)
}

// Address is where bytes lie. Who gives it to the host keeps the bytes alive meanwhile.
func Address(bytes []byte) uint32 { return addressOf(unsafe.Pointer(unsafe.SliceData(bytes))) }

// AddressOf is where the bytes of a string lie.
func AddressOf(text string) uint32 { return addressOf(unsafe.Pointer(unsafe.StringData(text))) }

// Never true, which the compiler does not know.
var never struct {
	is      bool
	pointer unsafe.Pointer
}

// A number does not move along with what it points to, and a stack moves when it grows: what has an address is on the heap.
func addressOf(pointer unsafe.Pointer) uint32 {
	if never.is {
		never.pointer = pointer
	}
	return uint32(uintptr(pointer))
}

// Flag is a truth value as a parameter.
func Flag(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

// The result of an export: whether it is an error, and from the fifth byte on a list, a flag, or the error. The host reads it before
// it calls anything again.
var result struct {
	isError uint8
	_       [3]uint8
	words   [5]uint32
}

// Keeps what the result points to until the next one.
var kept [2]any

// ReturnBytes makes a result of bytes.
func ReturnBytes(bytes []byte) unsafe.Pointer {
	kept = [2]any{bytes, nil}
	result.isError = 0
	result.words = [5]uint32{Address(bytes), uint32(len(bytes))}
	return unsafe.Pointer(&result)
}

// ReturnFlag makes a result of a truth value, or of nothing.
func ReturnFlag(is bool) unsafe.Pointer {
	kept = [2]any{}
	result.isError = 0
	result.words = [5]uint32{Flag(is)}
	return unsafe.Pointer(&result)
}

// ReturnText makes a result that is an error of a text.
func ReturnText(why string) unsafe.Pointer {
	kept = [2]any{why, nil}
	result.isError = 1
	result.words = [5]uint32{AddressOf(why), uint32(len(why))}
	return unsafe.Pointer(&result)
}

// ReturnError makes a result that is an error.
func ReturnError(code, message string, retryable bool) unsafe.Pointer {
	kept = [2]any{code, message}
	result.isError = 1
	result.words = [5]uint32{AddressOf(code), uint32(len(code)), AddressOf(message), uint32(len(message)), Flag(retryable)}
	return unsafe.Pointer(&result)
}
