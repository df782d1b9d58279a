//! Reading a request's body: bounded in bytes and time.

use std::time::Duration;

use ::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::Problem;
use crate::config::units::{Size, Span};

/// Reads all of a body. One that came in one piece, as small ones do, is not copied.
pub(super) async fn read(body: Incoming, most: usize, within: Duration) -> Result<Bytes, Problem> {
    let announced = body.size_hint().lower();
    if announced > most as u64 {
        return Err(too_large(most));
    }
    tokio::time::timeout(
        within,
        collect(body, most, usize::try_from(announced).unwrap_or(0)),
    )
    .await
    .unwrap_or_else(|_| {
        Err(Problem::host(
            StatusCode::REQUEST_TIMEOUT,
            "body-timeout",
            format!(
                "the body did not arrive within {}, the request's timeout",
                Span(within)
            ),
        ))
    })
}

async fn collect(mut body: Incoming, most: usize, announced: usize) -> Result<Bytes, Problem> {
    let Some(first) = data(&mut body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > most {
        return Err(too_large(most));
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let Some(second) = data(&mut body).await? else {
        return Ok(first);
    };
    // A client may announce much and send little: what is kept grows with what came.
    let mut all = BytesMut::with_capacity(announced.min(1 << 20).max(first.len() + second.len()));
    all.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(more) = next {
        if all.len() + more.len() > most {
            return Err(too_large(most));
        }
        all.extend_from_slice(&more);
        next = data(&mut body).await?;
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

fn too_large(most: usize) -> Problem {
    let detail = format!(
        "the body is larger than {} (`http.max_body`)",
        Size(most as u64)
    );
    Problem::host(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail)
}
