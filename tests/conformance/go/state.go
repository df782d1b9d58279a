package main

// What an instance remembers: a field, and what happened to it, oldest first.
var (
	memory []byte
	seen   [][]byte
)

// Notes an event.
func note(event ...string) {
	items := make([][]byte, len(event))
	for i, item := range event {
		items[i] = []byte(item)
	}
	seen = append(seen, list(items...))
}
