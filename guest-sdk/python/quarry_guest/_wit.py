"""The interfaces of the host: of the component's own world, or of the host that a test made."""

from __future__ import annotations

import importlib
from typing import Any

#: The interfaces that this process asked for: the build makes the component's world of them.
LOADED: set[str] = set()


def load(name: str) -> Any:
    """An interface, by its name in snake case."""
    LOADED.add(name)
    try:
        return importlib.import_module(f"wit_world.imports.{name}")
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("wit_world"):
            raise
    from ._testing.faces import Face

    return Face(name)
