//! The ledger against the in-memory host.

use ledger::Ledger;
use quarry_guest::db::Seq;
use quarry_guest::testing::{Host, MergeOperator};

const SALE: &str = r#"{"id":"order-1","memo":"tea","legs":[{"account":"ann","amount":-300},{"account":"shop","amount":290},{"account":"fees","amount":10}]}"#;
const ALL_IS_WELL: &str = r#""sum":0,"agrees":true}"#;

fn call(host: &mut Host, method: &str, payload: &str) -> String {
    let reply = host.call(method).key("acme").payload(payload).run();
    reply
        .unwrap_or_else(|error| panic!("{method} {payload}: {error}"))
        .text()
        .to_owned()
}

fn query(host: &mut Host, method: &str, payload: &str) -> String {
    let reply = host.query(method).key("acme").payload(payload).run();
    reply
        .unwrap_or_else(|error| panic!("{method} {payload}: {error}"))
        .text()
        .to_owned()
}

fn code(host: &mut Host, method: &str, payload: &str) -> String {
    let error = host
        .call(method)
        .key("acme")
        .payload(payload)
        .run()
        .unwrap_err();
    error.code().to_owned()
}

fn transfer(id: &str, from: &str, to: &str, amount: i64) -> String {
    format!(
        r#"{{"id":"{id}","legs":[{{"account":"{from}","amount":-{amount}}},{{"account":"{to}","amount":{amount}}}]}}"#
    )
}

/// `ann` has 1,000, out of `world`, which may owe any sum.
fn host() -> Host {
    let operator = MergeOperator::I64Add;
    let mut host = Host::builder()
        .merge_operator(operator)
        .start::<Ledger>()
        .unwrap();
    for account in [
        r#"{"account":"world"}"#,
        r#"{"account":"ann","floor":0}"#,
        r#"{"account":"shop","floor":0}"#,
        r#"{"account":"fees","floor":0}"#,
        r#"{"account":"credit","floor":-50}"#,
    ] {
        assert_eq!(call(&mut host, "open", account), account);
    }
    call(&mut host, "post", &transfer("funds", "world", "ann", 1_000));
    host
}

fn balances(host: &mut Host) -> Vec<i64> {
    ["world", "ann", "shop", "fees", "credit"]
        .map(|account| {
            let reply = query(host, "balance", &format!(r#"{{"account":"{account}"}}"#));
            let (_, balance) = reply.trim_end_matches('}').rsplit_once(':').unwrap();
            balance.parse().unwrap()
        })
        .to_vec()
}

#[test]
fn an_entry_moves_money_between_any_number_of_accounts() {
    let mut host = host();
    let posted = call(&mut host, "post", SALE);
    assert!(
        posted.starts_with(r#"{"entry":2,"id":"order-1","memo":"tea","#),
        "{posted}"
    );
    assert_eq!(balances(&mut host), [-1_000, 700, 290, 10, 0]);
    let expected = format!(r#"{{"accounts":5,"entries":2,{ALL_IS_WELL}"#);
    assert_eq!(query(&mut host, "audit", ""), expected);
    assert_eq!(call(&mut host, "audit", ""), expected);
}

#[test]
fn an_id_is_posted_once() {
    let mut host = host();
    let first = call(&mut host, "post", SALE);
    assert_eq!(call(&mut host, "post", SALE), first);
    host.restart().unwrap();
    assert_eq!(call(&mut host, "post", SALE), first);
    assert_eq!(balances(&mut host), [-1_000, 700, 290, 10, 0]);
    let other = transfer("order-1", "ann", "shop", 1);
    assert_eq!(code(&mut host, "post", &other), "id-taken");
    assert_eq!(balances(&mut host), [-1_000, 700, 290, 10, 0]);
}

#[test]
fn a_floor_holds() {
    let mut host = host();
    let cases = [
        ("ann", 1_000, None),
        ("ann", 1, Some("overdraft")),
        ("credit", 50, None),
        ("credit", 1, Some("overdraft")),
        ("world", 1_000_000_000, None),
    ];
    for (number, (from, amount, refused)) in cases.into_iter().enumerate() {
        let payload = transfer(&number.to_string(), from, "shop", amount);
        match refused {
            Some(expected) => assert_eq!(code(&mut host, "post", &payload), expected, "{payload}"),
            None => drop(call(&mut host, "post", &payload)),
        }
    }
    assert_eq!(
        balances(&mut host),
        [-1_000_001_000, 0, 1_000_001_050, 0, -50]
    );
    assert!(query(&mut host, "audit", "").ends_with(ALL_IS_WELL));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut host = host();
    let (before, written) = (balances(&mut host), host.last_seq());
    let too_many: Vec<String> = (0..65)
        .map(|n| format!(r#"{{"account":"{n}","amount":1}}"#))
        .collect();
    let too_many = format!(r#"{{"id":"a","legs":[{}]}}"#, too_many.join(","));
    let long_memo = format!(
        r#"{{"id":"a","memo":"{}","legs":[{{"account":"ann","amount":-1}},{{"account":"shop","amount":1}}]}}"#,
        "m".repeat(1_025)
    );
    let cases = [
        ("open", r#"{"account":"ann"}"#.to_owned(), "account-exists"),
        ("open", r#"{"account":""}"#.to_owned(), "invalid-name"),
        ("open", r#"{"account":"eve","floor":1}"#.to_owned(), "invalid-floor"),
        ("post", transfer("a", "ann", "eve", 1), "unknown-account"),
        // The first leg is merged when the second one is refused.
        ("post", r#"{"id":"a","legs":[{"account":"shop","amount":2000},{"account":"ann","amount":-2000}]}"#.to_owned(), "overdraft"),
        ("post", transfer("", "ann", "shop", 1), "invalid-name"),
        ("post", r#"{"id":"a","legs":[{"account":"ann","amount":0},{"account":"shop","amount":0}]}"#.to_owned(), "invalid-entry"),
        ("post", transfer("a", "ann", "shop", 1_000_000_001), "invalid-entry"),
        ("post", transfer("a", "ann", "ann", 1), "invalid-entry"),
        ("post", r#"{"id":"a","legs":[]}"#.to_owned(), "invalid-entry"),
        ("post", too_many, "invalid-entry"),
        ("post", long_memo, "invalid-entry"),
        ("post", r#"{"id":"a","legs":[{"account":"ann","amount":-2},{"account":"shop","amount":1}]}"#.to_owned(), "unbalanced"),
        ("post", r#"{"id":"a"}"#.to_owned(), "invalid-payload"),
        ("post", r#"{"id":"a","legs":[],"when":"now"}"#.to_owned(), "invalid-payload"),
        ("balance", r#"{"account":"eve"}"#.to_owned(), "unknown-account"),
        ("statement", r#"{"account":"eve"}"#.to_owned(), "unknown-account"),
        ("statement", r#"{"account":"ann","limit":0}"#.to_owned(), "invalid-payload"),
        ("close", String::new(), "unknown-method"),
    ];
    for (method, payload, expected) in cases {
        assert_eq!(
            code(&mut host, method, &payload),
            expected,
            "{method} {payload}"
        );
        assert_eq!(
            (balances(&mut host), host.last_seq()),
            (before.clone(), written),
            "{method} {payload}"
        );
    }
    assert_eq!(host.call("audit").run().unwrap_err().code(), "missing-key");
}

#[test]
fn a_statement_comes_in_pages() {
    let mut host = host();
    for n in 1..=150 {
        call(
            &mut host,
            "post",
            &transfer(&n.to_string(), "ann", "shop", 1 + n % 2),
        );
        // An account whose name begins with the other's is apart.
        if n == 1 {
            call(&mut host, "open", r#"{"account":"ann2","floor":0}"#);
        }
    }
    call(&mut host, "post", &transfer("last", "shop", "ann2", 1));
    let page = |host: &mut Host, rest: &str| {
        query(host, "statement", &format!(r#"{{"account":"ann"{rest}}}"#))
    };
    let first = page(&mut host, "");
    assert_eq!(first.lines().count(), 100);
    assert!(
        first.starts_with("{\"entry\":1,\"amount\":1000}\n{\"entry\":2,\"amount\":-2}\n"),
        "{first}"
    );
    assert_eq!(page(&mut host, r#","after":100"#).lines().count(), 51);
    assert_eq!(
        page(&mut host, r#","after":150,"limit":5"#),
        "{\"entry\":151,\"amount\":-1}\n"
    );
    assert_eq!(page(&mut host, &format!(r#","after":{}"#, u64::MAX)), "");
}

#[test]
fn books_of_one_shard_are_apart() {
    let mut host = host();
    for book in ["a", "acmee"] {
        let audit = host
            .query("audit")
            .key(book)
            .run()
            .unwrap()
            .text()
            .to_owned();
        assert_eq!(
            audit,
            format!(r#"{{"accounts":0,"entries":0,{ALL_IS_WELL}"#),
            "{book}"
        );
    }
}

#[test]
fn a_crash_takes_away_whole_entries() {
    let mut host = host();
    host.make_durable();
    let durable = host.last_seq().0;
    for n in 0..10 {
        call(
            &mut host,
            "post",
            &transfer(&n.to_string(), "ann", "shop", 1),
        );
    }
    assert_eq!(host.last_seq().0, durable + 10, "an entry is one write");
    host.make_durable_to(Seq(durable + 4));
    host.crash().unwrap();
    assert_eq!(balances(&mut host), [-1_000, 996, 4, 0, 0]);
    assert_eq!(
        query(&mut host, "audit", ""),
        format!(r#"{{"accounts":5,"entries":5,{ALL_IS_WELL}"#)
    );
    // Callers who had no reply send theirs again, as do those who had one.
    for n in 0..10 {
        call(
            &mut host,
            "post",
            &transfer(&n.to_string(), "ann", "shop", 1),
        );
    }
    assert_eq!(balances(&mut host), [-1_000, 990, 10, 0, 0]);
}
