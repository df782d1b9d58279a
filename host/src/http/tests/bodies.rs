//! Bodies that are refused, by clients that send all of theirs before they read.

use super::*;

const LARGE: usize = 20 << 20;

#[tokio::test]
async fn who_sends_too_much_is_told_so_and_not_cut_off() {
    let node = Node::start(|_| {}).await;
    let announced = format!(
        "POST /v1/call/echo?shard=1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {LARGE}\r\n\r\n"
    );
    let chunked = "POST /v1/call/echo?shard=1 HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    for (head, chunks) in [(announced.as_str(), false), (chunked, true)] {
        let mut stream = node.connect().await;
        stream.write_all(head.as_bytes()).await.expect("sent");
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..LARGE / piece.len() {
            if chunks {
                stream.write_all(b"100000\r\n").await.expect("sent");
            }
            stream.write_all(&piece).await.expect("nobody cuts it off");
            if chunks {
                stream.write_all(b"\r\n").await.expect("sent");
            }
        }
        if chunks {
            stream.write_all(b"0\r\n\r\n").await.expect("sent");
        }
        let mut answer = vec![0; 12];
        soon(stream.read_exact(&mut answer))
            .await
            .expect("an answer");
        assert_eq!(answer, b"HTTP/1.1 413");
    }
    node.cluster.stop().await;
}

/// It sends nothing before it is told to, so there is nothing to wait for.
#[tokio::test]
async fn who_asks_first_is_told_at_once() {
    let node = Node::start(|_| {}).await;
    let mut stream = node.connect().await;
    let head = format!(
        "POST /v1/call/echo?shard=1 HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {LARGE}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 12];
    soon(stream.read_exact(&mut answer))
        .await
        .expect("an answer");
    assert_eq!(answer, b"HTTP/1.1 413");
    node.cluster.stop().await;
}
