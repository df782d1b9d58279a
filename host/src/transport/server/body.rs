//! Reading the bodies of peers: each bounded, and all together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is longer than allowed.
    TooLong,
    /// All bodies together are longer than allowed.
    NoRoom,
    /// It ended early.
    Incomplete,
}

/// The room of all bodies together.
pub(super) struct Room<'r> {
    pub(super) used: &'r AtomicUsize,
    pub(super) most: usize,
}

/// A body's part of it, given back when dropped.
pub(super) struct Share<'r> {
    used: Option<&'r AtomicUsize>,
    bytes: usize,
}

impl Share<'_> {
    /// For what came, not for what was announced.
    fn grow(&mut self, bytes: usize, most: usize) -> Result<(), Unread> {
        let Some(used) = self.used else {
            return Ok(());
        };
        let before = used.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        if before.saturating_add(bytes) > most {
            return Err(Unread::NoRoom);
        }
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if let Some(used) = self.used {
            used.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Reads all of a body. One that came in one piece is not copied.
pub(super) async fn read<'r>(
    mut body: Incoming,
    most: usize,
    room: Option<&Room<'r>>,
) -> Result<(Bytes, Share<'r>), Unread> {
    if body.size_hint().lower() > most as u64 {
        return Err(Unread::TooLong);
    }
    let mut share = Share {
        used: room.map(|room| room.used),
        bytes: 0,
    };
    let room = room.map_or(usize::MAX, |room| room.most);
    let mut all = BytesMut::new();
    let mut first = Bytes::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| Unread::Incomplete)?.into_data() else {
            continue;
        };
        if all.len() + first.len() + piece.len() > most {
            return Err(Unread::TooLong);
        }
        share.grow(piece.len(), room)?;
        if first.is_empty() && all.is_empty() {
            first = piece;
        } else {
            if !first.is_empty() {
                all.extend_from_slice(&first);
                first.clear();
            }
            all.extend_from_slice(&piece);
        }
    }
    let bytes = if all.is_empty() { first } else { all.freeze() };
    Ok((bytes, share))
}
