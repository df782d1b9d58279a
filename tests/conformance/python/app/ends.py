"""The ways in which a guest can end."""

import os
from typing import NoReturn


def abort() -> NoReturn:
    """Ends the instance at once."""
    os.abort()


def recurse(depth: int) -> int:
    """Calls itself without an end."""
    return recurse(depth + 1) + depth


def allocate() -> NoReturn:
    """Takes memory without an end."""
    held = []
    while True:
        # Of ones: zeros need not be touched.
        held.append(bytearray(b"\1") * (1 << 20))


def spin() -> NoReturn:
    """Computes without an end."""
    turns = 0
    while True:
        turns += 1
