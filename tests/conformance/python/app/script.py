"""Runs scripts: steps one after the other, with what they opened."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable, ContextManager, Mapping, Union

from quarry_guest import Call, QuarryError, Reply, db

from . import form
from .state import State

#: A command: gives the values of its result.
Command = Callable[["Script", form.Args], list[bytes]]
#: What a script opens.
Handle = Union[db.Cursor, db.Snapshot, db.Transaction]


class Script:
    """A script in progress; its end gives back what it opened."""

    def __init__(self, commands: Mapping[str, Command], state: State, call: Call) -> None:
        self._commands = commands
        self.state = state
        self.call = call
        #: The seq of its last write.
        self.last_seq = 0
        #: How the reply goes out.
        self.media_type: str | None = None
        self.is_applied = False
        self._handles: dict[int, Handle] = {}
        self._blocks = ExitStack()

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            handle.close()
        self._blocks.close()

    def run(self, steps: bytes) -> Reply:
        """The list of its results."""
        results = form.list_of([self._step(step) for step in form.items(steps)])
        return Reply(results, self.media_type, self.is_applied)

    def _step(self, step: bytes) -> bytes:
        command, *rest = form.items(step) or [b""]
        args = form.Args(rest)
        raises = command.startswith(b"!")
        try:
            values = self._command(command.removeprefix(b"!"), args)
        except QuarryError as error:
            if raises or isinstance(error, form.Failure):
                raise
            return form.list_of([b"err", error.code.encode(), error.message.encode(), form.flag(error.retryable)])
        return form.list_of([b"ok", *values])

    def _command(self, command: bytes, args: form.Args) -> list[bytes]:
        name = command.decode(errors="replace")
        run = self._commands.get(name)
        if not name:
            raise form.invalid()
        if run is None:
            raise QuarryError("unknown-command", f"there is no command `{name}`")
        return run(self, args)

    def open(self, number: int, handle: Handle) -> None:
        """Keeps what was opened under its number."""
        older = self._handles.pop(number, None)
        if older is not None:
            older.close()
        self._handles[number] = handle

    def begin(self, number: int, block: ContextManager[db.Transaction]) -> None:
        """Keeps a transaction. The end of its block would commit it: it is closed before that."""
        self.open(number, self._blocks.enter_context(block))

    def close(self, number: int) -> None:
        """Gives back what was opened."""
        self.handle(number, object).close()
        del self._handles[number]

    def handle(self, number: int, *kinds: type) -> Any:
        """What is open under a number, of one of these kinds."""
        found = self._handles.get(number)
        if found is None or not isinstance(found, kinds):
            raise QuarryError("no-handle", f"{number} is no handle that takes this")
        return found

    def wrote(self, seq: int) -> list[bytes]:
        """Notes the seq of a write."""
        self.last_seq = seq
        return [form.number(seq)]
