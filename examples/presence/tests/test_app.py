"""Rooms and users, each in a host of its own, in memory."""

import unittest
from typing import Any, Optional

from app import Presence
from quarry_guest import QuarryError, context, timers
from quarry_guest.testing import Host, OtherCall

OPTIONS = {"expire_ms": 1_000}


class World:
    """A cluster of two shards: one for users, and one that most rooms belong to."""

    def __init__(self) -> None:
        self.is_up = True
        self.rooms = Host(Presence, shard=0, shards=2, options=OPTIONS)
        self.users = Host(Presence, shard=1, shards=2, options=OPTIONS, calls=self._called)
        shards = self.rooms.run(lambda: {name: context.shard_for(name) for name in (ROOM, OTHER, NEAR)})
        assert [shards[ROOM], shards[OTHER], shards[NEAR]] == [0, 0, 1], shards

    def _called(self, call: OtherCall) -> bytes:
        if not self.is_up:
            raise QuarryError("unreachable", "the test took the shard away", retryable=True)
        assert call.shard == 0 and not call.is_query
        return self.rooms.call(call.method, key=call.key, payload=call.payload).payload

    def enter(self, user: str, room: str) -> Any:
        return self.users.call("enter", key=user, payload=room).json()["members"]

    def beat(self, user: str, doing: str = "") -> Any:
        return self.users.call("beat", key=user, payload=doing).json()["members"]

    def where(self, user: str) -> Optional[str]:
        return self.users.query("where", key=user).json()["room"]

    def who(self, room: str) -> Any:
        host = self.users if room == NEAR else self.rooms
        reply = host.call("who", key=room)
        assert reply.is_applied
        return reply.json()["members"]

    def advance(self, ms: int) -> None:
        for host in (self.users, self.rooms):
            host.advance(ms)


ROOM, OTHER, NEAR = "lobby", "attic", "bar"


class PresenceTest(unittest.TestCase):
    def fails(self, code: str, host: Host, method: str, **request: Any) -> None:
        with self.assertRaises(QuarryError) as raised:
            host.call(method, **request)
        self.assertEqual(raised.exception.code, code, (method, request))

    def test_members_come_and_go(self) -> None:
        world = World()
        self.assertEqual(world.enter("ann", ROOM), {"ann": ""})
        self.assertEqual(world.enter("bob", ROOM), {"ann": "", "bob": ""})
        self.assertEqual(world.beat("bob", "typing"), {"ann": "", "bob": "typing"})
        self.assertEqual(world.where("bob"), ROOM)
        self.assertEqual(world.enter("bob", OTHER), {"bob": ""})
        self.assertEqual((world.who(ROOM), world.who(OTHER), world.where("bob")), ({"ann": ""}, {"bob": ""}, OTHER))
        # No timer of a member that left goes on.
        self.assertIsNone(world.rooms.run(lambda: timers.due_ms(f"{ROOM}/bob")))
        self.assertIsNotNone(world.rooms.run(lambda: timers.due_ms(f"{OTHER}/bob")))
        for _ in range(2):
            world.users.call("leave", key="bob")
            self.assertEqual((world.who(OTHER), world.where("bob")), ({}, None))
        self.fails("in-no-room", world.users, "beat", key="bob")
        self.assertEqual(world.rooms.query("visitors", key=ROOM).json(), {"room": ROOM, "visitors": ["ann", "bob"]})

    def test_a_room_in_the_shard_of_its_user_needs_no_call(self) -> None:
        world = World()
        world.is_up = False
        self.assertEqual(world.enter("ann", NEAR), {"ann": ""})
        world.users.call("leave", key="ann")
        self.assertEqual(world.who(NEAR), {})

    def test_who_falls_silent_is_gone(self) -> None:
        world = World()
        world.enter("ann", ROOM)
        world.enter("bob", ROOM)
        for _ in range(3):
            world.advance(999)
            world.beat("ann")
        self.assertEqual(world.who(ROOM), {"ann": ""})
        world.advance(999)
        self.assertEqual(world.who(ROOM), {"ann": ""})
        world.advance(1)
        self.assertEqual(world.who(ROOM), {})
        self.assertEqual(world.rooms.guest.rooms, {})
        # Back, and in the same room, as soon as it says something.
        self.assertEqual(world.beat("bob", "back"), {"bob": "back"})
        counted = [(one.name, one.labels) for one in world.rooms.metrics]
        self.assertEqual(counted.count(("presence_arrivals", {})), 3)
        self.assertEqual(counted.count(("presence_departures", {"why": "expired"})), 2)

    def test_a_swap_keeps_members_and_their_timers(self) -> None:
        world = World()
        world.enter("ann", ROOM)
        world.advance(600)
        world.rooms.swap(Presence)
        self.assertEqual(world.who(ROOM), {"ann": ""})
        world.advance(399)
        self.assertEqual(world.who(ROOM), {"ann": ""})
        world.advance(1)
        self.assertEqual(world.who(ROOM), {})

    def test_a_restart_or_a_crash_empties_a_room_until_the_next_heartbeat(self) -> None:
        for end in ("restart", "crash"):
            world = World()
            world.enter("ann", ROOM)
            world.rooms.make_durable()
            getattr(world.rooms, end)()
            self.assertEqual(world.who(ROOM), {}, end)
            self.assertEqual(world.beat("ann"), {"ann": ""}, end)
            self.assertEqual(world.rooms.query("visitors", key=ROOM).json()["visitors"], ["ann"], end)

    def test_a_room_that_is_not_reached_is_entered_by_the_next_heartbeat(self) -> None:
        world = World()
        world.enter("ann", ROOM)
        world.is_up = False
        # To leave a room it has to be told; nothing is written before.
        self.fails("unreachable", world.users, "enter", key="ann", payload=OTHER)
        self.assertEqual(world.where("ann"), ROOM)
        self.fails("unreachable", world.users, "enter", key="bob", payload=OTHER)
        self.assertEqual(world.where("bob"), OTHER)
        world.is_up = True
        self.assertEqual(world.beat("bob"), {"bob": ""})

    def test_visits_are_forgotten_after_a_day(self) -> None:
        world = World()
        world.enter("ann", ROOM)
        for ms, visitors in ((86_399_999, ["ann"]), (1, [])):
            world.advance(ms)
            self.assertEqual(world.rooms.query("visitors", key=ROOM).json()["visitors"], visitors)

    def test_refuses_what_it_does_not_understand(self) -> None:
        host = World().users
        for method, request, code in [
            ("enter", {"payload": NEAR}, "missing-key"),
            ("enter", {"key": "a/b", "payload": NEAR}, "invalid-payload"),
            ("enter", {"key": "ann", "payload": "a room"}, "invalid-payload"),
            ("enter", {"key": "ann", "payload": b"\xff"}, "invalid-payload"),
            ("beat", {"key": "ann", "payload": "x" * 101}, "invalid-payload"),
            ("arrive", {"key": NEAR, "payload": "{}"}, "invalid-payload"),
            ("arrive", {"key": NEAR, "payload": '{"user":"a/b","doing":""}'}, "invalid-payload"),
            ("knock", {"key": NEAR}, "unknown-method"),
        ]:
            self.fails(code, host, method, **request)
        for options in ({"expire": 1}, {"expire_ms": 0}, {"expire_ms": "1"}, {"expire_ms": True}):
            with self.assertRaises(QuarryError) as raised:
                Host(Presence, options=options)
            self.assertEqual(raised.exception.code, "invalid-options", options)


if __name__ == "__main__":
    unittest.main()
