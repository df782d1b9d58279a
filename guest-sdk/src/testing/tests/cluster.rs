//! Calls to other shards, and metrics.

use std::cell::RefCell;
use std::rc::Rc;

use super::super::*;
use super::code;
use crate::{cluster, db, metrics};

/// Passes on what it is asked: the method is what it asks, the payload is for whom.
#[derive(Default)]
struct Relay;

impl Guest for Relay {
    fn call(&mut self, call: Call) -> Result<Reply> {
        self.query(call)
    }

    fn query(&self, call: Call) -> Result<Reply> {
        let to = call.text()?;
        let answer = match call.method() {
            "call" => cluster::call(to, "echo").payload("hello").send()?,
            "call-shard" => cluster::call_shard(call.json()?, "echo").key("k").send()?,
            "query" => cluster::query(to, "echo").json(&[1, 2])?.send()?,
            "query-shard" => cluster::query_shard(call.json()?, "echo").send()?,
            "nameless" => cluster::query_shard(1, "").send()?,
            other => return Err(Error::unknown_method(other)),
        };
        Ok(Reply::text(answer.text()?))
    }

    fn start(&mut self) -> Result<()> {
        let asked = cluster::query_shard(1, "echo").send();
        assert_eq!(code(asked), "invalid-argument");
        Ok(())
    }
}

crate::export!(Relay, queries, lifecycle);

/// A key of another shard.
fn elsewhere(host: &mut Host) -> String {
    let keys = || (0..).map(|n| format!("key-{n}"));
    let found = host.run(|| Ok(keys().find(|key| crate::context::shard_for(&**key) != 0)));
    found.expect("a host").expect("one of many")
}

fn host() -> Host {
    Host::builder().shard(0, 4).start::<Relay>().expect("start")
}

#[test]
fn other_shards_are_a_closure() {
    let mut host = host();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let sees = seen.clone();
    host.on_cluster_call(move |asked| {
        sees.borrow_mut().push(asked.clone());
        match asked.key() {
            Some(b"bad") => Err(Error::new("overdraft", "no money").retryable()),
            _ => Ok(asked.payload().to_vec()),
        }
    });
    let key = elsewhere(&mut host);
    let reply = host.call("call").payload(&key).run().expect("a reply");
    assert_eq!(reply.text(), "hello");
    host.call("call-shard").payload("2").run().expect("a reply");
    let reply = host.query("query").payload(&key).run().expect("a reply");
    assert_eq!(reply.text(), "[1,2]");
    host.query("query-shard")
        .payload("0")
        .run()
        .expect("of itself");
    let seen = seen.borrow();
    let shards: Vec<_> = seen
        .iter()
        .map(|asked| (asked.shard(), asked.is_query()))
        .collect();
    let of_key = host
        .run(|| Ok(crate::context::shard_for(&*key)))
        .expect("a shard");
    assert_eq!(
        shards,
        [(of_key, false), (2, false), (of_key, true), (0, true)]
    );
    assert_eq!(
        (seen[0].method(), seen[0].key()),
        ("echo", Some(key.as_bytes()))
    );
    assert_eq!(seen[1].key(), Some(&b"k"[..]));
    assert_eq!(seen[3].key(), None);
}

#[test]
fn what_the_host_refuses_is_refused() {
    let mut host = host();
    let error = host.call("call-shard").payload("2").run().unwrap_err();
    assert_eq!(error.code(), "unassigned");
    assert!(error.is_retryable() && error.message().contains("on_cluster_call"));
    host.on_cluster_call(|asked| panic!("{asked:?} was sent"));
    for (query, method, payload, expected) in [
        (false, "call-shard", "0", "call-cycle"),
        (false, "call-shard", "4", "invalid-argument"),
        (false, "nameless", "", "invalid-argument"),
        (true, "call-shard", "2", "read-only"),
        (true, "call", "a", "read-only"),
    ] {
        let request = if query {
            host.query(method)
        } else {
            host.call(method)
        };
        assert_eq!(
            code(request.payload(payload).run()),
            expected,
            "{method} {payload}"
        );
    }
    host.on_cluster_call(|_| Err(Error::new("overdraft", "no money").retryable()));
    let error = host.call("call-shard").payload("2").run().unwrap_err();
    assert_eq!((error.code(), error.message()), ("overdraft", "no money"));
    assert!(error.is_retryable(), "the error of the guest is kept");
    host.on_cluster_call(|_| Ok(vec![0xff]));
    assert_eq!(
        code(host.call("call-shard").payload("2").run()),
        "invalid-answer"
    );
}

#[test]
fn metrics_are_kept_within_the_bounds_of_the_host() {
    let mut host = Host::bare();
    host.run(|| {
        db::put("a", "1")?;
        metrics::describe("orders", "Orders.");
        metrics::counter("orders")
            .label("b", "2")
            .label("a", "1")
            .add(2);
        metrics::counter("orders")
            .label("a", "1")
            .label("b", "2")
            .add(1);
        metrics::gauge("size").set(1.5);
        metrics::histogram("time").observe(0.25);
        metrics::histogram("time").observe(2.0);
        Ok(())
    })
    .unwrap();
    let kept = host.metrics();
    assert_eq!(kept.counter("orders", &[("a", "1"), ("b", "2")]), 3);
    assert_eq!((kept.counter("orders", &[]), kept.dropped()), (0, 0));
    assert_eq!(
        (kept.gauge("size", &[]), kept.gauge("none", &[])),
        (Some(1.5), None)
    );
    assert_eq!(kept.histogram("time", &[]), [0.25, 2.0]);
    assert_eq!(kept.help("orders"), Some("Orders."));
    host.run(|| {
        metrics::gauge("orders").set(1.0);
        metrics::gauge("Bad").set(1.0);
        metrics::gauge("size").label("le", "1").set(1.0);
        metrics::gauge("size")
            .label("a", "1")
            .label("a", "2")
            .set(1.0);
        metrics::gauge("size").label("a", "x".repeat(65)).set(1.0);
        metrics::histogram("time").observe(f64::NAN);
        metrics::histogram("discount").observe(1.0);
        metrics::describe("size", "two\nlines");
        Ok(())
    })
    .unwrap();
    assert_eq!(host.metrics().dropped(), 8);
    host.run(|| {
        for n in 0..1_100 {
            metrics::counter("many").label("n", n.to_string()).add(1);
        }
        for n in 0..100 {
            metrics::counter(&format!("n{n}")).add(1);
        }
        Ok(())
    })
    .unwrap();
    // 3 series were there, and then there was no room for further names.
    assert_eq!(host.metrics().dropped(), 8 + 103 + 100);
}
