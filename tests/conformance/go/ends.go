package main

import "os"

// The ways in which a guest can end.

// Ends the instance at once.
func abort() error {
	os.Exit(1)
	return nil
}

// Calls itself without an end.
func recurse(depth uint64) uint64 { return recurse(depth+1) ^ depth }

// Takes memory without an end.
func allocate() error {
	var held [][]byte
	for {
		taken := make([]byte, 1<<20)
		for i := range taken {
			taken[i] = 1
		}
		held = append(held, taken)
	}
}

// Computes without an end.
func spin() error {
	for turns := uint64(0); ; turns++ {
	}
}
