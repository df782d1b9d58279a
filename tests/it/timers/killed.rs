//! Durable timers of real processes that are killed, and of shards that are moved: each fires, never early, and where nothing was killed
//! meanwhile, once.

use std::time::{Duration, Instant, SystemTime};

use crate::support::process::{DEADLINE, Node, Setup, folder, run};

/// Something that fired: the timer's name, the node, when it was due and when it fired, in milliseconds on the machine's clock.
type Note = (String, String, u64, u64);

/// When a timer was set: the machine's clock before and after that, with its delay.
struct Set {
    name: String,
    after_ms: u64,
    between: (u64, u64),
}

impl Set {
    /// Checks that a note is of this timer's time.
    #[track_caller]
    fn fits(&self, note: &Note) {
        let (_, _, due_ms, at_ms) = note;
        assert!(at_ms >= due_ms, "early: {note:?}");
        let (first, last) = (
            self.between.0 + self.after_ms,
            self.between.1 + self.after_ms + 1,
        );
        assert!(
            (first..=last).contains(due_ms),
            "due from {first} to {last}: {note:?}"
        );
    }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("a time")
}

/// Sets a durable timer, which is acknowledged.
async fn set(node: &Node, key: &str, name: &str, after_ms: u64, holds: &str) -> Set {
    let timer = serde_json::json!([name, after_ms, holds]).to_string();
    let before = wall_ms();
    let set = node.call("set-durable", key, &timer).await;
    set.unwrap_or_else(|error| panic!("{name}: {error}"));
    Set {
        name: name.into(),
        after_ms,
        between: (before, wall_ms()),
    }
}

/// What fired on the shard of a key, as a node tells. None while it cannot.
async fn notes(node: &Node, key: &str) -> Option<Vec<Note>> {
    let notes = node.query("notes", key).await.ok()?;
    Some(serde_json::from_str(&notes).expect("notes"))
}

/// Waits until all of these fired on the shard of a key.
async fn fired(node: &Node, key: &str, names: &[&str]) -> Vec<Note> {
    let begun = Instant::now();
    loop {
        let notes = notes(node, key).await.unwrap_or_default();
        let there = |name: &&str| notes.iter().any(|note| note.0 == **name);
        if names.iter().all(there) {
            return notes;
        }
        assert!(
            begun.elapsed() < DEADLINE,
            "not within {DEADLINE:?}: {names:?}, of {notes:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a slow timer has begun to fire for the nth time.
async fn began(node: &Node, key: &str, nth: u64) {
    let begun = Instant::now();
    while node.query("began", key).await.ok() != Some(nth.to_string()) {
        assert!(begun.elapsed() < DEADLINE, "it did not begin to fire");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Those of a name.
fn of<'a>(notes: &'a [Note], name: &str) -> Vec<&'a Note> {
    notes.iter().filter(|note| note.0 == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_of_a_process_that_is_killed_fire_in_the_next() {
    let folder = folder();
    let setup = Setup::lasting("alarm", &folder.path().join("data"), 1);
    let node = setup.start().await;
    let mut all = Vec::new();
    for (name, after_ms) in [("soon", 2_000), ("later", 9_000), ("far", 3_600_000)] {
        all.push(set(&node, "k", name, after_ms, "note").await);
    }
    all.push(set(&node, "k", "slow", 0, "slow").await);
    began(&node, "k", 1).await;
    node.kill().await;
    let down = wall_ms();
    let node = setup.start().await;
    let notes = fired(&node, "k", &["slow", "soon", "later"]).await;
    for set in &all {
        for note in of(&notes, &set.name) {
            set.fits(note);
            assert!(note.3 >= down, "what was not noted was not kept: {note:?}");
        }
    }
    // The slow one was in the middle, and did not come to its end; nothing was killed while the others fired.
    for name in ["slow", "soon", "later"] {
        assert_eq!(of(&notes, name).len(), 1, "{name}: {notes:?}");
    }
    assert!(of(&notes, "far").is_empty(), "an hour early: {notes:?}");
    // A later write that is durable makes durable that they are gone.
    all.push(set(&node, "k", "last", 0, "note").await);
    fired(&node, "k", &["last"]).await;
    all.push(set(&node, "k", "fence", 0, "note").await);
    fired(&node, "k", &["fence"]).await;
    let acknowledged = node.call("count", "k", "").await.expect("a call");
    assert_eq!(acknowledged, "0");
    node.kill().await;
    let node = setup.start().await;
    set(&node, "k", "third", 0, "note").await;
    let notes = fired(&node, "k", &["third"]).await;
    for name in ["slow", "soon", "later", "last"] {
        assert_eq!(of(&notes, name).len(), 1, "{name}: {notes:?}");
    }
    let far = r#"["far", 0, ""]"#;
    assert_eq!(node.call("due", "k", far).await.expect("a call"), "true");
    node.stop().await;
}

/// A node of two, with leases of this length.
fn member(data: &std::path::Path, name: &str, ttl: &str) -> Setup {
    let setup = Setup::in_folder("alarm", data, 2).named(name);
    setup.with(&[
        "--strategy",
        "lease",
        "--lease-ttl",
        ttl,
        "--set",
        "call.timeout=60s",
        "--set",
        "call.park=50s",
    ])
}

/// Two nodes, each with one of the two shards, and a key of each node's shard.
async fn two(data: &std::path::Path, ttl: &str) -> ([Node; 2], [String; 2]) {
    let nodes = [
        member(data, "n1", ttl).start().await,
        member(data, "n2", ttl).start().await,
    ];
    let begun = Instant::now();
    loop {
        let mut keys = [None, None];
        for key in 0..2_u32 {
            let name = (0..)
                .map(|n| format!("key-{n}"))
                .find(|name| quarry_core::hash::shard_for(name.as_bytes(), 2) == key);
            let shard = nodes[0].client.get(&format!("/v1/shards/{key}")).await;
            let shard = shard.unwrap_or_default();
            let at = ["n1", "n2"].iter().position(|node| shard["node"] == *node);
            if let Some(at) = at.filter(|_| shard["status"] == "running") {
                keys[at] = name;
            }
        }
        if let [Some(first), Some(second)] = keys {
            return (nodes, [first, second]);
        }
        assert!(begun.elapsed() < DEADLINE, "they do not share the shards");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The other node fires what was the killed one's, once its lease has run out.
#[tokio::test(flavor = "multi_thread")]
async fn timers_of_a_node_that_is_killed_fire_on_the_other() {
    let folder = folder();
    let ([first, second], keys) = two(&folder.path().join("data"), "4s").await;
    let mut all: [Vec<Set>; 2] = Default::default();
    for (key, all) in keys.iter().zip(&mut all) {
        for (name, after_ms) in [("soon", 2_500), ("later", 20_000), ("far", 3_600_000)] {
            all.push(set(&second, key, name, after_ms, "note").await);
        }
        all.push(set(&second, key, "slow", 0, "slow").await);
    }
    began(&first, &keys[0], 1).await;
    first.kill().await;
    let down = wall_ms();
    for (nth, (key, all)) in keys.iter().zip(&all).enumerate() {
        let notes = fired(&second, key, &["slow", "soon", "later"]).await;
        assert!(of(&notes, "far").is_empty(), "early: {notes:?}");
        for set in all.iter().filter(|set| set.name != "far") {
            let noted = of(&notes, &set.name);
            assert_eq!(noted.len(), 1, "{}: {notes:?}", set.name);
            set.fits(noted[0]);
            assert_eq!(noted[0].1, "n2", "{notes:?}");
            assert!(nth == 1 || noted[0].3 >= down, "{notes:?}");
        }
    }
    second.stop().await;
}

/// Nobody was killed: each fires once, on the node that has the shard then.
#[tokio::test(flavor = "multi_thread")]
async fn timers_fire_once_while_their_shards_are_moved() {
    const TIMERS: u64 = 40;
    const APART_MS: u64 = 300;
    let folder = folder();
    let ([first, second], keys) = two(&folder.path().join("data"), "15s").await;
    let url = first.url.clone();
    let shard = |key: &str| quarry_core::hash::shard_for(key.as_bytes(), 2).to_string();
    for way in ["move", "drain"] {
        let key = &keys[0];
        let mut all = Vec::new();
        for n in 0..TIMERS {
            let after_ms = 500 + n * APART_MS;
            all.push(set(&first, key, &format!("{way}-{n}"), after_ms, "note").await);
        }
        let (of_shard, orders) = (shard(key), ["--timeout", "90s", "--server", &url]);
        let order: &[&str] = match way {
            "move" => &["shard", "move", &of_shard, "--to", "n2"],
            _ => &["node", "drain", "n2"],
        };
        run(&[order, &orders].concat()).await.with(0);
        let moved = wall_ms();
        let to = if way == "move" { "n2" } else { "n1" };
        let names: Vec<&str> = all.iter().map(|set| &*set.name).collect();
        let notes = fired(&second, key, &names).await;
        let mut after = 0;
        for set in &all {
            let noted = of(&notes, &set.name);
            assert_eq!(noted.len(), 1, "{}: {notes:?}", set.name);
            set.fits(noted[0]);
            if noted[0].3 > moved {
                after += 1;
                assert_eq!(noted[0].1, to, "{way}: {notes:?}");
            }
        }
        // Of those that are due long after the order some are left for the new owner.
        println!("{way}: {after} of {TIMERS} fired after it");
        let last = of(&notes, &format!("{way}-{}", TIMERS - 1));
        assert_eq!(last[0].1, to, "{way}: {notes:?}");
    }
    first.stop().await;
    second.stop().await;
}
