//! Timers of whole nodes, on driven time: minutes take a moment, and nothing waits for the machine.

mod killed;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use quarry::cluster::status::ShardState;
use quarry::config::{Config, Strategy};
use quarry::guest::Limits;
use quarry::guest::compound::{Compound, Part};
use quarry::guest::timers::{NAME_MAX_BYTES, PAYLOAD_MAX_BYTES};
use quarry::store::faults::{Fault, Rule};
use quarry::{Cluster, clock};

use stage::{Deed, FAILS, GRAIN, ask, call, driven, wall_ms};

const SECOND: Duration = Duration::from_secs(1);

/// Checks of each that it did not come early, and how late it came.
#[track_caller]
fn in_time(fired: &[Deed], late: Duration) {
    for deed in fired {
        let after = deed.at_ms.checked_sub(deed.due_ms);
        let after = after.unwrap_or_else(|| panic!("early: {deed:?}"));
        assert!(u128::from(after) <= late.as_millis(), "late: {deed:?}");
    }
}

#[test]
fn timers_fire_in_order_at_their_time_and_once() {
    driven(|stage| async move {
        let node = stage.start().await;
        for (method, timer) in [
            ("set", "c 3000 x"),
            ("set-durable", "d 600000 y"),
            ("set-durable", "a 1000 "),
            ("set", "b 2000 "),
            ("set", "gone 2500 "),
            ("set-durable", "gone-too 2500 "),
        ] {
            ask(&node, method, timer).await;
        }
        for name in ["gone", "gone-too"] {
            assert_eq!(ask(&node, "cancel", name).await, "true");
            assert_eq!(ask(&node, "cancel", name).await, "false");
            assert_eq!(ask(&node, "due", name).await, "None");
        }
        assert_eq!(ask(&node, "keys", "").await, "[0, 0]");
        clock::sleep(SECOND * 700).await;
        let fired = stage.story.fired();
        assert_eq!(stage.story.names(), ["a", "b", "c", "d"]);
        assert_eq!((&*fired[2].payload, &*fired[3].payload), ("x", "y"));
        in_time(&fired, GRAIN * 2);
        assert_eq!(node.shard_report(0).expect("a report").traps, 0);
        node.stop().await;
    });
}

/// What was durable when the node went fires at the next one, at once and in order where it is overdue; what was in memory is gone.
#[test]
fn durable_timers_fire_where_the_shard_is_next() {
    for end in ["stop", "crash", "fence"] {
        driven(move |stage| async move {
            let mut config = stage.config();
            config.shard.close_timeout = SECOND;
            let module = stage.story.takes(1);
            let (node, faults) = stage.start_with(config.clone(), module).await;
            for (method, timer) in [
                ("set-durable", "b 2000 "),
                ("set-durable", "a 1000 "),
                ("set", "volatile 1000 "),
                ("set-durable", "c 20000 "),
                ("set-durable", "lazarus 500 "),
            ] {
                ask(&node, method, timer).await;
            }
            // Fired and removed, and that is durable once a later reply is.
            clock::sleep(Duration::from_millis(900)).await;
            ask(&node, "put", "x").await;
            match end {
                "stop" => node.stop().await,
                // Nothing reaches the store any more, a clean close included.
                "crash" => {
                    faults.add(Rule::new(Fault::FailBefore));
                    node.stop().await;
                }
                _ => {}
            }
            if end != "fence" {
                clock::sleep(SECOND * 5).await;
            }
            if end == "stop" {
                assert_eq!(stage.story.names(), ["lazarus"]);
            }
            let before = stage.story.fired().len();
            config.node = "second".into();
            let (second, _) = stage.start_with(config, stage.story.takes(1)).await;
            clock::sleep(SECOND * 30).await;
            let fired = stage.story.fired().split_off(before);
            let names: Vec<_> = fired.iter().map(|deed| &*deed.name).collect();
            let by_second = fired.iter().filter(|deed| deed.node == "second").count();
            match end {
                // Whichever of the two has the shard then, and the first has what is due before it learns of the second.
                "fence" => {
                    for name in ["a", "b", "c"] {
                        assert!(names.contains(&name), "{name}: {fired:?}");
                    }
                }
                _ => {
                    assert_eq!(names, ["a", "b", "c"], "{end}");
                    assert_eq!(by_second, 3);
                }
            }
            let last = fired.iter().filter(|deed| deed.name == "c");
            in_time(&last.cloned().collect::<Vec<_>>(), GRAIN * 2);
            second.stop().await;
            node.stop().await;
        });
    }
}

/// A node that lost its lease fires nothing more, and the next owner does.
#[test]
fn timers_go_with_the_lease_of_their_shard() {
    driven(|stage| async move {
        let config = |name| Config {
            strategy: Strategy::Lease,
            ..stage.ring.config(name)
        };
        let (first, faults) = stage
            .start_with(config("first"), stage.story.takes(1))
            .await;
        ask(&first, "set-durable", "late 60000 ").await;
        ask(&first, "set-durable", "soon 4000 ").await;
        ask(&first, "set", "volatile 4000 ").await;
        faults.add(Rule::new(Fault::FailBefore));
        // Its lease is of a second.
        clock::sleep(SECOND * 10).await;
        assert!(stage.story.names().is_empty(), "{:?}", stage.story.names());
        let (second, _) = stage
            .start_with(config("second"), stage.story.takes(1))
            .await;
        clock::sleep(SECOND * 120).await;
        let fired = stage.story.fired();
        assert_eq!(stage.story.names(), ["soon", "late"]);
        assert!(fired.iter().all(|deed| deed.node == "second"), "{fired:?}");
        in_time(&fired[1..], GRAIN * 2);
        second.stop().await;
        first.stop().await;
    });
}

/// The wall clock decides about durable timers, and somebody may set it.
#[test]
fn durable_timers_follow_the_wall_clock() {
    driven(|stage| async move {
        let node = stage.start().await;
        ask(&node, "set-durable", "durable 600000 ").await;
        ask(&node, "set", "volatile 600000 ").await;
        stage.clock.set_wall(600_000);
        // It is looked at once a minute.
        clock::sleep(SECOND * 61).await;
        assert_eq!(stage.story.names(), ["durable"]);
        stage.clock.set_wall(-1_200_000);
        ask(&node, "set-durable", "second 1000 ").await;
        clock::sleep(SECOND * 600).await;
        assert_eq!(stage.story.names(), ["durable", "second", "volatile"]);
        node.stop().await;
    });
}

#[test]
fn a_durable_timer_that_fails_is_tried_again_after_pauses_that_double() {
    driven(|stage| async move {
        let node = stage.start().await;
        ask(&node, "set-durable", "a 1000 error 8").await;
        ask(&node, "set", "volatile 400000 error 9").await;
        clock::sleep(SECOND * 300).await;
        let fired = stage.story.fired();
        let offsets: Vec<_> = fired
            .iter()
            .map(|deed| (deed.at_ms - fired[0].at_ms) / 1_000)
            .collect();
        assert_eq!(offsets, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        assert!(fired.iter().all(|deed| deed.due_ms == fired[0].due_ms));
        assert_eq!(ask(&node, "due", "a").await, "None");
        clock::sleep(SECOND * 300).await;
        assert_eq!(stage.story.fired().len(), 10, "the volatile one fired once");
        assert_eq!(node.shard_report(0).expect("a report").traps, 0);
        node.stop().await;
    });
}

/// A guest that fails on it for ever does not start again with the shortest pause where the shard is next.
#[test]
fn a_durable_timer_that_fails_goes_on_with_its_pauses_at_the_next_opening() {
    for (how, openings) in [
        (
            "error 9999",
            [&[1, 2, 4, 8][..], &[32, 60, 60], &[60, 60, 60]],
        ),
        ("trap", [&[20], &[80, 160, 320], &[600]]),
    ] {
        driven(move |stage| async move {
            for (nth, pauses) in openings.into_iter().enumerate() {
                let before = stage.story.fired().len();
                let opened = wall_ms();
                let node = stage.start().await;
                if nth == 0 {
                    ask(&node, "set-durable", &format!("a 100 {how}")).await;
                }
                let all: u32 = pauses.iter().sum();
                clock::sleep(SECOND * all + SECOND * 2).await;
                let fired = stage.story.fired().split_off(before);
                let at_once = fired[0].at_ms - opened;
                assert!(at_once < 1_000, "{how}, {nth}: {at_once} ms after it");
                let pairs = fired.windows(2);
                let seen: Vec<_> = pairs
                    .map(|pair| (pair[1].at_ms - pair[0].at_ms) / 1_000)
                    .collect();
                let pauses = pauses.iter().map(|pause| u64::from(*pause));
                assert_eq!(seen, pauses.collect::<Vec<_>>(), "{how}, {nth}");
                assert_eq!(fired[0].due_ms, stage.story.fired()[0].due_ms);
                node.stop().await;
            }
        });
    }
}

#[test]
fn a_timer_that_traps_is_tried_again_and_does_not_quarantine_its_shard() {
    driven(|stage| async move {
        let node = stage.start().await;
        ask(&node, "set", "volatile 10000 ").await;
        ask(&node, "set-durable", "a 1000 trap").await;
        for _ in 0..650 {
            clock::sleep(SECOND).await;
            ask(&node, "put", "x").await;
        }
        let fired = stage.story.fired();
        assert!(
            fired.iter().all(|deed| deed.name == "a"),
            "the other is forgotten"
        );
        let offsets: Vec<_> = fired
            .iter()
            .map(|deed| (deed.at_ms - fired[0].at_ms) / 1_000)
            .collect();
        assert_eq!(offsets[..6], [0, 20, 60, 140, 300, 620]);
        let report = node.shard_report(0).expect("a report");
        assert_eq!(report.status, ShardState::Running);
        assert_eq!(report.traps, fired.len() as u64);
        // A restart tries it at once, and a timer that was set anew is as new.
        let traps = fired.len();
        node.restart_shard(0).await.expect("a restart");
        ask(&node, "put", "x").await;
        clock::sleep(SECOND).await;
        assert_eq!(stage.story.fired().len(), traps + 1);
        ask(&node, "set-durable", "a 10 good").await;
        clock::sleep(SECOND * 700).await;
        assert_eq!(stage.story.fired().len(), traps + 2);
        node.stop().await;
    });
}

#[test]
fn a_quarantined_shard_fires_nothing_until_it_is_healed() {
    driven(|stage| async move {
        let mut config = stage.config();
        config.limits.traps = 0;
        let (node, _) = stage.start_with(config, stage.story.takes(1)).await;
        ask(&node, "set-durable", "a 1000 ").await;
        call(&node, "panic", "").await.expect_err("a trap");
        clock::sleep(SECOND * 60).await;
        assert!(stage.story.names().is_empty());
        node.restart_shard(0).await.expect("a restart");
        clock::sleep(GRAIN).await;
        assert_eq!(stage.story.names(), ["a"]);
        node.stop().await;
    });
}

#[test]
fn a_swap_keeps_what_the_next_revision_takes() {
    driven(|stage| async move {
        let node = stage.start().await;
        let story = &stage.story;
        ask(&node, "set", "volatile 10000 ").await;
        ask(&node, "set-durable", "durable 20000 ").await;
        node.swap(story.takes(2)).await.expect("a swap");
        clock::sleep(SECOND * 30).await;
        assert_eq!(story.names(), ["volatile", "durable"]);
        assert!(story.fired().iter().all(|deed| deed.revision == 2));
        // One that takes none: what is durable waits, and is nobody's key meanwhile.
        ask(&node, "set", "volatile 10000 ").await;
        ask(&node, "set-durable", "durable 20000 ").await;
        let deaf = story.module::<false, false>("main", 3);
        node.swap(deaf).await.expect("a swap");
        let error = call(&node, "set", "a 0 ").await.expect_err("refused");
        assert_eq!(error.code, "invalid-argument");
        clock::sleep(SECOND * 60).await;
        assert_eq!(ask(&node, "keys", "").await, "[0, 0]");
        assert_eq!(story.fired().len(), 2);
        node.swap(story.takes(4)).await.expect("a swap");
        clock::sleep(SECOND).await;
        assert_eq!(story.names()[2..], ["durable"]);
        node.stop().await;
    });
}

/// What it set in memory at its start was for itself.
#[test]
fn a_revision_that_does_not_start_leaves_no_timer() {
    driven(|stage| async move {
        let node = stage.start().await;
        ask(&node, "set", "kept 10000 ").await;
        let swapped = node.swap(stage.story.takes(FAILS)).await;
        assert!(swapped.is_err(), "it fails at its start");
        clock::sleep(SECOND * 60).await;
        assert_eq!(stage.story.names(), ["kept"]);
        assert_eq!(stage.story.fired()[0].revision, 1);
        node.stop().await;
    });
}

/// Between its steps they fire in the older revision; from the last step on, in the new one.
#[test]
fn a_migration_leaves_timers_to_the_older_revision_until_its_last_step() {
    driven(|stage| async move {
        let node = stage.start().await;
        let story = &stage.story;
        ask(&node, "set", "tick 20 again 20").await;
        let new = story.module::<true, true>("main", 2);
        node.swap(new).await.expect("a swap");
        clock::sleep(SECOND).await;
        let deeds = story.deeds();
        let step = |n: usize| {
            let mut steps = deeds.iter().enumerate();
            let nth = steps
                .by_ref()
                .filter(|(_, deed)| deed.what == "step")
                .nth(n);
            nth.expect("a step").0
        };
        for between in 0..4 {
            let fired = &deeds[step(between)..step(between + 1)];
            assert!(
                fired
                    .iter()
                    .any(|deed| deed.what == "fire" && deed.revision == 1),
                "after step {between}: {fired:?}"
            );
        }
        let after = &deeds[step(4)..];
        assert!(after.iter().any(|deed| deed.what == "fire"));
        let of_old = after
            .iter()
            .filter(|deed| deed.what == "fire" && deed.revision == 1);
        assert_eq!(of_old.count(), 0, "{after:?}");
        node.stop().await;
    });
}

/// Neither a flood of timers nor one of calls keeps the other waiting.
#[test]
fn timers_and_calls_take_turns() {
    const MANY: usize = 200;
    driven(|stage| async move {
        let node = stage.start().await;
        for n in 0..MANY {
            ask(&node, "set", &format!("{n} 15000 ")).await;
        }
        let told = stage.story.deeds().len();
        stage.story.holding.send_replace(true);
        let calling = |method: &'static str| {
            let node = node.clone();
            tokio::spawn(async move { ask(&node, method, "x").await })
        };
        let queued = || node.shard_report(0).expect("a report").queued;
        let mut calls = vec![calling("wait")];
        while queued() == 0 {
            clock::sleep(GRAIN).await;
        }
        calls.extend((0..MANY).map(|_| calling("due")));
        // All of both wait for the one that is held.
        clock::sleep(SECOND * 20).await;
        assert_eq!(queued(), MANY + 1);
        stage.story.holding.send_replace(false);
        for call in calls {
            call.await.expect("a reply");
        }
        clock::sleep(SECOND).await;
        let deeds = stage.story.deeds().split_off(told + 1);
        assert_eq!(deeds.len(), 2 * MANY);
        let mut ahead = 0_i32;
        for (at, deed) in deeds.iter().enumerate() {
            ahead += if deed.what == "fire" { 1 } else { -1 };
            assert!(ahead.abs() <= 2, "{at}: {deed:?}");
        }
        node.stop().await;
    });
}

#[test]
fn what_is_over_a_bound_is_refused_and_named() {
    driven(|stage| async move {
        let mut config = stage.config();
        config.limits.timers = 2;
        let (node, _) = stage.start_with(config, stage.story.takes(1)).await;
        let long = "n".repeat(NAME_MAX_BYTES + 1);
        let large = "p".repeat(PAYLOAD_MAX_BYTES + 1);
        for method in ["set", "set-durable"] {
            for (timer, says) in [
                (" 0 ".into(), "has 0 bytes, and has to have 1 to 256"),
                (format!("{long} 0 "), "has 257 bytes"),
                (format!("a 0 {large}"), "65537 bytes, and may have 65536"),
                ("a 315360000001 ".into(), "ten years"),
            ] {
                let error = call(&node, method, &timer).await.expect_err(says);
                assert_eq!(error.code, "invalid-argument");
                assert!(error.message.contains(says), "{error}");
            }
        }
        ask(&node, "set", "a 60000 ").await;
        ask(&node, "set-durable", "b 60000 ").await;
        for method in ["set", "set-durable"] {
            let error = call(&node, method, "c 0 ").await.expect_err("full");
            assert_eq!((&*error.code, error.retryable), ("limit", true));
            assert!(error.message.contains("limits.timers"), "{error}");
        }
        clock::sleep(SECOND * 61).await;
        ask(&node, "set", "c 0 ").await;
        node.stop().await;
    });
}

/// A timer that is set anew while it fires is not removed for that it fired.
#[test]
fn a_timer_that_is_set_anew_in_fire_stays() {
    driven(|stage| async move {
        let node = stage.start().await;
        ask(&node, "set-durable", "a 1000 anew").await;
        clock::sleep(SECOND * 2).await;
        assert_ne!(ask(&node, "due", "a").await, "None");
        node.stop().await;
        let node = stage.start().await;
        clock::sleep(SECOND * 10).await;
        assert_eq!(stage.story.names(), ["a", "a"]);
        assert_eq!(ask(&node, "due", "a").await, "None");
        node.stop().await;
    });
}

/// Modules of one shard have timers of their own, whatever their keys begin with.
#[test]
fn timers_belong_to_their_module() {
    driven(|stage| async move {
        let part = |name: &str, prefix: &'static str, takes: bool| Part {
            module: match takes {
                true => stage.story.module::<true, false>(name, 1),
                false => stage.story.module::<false, false>(name, 1),
            },
            options: "{}".into(),
            prefix: prefix.into(),
        };
        let parts = vec![
            part("a", "a/", true),
            part("b", "", true),
            part("deaf", "c/", false),
        ];
        let limits = Arc::new(Limits::default());
        let start = async |parts: Vec<Part>| -> Cluster {
            let module = Arc::new(Compound::new(parts, &limits));
            stage.start_with(stage.config(), module).await.0
        };
        let node = start(parts.clone()).await;
        for (method, timer) in [
            ("a/set-durable", "x 1000 of-a"),
            ("b/set-durable", "x 2000 of-b"),
            ("a/set", "y 3000 of-a"),
            ("b/set", "y 4000 of-b"),
            ("b/set-durable", "z 60000 of-b"),
        ] {
            ask(&node, method, timer).await;
        }
        assert_eq!(ask(&node, "b/cancel", "y").await, "true");
        ask(&node, "a/put", "key").await;
        for (method, keys) in [
            ("a/keys", "[1, 1]"),
            ("b/keys", "[1, 1]"),
            ("deaf/keys", "[0, 0]"),
        ] {
            assert_eq!(ask(&node, method, "").await, keys, "{method}");
        }
        let error = call(&node, "deaf/set", "x 0 ").await.expect_err("refused");
        assert_eq!(error.code, "invalid-argument");
        clock::sleep(SECOND * 10).await;
        let fired = stage.story.fired();
        let payloads: Vec<_> = fired.iter().map(|deed| &*deed.payload).collect();
        assert_eq!(payloads, ["of-a", "of-b", "of-a"]);
        node.stop().await;
        // Without the module its timer waits, and is not another's.
        let node = start(parts[..1].to_vec()).await;
        clock::sleep(SECOND * 120).await;
        assert_eq!(stage.story.fired().len(), 3);
        node.stop().await;
        let node = start(parts).await;
        clock::sleep(SECOND).await;
        assert_eq!(stage.story.names()[3..], ["z"]);
        node.stop().await;
    });
}
