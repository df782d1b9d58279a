"""The hash that says which shard a key belongs to: xxh64 with seed 0."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5


def xxh64(data: bytes) -> int:
    """xxh64 of bytes, with seed 0."""
    at = 0
    value = _P5
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= len(data):
            lanes = [_round(lane, _word(data, at + 8 * index, 8)) for index, lane in enumerate(lanes)]
            at += 32
        value = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    value = (value + len(data)) & _MASK
    while at + 8 <= len(data):
        value = (_rotate(value ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        value = (_rotate(value ^ (_word(data, at, 4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotate(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ (value >> 33)) * _P2 & _MASK
    value = (value ^ (value >> 29)) * _P3 & _MASK
    return value ^ (value >> 32)


def _word(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK
