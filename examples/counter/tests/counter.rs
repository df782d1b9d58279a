//! The counter against the in-memory host.

use counter::Counter;
use quarry_guest::testing::Host;

#[test]
fn counts_per_key() {
    let mut host = Host::new::<Counter>();
    for (key, amount, count) in [
        ("a", "", "1"),
        ("a", "41", "42"),
        ("b", " 7\n", "7"),
        ("a", "0", "42"),
    ] {
        let reply = host
            .call("increment")
            .key(key)
            .payload(amount)
            .run()
            .unwrap();
        assert_eq!(reply.text(), count, "{key} + {amount:?}");
    }
    for (key, count) in [("a", "42"), ("b", "7"), ("never seen", "0")] {
        assert_eq!(host.call("get").key(key).run().unwrap().text(), count);
        assert_eq!(host.query("get").key(key).run().unwrap().text(), count);
    }
}

#[test]
fn refuses_what_it_cannot_count() {
    let mut host = Host::new::<Counter>();
    host.call("increment")
        .key("full")
        .payload(u64::MAX.to_string())
        .run()
        .unwrap();
    let cases = [
        ("increment", Some("a"), "many", "invalid-payload"),
        ("increment", Some("a"), "-1", "invalid-payload"),
        ("increment", Some("full"), "1", "overflow"),
        ("increment", None, "1", "missing-key"),
        ("get", None, "", "missing-key"),
        ("decrement", Some("a"), "1", "unknown-method"),
    ];
    for (method, key, payload, code) in cases {
        let mut call = host.call(method).payload(payload);
        if let Some(key) = key {
            call = call.key(key);
        }
        assert_eq!(
            call.run().unwrap_err().code(),
            code,
            "{method} {key:?} {payload:?}"
        );
    }
    assert_eq!(
        host.call("get").key("full").run().unwrap().text(),
        u64::MAX.to_string()
    );
}

#[test]
fn counts_survive_a_restart_and_durable_ones_a_crash() {
    let mut host = Host::new::<Counter>();
    host.call("increment").key("a").run().unwrap();
    host.restart().unwrap();
    host.call("increment").key("a").run().unwrap();
    assert_eq!(host.call("get").key("a").run().unwrap().text(), "2");
    host.crash().unwrap();
    assert_eq!(host.call("get").key("a").run().unwrap().text(), "1");
}

#[test]
fn hears_of_durable_increments() {
    let mut host = Host::new::<Counter>();
    let first = host
        .call("increment")
        .key("a")
        .run()
        .unwrap()
        .seq()
        .unwrap();
    let second = host
        .call("increment")
        .key("a")
        .run()
        .unwrap()
        .seq()
        .unwrap();
    assert_eq!(host.call("durable").run().unwrap().text(), "0");
    host.make_durable_to(first);
    assert_eq!(
        host.call("durable").run().unwrap().text(),
        first.to_string()
    );
    host.make_durable();
    assert_eq!(
        host.call("durable").run().unwrap().text(),
        second.to_string()
    );
}
