"""Counts per key: a place to start from."""

from quarry_guest import Call, Guest, call, db, export, log, query


@export
class App(Guest):
    """One instance lives in each shard. What has to last goes into `db`; attributes are a cache that a restart empties."""

    @call
    def increment(self, call: Call) -> int:
        """Calls of a shard run one at a time, so the read and the write lose no update. The reply waits by itself until the write is durable.

        What is raised becomes the caller's error; give it a code with `QuarryError`.
        """
        count = self.get(call) + 1
        db.put(call.required_key, str(count))
        log.debug("counted", count=count)
        return count

    @query
    def get(self, call: Call) -> int:
        """Queries only read, and run in parallel with the calls."""
        return int(db.get_text(call.required_key) or 0)
