//! Nodes that do not see all that there is.

use super::*;
use crate::lease::object::Tag;
use crate::lease::op::{LeaseSeen, Outcome};

/// A lease as somebody rewrote it.
fn rewritten(control: &Control, shard: u32, successor: Option<&str>) -> LeaseSeen {
    let mut seen = control.known[shard as usize].clone().unwrap().seen;
    seen.tag = Some(Tag::e_tag(&format!("freed-{shard}")));
    seen.record.owner = None;
    seen.record.successor = successor.map(name);
    seen.record.counter += 1;
    seen
}

#[test]
fn a_shard_that_is_left_to_a_peer_is_looked_at_soon() {
    let mut cluster = settled(&["a", "b"], 5, Renewal::Session);
    let (few, many) = if cluster.shares()[0] < 3 {
        ("a", "b")
    } else {
        ("b", "a")
    };
    let shard = *cluster.node(few).serving.keys().next().unwrap();
    let now = cluster.now;
    let control = &mut cluster.node(many).control;
    control.events += 1;
    let seen = rewritten(control, shard, None);
    control.learn(seen, control.events, now);
    control.look.at = now + secs(5);
    control.assign(now);
    assert_eq!(control.wanted.len(), 0);
    assert_eq!(control.look.at, now + secs(5) / 4);
    // Not for ever: then anybody may take it, and if nobody does, nobody can.
    control.unowned.insert(shard, now);
    control.avoid.insert(shard, now + secs(100));
    control.look.at = now + secs(65);
    control.assign(now + secs(60));
    assert_eq!(control.look.at, now + secs(65));
}
