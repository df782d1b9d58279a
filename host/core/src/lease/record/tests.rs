use serde_json::Value;

use super::*;
use crate::rng::Rng;

fn node() -> NodeRecord {
    NodeRecord {
        info: NodeInfo {
            protocol: PROTOCOL,
            cluster: "demo".into(),
            name: NodeName::new("a-1").unwrap(),
            session: SessionId::new(7),
            state: NodeState::Live,
            shards: 3,
            ttl_ms: 15_000,
            advertise: "http://[::1]:7070".into(),
            zone: "z1".into(),
            cordoned: false,
            blind: true,
            software: "quarry 0.1.0".into(),
        },
        counter: 5,
        nonce: Nonce::new(9),
        changes: 2,
    }
}

fn lease() -> LeaseRecord {
    LeaseRecord {
        owner: Some(Owner {
            name: NodeName::new("a-1").unwrap(),
            session: SessionId::new(7),
        }),
        generation: 4,
        writer_epoch: Some(3),
        counter: 8,
        nonce: Nonce::new(1),
        successor: Some(NodeName::new("b").unwrap()),
        pinned: true,
        since_ms: 1,
        why: "it was free".into(),
        ..LeaseRecord::vacant(12)
    }
}

#[test]
fn bodies_are_read_back() {
    let mut record = node();
    let body = record.encode().unwrap();
    assert_eq!(
        NodeRecord::decode(&record.info.name, &body).as_ref(),
        Ok(&record)
    );
    // As earlier builds wrote it.
    let body = with(&body, "blind", Value::Null);
    record.info.blind = false;
    assert_eq!(NodeRecord::decode(&record.info.name, &body), Ok(record));
    for record in [
        lease(),
        LeaseRecord::vacant(0),
        LeaseRecord {
            owner: None,
            ..lease()
        },
    ] {
        assert_eq!(
            LeaseRecord::decode(record.shard, &record.encode()),
            Ok(record)
        );
    }
}

#[test]
fn a_nodes_body_has_the_size_of_its_changes_however_long_its_texts() {
    for changes in [0, 1, 1023, 1024, 1025, u64::MAX / 2 - 1] {
        let mut record = node();
        record.changes = changes;
        record.counter = u64::MAX / 2 - 1;
        record.info = NodeInfo {
            protocol: u32::MAX,
            cluster: "c".repeat(MAX_CLUSTER),
            name: NodeName::new(&"n".repeat(MAX_NAME)).unwrap(),
            session: SessionId::new(u128::MAX),
            state: NodeState::Draining,
            shards: u32::MAX,
            ttl_ms: u64::MAX / 2 - 1,
            advertise: "a".repeat(MAX_ADDRESS),
            zone: "z".repeat(MAX_WORD),
            cordoned: false,
            blind: false,
            software: "s".repeat(MAX_WORD),
        };
        let body = record.encode().unwrap();
        assert_eq!(body.len() as u64, NodeRecord::padded_size(changes));
        assert_eq!(body.len() as u64, 1024 + changes % 1024);
        assert_eq!(NodeRecord::decode(&record.info.name, &body), Ok(record));
    }
}

#[test]
fn names_are_file_names() {
    for (name, valid) in [
        ("a", true),
        ("Node_1.eu-west", true),
        (&"x".repeat(64)[..], true),
        (&"x".repeat(65)[..], false),
        ("", false),
        (".", false),
        ("..", false),
        (".hidden", false),
        ("a/b", false),
        ("a\\b", false),
        ("a b", false),
        ("a\0", false),
        ("ä", false),
        ("a%2f", false),
    ] {
        let read = NodeName::new(name);
        assert_eq!(read.is_ok(), valid, "{name:?}");
        if let Err(error) = read {
            assert!(error.to_string().contains("valid are 1 to 64"), "{error}");
        }
    }
}

#[test]
fn ids_are_32_hex_digits() {
    let id = SessionId::new(0xabc);
    assert_eq!(id.to_string(), format!("{:0>32}", "abc"));
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in [
        "",
        "abc",
        &"0".repeat(31),
        &"0".repeat(33),
        &"G".repeat(32),
        &"A".repeat(32),
        &format!("+{}", "0".repeat(31)),
    ] {
        assert!(text.parse::<Nonce>().is_err(), "{text:?}");
    }
}

/// Replaces one field of a body.
fn with(body: &[u8], field: &str, value: Value) -> Vec<u8> {
    let mut json: Value = serde_json::from_slice(body).unwrap();
    if value.is_null() {
        json.as_object_mut().unwrap().remove(field);
    } else {
        json[field] = value;
    }
    json.to_string().into_bytes()
}

#[test]
fn a_bad_node_is_refused_by_name_field_and_value() {
    let name = NodeName::new("a-1").unwrap();
    let body = node().encode().unwrap();
    for (field, value, says) in [
        (
            "version",
            2.into(),
            "has version 2; this build reads version 1",
        ),
        ("version", "1".into(), "version \"1\""),
        ("version", Value::Null, "version none"),
        ("name", "b".into(), "`name` is \"b\""),
        ("name", "../x".into(), "`name` is \"../x\""),
        ("session", "xyz".into(), "32 lower-case hex digits"),
        (
            "state",
            "zombie".into(),
            "valid are live, draining, left, dead",
        ),
        ("counter", (-1).into(), "`counter` is \"-1\""),
        ("counter", u64::MAX.into(), "whole numbers"),
        ("counter", 1.5.into(), "whole numbers"),
        ("counter", Value::Null, "`counter` is \"absent\""),
        ("shards", (1_u64 << 40).into(), "0 to 4294967295"),
        ("cordoned", "no".into(), "true and false"),
        ("blind", 1.into(), "true and false"),
        ("advertise", "x".repeat(257).into(), "at most 256 bytes"),
        ("zone", "a\nb".into(), "without control characters"),
        ("cluster", "a\"b".into(), "without control characters"),
        ("nonce", 5.into(), "valid is a text"),
    ] {
        let error = NodeRecord::decode(&name, &with(&body, field, value.clone()))
            .expect_err(field)
            .to_string();
        assert!(error.contains("nodes/a-1.json"), "{error}");
        assert!(error.contains(says), "{field} {value}: {error}");
    }
}

#[test]
fn a_bad_lease_is_refused_by_name_field_and_value() {
    let body = lease().encode();
    for (field, value, says) in [
        ("version", 3.into(), "has version 3"),
        (
            "shard",
            11.into(),
            "`shard` is \"11\"; the object's name says 12",
        ),
        ("state", "lost".into(), "valid are free, owned"),
        ("owner", Value::Null, "`owner` is \"absent\""),
        ("owner", "a".into(), "the name and the session"),
        (
            "owner",
            serde_json::json!({"name": "../a", "session": SessionId::new(1).to_string()}),
            "the name and the session",
        ),
        ("generation", "4".into(), "whole numbers"),
        (
            "generation",
            MAX_GENERATION.into(),
            "whole numbers below 9007199254740992",
        ),
        ("writer_epoch", (-4).into(), "whole numbers"),
        ("successor", "a/b".into(), "the name of a node"),
        ("why", "x".repeat(257).into(), "at most 256 bytes"),
    ] {
        let error = LeaseRecord::decode(12, &with(&body, field, value.clone()))
            .expect_err(field)
            .to_string();
        assert!(error.contains("leases/012.json"), "{error}");
        assert!(error.contains(says), "{field} {value}: {error}");
    }
}

#[test]
fn fields_of_later_versions_are_skipped_and_a_reason_is_cleaned() {
    let body = with(&lease().encode(), "colour", "green".into());
    assert_eq!(LeaseRecord::decode(12, &body), Ok(lease()));
    let mut long = lease();
    long.why = format!("\"{}ä\n", "é".repeat(MAX_WHY));
    let read = LeaseRecord::decode(12, &long.encode()).unwrap();
    assert!(read.why.len() <= MAX_WHY && read.why.starts_with("'é"));
}

#[test]
fn no_garbage_panics() {
    let name = NodeName::new("a-1").unwrap();
    let bodies = [node().encode().unwrap(), lease().encode()];
    assert!(matches!(
        LeaseRecord::decode(0, &vec![b' '; MAX_BYTES + 1]),
        Err(RecordError::TooLong { size: 8193, .. })
    ));
    for garbage in [
        &b""[..],
        b"null",
        b"[]",
        b"{}",
        b"{\"version\":1}",
        b"\xff\xfe",
    ] {
        assert!(NodeRecord::decode(&name, garbage).is_err());
        assert!(LeaseRecord::decode(0, garbage).is_err());
    }
    assert!(LeaseRecord::decode(0, "[".repeat(MAX_BYTES).as_bytes()).is_err());
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let mut body = bodies[usize::try_from(seed % 2).unwrap()].clone();
        for _ in 0..=rng.next_u64() % 4 {
            let at = usize::try_from(rng.next_u64() % body.len() as u64).unwrap();
            match rng.next_u64() % 3 {
                0 => body[at] = rng.next_u64().to_le_bytes()[0],
                1 => body.truncate(at + 1),
                _ => body.insert(
                    at,
                    b"\"{}[],:-9"[usize::try_from(rng.next_u64() % 9).unwrap()],
                ),
            }
        }
        // What is read of it can be written and read again.
        if let Ok(record) = NodeRecord::decode(&name, &body) {
            let again = NodeRecord::decode(&name, &record.encode().unwrap());
            assert_eq!(again, Ok(record), "seed {seed}");
        }
        if let Ok(record) = LeaseRecord::decode(12, &body) {
            let again = LeaseRecord::decode(12, &record.encode());
            assert_eq!(again, Ok(record), "seed {seed}");
        }
    }
}
