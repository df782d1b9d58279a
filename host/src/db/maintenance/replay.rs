//! The bound on WAL replay: how many WAL objects a crash of this shard leaves to its next owner.

/// Counts the WAL objects that the next opening of a shard would have to replay (two requests each), and says when the
/// memtable is to be flushed so that they are never many more than a limit.
///
/// The shard's flush task calls [`wal_flushed`](Self::wal_flushed) after each WAL flush; when that returns `true` it starts
/// `db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable })` and reports how it went through
/// [`memtable_flushed`](Self::memtable_flushed). Writes and WAL flushes may go on meanwhile. A memtable flush that
/// SlateDB starts by itself, because the memtable is full, is not seen here: the count is then too high, never too low.
#[derive(Clone, Copy, Debug)]
pub struct ReplayBound {
    limit: u32,
    pending: u32,
    /// WAL objects written since the flush in progress began.
    since_flush: Option<u32>,
}

impl ReplayBound {
    /// A bound of `limit` WAL objects (0 = no bound), `backlog` of which were replayed when the shard opened.
    #[must_use]
    pub fn new(limit: u32, backlog: u32) -> Self {
        Self {
            limit,
            pending: backlog,
            since_flush: None,
        }
    }

    /// One WAL object was written. Whether the memtable is to be flushed now; never `true` while a flush is in progress.
    #[must_use = "the flush has to be started"]
    pub fn wal_flushed(&mut self) -> bool {
        self.pending = self.pending.saturating_add(1);
        if let Some(since) = &mut self.since_flush {
            *since = since.saturating_add(1);
            return false;
        }
        if !memtable_flush_due(self.pending, self.limit) {
            return false;
        }
        self.since_flush = Some(0);
        true
    }

    /// The memtable flush that [`wal_flushed`](Self::wal_flushed) asked for ended. After a failure the next WAL object
    /// asks again.
    pub fn memtable_flushed(&mut self, succeeded: bool) {
        if let (Some(since), true) = (self.since_flush.take(), succeeded) {
            self.pending = since;
        }
    }

    /// WAL objects that an opening would replay now, at most.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.pending
    }
}

/// Whether a memtable flush is due with this many WAL objects since the last one; a limit of 0 is no limit.
#[must_use]
pub fn memtable_flush_due(wal_objects_since_flush: u32, limit: u32) -> bool {
    limit != 0 && wal_objects_since_flush >= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_due_from_the_limit_on() {
        let cases = [
            (0, 256, false),
            (255, 256, false),
            (256, 256, true),
            (257, 256, true),
            (9_999, 0, false),
        ];
        for (objects, limit, due) in cases {
            assert_eq!(
                memtable_flush_due(objects, limit),
                due,
                "{objects} of {limit}"
            );
        }
    }

    #[test]
    fn asks_once_for_each_flush_and_counts_what_came_meanwhile() {
        let mut bound = ReplayBound::new(3, 0);
        assert_eq!(
            [
                bound.wal_flushed(),
                bound.wal_flushed(),
                bound.wal_flushed()
            ],
            [false, false, true]
        );
        assert_eq!(
            [bound.wal_flushed(), bound.wal_flushed()],
            [false, false],
            "a flush is in progress"
        );
        assert_eq!(bound.pending(), 5);
        bound.memtable_flushed(true);
        assert_eq!(
            bound.pending(),
            2,
            "written after the flush began, so not part of it"
        );
        assert!(bound.wal_flushed());
    }

    #[test]
    fn a_failed_flush_is_asked_for_again() {
        let mut bound = ReplayBound::new(2, 0);
        assert_eq!([bound.wal_flushed(), bound.wal_flushed()], [false, true]);
        bound.memtable_flushed(false);
        assert_eq!(bound.pending(), 2);
        assert!(bound.wal_flushed());
    }

    #[test]
    fn the_backlog_of_the_opening_counts() {
        let mut bound = ReplayBound::new(256, 300);
        assert!(bound.wal_flushed());
    }

    #[test]
    fn a_report_without_a_flush_changes_nothing() {
        let mut bound = ReplayBound::new(10, 0);
        assert!(!bound.wal_flushed());
        bound.memtable_flushed(true);
        assert_eq!(bound.pending(), 1);
    }
}
