//! Which requests the other end of a connection did not take, though they were written to it.
//!
//! A node that stops says on each connection which request was the last that it took (`GOAWAY`, RFC 9113, section 6.8). One that was on its way just
//! then has a higher number, and the node never looks at it. To send that elsewhere is not to send it twice (promise P5).

use std::error::Error;

/// Whether the other end said that it did not take the request that failed so.
///
/// `h2` gives a stream this error in two cases alone: its number is above that of the `GOAWAY`, or it was to begin after one. A stream that was
/// taken and did not end with its connection fails with an error of I/O.
pub(super) fn was_not_taken(error: &hyper::Error) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(at) = source {
        if let Some(error) = at.downcast_ref::<h2::Error>() {
            let reason = error.reason();
            return error.is_remote()
                && ((error.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
                    || (error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)));
        }
        source = at.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::Request;
    use hyper::client::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

    /// A frame of the connection or of a stream.
    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let head = [&length[1..], &[kind, 0], &stream.to_be_bytes()[..]].concat();
        [&head[..], payload].concat()
    }

    /// Sends a request to an end that takes its headers, answers these bytes, and closes the connection.
    async fn failed(answer: Vec<u8>) -> hyper::Error {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let end = tokio::spawn(async move {
            far.write_all(&SETTINGS).await.expect("written");
            let mut preface = [0; PREFACE];
            far.read_exact(&mut preface).await.expect("the preface");
            loop {
                let mut head = [0; 9];
                far.read_exact(&mut head).await.expect("a frame");
                let length = (usize::from(head[1]) << 8) | usize::from(head[2]);
                far.read_exact(&mut vec![0; length])
                    .await
                    .expect("its payload");
                if head[3] == HEADERS {
                    break;
                }
            }
            far.write_all(&answer).await.expect("written");
        });
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near))
            .await
            .expect("a connection");
        let connection = tokio::spawn(connection);
        let request = Request::post("http://node/call").body(Full::new(Bytes::from_static(b"x")));
        let sent = sender.try_send_request(request.expect("a request")).await;
        let mut failed = sent.expect_err("there is no answer");
        assert!(failed.take_message().is_none(), "it was written");
        end.await.expect("the other end");
        _ = connection.await;
        failed.into_error()
    }

    #[tokio::test]
    async fn only_what_the_other_end_did_not_take_may_go_elsewhere() {
        let go_away = |last: u32, reason: u32| {
            let payload = [last.to_be_bytes(), reason.to_be_bytes()].concat();
            frame(7, 0, &payload)
        };
        let reset = |reason: u32| frame(3, 1, &reason.to_be_bytes());
        for (what, answer, not_taken) in [
            ("a stop that did not take it", go_away(0, 0), true),
            ("a stop that took it", go_away(1, 0), false),
            ("an end by an error", go_away(0, 2), false),
            ("refused by itself", reset(7), true),
            ("given up", reset(8), false),
            ("the connection breaks", Vec::new(), false),
        ] {
            let error = failed(answer).await;
            assert_eq!(was_not_taken(&error), not_taken, "{what}: {error:?}");
        }
    }
}
