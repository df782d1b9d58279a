use super::*;
use crate::guest::{GuestError, HttpAnswer, HttpHead, Trap, TrapKind};
use crate::transport::Destination;

fn bytes(pieces: Pieces) -> Bytes {
    [pieces.first, pieces.second].concat().into()
}

fn forward(key: Option<&'static [u8]>, payload: Bytes, run: impl Into<Run>) -> Forward {
    Forward {
        shard: 7,
        generation: 3,
        run: run.into(),
        request: Request {
            method: "put".into(),
            key: key.map(Bytes::from_static),
            payload,
            headers: vec![("x-user".into(), "größe".into())],
            deadline: clock::now() + Duration::from_secs(10),
            chain: vec![4, 0],
            http: None,
        },
    }
}

#[test]
fn a_call_arrives_as_it_was_sent() {
    let hows = [
        How::Call(None),
        How::Call(Some(Durability::Durable)),
        How::Call(Some(Durability::Applied)),
        How::Query(Read::Applied),
        How::Query(Read::Durable),
    ];
    let runs = hows
        .into_iter()
        .flat_map(|how| [None, Some(u64::MAX)].map(|revision| Run { how, revision }));
    for run in runs {
        for key in [None, Some(&b""[..]), Some(b"k\xff\x00")] {
            for payload in [0, 5, ONE_PIECE, 1 << 20] {
                let sent = forward(key, vec![7; payload].into(), run);
                let got = decode_call(bytes(encode_call(sent.clone())), Duration::from_secs(60))
                    .expect("a call");
                assert_eq!((got.shard, got.generation, got.run), (7, 3, run));
                assert_eq!(got.request.key, sent.request.key);
                assert_eq!(got.request.payload, sent.request.payload);
                assert_eq!(got.request.headers, sent.request.headers);
                assert_eq!(got.request.chain, sent.request.chain);
                let left = got.request.deadline.saturating_duration_since(clock::now());
                assert!(
                    left > Duration::from_secs(5) && left <= Duration::from_secs(10),
                    "{left:?}"
                );
            }
        }
    }
}

/// A node of an older version knows nothing of revisions: it must not take such a request for one that any may run.
#[test]
fn an_older_node_does_not_read_a_request_that_one_revision_may_run() {
    #[derive(Deserialize)]
    struct Older {
        run: HowWord,
    }
    for (revision, reads) in [(None, true), (Some(3), false)] {
        let how = How::Call(None);
        let sent = bytes(encode_call(forward(
            None,
            Bytes::new(),
            Run { how, revision },
        )));
        let older = split::<Older>(sent);
        assert_eq!(older.is_ok(), reads, "{revision:?}");
        if let Ok((older, _)) = older {
            assert!(matches!(older.run, HowWord::Call));
        }
    }
}

#[test]
fn an_http_request_arrives_as_it_was_sent_and_not_at_an_older_node() {
    #[derive(Deserialize)]
    struct Older {
        #[expect(dead_code, reason = "only whether it can be read")]
        run: OlderRun,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OlderRun {
        Any(#[expect(dead_code, reason = "only whether it can be read")] OlderHow),
        Only {
            #[expect(dead_code, reason = "only whether it can be read")]
            how: OlderHow,
        },
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum OlderHow {
        Call,
        CallDurable,
        CallApplied,
    }
    let head = HttpHead {
        module: None,
        method: "PUT".parse().expect("a method"),
        target: "/a?b".parse().expect("a path"),
        authority: "localhost".into(),
        headers: [("x-a", "b")]
            .map(|(name, value)| {
                (
                    name.parse().expect("a name"),
                    value.parse().expect("a value"),
                )
            })
            .into_iter()
            .collect(),
    };
    let durabilities = [None, Some(Durability::Durable), Some(Durability::Applied)];
    for how in durabilities.map(How::Call) {
        for revision in [None, Some(3)] {
            let run = Run { how, revision };
            let mut sent = forward(Some(b"k"), "body".into(), run);
            sent.request.http = Some(Arc::new(head.clone()));
            let bytes = bytes(encode_call(sent));
            let got = decode_call(bytes.clone(), Duration::from_secs(60)).expect("a call");
            assert_eq!((got.run, &*got.request.payload), (run, &b"body"[..]));
            assert_eq!(got.request.http.as_deref(), Some(&head));
            assert!(split::<Older>(bytes).is_err(), "{how:?}");
        }
    }
    for body in [
        r#"{"shard":7,"generation":3,"run":"http","method":"http","left_us":1}"#,
        r#"{"shard":7,"generation":3,"run":"call","method":"http","left_us":1,"http":{"method":"GET","target":"/","authority":"a"}}"#,
    ] {
        let mut bytes = BytesMut::new();
        bytes.put_u32(u32::try_from(body.len()).expect("short"));
        bytes.put_slice(body.as_bytes());
        let refused = decode_call(bytes.freeze(), Duration::from_secs(1)).expect_err(body);
        assert!(refused.to_string().contains("not both"), "{refused}");
    }
}

#[test]
fn the_chain_of_a_call_is_bounded_and_may_be_missing() {
    let with = |chain: &str| {
        let head = format!(
            r#"{{"shard":7,"generation":3,"run":"call","method":"put","left_us":1000000{chain}}}"#
        );
        let mut body = BytesMut::new();
        body.put_u32(u32::try_from(head.len()).expect("short"));
        body.put_slice(head.as_bytes());
        decode_call(body.freeze(), Duration::from_secs(1))
    };
    let most = vec!["9"; CHAIN_MAX].join(",");
    for (chain, expected) in [
        // As an older node sends it, and with what a newer one may add.
        ("", Some(0)),
        (r#","newer":{"a":1}"#, Some(0)),
        (r#","chain":[]"#, Some(0)),
        (r#","chain":[4,0]"#, Some(2)),
        (&format!(r#","chain":[{most}]"#), Some(CHAIN_MAX)),
        (&format!(r#","chain":[{most},9]"#), None),
        (r#","chain":[-1]"#, None),
        (r#","chain":[4294967296]"#, None),
        (r#","chain":"4""#, None),
        (r#","chain":null"#, None),
    ] {
        let got = with(chain).ok().map(|forward| forward.request.chain.len());
        assert_eq!(got, expected, "{chain}");
    }
}

#[test]
fn time_is_cut_to_what_the_owner_allows() {
    let sent = forward(None, Bytes::new(), How::Call(None));
    let got = decode_call(bytes(encode_call(sent)), Duration::from_secs(1)).expect("a call");
    let left = got.request.deadline.saturating_duration_since(clock::now());
    assert!(left <= Duration::from_secs(1), "{left:?}");
}

#[test]
fn an_answer_arrives_as_it_was_given() {
    let reply = CallReply {
        payload: Bytes::from_static(b"\x00\xff"),
        content_type: Some("text/plain".into()),
        shard: 7,
        seq: u64::MAX,
        revision: 2,
        node: "b".into(),
        http: None,
    };
    let guest = GuestError {
        code: "not-found".into(),
        message: "gone".into(),
        retryable: true,
    };
    let mut of_guest = CallError::guest(guest).at(7);
    of_guest.seq = Some(4);
    let refused = NotOwner {
        generation: 9,
        owner: Some(Destination {
            node: "c".into(),
            session: "s".into(),
            address: "c:1".into(),
        }),
    };
    let over_http = CallReply {
        http: Some(Box::new(HttpAnswer {
            status: 404,
            headers: http::HeaderMap::new(),
        })),
        ..reply.clone()
    };
    let mut answers = vec![
        Ok(Ok(reply)),
        Ok(Ok(over_http)),
        Ok(Err(of_guest)),
        Err(refused),
    ];
    for kind in CallErrorKind::ALL {
        answers.push(Ok(Err(CallError::host(kind, "because").at(3))));
    }
    answers.push(Ok(Err(CallError::trap(&Trap::new(
        TrapKind::CpuTime,
        "slow",
    )))));
    for answer in answers {
        let got = decode_answer(bytes(encode_answer(answer.clone()))).expect("an answer");
        assert_eq!(got, answer);
    }
}

#[test]
fn what_is_malformed_is_refused_and_named() {
    let good = bytes(encode_call(forward(
        Some(b"key"),
        Bytes::new(),
        How::Call(None),
    )));
    let head = |text: &str| {
        let mut body = BytesMut::new();
        body.put_u32(u32::try_from(text.len()).expect("short"));
        body.extend_from_slice(text.as_bytes());
        body.freeze()
    };
    let call = |method: &str, key: u32| {
        head(&format!(
            r#"{{"shard":1,"generation":0,"run":"call","method":"{method}","key":{key},"left_us":1}}"#
        ))
    };
    let mut huge = BytesMut::from(&good[..]);
    huge[..4].copy_from_slice(&u32::MAX.to_be_bytes());
    for (body, part) in [
        (Bytes::new(), "0 bytes has no head"),
        (good.slice(..3), "3 bytes has no head"),
        (good.slice(..20), "in a body of 20"),
        (huge.freeze(), "4294967295 bytes"),
        (head("[]"), "cannot be read"),
        (head(r#"{"shard":-1}"#), "cannot be read"),
        (call("m", 1), "the key has 1 bytes, and 0 are left"),
        (call("", 0), "the method has 0 bytes"),
        (call(&"m".repeat(129), 0), "the method has 129 bytes"),
    ] {
        let error = decode_call(body.clone(), Duration::from_secs(1))
            .expect_err(part)
            .to_string();
        assert!(error.contains(part), "{error}");
        assert!(decode_answer(body).is_err());
    }
}

#[test]
fn a_kind_of_a_newer_version_is_taken_as_unknown() {
    let error = WireError {
        kind: "of-tomorrow".into(),
        code: "c".into(),
        message: "m".into(),
        retryable: true,
        shard: None,
        seq: None,
        revision: None,
    };
    let error = CallError::from(error);
    assert_eq!(error.kind, CallErrorKind::Unknown);
    assert!(!error.never_ran());
}
