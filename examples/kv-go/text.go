package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf8"

	"quarry/guest/db"
)

// appendLine appends a line of a scan's reply. Text stays text; what is not UTF-8 comes in base64, under another name.
func appendLine(to []byte, entry db.Entry) []byte {
	to = append(to, '{')
	to = appendField(to, "key", entry.Key)
	to = append(to, ',')
	to = appendField(to, "value", entry.Value)
	return append(to, '}', '\n')
}

func appendField(to []byte, name string, value []byte) []byte {
	to = append(to, '"')
	to = append(to, name...)
	if !utf8.Valid(value) {
		to = append(to, `_base64":"`...)
		to = base64.StdEncoding.AppendEncode(to, value)
		return append(to, '"')
	}
	to = append(to, `":"`...)
	for _, char := range value {
		switch {
		case char == '"' || char == '\\':
			to = append(to, '\\', char)
		case char >= 0x20:
			to = append(to, char)
		default:
			if at := bytes.IndexByte([]byte("\b\f\n\r\t"), char); at >= 0 {
				to = append(to, '\\', "bfnrt"[at])
			} else {
				to = fmt.Appendf(to, `\u%04x`, char)
			}
		}
	}
	return append(to, '"')
}

// escaped is a key as it is shown: printable ASCII as it is, the rest as escapes.
func escaped(key []byte) string {
	var shown []byte
	for _, char := range key {
		switch {
		case char == '\'' || char == '"' || char == '\\':
			shown = append(shown, '\\', char)
		case char >= 0x20 && char < 0x7f:
			shown = append(shown, char)
		case char == '\n' || char == '\r' || char == '\t':
			shown = append(shown, '\\', map[byte]byte{'\n': 'n', '\r': 'r', '\t': 't'}[char])
		default:
			shown = fmt.Appendf(shown, `\x%02x`, char)
		}
	}
	return string(shown)
}

// hasLoneSurrogate says whether JSON has a `\u` escape that is half of a pair, which encoding/json would replace.
func hasLoneSurrogate(payload []byte) bool {
	high := false
	for i := 0; i < len(payload); i++ {
		var unit uint64
		if payload[i] == '\\' && i+1 < len(payload) {
			i++
			if payload[i] == 'u' && i+4 < len(payload) {
				unit, _ = strconv.ParseUint(string(payload[i+1:i+5]), 16, 16)
				i += 4
			}
		}
		isLow := unit >= 0xdc00 && unit < 0xe000
		if high != isLow {
			return true
		}
		high = unit >= 0xd800 && unit < 0xdc00
	}
	return high
}
