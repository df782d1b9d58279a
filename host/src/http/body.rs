//! Reading a request's body: bounded in bytes and time, and all bodies together in bytes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use ::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::Problem;
use crate::call::CallErrorKind;
use crate::clock;
use crate::config::units::{Size, Span};

/// The bytes of all bodies whose requests are in progress.
#[derive(Debug)]
pub(super) struct Bodies {
    used: AtomicUsize,
    most: usize,
}

/// A body's share of [`Bodies`]; given back when dropped.
#[derive(Debug)]
pub(super) struct Share<'b> {
    bodies: &'b Bodies,
    bytes: usize,
}

impl Bodies {
    pub(super) fn new(most: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            most,
        }
    }

    /// Of a body that nothing came of yet.
    fn share(&self) -> Share<'_> {
        Share {
            bodies: self,
            bytes: 0,
        }
    }
}

impl Share<'_> {
    /// For what came, not for what was announced: who announces much and sends nothing takes no room from others.
    fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let Bodies { used, most } = self.bodies;
        let before = used.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        if before.saturating_add(bytes) <= *most {
            return Ok(());
        }
        let detail = format!(
            "the bodies of the requests in progress have {} together, all that this node takes (`http.max_bodies`); nothing ran",
            Size(*most as u64)
        );
        Err(Problem {
            retryable: true,
            ..Problem::host(
                StatusCode::TOO_MANY_REQUESTS,
                CallErrorKind::Overloaded.code(),
                detail,
            )
        })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.bodies.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// How many bytes a body has at most, and where that stands.
pub(super) type Limit = (usize, &'static str);

/// How much of a refused body is read on, and for how long. Most clients send all of theirs before they read the answer; where nobody takes
/// it, they find a broken connection instead.
const DRAIN_BYTES: u64 = 256 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Reads all of a body. One that came in one piece, as small ones do, is not copied. Its share is to be kept while it is. `asks` tells of a
/// client that sends its body only when it is told to (`Expect: 100-continue`).
pub(super) async fn read(
    mut body: Incoming,
    asks: bool,
    (most, setting): Limit,
    bodies: &Bodies,
    within: Duration,
) -> Result<(Bytes, Share<'_>), Problem> {
    let announced = body.size_hint().lower();
    let problem = if announced > most as u64 {
        if asks {
            return Err(too_large(most, setting));
        }
        too_large(most, setting)
    } else {
        let mut share = bodies.share();
        let announced = usize::try_from(announced).unwrap_or(0);
        let collecting = collect(&mut body, (most, setting), &mut share, announced);
        match clock::timeout(within, collecting).await {
            Ok(Ok(all)) => return Ok((all, share)),
            Ok(Err(problem)) => problem,
            Err(_) => {
                return Err(Problem::host(
                    StatusCode::REQUEST_TIMEOUT,
                    "body-timeout",
                    format!(
                        "the body did not arrive within {}, the request's timeout",
                        Span(within)
                    ),
                ));
            }
        }
    };
    drain(body).await;
    Err(problem)
}

/// Reads what is left of a body, and drops it.
async fn drain(mut body: Incoming) {
    let mut left = DRAIN_BYTES;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, |data| data.len() as u64);
            let Some(less) = left.checked_sub(size) else {
                return;
            };
            left = less;
        }
    };
    _ = clock::timeout(DRAIN_TIME, rest).await;
}

async fn collect(
    body: &mut Incoming,
    (most, setting): Limit,
    share: &mut Share<'_>,
    announced: usize,
) -> Result<Bytes, Problem> {
    let Some(first) = data(body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > most {
        return Err(too_large(most, setting));
    }
    share.grow(first.len())?;
    if body.is_end_stream() {
        return Ok(first);
    }
    let Some(second) = data(body).await? else {
        return Ok(first);
    };
    // A client may announce much and send little: what is kept grows with what came.
    let mut all = BytesMut::with_capacity(announced.min(64 << 10).max(first.len() + second.len()));
    all.extend_from_slice(&first);
    drop(first);
    let mut next = Some(second);
    while let Some(more) = next {
        if all.len() + more.len() > most {
            return Err(too_large(most, setting));
        }
        share.grow(more.len())?;
        all.extend_from_slice(&more);
        next = data(body).await?;
    }
    Ok(all.freeze())
}

/// The next piece of data; trailers are passed over.
async fn data(body: &mut Incoming) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::host(
                StatusCode::BAD_REQUEST,
                "body-incomplete",
                format!("the body cannot be read: {error}"),
            )
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn too_large(most: usize, setting: &str) -> Problem {
    let detail = format!("the body is larger than {} ({setting})", Size(most as u64));
    Problem::host(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bodies_together_are_bounded() {
        let bodies = Bodies::new(100);
        let (mut one, mut other) = (bodies.share(), bodies.share());
        one.grow(60).expect("room");
        other.grow(40).expect("room to the last byte");
        let problem = other.grow(1).expect_err("no room");
        assert_eq!(
            (problem.status.as_u16(), &*problem.code),
            (429, "overloaded")
        );
        assert!(
            problem.retryable && problem.detail.contains("100B"),
            "{}",
            problem.detail
        );
        drop(other);
        one.grow(40)
            .expect("what was given back, the refused byte too");
        drop(one);
        assert_eq!(bodies.used.load(Relaxed), 0);
    }
}
