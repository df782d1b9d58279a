//go:build !wasip1

// Package abi is the border to the host. On a native target there is none: see package host.
package abi
