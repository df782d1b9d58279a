"""Who is where: rooms with members that come, go, and fall silent.

The routing key of a call is a user, or a room.

| method | key | payload | reply |
|---|---|---|---|
| `enter` | a user | a room | the members of the room, in JSON |
| `beat` | a user | what the user does, or nothing | the same |
| `leave` | a user | - | - |
| `where`, also as a query | a user | - | `{"user":"ann","room":"lobby"}` |
| `who` | a room | - | `{"room":"lobby","members":{"ann":"typing"}}` |
| `visitors`, also as a query | a room | - | `{"room":"lobby","visitors":["ann"]}`: who came within a day |
| `arrive`, `depart` | a room | `{"user":"ann","doing":"typing"}` | from the shards of users |

Members are in the memory of the room's shard, each with a timer in memory that the next heartbeat sets anew. What holds:

1. A user is a member of a room from `enter` on, until `leave`, another `enter`, or `expire_ms` without a `beat`.
2. A user is in one room at most, but for `expire_ms` after a call that failed half-way.
3. A swap keeps members and their timers. A restart, a crash or a move of a room's shard empties the room; the room that a user is in is in the
   database of the user's shard, so that each member is back with the next `beat`.
"""

import re
from typing import Any

from quarry_guest import Call, Guest, QuarryError, Reply, Timer, call, cluster, codec, context, db, export, metrics, query, timers

#: A member that is not heard of for so long is gone, unless the options say otherwise.
EXPIRE_MS = 30_000
#: For how long a visit is remembered.
VISIT_MS = 24 * 60 * 60 * 1_000
#: The longest text of what a member does, in characters.
MAX_DOING = 100
#: Visitors that are listed at most.
MAX_VISITORS = 1_000

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@export
class Presence(Guest):
    """The guest of a shard, with the rooms and the users whose keys belong to it."""

    def __init__(self) -> None:
        #: What the members of each room do. Rooms without members are not there.
        self.rooms: dict[str, dict[str, str]] = {}

    def validate(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if name != "expire_ms":
                raise ValueError(f"unknown option `{name}`, expected `expire_ms`")
            if type(value) is not int or not 1 <= value <= 86_400_000:
                raise ValueError(f"`expire_ms` is a whole number from 1 to 86400000, not {value!r}")

    def start(self) -> None:
        metrics.describe("presence_arrivals", "Members that came to a room.")
        metrics.describe("presence_departures", "Members that left a room, or fell silent.")

    # Of users.

    @call
    def enter(self, call: Call) -> Any:
        user, room = named("a user", call.required_key), named("a room", call.payload)
        before = db.get_text(room_of(user))
        if before is not None and before != room:
            self._tell(before, "depart", user)
        # Written first: should the room not be reached, the next heartbeat goes there.
        db.put(room_of(user), room)
        return self._tell(room, "arrive", user)

    @call
    def beat(self, call: Call) -> Any:
        user, doing = named("a user", call.required_key), call.text()
        if len(doing) > MAX_DOING:
            raise QuarryError.invalid_payload(f"what a user does has up to {MAX_DOING} characters, not {len(doing)}")
        room = db.get_text(room_of(user))
        if room is None:
            raise QuarryError("in-no-room", f"user `{user}` is in no room: enter one")
        return self._tell(room, "arrive", user, doing)

    @call
    def leave(self, call: Call) -> None:
        user = named("a user", call.required_key)
        room = db.get_text(room_of(user))
        if room is not None:
            self._tell(room, "depart", user)
            db.remove(room_of(user))

    @query
    def where(self, call: Call) -> dict[str, Any]:
        user = named("a user", call.required_key)
        return {"user": user, "room": db.get_text(room_of(user))}

    # Of rooms.

    @call
    def arrive(self, call: Call) -> dict[str, Any]:
        return self._arrive(named("a room", call.required_key), *told(call))

    @call
    def depart(self, call: Call) -> None:
        user, _ = told(call)
        self._depart(named("a room", call.required_key), user, "left")

    @call
    def who(self, call: Call) -> Reply:
        """A call, not a query: those run on other instances, which do not have this memory."""
        room = named("a room", call.required_key)
        # It shows nothing that was written, so it need not wait for what is on its way to the store.
        return Reply.json(self._members(room)).when_applied()

    @query
    def visitors(self, call: Call) -> dict[str, Any]:
        room = named("a room", call.required_key)
        users = []
        with db.scan(prefix=visit_of(room, "")) as cursor:
            for key, _ in cursor:
                users.append(key.decode().rpartition("/")[2])
                if len(users) == MAX_VISITORS:
                    break
        return {"room": room, "visitors": users}

    def fire(self, timer: Timer) -> None:
        room, user = timer.name.split("/")
        self._depart(room, user, "expired")

    # Over a swap. Timers in memory go along by themselves.

    def suspend(self) -> bytes:
        return codec.to_json({"rooms": self.rooms})

    def resume(self, state: bytes, from_revision: int) -> None:
        self.rooms = codec.from_json(state)["rooms"]

    def _arrive(self, room: str, user: str, doing: str) -> dict[str, Any]:
        # The timer first: nobody is a member without one.
        timers.set(f"{room}/{user}", context.options().get("expire_ms", EXPIRE_MS))
        members = self.rooms.setdefault(room, {})
        if user not in members:
            db.put(visit_of(room, user), b"", ttl_ms=VISIT_MS)
            metrics.add("presence_arrivals")
        members[user] = doing
        return self._members(room)

    def _depart(self, room: str, user: str, why: str) -> None:
        members = self.rooms.get(room, {})
        if members.pop(user, None) is not None:
            metrics.add("presence_departures", why=why)
        if not members:
            self.rooms.pop(room, None)
        timers.cancel(f"{room}/{user}")

    def _members(self, room: str) -> dict[str, Any]:
        return {"room": room, "members": self.rooms.get(room, {})}

    def _tell(self, room: str, method: str, user: str, doing: str = "") -> Any:
        """Tells a room's shard, and gives what it answers. Rooms call nobody, so that no two shards wait for each other because of a room."""
        if context.shard_for(room) != context.shard():
            answer = cluster.call(room, method, codec.to_json({"user": user, "doing": doing}))
            return codec.from_json(answer) if answer else None
        # A shard cannot call itself: it would wait for its own turn.
        return self._arrive(room, user, doing) if method == "arrive" else self._depart(room, user, "left")


def named(what: str, name: bytes) -> str:
    """A name: short, and free of the `/` that separates names in keys."""
    text = name.decode(errors="replace")
    if _NAME.fullmatch(text):
        return text
    raise QuarryError.invalid_payload(f"{what} has 1 to 100 of A-Z a-z 0-9 . _ -, not {text[:200]!r}")


def told(call: Call) -> tuple[str, str]:
    """What a user's shard says of the user."""
    given = call.json()
    if not isinstance(given, dict) or not all(isinstance(given.get(name), str) for name in ("user", "doing")):
        raise QuarryError.invalid_payload('expected `{"user":"ann","doing":"typing"}`')
    return named("a user", given["user"].encode()), given["doing"][:MAX_DOING]


def room_of(user: str) -> str:
    """The key of the room that a user is in."""
    return f"user/{user}"


def visit_of(room: str, user: str) -> str:
    """The key of a user's visit to a room."""
    return f"visit/{room}/{user}"
