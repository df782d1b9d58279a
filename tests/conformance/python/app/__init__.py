"""The guest of the conformance kit in Python: what `../../README.md` says, on the guest SDK."""

from quarry_guest import Call, Guest, QuarryError, Reply, Timer, db, export, query
from quarry_guest.codec import to_json

from . import database, form, surroundings
from .script import Script
from .state import State

COMMANDS = {**database.COMMANDS, **surroundings.COMMANDS}


@export
class Conformance(Guest):
    def __init__(self) -> None:
        self.state = State()

    @query
    def run(self, call: Call) -> Reply:
        return self._run(call.payload, call)

    @query
    def echo(self, call: Call) -> bytes:
        return form.list_of([call.method.encode(), form.option(call.key), call.payload])

    def start(self) -> None:
        self.state.note(b"start")
        self._stored("on-start")

    def stop(self, reason: str) -> None:
        # Whatever comes of either: there is nobody to tell.
        try:
            self._stored("on-stop")
        except Exception:
            pass
        try:
            db.put("stopped", reason)
        except QuarryError:
            pass

    def validate(self, options: dict[str, object]) -> None:
        text = to_json(options).decode()
        if '"refuse"' in text:
            raise ValueError(f"refused: {text}")

    def durable(self, tags: list[int]) -> None:
        self.state.note(b"durable", *map(form.number, tags))

    def fire(self, timer: Timer) -> None:
        self.state.note(b"fire", timer.name.encode(), timer.payload, form.number(timer.due_ms))
        self._run(timer.payload)

    def suspend(self) -> bytes:
        self._stored("on-suspend")
        return self.state.memory

    def resume(self, state: bytes, from_revision: int) -> None:
        self.state.note(b"resume", form.number(from_revision))
        self._stored("on-resume")
        self.state.memory = state

    def migrate(self, from_revision: int) -> bool:
        self.state.note(b"migrate", form.number(from_revision))
        return not self._stored("on-migrate")

    def _run(self, steps: bytes, call: Call = Call("")) -> Reply:
        with Script(COMMANDS, self.state, call) as script:
            return script.run(steps)

    def _stored(self, key: str) -> bool:
        """Runs the script under a key, and says whether there is that key."""
        steps = db.get(key)
        if steps is not None:
            self._run(steps)
        return steps is not None
