//! Requests at a node that does not have the shard.

use super::{Door, answer};
use crate::support::guests;
use crate::support::ring::{Ring, settled};

const SHARDS: u32 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_for_all() {
    let ring = Ring::new(SHARDS);
    let mut members = Vec::new();
    for name in ["n1", "n2", "n3"] {
        let config = ring.config(name);
        let module = guests::module(&config, "web", 1).await;
        members.push(ring.start_module(config, module).await.expect("a node"));
    }
    let owners = settled(&members.iter().collect::<Vec<_>>()).await;
    let mut doors = Vec::new();
    for member in &members {
        doors.push(Door::of(member.cluster.clone()).await);
    }
    for shard in 0..SHARDS {
        for (n, door) in doors.iter().enumerate() {
            let got = answer(door.ask("POST", &format!("/http/shard/{shard}/count"))).await;
            assert_eq!(
                (got.status, &*got.body),
                (200, &*(n + 1).to_string()),
                "{got:?}"
            );
            assert_eq!(got.header("quarry-node"), Some(&*owners[&shard]));
            let echo = door
                .ask("PURGE", &format!("/http/shard/{shard}/echo?a=b"))
                .header(
                    "x-any",
                    reqwest::header::HeaderValue::from_bytes(b"gr\xfc\xdfe").expect("a value"),
                )
                .body("body");
            let got = answer(echo).await.json();
            assert_eq!(
                (&got["method"], &got["target"], &got["body"]),
                (&"PURGE".into(), &"/echo?a=b".into(), &"body".into())
            );
            let headers = got["headers"].to_string();
            assert!(headers.contains("gr\u{fffd}\u{fffd}e"), "{headers}");
            let got = answer(door.ask("GET", &format!("/http/shard/{shard}/status?201"))).await;
            assert_eq!(got.status, 201);
            // What fails there fails here in the same words.
            let got = answer(door.ask("GET", &format!("/http/shard/{shard}/none"))).await;
            assert_eq!((got.status, &*got.code()), (502, "no-response"));
        }
    }
    for door in doors {
        door.close().await;
    }
}
