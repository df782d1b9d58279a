//! What a connection does, as seen from its socket: enough to tell one that waits from one that holds on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock;

/// No request is arriving.
const NONE: u64 = u64::MAX;
/// What HTTP/2 writes at once beside replies, at most: answers to a PING and to SETTINGS, and window updates.
const CONTROL_BYTES: u64 = 64;

/// What a connection does. Times are milliseconds since it began.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    in_progress: AtomicU32,
    /// When the last request, or the last write of a reply, ended.
    last: AtomicU64,
    /// Bytes of replies that are still to be written, about. Whatever else is written, such as what answers the PINGs of HTTP/2, is
    /// no sign that the connection is of use.
    owed: AtomicU64,
    /// When the first byte of a request came whose headers are not complete.
    arriving: AtomicU64,
    /// Nothing was read yet.
    fresh: AtomicBool,
    http2: AtomicBool,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// It waits for a next request for too long.
    Idle,
    /// A request's headers take too long.
    Stuck,
}

/// Counts as a request in progress.
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    /// Of a connection that begins now. Its first request has the time for headers from now on.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            in_progress: AtomicU32::new(0),
            last: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            arriving: AtomicU64::new(0),
            fresh: AtomicBool::new(true),
            http2: AtomicBool::new(false),
        }
    }

    /// A request's headers are complete.
    pub(super) fn request(self: &Arc<Self>) -> Busy {
        self.in_progress.fetch_add(1, Relaxed);
        self.arriving.store(NONE, Relaxed);
        Busy(self.clone())
    }

    pub(super) fn judge(&self, now: Instant, header: Duration, idle: Duration) -> Verdict {
        if self.in_progress.load(Relaxed) > 0 {
            return Verdict::Fine;
        }
        let now = self.at(now);
        let over = |since: u64, limit: Duration| {
            u128::from(now.saturating_sub(since)) >= limit.as_millis()
        };
        let arriving = self.arriving.load(Relaxed);
        if arriving != NONE && over(arriving, header) {
            return Verdict::Stuck;
        }
        if over(self.last.load(Relaxed), idle) {
            Verdict::Idle
        } else {
            Verdict::Fine
        }
    }

    fn read(&self, bytes: &[u8]) {
        if self.fresh.load(Relaxed) {
            self.fresh.store(false, Relaxed);
            // No method that is served begins so; the preface of HTTP/2 does.
            self.http2
                .store(bytes.starts_with(b"PR") || bytes == b"P", Relaxed);
        }
        // On HTTP/2 bytes between requests are mostly not the start of one; there `last` alone counts.
        if self.in_progress.load(Relaxed) == 0
            && self.arriving.load(Relaxed) == NONE
            && !self.http2.load(Relaxed)
        {
            self.arriving.store(self.at(clock::now()), Relaxed);
        }
    }

    fn wrote(&self, bytes: u64) {
        if bytes <= CONTROL_BYTES && self.http2.load(Relaxed) {
            return;
        }
        let less = |owed: u64| (owed > 0).then(|| owed.saturating_sub(bytes));
        if self.owed.fetch_update(Relaxed, Relaxed, less).is_ok() {
            self.moved();
        }
    }

    fn moved(&self) {
        self.last.store(self.at(clock::now()), Relaxed);
    }

    fn at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(NONE - 1)
    }
}

impl Busy {
    /// The request has its reply, with a body of so many bytes.
    pub(super) fn answered(self, body: u64) {
        self.0.owed.fetch_add(body, Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.moved();
        self.0.in_progress.fetch_sub(1, Relaxed);
    }
}

/// A socket that tells an [`Activity`] what it does.
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn wrote(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = outcome {
            self.activity.wrote(bytes as u64);
        }
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, into);
        if let Some(bytes) = into
            .filled()
            .get(before..)
            .filter(|bytes| !bytes.is_empty())
        {
            self.activity.read(bytes);
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, from);
        self.wrote(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, from);
        self.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);

    #[test]
    fn who_holds_on_is_told_from_who_waits() {
        let now = clock::now();
        let activity = Arc::new(Activity::new(now));
        let after = |secs| now + Duration::from_secs(secs);
        assert_eq!(activity.judge(after(9), HEADER, IDLE), Verdict::Fine);
        assert_eq!(
            activity.judge(after(10), HEADER, IDLE),
            Verdict::Stuck,
            "a first request has to come"
        );

        activity.read(b"GET / HTTP/1.1\r\n");
        let busy = activity.request();
        assert_eq!(
            activity.judge(after(1000), HEADER, IDLE),
            Verdict::Fine,
            "a request in progress has a time limit of its own"
        );
        drop(busy);
        assert_eq!(activity.judge(after(70), HEADER, IDLE), Verdict::Fine);
        assert_eq!(activity.judge(after(80), HEADER, IDLE), Verdict::Idle);

        activity.read(b"G");
        assert_eq!(
            activity.judge(after(12), HEADER, IDLE),
            Verdict::Stuck,
            "half of a request"
        );
    }

    #[test]
    fn frames_of_http2_are_no_half_requests() {
        let now = clock::now();
        let activity = Arc::new(Activity::new(now));
        activity.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        drop(activity.request());
        activity.read(&[0, 0, 8, 6]);
        assert_eq!(
            activity.judge(now + Duration::from_secs(60), HEADER, IDLE),
            Verdict::Fine
        );
        assert_eq!(
            activity.judge(now + Duration::from_secs(80), HEADER, IDLE),
            Verdict::Idle
        );
    }

    #[test]
    fn only_replies_keep_a_connection_not_answers_to_pings() {
        const UNMOVED: u64 = u64::MAX;
        let activity = Arc::new(Activity::new(clock::now()));
        activity.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        activity.request().answered(140);
        let moves = |bytes| {
            activity.last.store(UNMOVED, Relaxed);
            activity.wrote(bytes);
            activity.last.load(Relaxed) != UNMOVED
        };
        assert!(moves(100), "a part of the reply");
        assert!(moves(100), "its rest");
        assert!(!moves(100), "nothing is owed any more");
        activity.request().answered(140);
        assert!(
            !moves(17),
            "the answer to a PING, beside a reply that nobody takes"
        );
    }
}
