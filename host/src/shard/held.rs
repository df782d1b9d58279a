//! Replies that wait at the gate, bounded.
//!
//! A call has left the queue by then, and its caller may have given up, so nothing else bounds them while a store does not answer. A
//! shard that holds too much begins no further call until some of it has left; its queue then fills, and refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Replies that a shard holds at most, whatever their size.
const REPLIES_MAX: usize = 65_536;

/// What a shard holds.
pub(super) struct Held {
    replies: AtomicUsize,
    bytes: AtomicUsize,
    max_bytes: usize,
    room: Notify,
}

/// One reply's part of it, given back when dropped.
pub(super) struct Part {
    held: Arc<Held>,
    bytes: usize,
}

impl Held {
    /// Holds nothing yet, and is full at `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            replies: 0.into(),
            bytes: 0.into(),
            max_bytes,
            room: Notify::new(),
        })
    }

    /// Takes a reply of so many bytes, which may be one too many: it exists already.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Part {
        self.replies.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Part {
            held: self.clone(),
            bytes,
        }
    }

    /// Whether nothing may be added.
    pub(super) fn is_full(&self) -> bool {
        self.replies.load(Ordering::Acquire) >= REPLIES_MAX
            || self.bytes.load(Ordering::Acquire) >= self.max_bytes
    }

    /// Returns once something has left since it was last full; at times once too often. Safe to drop.
    pub(super) async fn room(&self) {
        self.room.notified().await;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let was_full = self.held.is_full();
        self.held.replies.fetch_sub(1, Ordering::AcqRel);
        self.held.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if was_full {
            self.held.room.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn what_leaves_makes_room() {
        let held = Held::new(10);
        let small = held.hold(4);
        assert!(!held.is_full());
        let large = held.hold(100);
        assert!(held.is_full());
        assert!(held.room().now_or_never().is_none());
        drop(small);
        assert!(held.room().now_or_never().is_some(), "worth another look");
        assert!(held.is_full());
        drop(large);
        assert!(held.room().now_or_never().is_some());
        assert!(!held.is_full());
    }

    #[test]
    fn empty_replies_count_too() {
        let held = Held::new(10);
        let parts: Vec<_> = (0..REPLIES_MAX).map(|_| held.hold(0)).collect();
        assert!(held.is_full());
        drop(parts);
        assert!(!held.is_full());
    }
}
