//! Modules of native logic, on a node of their own.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::Cluster;
use crate::call::{CallError, CallOptions, Target};
use crate::config::Config;
use crate::db::{KeyRange, Op, Order};
use crate::guest::native::{self, Logic};
use crate::store::Store;

/// Longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// What happened, in order.
type Story = Arc<Mutex<Vec<String>>>;

fn tell(story: &Story, line: String) {
    story.lock().expect("story").push(line);
}

/// Stores what it gets, and remembers how often it was called and which tags became durable.
struct Notes<const MIGRATES: bool = false> {
    name: &'static str,
    revision: u64,
    story: Story,
    calls: u64,
    durable: Vec<u64>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[async_trait]
impl<const MIGRATES: bool> Logic for Notes<MIGRATES> {
    const HANDOFF: bool = true;
    const MIGRATION: bool = MIGRATES;

    /// In three steps.
    async fn migrate(&mut self, context: &InstanceContext, _: u64) -> Result<bool, GuestError> {
        let steps = context.db.view().get(b"steps").await?.unwrap_or_default();
        if steps.len() == 3 {
            return Ok(true);
        }
        tell(
            &self.story,
            format!("{} {} migrates", self.name, self.revision),
        );
        context
            .db
            .put("steps".into(), [&steps[..], b"+"].concat().into())
            .await?;
        Ok(false)
    }

    async fn start(&mut self, context: &InstanceContext) -> Result<(), GuestError> {
        tell(
            &self.story,
            format!("{} {} starts", self.name, self.revision),
        );
        if &*context.options == r#"{"fail":true}"# {
            return Err(GuestError::new("no", "as it was told"));
        }
        Ok(())
    }

    async fn call(
        &mut self,
        context: &InstanceContext,
        request: &Request,
    ) -> Result<Reply, GuestError> {
        self.calls += 1;
        let key = request.key.clone().unwrap_or_default();
        let db = &context.db;
        match request.method.as_str() {
            "put" => {
                let seq = db.put(key, request.payload.clone()).await?;
                context.notifier.when_durable(db, seq, self.calls)?;
                Ok(Reply::new(seq.to_string()))
            }
            "put-in-transaction" => {
                let mut transaction = db.begin(crate::db::Isolation::Serializable)?;
                let before = transaction.view()?.get(&key).await?.unwrap_or_default();
                transaction.write(Op::put(key, [&before[..], &request.payload].concat()))?;
                transaction.commit().await?;
                Ok(Reply::default())
            }
            "get" => Ok(Reply::new(db.view().get(&key).await?.unwrap_or_default())),
            "remove" => db.remove(key).await.map(|_| Reply::default()),
            "keys" | "keys-down" | "keys-from-b" | "keys-before-b" | "keys-under-a" => {
                let bound = |start, end| KeyRange::Between { start, end };
                let (range, order) = match request.method.as_str() {
                    "keys-down" => (bound(None, None), Order::Descending),
                    "keys-from-b" => (bound(Some("b".into()), None), Order::Ascending),
                    "keys-before-b" => (bound(None, Some("b".into())), Order::Ascending),
                    "keys-under-a" => (KeyRange::Prefix("a".into()), Order::Ascending),
                    _ => (bound(None, None), Order::Ascending),
                };
                let mut cursor = db.view().scan(&range, order).await?;
                let page = cursor.next(100).await?;
                let keys: Vec<String> = page.iter().map(|entry| text(&entry.key)).collect();
                Ok(Reply::new(keys.join(" ")))
            }
            "calls" => Ok(Reply::new(format!("{} {}", self.name, self.calls))),
            "durable" => Ok(Reply::new(format!("{:?}", self.durable))),
            "panic" => panic!("on purpose"),
            other => Err(GuestError::new("unknown-method", format!("no {other}"))),
        }
    }

    async fn query(&mut self, request: &Request, view: &ReadView) -> Result<Reply, GuestError> {
        let key = request.key.clone().unwrap_or_default();
        Ok(Reply::new(view.get(&key).await?.unwrap_or_default()))
    }

    async fn durable(&mut self, _: &InstanceContext, tags: Vec<u64>) {
        self.durable.extend(tags);
    }

    async fn stop(&mut self, _: &InstanceContext, _: StopReason) {
        tell(
            &self.story,
            format!("{} {} stops", self.name, self.revision),
        );
    }

    async fn suspend(&mut self, _: &InstanceContext) -> Result<Bytes, GuestError> {
        Ok(self.calls.to_string().into())
    }

    async fn resume(
        &mut self,
        _: &InstanceContext,
        _: u64,
        state: &[u8],
    ) -> Result<(), GuestError> {
        self.calls = text(state).parse().expect("a number");
        Ok(())
    }
}

fn part(name: &'static str, revision: u64, prefix: &'static str, story: &Story) -> Part {
    part_that::<false>(name, revision, prefix, story)
}

fn part_that<const MIGRATES: bool>(
    name: &'static str,
    revision: u64,
    prefix: &'static str,
    story: &Story,
) -> Part {
    let story = story.clone();
    let make = move |_: &InstanceContext| Notes::<MIGRATES> {
        name,
        revision,
        story: story.clone(),
        calls: 0,
        durable: Vec::new(),
    };
    Part {
        module: native::module(name, revision, make),
        options: "{}".into(),
        prefix: Bytes::from_static(prefix.as_bytes()),
    }
}

fn compound(parts: Vec<Part>) -> Arc<dyn Module> {
    Arc::new(Compound::new(parts, &Arc::default()))
}

struct Bench(Cluster);

impl Bench {
    async fn new(parts: Vec<Part>) -> Self {
        let config = Config {
            shards: 1,
            ..Config::default()
        };
        let store = Store::open("memory:", &Default::default()).expect("a store");
        let cluster = Cluster::start_on(store, Arc::new(config), compound(parts)).await;
        Self(cluster.expect("starts"))
    }

    async fn call(&self, method: &str, key: &str, payload: &str) -> Result<String, CallError> {
        let target = match key {
            "" => Target::Shard(0),
            key => Target::key(key.to_owned()),
        };
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        let call = self.0.call(target, method, payload, CallOptions::default());
        let reply = tokio::time::timeout(PATIENCE, call)
            .await
            .expect("in time")?;
        Ok(text(&reply.payload))
    }

    async fn told(&self, method: &str, key: &str) -> String {
        self.call(method, key, "").await.expect(method)
    }
}

#[tokio::test]
async fn calls_go_to_the_module_that_they_name_and_else_to_the_first() {
    let story = Story::default();
    let bench = Bench::new(vec![part("one", 1, "", &story), part("two", 1, "", &story)]).await;
    for (method, told) in [
        ("calls", "one 1"),
        ("one/calls", "one 2"),
        ("two/calls", "two 1"),
        ("two/calls", "two 2"),
    ] {
        assert_eq!(bench.told(method, "k").await, told, "{method}");
    }
    for method in ["three/calls", "two/none", "/calls"] {
        let error = bench.call(method, "k", "").await.expect_err(method);
        assert_eq!(error.code, "unknown-method", "{method}");
    }
    let error = bench.call("two/panic", "k", "").await.expect_err("traps");
    assert!(
        error.message.contains("module `two`: on purpose"),
        "{error}"
    );
    bench.0.stop().await;
}

#[tokio::test]
async fn a_module_sees_what_lies_under_its_prefix_only() {
    let story = Story::default();
    let parts = vec![
        part("all", 1, "", &story),
        part("a", 1, "a/", &story),
        part("last", 1, "\u{7f}", &story),
    ];
    let bench = Bench::new(parts).await;
    for key in ["a", "ab", "b", "c"] {
        bench.call("a/put", key, key).await.expect("put");
        bench.call("last/put", key, "last").await.expect("put");
    }
    bench.call("all/put", "a", "outside").await.expect("put");
    bench.call("all/put", "a0", "outside").await.expect("put");
    for (method, key, told) in [
        ("a/keys", "", "a ab b c"),
        ("a/keys-down", "", "c b ab a"),
        ("a/keys-from-b", "", "b c"),
        ("a/keys-before-b", "", "a ab"),
        ("a/keys-under-a", "", "a ab"),
        ("last/keys", "", "a ab b c"),
        ("last/keys-from-b", "", "b c"),
        ("all/keys-before-b", "", "a a/a a/ab a/b a/c a0"),
        ("a/get", "a", "a"),
        ("all/get", "a", "outside"),
        ("all/get", "a/b", "b"),
    ] {
        assert_eq!(bench.told(method, key).await, told, "{method} {key}");
    }
    bench
        .call("a/put-in-transaction", "b", "+")
        .await
        .expect("transaction");
    bench.told("a/remove", "c").await;
    assert_eq!(bench.told("all/get", "a/b").await, "b+");
    assert_eq!(bench.told("a/keys", "").await, "a ab b");
    assert_eq!(bench.told("last/keys", "").await, "a ab b c");
    let query = bench
        .0
        .query(Target::key("b"), "a/get", Bytes::new(), Default::default());
    assert_eq!(text(&query.await.expect("query").payload), "b+");
    bench.0.stop().await;
}

#[tokio::test]
async fn they_start_in_order_and_stop_in_reverse() {
    let story = Story::default();
    let bench = Bench::new(vec![part("one", 1, "", &story), part("two", 1, "", &story)]).await;
    bench.0.stop().await;
    let told = story.lock().expect("story").join(", ");
    assert_eq!(told, "one 1 starts, two 1 starts, two 1 stops, one 1 stops");
}

#[tokio::test]
async fn a_swap_hands_each_its_memory_and_its_tags() {
    let story = Story::default();
    let bench = Bench::new(vec![
        part("one", 1, "", &story),
        part("two", 1, "2", &story),
    ])
    .await;
    bench.told("one/calls", "k").await;
    for _ in 0..3 {
        bench.told("two/put", "k").await;
    }
    let parts = vec![
        part("two", 2, "2", &story),
        part("new", 2, "", &story),
        part("one", 2, "", &story),
    ];
    bench.0.swap(compound(parts)).await.expect("swaps");
    for (method, told) in [
        ("one/calls", "one 2"),
        ("two/calls", "two 4"),
        ("new/calls", "new 1"),
    ] {
        assert_eq!(bench.told(method, "k").await, told);
    }
    let seq = bench.told("two/put", "k").await.parse().expect("a seq");
    let durable = bench.0.notify_when_durable(0, seq);
    tokio::time::timeout(PATIENCE, durable)
        .await
        .expect("in time")
        .expect("durable");
    // Tags come before the calls that come after.
    assert_eq!(bench.told("two/durable", "k").await, "[5]");
    assert_eq!(bench.told("new/durable", "k").await, "[]");
    bench.0.stop().await;
}

#[tokio::test]
async fn whoever_does_not_migrate_starts_after_those_that_do() {
    let story = Story::default();
    let bench = Bench::new(vec![part("one", 1, "", &story)]).await;
    story.lock().expect("story").clear();
    let migrates = part_that::<true>("two", 2, "2", &story);
    let parts = vec![part("one", 2, "", &story), migrates];
    bench.0.swap(compound(parts)).await.expect("swaps");
    let told = story.lock().expect("story").join(", ");
    assert_eq!(
        told,
        "two 2 starts, two 2 migrates, two 2 migrates, two 2 migrates, one 2 starts"
    );
    assert_eq!(bench.told("one/get", "2steps").await, "+++");
    bench.0.stop().await;
}

#[tokio::test]
async fn one_that_does_not_start_is_named() {
    let story = Story::default();
    let bench = Bench::new(vec![part("one", 1, "", &story)]).await;
    let fails = Part {
        options: r#"{"fail":true}"#.into(),
        ..part("two", 2, "", &story)
    };
    let error = bench
        .0
        .swap(compound(vec![part("one", 2, "", &story), fails]))
        .await;
    let error = error.expect_err("does not start").to_string();
    assert!(error.contains("module `two`: as it was told"), "{error}");
    assert_eq!(bench.told("calls", "k").await, "one 1");
    bench.0.stop().await;
}

#[test]
fn memory_is_packed_and_unpacked() {
    let mut memory = BytesMut::new();
    for (name, state) in [("a", &b"state"[..]), ("long-name", b""), ("c", &[0, 255])] {
        pack(&mut memory, name, state).expect("short");
    }
    let states = unpack(&memory).expect("whole");
    assert_eq!(
        states,
        [("a", &b"state"[..]), ("long-name", b""), ("c", &[0, 255])]
    );
    for cut in 1..memory.len() {
        // What is cut between two modules is shorter, and else no memory.
        if let Ok(states) = unpack(&memory[..cut]) {
            assert!(states.len() < 3, "{cut}");
        }
    }
    assert!(unpack(&[0, 0, 0, 9, b'a']).is_err());
}
