use std::collections::BTreeMap;
use std::sync::Arc;

use quarry_core::deploy::{ModuleSpec, Outcome, Phase};

use super::*;
use crate::deploy::objects::digest;
use crate::store::Store;
use crate::store::faults::{Fault, FaultStore, Faults, Op, Rule};

fn place() -> (Objects, Faults) {
    let mut faults = None;
    let store = Store::open("memory:", &BTreeMap::new()).expect("store");
    let store = store.wrap(|inner| {
        let wrapped = FaultStore::new(inner, 3);
        faults = Some(wrapped.faults());
        Arc::new(wrapped)
    });
    (Objects::new(&store, ""), faults.expect("wrapped"))
}

fn draft(component: &'static str, options: &str) -> Draft {
    Draft {
        modules: vec![ModuleSpec {
            name: "main".into(),
            digest: digest(component.as_bytes()),
            size: component.len() as u64,
            options: options.into(),
            limits: BTreeMap::new(),
            grants: BTreeSet::new(),
            prefix: String::new(),
        }],
        author: "tester".into(),
        note: String::new(),
    }
}

async fn upload(objects: &Objects, component: &'static str) {
    let stored = objects.put_module(Bytes::from_static(component.as_bytes()));
    stored.await.expect("stored");
}

/// Ends the rollout in progress as if every shard ran its target.
async fn adopt(objects: &Objects) {
    let seen = objects.rollout().await.expect("read").expect("a record");
    let mut next = seen.record.clone();
    let active = next.active.take().expect("a rollout");
    (next.previous, next.stable) = (next.stable, active.target);
    next.last = Some(quarry_core::deploy::Ended {
        number: next.number,
        target: active.target,
        order: active.order,
        outcome: Outcome::Adopted,
        why: String::new(),
    });
    let written = objects.write_rollout(Some(&seen), next).await;
    assert!(matches!(written, Ok(Written::Won(_))), "{written:?}");
}

fn options() -> RolloutOptions {
    RolloutOptions {
        by: "tester".into(),
        ..RolloutOptions::default()
    }
}

#[tokio::test]
async fn what_runs_already_is_not_deployed_again() {
    let (objects, _) = place();
    upload(&objects, "a").await;
    let deploy = |draft| async { objects.deploy(draft, &options()).await.expect("ordered") };
    let (rollout, revision) = (1, 1);
    let begun = deploy(draft("a", "{}")).await;
    assert_eq!(begun, Ordered::Begun { rollout, revision });
    let again = deploy(draft("a", "{}")).await;
    assert_eq!(again, Ordered::Running { rollout, revision });
    adopt(&objects).await;
    let again = deploy(draft("a", "{}")).await;
    assert_eq!(again, Ordered::Unchanged { revision });
    let same = objects.roll_out(1, &options()).await.expect("answered");
    assert_eq!(same, Ordered::Unchanged { revision });
    assert_eq!(objects.revisions().await.expect("listed"), [1]);

    let other = deploy(draft("a", "{\"x\":1}")).await;
    let (rollout, revision) = (2, 2);
    assert_eq!(other, Ordered::Begun { rollout, revision }, "other options");
    let busy = objects.deploy(draft("a", "{\"x\":2}"), &options()).await;
    let busy = busy.expect_err("one at a time");
    assert!(
        matches!(&busy, DeployError::Refused(Refused::Busy { number: 2, .. })),
        "{busy}"
    );
    let numbers = objects.revisions().await.expect("listed");
    assert_eq!(numbers, [1, 2], "nothing is recorded for it");
}

#[tokio::test]
async fn of_two_deploys_at_once_one_wins_and_the_other_is_told() {
    let (objects, _) = place();
    upload(&objects, "a").await;
    upload(&objects, "b").await;
    let (one, other) = (options(), options());
    let both = tokio::join!(
        objects.deploy(draft("a", "{}"), &one),
        objects.deploy(draft("b", "{}"), &other)
    );
    let (won, lost) = match both {
        (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
        other => panic!("{other:?}"),
    };
    assert!(matches!(won, Ordered::Begun { rollout: 1, .. }), "{won:?}");
    assert!(
        matches!(&lost, DeployError::Refused(Refused::Busy { number: 1, .. })),
        "{lost}"
    );
}

/// Orders of one person at one moment, over a store that loses answers: each is told what became of its own.
#[tokio::test(start_paused = true)]
async fn of_many_orders_of_one_person_one_wins_and_knows_it() {
    for fault in [None, Some(Fault::FailAfter), Some(Fault::FailBefore)] {
        let (objects, faults) = place();
        upload(&objects, "a").await;
        if let Some(fault) = fault {
            faults.add(Rule::new(fault).on(Op::Put).path("rollout").times(2));
        }
        let orders = (0..6).map(|n| {
            let objects = &objects;
            async move {
                let options = RolloutOptions {
                    order: Some(Nonce::new(n + 1)),
                    ..options()
                };
                let ordered = objects.deploy(draft("a", &format!("{{\"n\":{n}}}")), &options);
                (n + 1, ordered.await)
            }
        });
        let told = futures::future::join_all(orders).await;
        let seen = objects.rollout().await.expect("read").expect("a record");
        let active = seen.record.active.expect("a rollout");
        assert_eq!(seen.record.number, 1, "{fault:?}: one has begun");
        for (order, told) in told {
            match told {
                Ok(Ordered::Begun { rollout, revision }) => {
                    assert_eq!((rollout, revision), (1, active.target), "{fault:?}");
                    assert_eq!(active.order, Nonce::new(order), "{fault:?}");
                }
                Err(DeployError::Refused(Refused::Busy { number: 1, .. })) => {
                    assert_ne!(active.order, Nonce::new(order), "{fault:?}");
                }
                other => panic!("{fault:?}: {other:?}"),
            }
        }
    }
}

/// Whoever did not see the answer gives the same order again.
#[tokio::test]
async fn an_order_that_is_given_again_begins_nothing_anew() {
    let (objects, _) = place();
    upload(&objects, "a").await;
    let order = |number| RolloutOptions {
        order: Some(Nonce::new(number)),
        ..options()
    };
    let deploy = async |options: &str, number| {
        let ordered = objects.deploy(draft("a", options), &order(number)).await;
        ordered.expect("ordered")
    };
    let first = Ordered::Begun {
        rollout: 1,
        revision: 1,
    };
    assert_eq!(deploy("{}", 1).await, first);
    assert_eq!(deploy("{}", 1).await, first);
    adopt(&objects).await;
    assert_eq!(deploy("{}", 1).await, first, "and was adopted meanwhile");
    let second = Ordered::Begun {
        rollout: 2,
        revision: 2,
    };
    assert_eq!(deploy("{\"x\":1}", 2).await, second);
    // It ended before it was asked for again, and shards run what they ran.
    let seen = objects.rollout().await.expect("read").expect("a record");
    let mut next = seen.record.clone();
    let active = next.active.take().expect("a rollout");
    next.last = Some(quarry_core::deploy::Ended {
        number: 2,
        target: active.target,
        order: active.order,
        outcome: Outcome::RolledBack,
        why: "it trapped".into(),
    });
    let written = objects.write_rollout(Some(&seen), next).await;
    assert!(matches!(written, Ok(Written::Won(_))), "{written:?}");
    assert_eq!(deploy("{\"x\":1}", 2).await, second);
    let again = objects.roll_out(2, &order(2)).await.expect("answered");
    assert_eq!(again, second, "by its number as well");
    assert_eq!(objects.revisions().await.expect("listed"), [1, 2]);
    let third = objects.roll_out(2, &order(3)).await.expect("ordered");
    let (rollout, revision) = (3, 2);
    assert_eq!(third, Ordered::Begun { rollout, revision }, "another order");
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_outcome_is_unknown_is_found_again() {
    for fault in [Fault::FailAfter, Fault::FailBefore] {
        let (objects, faults) = place();
        upload(&objects, "a").await;
        faults.add(Rule::new(fault).on(Op::Put).path("rollout").times(1));
        let begun = objects.deploy(draft("a", "{}"), &options()).await;
        let (rollout, revision) = (1, 1);
        let expected = Ordered::Begun { rollout, revision };
        assert_eq!(begun.expect("ordered"), expected, "{fault:?}");
    }
}

#[tokio::test]
async fn a_revision_needs_its_components() {
    let (objects, _) = place();
    let missing = objects.deploy(draft("a", "{}"), &options()).await;
    let missing = missing.expect_err("no component");
    assert!(
        matches!(&missing, DeployError::Bucket(Error::NoModule { .. })),
        "{missing}"
    );
    upload(&objects, "a").await;
    let mut longer = draft("a", "{}");
    longer.modules[0].size = 7;
    let half = objects.deploy(longer, &options()).await;
    let half = half.expect_err("another size");
    assert!(
        matches!(
            &half,
            DeployError::Bucket(Error::Incomplete { found: 1, .. })
        ),
        "{half}"
    );
    assert_eq!(objects.revisions().await.expect("listed"), [0u64; 0]);

    objects
        .deploy(draft("a", "{}"), &options())
        .await
        .expect("ordered");
    adopt(&objects).await;
    upload(&objects, "b").await;
    objects
        .create_revision(draft("b", "{}"))
        .await
        .expect("recorded");
    let name = digest(b"b");
    objects.delete_module(&name).await.expect("deleted");
    let missing = objects.roll_out(2, &options()).await.expect_err("gone");
    assert!(
        missing.to_string().contains("there is no module"),
        "{missing}"
    );
    let none = objects.roll_out(9, &options()).await.expect_err("none");
    assert!(none.to_string().contains("no revision 9"), "{none}");
}

#[tokio::test]
async fn going_back_aborts_or_rolls_the_one_before_out() {
    let (objects, _) = place();
    for says in ["nothing was deployed yet", "never ran another one"] {
        let error = objects.roll_back(&options()).await.expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
        if objects.rollout().await.expect("read").is_none() {
            upload(&objects, "a").await;
            let founded = objects.found(Bytes::from_static(b"a"), draft("a", "{}"));
            founded.await.expect("founded");
        }
    }
    upload(&objects, "b").await;
    objects
        .deploy(draft("b", "{}"), &options())
        .await
        .expect("ordered");
    let (rollout, revision) = (2, 2);
    for _ in 0..2 {
        let back = objects.roll_back(&options()).await.expect("aborted");
        assert_eq!(back, Ordered::Running { rollout, revision });
        let record = objects.rollout().await.expect("read").expect("it").record;
        assert_eq!(record.active.expect("goes back").phase, Phase::Back);
    }
    adopt(&objects).await;
    let back = objects.roll_back(&options()).await.expect("ordered");
    let (rollout, revision) = (3, 1);
    assert_eq!(back, Ordered::Begun { rollout, revision });
}

#[tokio::test]
async fn a_cluster_begins_with_one_module_however_many_nodes_start() {
    let (objects, _) = place();
    let found = |component: &'static str| {
        objects.found(
            Bytes::from_static(component.as_bytes()),
            draft(component, "{}"),
        )
    };
    let (a, b) = tokio::join!(found("a"), found("b"));
    let both = [a.expect("founded"), b.expect("founded")];
    let new = |founded: &&Founded| matches!(founded, Founded::New { revision: 1 });
    let other = |founded: &&Founded| matches!(founded, Founded::Other { revision: 1 });
    assert_eq!(both.iter().filter(new).count(), 1, "{both:?}");
    assert_eq!(both.iter().filter(other).count(), 1, "{both:?}");
    let record = objects.rollout().await.expect("read").expect("it").record;
    assert_eq!((record.number, record.stable, record.active), (1, 1, None));
    assert_eq!(record.last.expect("an end").outcome, Outcome::Adopted);

    let runs = objects.revision(1).await.expect("read").modules[0].digest;
    let (same, other) = if runs == digest(b"a") {
        ("a", "b")
    } else {
        ("b", "a")
    };
    let same = found(same).await.expect("compared");
    assert_eq!(same, Founded::Same { revision: 1 });
    let other = found(other).await.expect("compared");
    assert_eq!(other, Founded::Other { revision: 1 });
}

#[tokio::test]
async fn what_is_needed_is_not_pruned() {
    let (objects, _) = place();
    for component in ["a", "b", "c", "d", "e", "f"] {
        upload(&objects, component).await;
    }
    for component in ["a", "b"] {
        objects
            .deploy(draft(component, "{}"), &options())
            .await
            .expect("ordered");
        adopt(&objects).await;
    }
    for component in ["c", "d", "e", "f"] {
        objects
            .create_revision(draft(component, "{}"))
            .await
            .expect("recorded");
    }
    objects.roll_out(4, &options()).await.expect("ordered");
    for (number, why) in [
        (1, "a rollback goes back to"),
        (2, "shards run it"),
        (4, "being rolled out"),
        (6, "it is the newest"),
        (7, "there is no revision 7"),
    ] {
        let error = objects.prune_revision(number).await.expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
    let error = objects.prune(0).await.expect_err("one stays");
    assert!(error.to_string().contains("valid is 1 or more"), "{error}");
    let pruned = objects.prune(1).await.expect("pruned");
    assert_eq!(pruned.revisions, [3, 5]);
    assert_eq!(pruned.kept, [1, 2, 4, 6]);
    assert_eq!(pruned.modules, [], "they were uploaded just now");
    assert_eq!(objects.revisions().await.expect("listed"), [1, 2, 4, 6]);
    assert_eq!(objects.prune(4).await.expect("pruned").revisions, [0u64; 0]);
}

#[tokio::test]
async fn options_have_bounds() {
    let (objects, faults) = place();
    for (options, says) in [
        (
            RolloutOptions {
                plan: Plan::Waves(0),
                ..options()
            },
            "wave = 0: valid are 1 to 100 percent",
        ),
        (
            RolloutOptions {
                plan: Plan::Canary(101),
                ..options()
            },
            "canary = 101",
        ),
        (
            RolloutOptions {
                step_timeout: Duration::ZERO,
                ..options()
            },
            "valid are 1s to 24h",
        ),
        (
            RolloutOptions {
                bake: MAX_STEP * 2,
                ..options()
            },
            "valid are 0 to 24h",
        ),
        (
            RolloutOptions {
                plan: Plan::Chosen,
                ..options()
            },
            "no shard is chosen",
        ),
    ] {
        let error = objects.deploy(draft("a", "{}"), &options).await;
        let error = error.expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
    let name = RolloutOptions {
        by: "x".repeat(257),
        ..options()
    };
    upload(&objects, "a").await;
    let puts = faults.calls(Op::Put);
    let error = objects
        .deploy(draft("a", "{}"), &name)
        .await
        .expect_err("too long");
    assert!(error.to_string().contains("`by`"), "{error}");
    assert_eq!(faults.calls(Op::Put), puts, "no revision is left over");
}
