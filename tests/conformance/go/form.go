package main

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"

	quarry "quarry/guest"
)

// The form of everything: a list of byte strings, each with its length before it.

// A list of items.
func list(items ...[]byte) []byte {
	size := 0
	for _, item := range items {
		size += 4 + len(item)
	}
	made := make([]byte, 0, size)
	for _, item := range items {
		made = binary.LittleEndian.AppendUint32(made, uint32(len(item)))
		made = append(made, item...)
	}
	return made
}

// The items of a list.
func itemsOf(bytes []byte) ([][]byte, error) {
	var items [][]byte
	for len(bytes) > 0 {
		if len(bytes) < 4 {
			return nil, invalid()
		}
		size := uint64(binary.LittleEndian.Uint32(bytes))
		if size > uint64(len(bytes)-4) {
			return nil, invalid()
		}
		items = append(items, bytes[4:4+size])
		bytes = bytes[4+size:]
	}
	return items, nil
}

// An option as an item.
func option(value []byte, some bool) []byte {
	if !some {
		return nil
	}
	return append([]byte("+"), value...)
}

// An option of text as an item.
func optionOfText(value string, some bool) []byte { return option([]byte(value), some) }

// A number as an item.
func number[N ~uint32 | ~uint64 | ~int64](value N) []byte {
	if value < 0 {
		return strconv.AppendInt(nil, int64(value), 10)
	}
	return strconv.AppendUint(nil, uint64(value), 10)
}

// A flag as an item.
func flag(value bool) []byte {
	if value {
		return []byte("1")
	}
	return []byte("0")
}

// An error of the call, and not only of a step.
type failure struct{ cause *quarry.Error }

func (f failure) Error() string { return f.cause.Error() }

// What is no script.
func invalid() error { return failure{quarry.Errorf("invalid-payload", "this is no script")} }

// The arguments of a step that are left. The first that is not as it has to be is kept, and what is read from there on says nothing: commands look
// at `err` before they use any.
type arguments struct {
	items [][]byte
	err   error
}

func (a *arguments) fail() {
	if a.err == nil {
		a.err = invalid()
	}
}

func (a *arguments) left() bool { return a.err == nil && len(a.items) > 0 }

func (a *arguments) bytes() []byte {
	if !a.left() {
		a.fail()
		return []byte{}
	}
	item := a.items[0]
	a.items = a.items[1:]
	return item
}

func (a *arguments) text() string {
	item := a.bytes()
	if !utf8.Valid(item) {
		a.fail()
	}
	return string(item)
}

func (a *arguments) number() uint64 { return a.numberOf(a.bytes()) }

func (a *arguments) numberOf(item []byte) uint64 {
	value, err := strconv.ParseUint(string(item), 10, 64)
	if err != nil {
		a.fail()
	}
	return value
}

func (a *arguments) shard() uint32 {
	value := a.number()
	if value > 1<<32-1 {
		a.fail()
	}
	return uint32(value)
}

func (a *arguments) decimal() float64 {
	value, err := strconv.ParseFloat(a.text(), 64)
	if err != nil {
		a.fail()
	}
	return value
}

// One of these words: its place among them.
func (a *arguments) choice(words ...string) int {
	word := a.text()
	for i, known := range words {
		if word == known {
			return i
		}
	}
	a.fail()
	return 0
}

// nil for none, and never for what is there. None too where it was left out at the end.
func (a *arguments) option() []byte {
	if !a.left() {
		return nil
	}
	item := a.bytes()
	if len(item) == 0 {
		return nil
	}
	if item[0] != '+' {
		a.fail()
	}
	return item[1:]
}

func (a *arguments) optionalNumber() (uint64, bool) {
	value := a.option()
	if value == nil {
		return 0, false
	}
	return a.numberOf(value), true
}
