use quarry_core::route::Refusal;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(node: &str) -> Destination {
    Destination {
        node: node.into(),
        session: format!("session of {node}"),
        address: format!("{node}:1"),
    }
}

fn to(node: &str, generation: u64, until: Moment) -> Decision {
    Decision::Forward {
        node: node.parse().expect("a name"),
        session: quarry_core::lease::record::SessionId::new(1),
        address: format!("{node}:1"),
        generation,
        until,
    }
}

fn refusal(owner: Option<&str>) -> NotOwner {
    NotOwner {
        generation: 0,
        owner: owner.map(at),
    }
}

/// Who a way leads to, and by which generation.
fn peer(way: &Way) -> Option<(&str, u64)> {
    match way {
        Way::Peer { to, generation, .. } => Some((&to.node, *generation)),
        _ => None,
    }
}

#[test]
fn what_was_learned_corrects_the_table() {
    let now = clock::boot_now();
    let (later, patience) = (now + SECOND * 30, now + SECOND * 10);
    let parking = Parking::new("me");
    let look = |decision: Decision, local: Local| {
        parking.correct(3, decision, &local, patience, clock::boot_now())
    };
    let wait = Way::Wait { until: patience };
    // Nothing learned: as the core says.
    assert_eq!(peer(&look(to("a", 5, later), Local::None)), Some(("a", 5)));
    assert_eq!(look(Decision::Park { until: patience }, Local::None), wait);
    let unassigned = Refusal::Unassigned { shard: 3 };
    assert_eq!(
        look(Decision::Refuse(unassigned.clone()), Local::None),
        Way::Refused(unassigned.clone())
    );
    // A table that leads here is behind: never a request to oneself.
    assert_eq!(look(to("me", 5, later), Local::None), wait);
    // The old owner refuses: its route is not used again, a newer one is at once.
    parking.refused(3, 5, refusal(Some("b")), "a");
    assert_eq!(look(to("a", 5, later), Local::None), wait);
    assert_eq!(look(to("a", 4, later), Local::None), wait);
    assert_eq!(peer(&look(to("b", 6, later), Local::None)), Some(("b", 6)));
    // Another shard's route is another matter.
    let other = parking.correct(4, to("a", 5, later), &Local::None, patience, now);
    assert_eq!(peer(&other), Some(("a", 5)));
    // The new owner says so itself: that counts before the table tells.
    parking.found(3, at("b"), 6, later);
    for decision in [
        to("a", 5, later),
        to("me", 5, later),
        Decision::Park { until: patience },
        Decision::Refuse(unassigned),
    ] {
        assert_eq!(peer(&look(decision, Local::None)), Some(("b", 6)));
    }
    // But not over a table that is newer, nor over what this node itself is about to serve.
    assert_eq!(peer(&look(to("c", 7, later), Local::None)), Some(("c", 7)));
    assert_eq!(
        look(Decision::Park { until: patience }, Local::Opening),
        wait
    );
    // A node that refused while it opened the shard has it now, by the same lease.
    parking.refused(3, 6, refusal(None), "b");
    assert_eq!(look(to("b", 6, later), Local::None), wait);
    parking.found(3, at("b"), 6, later);
    assert_eq!(peer(&look(to("b", 6, later), Local::None)), Some(("b", 6)));
    // And not once it refuses.
    parking.refused(3, 6, refusal(None), "b");
    assert_eq!(look(Decision::Park { until: patience }, Local::None), wait);
}

#[test]
fn what_was_learned_ends() {
    let now = clock::boot_now();
    let later = now + SECOND * 30;
    let parking = Parking::new("me");
    let look =
        |decision: Decision, at: Moment| parking.correct(3, decision, &Local::None, later, at);
    parking.refused(3, 5, refusal(None), "a");
    assert_eq!(peer(&look(to("a", 5, later), now)), None);
    // A node that was asked since and does not have it yet is not sent anything.
    parking.pointed(3, refusal(None), "a");
    // A refusal that came too early, of a shard that opens there after all, does not hold for ever.
    let much_later = clock::boot_now() + REFUSED;
    assert_eq!(peer(&look(to("a", 5, later), much_later)), Some(("a", 5)));
    parking.found(3, at("b"), 6, now + SECOND);
    let park = Decision::Park { until: later };
    assert_eq!(peer(&look(park.clone(), now)), Some(("b", 6)));
    assert_eq!(peer(&look(park, now + SECOND)), None);
}

#[test]
fn hints_lead_on_and_never_back() {
    let parking = Parking::new("me");
    let hint = || parking.lots().get(&3).and_then(|lot| lot.hint.clone());
    parking.refused(3, 5, refusal(Some("b")), "a");
    assert_eq!(hint(), Some(at("b")));
    // Who names itself, this node or nobody leads nowhere else: the table is asked again.
    for owner in [Some("b"), Some("me"), None] {
        parking.refused(3, 5, refusal(Some("c")), "a");
        parking.pointed(3, refusal(owner), "b");
        assert_eq!(hint(), None);
    }
    parking.pointed(3, refusal(Some("c")), "b");
    assert_eq!(hint(), Some(at("c")));
    parking.unhinted(3, &at("b"));
    assert_eq!(hint(), Some(at("c")));
    parking.unhinted(3, &at("c"));
    assert_eq!(hint(), None);
    // Who was asked for no reason may know the owner, and takes nothing back that another said.
    parking.heard(3, refusal(None), "a");
    parking.heard(3, refusal(Some("c")), "a");
    parking.heard(3, refusal(None), "b");
    parking.heard(3, refusal(Some("me")), "b");
    assert_eq!(hint(), Some(at("c")));
}
