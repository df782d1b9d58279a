"""Write the logic of a Quarry shard in Python.

A guest is a class with methods for calls and queries. The host makes one instance for each shard, next to the shard's database, and
runs its calls one at a time::

    from quarry_guest import Call, Guest, call, db, export, query

    @export
    class Counter(Guest):
        @call
        def increment(self, call: Call) -> int:
            count = int(db.get_text(call.required_key) or 0) + 1
            db.put(call.required_key, str(count))
            return count

        @query
        def get(self, call: Call) -> int:
            return int(db.get_text(call.required_key) or 0)

`db`, `log`, `context`, `durability`, `timers`, `cluster` and `metrics` are modules of this package: what a guest imports of them is what its
component asks of the host. `testing` is an in-memory host for unit tests.
"""

from ._call import Call, Reply
from ._errors import QuarryError
from ._guest import Guest, Timer, call, export, query

__all__ = ["Call", "Guest", "QuarryError", "Reply", "Timer", "call", "export", "query"]
