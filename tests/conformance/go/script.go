package main

import (
	"errors"
	"strings"

	quarry "quarry/guest"
	"quarry/guest/db"
)

// A script in progress: steps one after the other, with what they opened.
type script struct {
	call *quarry.Call
	// What is open. Given back when the script ends.
	handles map[uint64]any
	// The seq of its last write.
	lastSeq db.Seq
	reply   quarry.Reply
}

// Runs a script; the list of its results.
func run(steps []byte, call *quarry.Call) (quarry.Reply, error) {
	s := &script{call: call, handles: map[uint64]any{}}
	defer s.end()
	items, err := itemsOf(steps)
	if err != nil {
		return quarry.Reply{}, cause(err)
	}
	results := make([][]byte, len(items))
	for i, step := range items {
		if results[i], err = s.step(step); err != nil {
			return quarry.Reply{}, cause(err)
		}
	}
	s.reply.Body = list(results...)
	return s.reply, nil
}

// Runs the script under a key, and says whether there is that key.
func runStored(key string) (bool, error) {
	steps, found, err := db.Get([]byte(key))
	if err != nil || !found {
		return false, err
	}
	_, err = run(steps, &quarry.Call{})
	return true, err
}

// The guest's error that ends a call.
func cause(err error) error {
	if failed, is := err.(failure); is {
		return failed.cause
	}
	return err
}

func (s *script) step(step []byte) ([]byte, error) {
	items, err := itemsOf(step)
	if err != nil || len(items) == 0 {
		return nil, invalid()
	}
	name, raises := strings.CutPrefix(string(items[0]), "!")
	values, err := s.command(name, &arguments{items: items[1:]})
	if err == nil {
		return list(append([][]byte{[]byte("ok")}, values...)...), nil
	}
	var known *quarry.Error
	if _, fails := err.(failure); fails || raises || !errors.As(err, &known) {
		return nil, err
	}
	return list([]byte("err"), []byte(known.Code), []byte(known.Message), flag(known.Retryable)), nil
}

func (s *script) command(name string, args *arguments) ([][]byte, error) {
	run := databaseCommand(name)
	if run == nil {
		run = otherCommand(name)
	}
	if run == nil {
		return nil, quarry.Errorf("unknown-command", "there is no command `%s`", name)
	}
	return run(s, args)
}

// Keeps what was opened under its number.
func (s *script) open(number uint64, handle any) {
	closeHandle(s.handles[number])
	s.handles[number] = handle
}

// Gives back what was opened.
func (s *script) close(number uint64) error {
	handle, found := s.handles[number]
	if !found {
		return noHandle(number)
	}
	closeHandle(handle)
	delete(s.handles, number)
	return nil
}

func (s *script) end() {
	for _, handle := range s.handles {
		closeHandle(handle)
	}
}

func closeHandle(handle any) {
	switch open := handle.(type) {
	case interface{ Close() }:
		open.Close()
	case *db.Tx:
		open.Rollback()
	}
}

// Notes the seq of a write.
func (s *script) wrote(seq db.Seq, err error) ([][]byte, error) {
	if err != nil {
		return nil, err
	}
	s.lastSeq = seq
	return [][]byte{number(seq)}, nil
}

// A handle that is not there, or of another kind.
func noHandle(number uint64) error {
	return quarry.Errorf("no-handle", "%d is no handle that takes this", number)
}
