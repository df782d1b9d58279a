"""What an instance remembers: a field, and what happened to it."""

from . import form


class State:
    def __init__(self) -> None:
        self.memory = b""
        #: The events so far, oldest first.
        self.seen: list[bytes] = []

    def note(self, *event: bytes) -> None:
        """Notes an event."""
        self.seen.append(form.list_of(event))
