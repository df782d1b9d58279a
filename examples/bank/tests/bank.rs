//! The bank against the in-memory host.

use bank::Bank;
use quarry_guest::testing::Host;

fn call(host: &mut Host, method: &str, bank: &str, payload: &str) -> String {
    host.call(method)
        .key(bank)
        .payload(payload)
        .run()
        .unwrap()
        .text()
        .to_owned()
}

fn total(host: &mut Host, bank: &str) -> String {
    host.query("total")
        .key(bank)
        .run()
        .unwrap()
        .text()
        .to_owned()
}

fn host_with_accounts() -> Host {
    let mut host = Host::new::<Bank>();
    for (account, balance) in [("alice", 100), ("bob", 50), ("carol", 0)] {
        call(
            &mut host,
            "open",
            "north",
            &format!(r#"{{"account":"{account}","balance":{balance}}}"#),
        );
    }
    host
}

#[test]
fn transfers_keep_the_total() {
    let mut host = host_with_accounts();
    assert_eq!(
        call(
            &mut host,
            "transfer",
            "north",
            r#"{"from":"alice","to":"bob","amount":30}"#
        ),
        r#"{"from":70,"to":80}"#
    );
    assert_eq!(
        call(
            &mut host,
            "transfer",
            "north",
            r#"{"from":"bob","to":"carol","amount":80}"#
        ),
        r#"{"from":0,"to":80}"#
    );
    assert_eq!(
        call(
            &mut host,
            "transfer",
            "north",
            r#"{"from":"carol","to":"carol","amount":5}"#
        ),
        r#"{"from":80,"to":80}"#
    );
    assert_eq!(total(&mut host, "north"), r#"{"accounts":3,"total":150}"#);
    assert_eq!(
        call(&mut host, "total", "north", ""),
        r#"{"accounts":3,"total":150}"#
    );
}

#[test]
fn banks_of_one_shard_are_apart() {
    let mut host = host_with_accounts();
    for bank in ["n", "northern"] {
        assert_eq!(
            total(&mut host, bank),
            r#"{"accounts":0,"total":0}"#,
            "{bank}"
        );
        call(
            &mut host,
            "open",
            bank,
            r#"{"account":"alice","balance":7}"#,
        );
        assert_eq!(
            total(&mut host, bank),
            r#"{"accounts":1,"total":7}"#,
            "{bank}"
        );
    }
    assert_eq!(total(&mut host, "north"), r#"{"accounts":3,"total":150}"#);
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut host = host_with_accounts();
    let full = format!(r#"{{"account":"full","balance":{}}}"#, u64::MAX);
    call(&mut host, "open", "north", &full);
    let before = total(&mut host, "north");
    let cases = [
        (
            "open",
            r#"{"account":"alice","balance":1}"#,
            "account-exists",
        ),
        ("open", r#"{"account":"","balance":1}"#, "invalid-account"),
        (
            "open",
            r#"{"account":"dave","balance":-1}"#,
            "invalid-payload",
        ),
        (
            "open",
            r#"{"account":"dave","balance":1,"owner":"d"}"#,
            "invalid-payload",
        ),
        (
            "transfer",
            r#"{"from":"alice","to":"bob","amount":101}"#,
            "overdraft",
        ),
        (
            "transfer",
            r#"{"from":"carol","to":"carol","amount":1}"#,
            "overdraft",
        ),
        (
            "transfer",
            r#"{"from":"alice","to":"dave","amount":1}"#,
            "unknown-account",
        ),
        (
            "transfer",
            r#"{"from":"dave","to":"alice","amount":1}"#,
            "unknown-account",
        ),
        (
            "transfer",
            r#"{"from":"alice","to":"full","amount":1}"#,
            "overflow",
        ),
        ("transfer", "", "invalid-payload"),
        ("close", "", "unknown-method"),
    ];
    for (method, payload, code) in cases {
        let error = host
            .call(method)
            .key("north")
            .payload(payload)
            .run()
            .unwrap_err();
        assert_eq!(error.code(), code, "{method} {payload}: {error}");
        assert_eq!(total(&mut host, "north"), before, "{method} {payload}");
    }
    let long = "n".repeat(1_025);
    assert_eq!(
        host.call("total").key(&long).run().unwrap_err().code(),
        "invalid-bank"
    );
    assert_eq!(host.call("total").run().unwrap_err().code(), "missing-key");
}

#[test]
fn a_crash_takes_away_whole_transfers() {
    let mut host = host_with_accounts();
    host.make_durable();
    for _ in 0..10 {
        call(
            &mut host,
            "transfer",
            "north",
            r#"{"from":"alice","to":"bob","amount":1}"#,
        );
    }
    // The fourth is durable, the others are not.
    let seq = host.last_seq().0 - 6;
    host.make_durable_to(quarry_guest::db::Seq(seq));
    host.crash().unwrap();
    assert_eq!(total(&mut host, "north"), r#"{"accounts":3,"total":150}"#);
    assert_eq!(
        call(
            &mut host,
            "transfer",
            "north",
            r#"{"from":"alice","to":"bob","amount":0}"#
        ),
        r#"{"from":96,"to":54}"#
    );
}
