use std::time::Duration;

use super::*;
use crate::strategy::{Lease, Local as LocalStrategy};

fn at(ms: u64) -> Moment {
    Moment::ORIGIN + Duration::from_millis(ms)
}

fn runner(max_concurrency: u32) -> Runner {
    let options = RunnerOptions {
        max_concurrency,
        rules: Rules::default(),
    };
    Runner::new(options, Arc::new(Lease), 1)
}

fn open(shard: u32, generation: u64, deadline: u64) -> RunnerEvent {
    RunnerEvent::Command(RunnerCommand::Open {
        shard,
        generation,
        writer_epoch: Some(generation - 1),
        deadline: at(deadline),
    })
}

fn stop(shard: u32, reason: StopReason) -> RunnerEvent {
    RunnerEvent::Command(RunnerCommand::Stop {
        shard,
        reason,
        successor: None,
    })
}

fn extend(deadline: u64) -> RunnerEvent {
    RunnerEvent::Command(RunnerCommand::Extend {
        which: Which::All,
        deadline: at(deadline),
    })
}

fn opened(shard: u32, generation: u64) -> RunnerEvent {
    RunnerEvent::Host(HostEvent::Opened {
        shard,
        generation,
        writer_epoch: generation,
    })
}

fn failed(shard: u32, generation: u64, kind: OpenFailure) -> RunnerEvent {
    RunnerEvent::Host(HostEvent::OpenFailed {
        shard,
        generation,
        kind,
        error: "test".into(),
    })
}

fn down(shard: u32, generation: u64, reason: DownReason) -> RunnerEvent {
    RunnerEvent::Host(HostEvent::Down {
        shard,
        generation,
        reason,
        error: "test".into(),
    })
}

fn closed(shard: u32, generation: u64) -> RunnerEvent {
    RunnerEvent::Host(HostEvent::Closed {
        shard,
        generation,
        clean: true,
    })
}

/// Effects in short: `open 0/1`, `serve 0`, `deadline 0`, `fence 0`, `close 0`, `abandon 0`, and reports in brackets.
fn short(effects: &[HostEffect]) -> String {
    let one = |effect: &HostEffect| match effect {
        HostEffect::Open {
            shard, generation, ..
        } => format!("open {shard}/{generation}"),
        HostEffect::Serve { shard, .. } => format!("serve {shard}"),
        HostEffect::Deadline { shard, .. } => format!("deadline {shard}"),
        HostEffect::Fence { shard, .. } => format!("fence {shard}"),
        HostEffect::Close {
            shard,
            how: How::Clean,
            ..
        } => format!("close {shard}"),
        HostEffect::Close { shard, .. } => format!("abandon {shard}"),
        HostEffect::Report(report) => match report {
            RunnerReport::Accepted { .. } => String::new(),
            RunnerReport::Opened { shard, .. } => format!("[opened {shard}]"),
            RunnerReport::Down {
                shard, failures, ..
            } => format!("[down {shard} {failures}]"),
            RunnerReport::SelfFenced { shard, .. } => format!("[self-fenced {shard}]"),
            RunnerReport::Closed {
                shard,
                writer_epoch,
                why,
                ..
            } => {
                let clean = if writer_epoch.is_some() { " clean" } else { "" };
                format!("[{why:?} {shard}{clean}]")
            }
        },
    };
    let words: Vec<String> = effects
        .iter()
        .map(one)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

/// Plays a script: each line is a time, an event, and what is to come of it.
fn play(runner: &mut Runner, script: &[(u64, RunnerEvent, &str)]) {
    for (ms, event, expected) in script {
        let effects = runner.handle(event.clone(), at(*ms));
        assert_eq!(short(&effects), *expected, "at {ms}: {event:?}");
    }
}

#[test]
fn a_shard_opens_runs_and_closes() {
    play(
        &mut runner(16),
        &[
            (0, open(3, 1, 1000), "open 3/1"),
            (1, open(3, 1, 1000), ""),
            (100, opened(3, 1), "serve 3 [opened 3]"),
            (500, extend(1500), "deadline 3"),
            (600, extend(1400), ""),
            (1200, stop(3, StopReason::Released), "close 3"),
            (1300, stop(3, StopReason::Released), ""),
            (1400, closed(3, 1), "[Stopped 3 clean]"),
            (1400, closed(3, 1), ""),
            (1400, stop(3, StopReason::Released), ""),
        ],
    );
}

#[test]
fn a_stop_waits_for_its_open() {
    for (how, reason, expected) in [
        ("clean", StopReason::Released, ""),
        ("cut", StopReason::Lost, "fence 0"),
    ] {
        let close = if how == "clean" {
            "close 0"
        } else {
            "abandon 0"
        };
        let done = if how == "clean" {
            "[Stopped 0 clean]"
        } else {
            "[Stopped 0]"
        };
        play(
            &mut runner(16),
            &[
                (0, open(0, 1, 1000), "open 0/1"),
                (10, stop(0, reason), expected),
                (20, opened(0, 1), close),
                (30, closed(0, 1), done),
            ],
        );
        play(
            &mut runner(16),
            &[
                (0, open(0, 1, 1000), "open 0/1"),
                (10, stop(0, reason), expected),
                (20, failed(0, 1, OpenFailure::Failed), "[Stopped 0]"),
            ],
        );
    }
}

#[test]
fn past_its_deadline_a_shard_is_cut_off_and_closed() {
    play(
        &mut runner(16),
        &[
            (0, open(0, 1, 1000), "open 0/1"),
            (10, opened(0, 1), "serve 0 [opened 0]"),
            (999, RunnerEvent::Wake, ""),
            (1000, RunnerEvent::Wake, "fence 0 [self-fenced 0] abandon 0"),
            (1001, extend(5000), ""),
            (1002, RunnerEvent::Wake, ""),
            (1003, closed(0, 1), "[Expired 0]"),
        ],
    );
    // A renewal that comes too late revives nothing.
    play(
        &mut runner(16),
        &[
            (0, open(0, 1, 1000), "open 0/1"),
            (10, opened(0, 1), "serve 0 [opened 0]"),
            (1000, extend(5000), "fence 0 [self-fenced 0] abandon 0"),
        ],
    );
    // An open that comes through too late is not served.
    play(
        &mut runner(16),
        &[
            (0, open(0, 1, 1000), "open 0/1"),
            (1500, opened(0, 1), "fence 0 [self-fenced 0] abandon 0"),
            (1600, closed(0, 1), "[Expired 0]"),
        ],
    );
    // One whose close takes too long is cut off.
    play(
        &mut runner(16),
        &[
            (0, open(0, 1, 1000), "open 0/1"),
            (10, opened(0, 1), "serve 0 [opened 0]"),
            (900, stop(0, StopReason::Released), "close 0"),
            (1000, RunnerEvent::Wake, "fence 0 [self-fenced 0]"),
            (1100, closed(0, 1), "[Expired 0]"),
        ],
    );
}

#[test]
fn only_so_many_open_at_once_and_those_that_wait_too_long_do_not() {
    play(
        &mut runner(2),
        &[
            (0, open(0, 1, 1000), "open 0/1"),
            (0, open(1, 1, 1000), "open 1/1"),
            (0, open(2, 1, 1000), ""),
            (0, open(3, 1, 2000), ""),
            (100, opened(0, 1), "serve 0 [opened 0] open 2/1"),
            (200, stop(3, StopReason::Released), "[Stopped 3]"),
            (300, open(4, 1, 500), ""),
            (500, opened(1, 1), "[Expired 4] serve 1 [opened 1]"),
            (600, open(5, 1, 600), "[Expired 5]"),
        ],
    );
}

#[test]
fn what_fails_is_opened_again_and_given_back_in_the_end() {
    let mut runner = runner(16);
    play(
        &mut runner,
        &[
            (0, open(0, 1, 90_000), "open 0/1"),
            (10, failed(0, 1, OpenFailure::Failed), "[down 0 1]"),
            (400, RunnerEvent::Wake, ""),
        ],
    );
    let again = runner.wake_at().expect("a pause");
    assert!((at(510)..=at(1010)).contains(&again), "{again:?}");
    play(
        &mut runner,
        &[
            (1010, RunnerEvent::Wake, "open 0/1"),
            (1020, opened(0, 1), "serve 0 [opened 0]"),
            (
                1030,
                down(0, 1, DownReason::Crashed),
                "[down 0 2] abandon 0",
            ),
            (1040, closed(0, 1), ""),
            (3040, RunnerEvent::Wake, "open 0/1"),
            (
                3050,
                failed(0, 1, OpenFailure::TimedOut),
                "[down 0 3] [GaveUp 0]",
            ),
        ],
    );
    // A long uptime starts over; a stop during a pause ends it.
    play(
        &mut runner,
        &[
            (3060, open(0, 2, 190_000), "open 0/2"),
            (3070, opened(0, 2), "serve 0 [opened 0]"),
            (
                3080,
                down(0, 2, DownReason::Crashed),
                "[down 0 1] abandon 0",
            ),
            (3080, closed(0, 2), ""),
            (5000, RunnerEvent::Wake, "open 0/2"),
            (5000, opened(0, 2), "serve 0 [opened 0]"),
            (
                70_000,
                down(0, 2, DownReason::Stopped),
                "[down 0 1] abandon 0",
            ),
            (70_001, closed(0, 2), ""),
            (70_002, stop(0, StopReason::Released), "[Stopped 0]"),
        ],
    );
}

#[test]
fn a_pause_ends_when_somebody_wants_it() {
    let mut runner = runner(16);
    let retry = |shard| RunnerEvent::Command(RunnerCommand::Retry { shard });
    play(
        &mut runner,
        &[
            (0, retry(0), ""),
            (0, open(0, 1, 90_000), "open 0/1"),
            (5, retry(0), ""),
            (10, failed(0, 1, OpenFailure::Failed), "[down 0 1]"),
            (20, retry(1), ""),
            (30, retry(0), "open 0/1"),
            (40, opened(0, 1), "serve 0 [opened 0]"),
            (50, retry(0), ""),
        ],
    );
}

#[test]
fn a_fence_goes_back_to_the_loop() {
    play(
        &mut runner(16),
        &[
            (0, open(0, 1, 9000), "open 0/1"),
            (
                10,
                failed(0, 1, OpenFailure::Fenced),
                "[down 0 1] [Fenced 0]",
            ),
            (20, open(0, 2, 9000), "open 0/2"),
            (30, opened(0, 2), "serve 0 [opened 0]"),
            (
                40,
                down(0, 2, DownReason::Fenced),
                "[down 0 1] fence 0 abandon 0",
            ),
            (50, closed(0, 2), "[Fenced 0]"),
        ],
    );
    // Without leases there is nobody to ask.
    let options = RunnerOptions {
        max_concurrency: 1,
        rules: Rules::default(),
    };
    let me = "a".parse().unwrap();
    let mut runner = Runner::new(options, Arc::new(LocalStrategy { me }), 1);
    let never = RunnerEvent::Command(RunnerCommand::Open {
        shard: 0,
        generation: 1,
        writer_epoch: None,
        deadline: Moment::NEVER,
    });
    for ms in [0, 2000, 6000, 14_000, 40_000] {
        let event = if ms == 0 {
            never.clone()
        } else {
            RunnerEvent::Wake
        };
        assert_eq!(short(&runner.handle(event, at(ms))), "open 0/1");
        let effects = runner.handle(failed(0, 1, OpenFailure::Fenced), at(ms));
        assert!(short(&effects).starts_with("[down 0"), "{effects:?}");
        assert!(!short(&effects).contains("GaveUp"), "{effects:?}");
    }
}

#[test]
fn a_new_generation_waits_for_the_old_to_close() {
    play(
        &mut runner(16),
        &[
            (0, open(0, 1, 9000), "open 0/1"),
            (10, stop(0, StopReason::Lost), "fence 0"),
            (20, open(0, 2, 9000), ""),
            (30, opened(0, 1), "abandon 0"),
            (40, opened(0, 2), ""),
            (50, closed(0, 1), "[Stopped 0] open 0/2"),
            (60, opened(0, 2), "serve 0 [opened 0]"),
            (70, closed(0, 1), ""),
            (80, stop(0, StopReason::Released), "close 0"),
            (80, open(0, 3, 9000), ""),
            (85, stop(0, StopReason::Released), "[Stopped 0]"),
            (90, closed(0, 2), "[Stopped 0 clean]"),
        ],
    );
}

/// What a host has of a shard.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Model {
    Opening(u64),
    Open(u64),
    Closing(u64),
}

/// Any sequence of events: opens and closes alternate, no more open at once than may, nothing opens or is served past its deadline, and
/// everything past its deadline is cut off; in the end every generation that was accepted was closed.
#[test]
#[allow(clippy::too_many_lines)]
fn any_sequence_keeps_order_and_deadlines() {
    for seed in 0..3000_u32 {
        let mut rng = Rng::new(u128::from(seed));
        let mut below = move |n: u64| rng.next_u64() % n;
        let most = 1 + below(3);
        let mut runner = runner(u32::try_from(most).unwrap());
        let mut host: BTreeMap<u32, Model> = BTreeMap::new();
        let mut deadlines: BTreeMap<u32, Moment> = BTreeMap::new();
        let mut fenced: BTreeMap<u32, bool> = BTreeMap::new();
        let mut accepted = std::collections::BTreeSet::new();
        let (mut now, mut generation) = (1000, 0);
        for step in 0..160 {
            now += below(150);
            if let Some(wake) = runner
                .wake_at()
                .filter(|wake| *wake < at(now) && below(2) == 0)
            {
                now = wake.as_nanos().div_ceil(1_000_000);
            }
            let settle = step >= 120;
            let shard = u32::try_from(below(4)).unwrap();
            let told: Vec<(u32, Model)> =
                host.iter().map(|(shard, model)| (*shard, *model)).collect();
            let event = match below(7) {
                0 | 1 if !settle => {
                    generation += 1;
                    open(shard, generation, now + below(600))
                }
                2 if !settle => extend(now + below(600)),
                3 => stop(
                    shard,
                    if below(2) == 0 {
                        StopReason::Released
                    } else {
                        StopReason::Lost
                    },
                ),
                4 => RunnerEvent::Wake,
                _ if told.is_empty() => RunnerEvent::Wake,
                _ => {
                    let (shard, model) = told[usize::try_from(below(told.len() as u64)).unwrap()];
                    match model {
                        Model::Opening(generation) => match below(4) {
                            0 => failed(shard, generation, OpenFailure::Failed),
                            1 => failed(shard, generation, OpenFailure::Fenced),
                            _ => opened(shard, generation),
                        },
                        Model::Open(generation) => down(shard, generation, DownReason::Crashed),
                        Model::Closing(generation) => closed(shard, generation),
                    }
                }
            };
            if let RunnerEvent::Host(event) = &event {
                match event {
                    HostEvent::Opened {
                        shard, generation, ..
                    } => {
                        host.insert(*shard, Model::Open(*generation));
                    }
                    HostEvent::OpenFailed { shard, .. } | HostEvent::Closed { shard, .. } => {
                        host.remove(shard);
                    }
                    HostEvent::Down { .. } => {}
                }
            }
            let context = format!("seed {seed} step {step} at {now}: {event:?}");
            for effect in runner.handle(event, at(now)) {
                match effect {
                    HostEffect::Open {
                        shard,
                        generation,
                        deadline,
                        ..
                    } => {
                        assert!(deadline > at(now), "{context}: opened past its deadline");
                        let before = host.insert(shard, Model::Opening(generation));
                        assert_eq!(before, None, "{context}: opened before it closed");
                        deadlines.insert(shard, deadline);
                        fenced.insert(shard, false);
                    }
                    HostEffect::Serve {
                        shard,
                        generation,
                        deadline,
                    } => {
                        assert_eq!(
                            host.get(&shard),
                            Some(&Model::Open(generation)),
                            "{context}"
                        );
                        assert!(deadline > at(now), "{context}: served past its deadline");
                        assert_eq!(deadlines.get(&shard), Some(&deadline), "{context}");
                    }
                    HostEffect::Deadline {
                        shard, deadline, ..
                    } => {
                        assert!(!fenced[&shard], "{context}: revived");
                        let before = deadlines.insert(shard, deadline).expect("it is open");
                        assert!(deadline > before && before > at(now), "{context}: revived");
                    }
                    HostEffect::Fence { shard, .. } => {
                        assert!(host.contains_key(&shard), "{context}");
                        assert!(
                            !fenced.insert(shard, true).unwrap(),
                            "{context}: fenced twice"
                        );
                    }
                    HostEffect::Close {
                        shard,
                        generation,
                        how,
                        ..
                    } => {
                        let before = host.insert(shard, Model::Closing(generation));
                        assert_eq!(
                            before,
                            Some(Model::Open(generation)),
                            "{context}: closed too early"
                        );
                        assert!(
                            how == How::Abandon || !fenced[&shard],
                            "{context}: flush after a fence"
                        );
                    }
                    HostEffect::Report(RunnerReport::Accepted { shard, generation }) => {
                        accepted.insert((shard, generation));
                    }
                    HostEffect::Report(RunnerReport::Closed {
                        shard, generation, ..
                    }) => {
                        assert!(
                            accepted.remove(&(shard, generation)),
                            "{context}: closed twice"
                        );
                        let has = host.get(&shard);
                        assert!(
                            !matches!(has, Some(Model::Open(g) | Model::Opening(g) | Model::Closing(g)) if *g == generation),
                            "{context}: told too early"
                        );
                    }
                    HostEffect::Report(_) => {}
                }
            }
            let opening = host
                .values()
                .filter(|model| matches!(model, Model::Opening(_)))
                .count();
            assert!(opening as u64 <= most, "{context}: {opening} open at once");
            for (shard, model) in &host {
                let past = deadlines[shard] <= at(now);
                assert!(
                    !past || fenced[shard],
                    "{context}: {shard} {model:?} is past its deadline and not cut off"
                );
            }
            assert!(
                runner.wake_at().is_none_or(|wake| wake > at(now)),
                "{context}: it wants to be woken in the past"
            );
        }
        // All stops; what the host still has is closed.
        for _ in 0..12 {
            now += 1000;
            let all = RunnerCommand::StopAll {
                reason: StopReason::Released,
            };
            let mut effects = runner.handle(RunnerEvent::Command(all), at(now));
            while !effects.is_empty() {
                let mut more = Vec::new();
                for effect in effects {
                    match effect {
                        HostEffect::Close {
                            shard, generation, ..
                        } => {
                            host.insert(shard, Model::Closing(generation));
                        }
                        HostEffect::Open {
                            shard, generation, ..
                        } => {
                            host.insert(shard, Model::Opening(generation));
                        }
                        HostEffect::Report(RunnerReport::Closed {
                            shard, generation, ..
                        }) => {
                            accepted.remove(&(shard, generation));
                        }
                        _ => {}
                    }
                }
                for (shard, model) in host.clone() {
                    let event = match model {
                        Model::Opening(generation) => {
                            host.insert(shard, Model::Open(generation));
                            opened(shard, generation)
                        }
                        Model::Closing(generation) => {
                            host.remove(&shard);
                            closed(shard, generation)
                        }
                        Model::Open(_) => continue,
                    };
                    more.extend(runner.handle(event, at(now)));
                }
                effects = more;
            }
        }
        assert!(
            host.is_empty() && accepted.is_empty(),
            "seed {seed}: {host:?} {accepted:?}"
        );
        assert_eq!(runner.wake_at(), None, "seed {seed}");
    }
}

/// Each rule that can be broken is in force: without it the same script ends otherwise.
#[test]
fn broken_rules_show() {
    use Mutation::{
        CloseWithoutFence, ExtendRevives, LastOpenerWins, NoMaxConcurrency, NoSelfFence,
        OpenAfterDeadline, ServeLateOpen, StopBeforeOpen,
    };
    let script = |mutation| match mutation {
        NoMaxConcurrency => vec![(0, open(0, 1, 1000)), (0, open(1, 1, 1000))],
        OpenAfterDeadline => vec![
            (0, open(0, 1, 9000)),
            (0, open(1, 1, 1000)),
            (2000, opened(0, 1)),
        ],
        ServeLateOpen => vec![(0, open(0, 1, 1000)), (1500, opened(0, 1))],
        StopBeforeOpen => vec![(0, open(0, 1, 1000)), (10, stop(0, StopReason::Released))],
        ExtendRevives => vec![(0, open(0, 1, 1000)), (1000, extend(5000))],
        LastOpenerWins => vec![(0, open(0, 1, 1000))],
        _ => vec![
            (0, open(0, 1, 1000)),
            (10, opened(0, 1)),
            (1000, RunnerEvent::Wake),
        ],
    };
    for mutation in [
        CloseWithoutFence,
        ExtendRevives,
        LastOpenerWins,
        NoMaxConcurrency,
        NoSelfFence,
        OpenAfterDeadline,
        ServeLateOpen,
        StopBeforeOpen,
    ] {
        let play = |rules| {
            let options = RunnerOptions {
                max_concurrency: 1,
                rules,
            };
            let mut runner = Runner::new(options, Arc::new(Lease), 1);
            let events = script(mutation).into_iter();
            events
                .map(|(ms, event)| runner.handle(event, at(ms)))
                .collect::<Vec<_>>()
        };
        assert_ne!(
            play(Rules::default()),
            play(Rules::without(mutation)),
            "{mutation:?}"
        );
    }
}
