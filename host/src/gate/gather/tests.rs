use std::collections::VecDeque;

use super::*;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// How callers come: those that were released come back one after another, or others whenever they like.
#[derive(Debug, Clone, Copy)]
enum Callers {
    /// So many; the first is back after `think`, and each further one after `apart`.
    Back { count: u64, think: u64, apart: u64 },
    /// One each so many microseconds on average.
    Random { every: u64 },
}

/// What came of a run: how long replies waited on average, and how many of a hundred flushes waited for callers.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    waited_us: u64,
    gathered: u64,
}

/// A gate of its own: `flush` microseconds a flush, whose last part is looked at.
fn run(gather: &mut Gather, callers: Callers, flush: u64, flushes: u64) -> Seen {
    let mut now = 0;
    let mut random = 7_u64;
    let mut next_random = 0;
    let mut coming: VecDeque<u64> = match callers {
        Callers::Back { count, apart, .. } => (0..count).map(|n| n * apart).collect(),
        Callers::Random { .. } => VecDeque::new(),
    };
    let mut waiting: Vec<u64> = Vec::new();
    let (mut waited, mut released, mut gathered) = (0, 0, 0);
    let last = flushes / 2;
    for flush_number in 0..flushes {
        let mut until = |now: u64, waiting: &mut Vec<u64>, coming: &mut VecDeque<u64>| {
            if let Callers::Random { every } = callers {
                while next_random <= now {
                    coming.push_back(next_random);
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    next_random += 1 + (random >> 33) % (2 * every);
                }
            }
            while coming.front().is_some_and(|at| *at <= now) {
                waiting.extend(coming.pop_front());
            }
        };
        // Idle until somebody comes.
        until(now, &mut waiting, &mut coming);
        while waiting.is_empty() {
            now = coming.front().map_or(now + 10, |first| now.max(*first));
            until(now, &mut waiting, &mut coming);
        }
        let due = now;
        if let Some((enough, time)) = gather.wanted(waiting.len()) {
            gathered += u64::from(flush_number >= last);
            let end = now + u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            while waiting.len() < enough && now < end {
                now += 5;
                until(now, &mut waiting, &mut coming);
            }
        }
        let served = std::mem::take(&mut waiting);
        now += flush;
        until(now, &mut waiting, &mut coming);
        for since in &served {
            if flush_number >= last {
                waited += now - since;
                released += 1;
            }
        }
        if let Callers::Back { think, apart, .. } = callers {
            // One after another, behind those that are on their way.
            let mut at = (now + think).max(coming.back().map_or(0, |last| last + apart));
            for _ in &served {
                coming.push_back(at);
                at += apart;
            }
        }
        gather.flushed(us(now - due), us(flush), served.len(), waiting.len());
    }
    Seen {
        waited_us: waited / released,
        gathered: gathered * 100 / (flushes - last),
    }
}

#[test]
fn finds_the_better_way() {
    for (callers, flush) in [
        // A disk, and a shard that takes its time for each call.
        (
            Callers::Back {
                count: 64,
                think: 50,
                apart: 15,
            },
            700,
        ),
        (
            Callers::Back {
                count: 64,
                think: 50,
                apart: 3,
            },
            700,
        ),
        (
            Callers::Back {
                count: 8,
                think: 50,
                apart: 15,
            },
            700,
        ),
        // A bucket.
        (
            Callers::Back {
                count: 64,
                think: 50,
                apart: 15,
            },
            20_000,
        ),
        (
            Callers::Back {
                count: 2,
                think: 1000,
                apart: 0,
            },
            20_000,
        ),
        // Who is long in coming is not waited for.
        (
            Callers::Back {
                count: 64,
                think: 50_000,
                apart: 15,
            },
            700,
        ),
        (Callers::Random { every: 20 }, 700),
        (Callers::Random { every: 500 }, 700),
        (Callers::Random { every: 5000 }, 700),
        (Callers::Random { every: 1000 }, 20_000),
    ] {
        let seen = run(&mut Gather::default(), callers, flush, 10_000).waited_us;
        let fixed = |waits| Gather {
            waits,
            left: u32::MAX,
            ..Gather::default()
        };
        let never = run(&mut fixed(false), callers, flush, 10_000).waited_us;
        let always = run(&mut fixed(true), callers, flush, 10_000).waited_us;
        let best = never.min(always);
        assert!(
            seen * 100 <= best * 110,
            "{callers:?}, flush {flush} us: {seen} us; {never} without waiting, {always} with"
        );
    }
}

#[test]
fn follows_a_change_of_the_callers() {
    let back = Callers::Back {
        count: 64,
        think: 50,
        apart: 3,
    };
    let random = Callers::Random { every: 20 };
    let mut gather = Gather::default();
    for (callers, gathers) in [(random, false), (back, true), (random, false), (back, true)] {
        let seen = run(&mut gather, callers, 700, 10_000);
        assert_eq!(seen.gathered > 50, gathers, "{callers:?}: {seen:?}");
    }
}

#[test]
fn one_caller_is_never_kept_waiting() {
    let mut gather = Gather::default();
    let one = Callers::Back {
        count: 1,
        think: 100,
        apart: 0,
    };
    assert_eq!(
        run(&mut gather, one, 700, 5_000),
        Seen {
            waited_us: 700,
            gathered: 0
        }
    );
}

#[test]
fn a_slow_store_is_no_reason_to_wait_long() {
    let mut gather = Gather {
        waits: true,
        ..Gather::default()
    };
    for _ in 0..100 {
        gather.flushed(Duration::from_secs(5), Duration::from_secs(5), 2, 0);
    }
    assert!(matches!(gather.wanted(0), None | Some((2, MAX))));
    gather.trying = false;
    gather.waits = true;
    assert_eq!(gather.wanted(0), Some((2, MAX)));
}

#[test]
fn waits_for_most_of_who_is_there() {
    for (released, waiting, wanted) in [
        (0, 0, None),
        (1, 0, Some(1)),
        (1, 1, Some(2)),
        (60, 4, Some(56)),
        (8, 56, None),
        (9, 55, Some(56)),
    ] {
        let mut gather = Gather {
            waits: true,
            ..Gather::default()
        };
        gather.flushed(us(800), us(800), released, waiting);
        assert_eq!(
            gather.wanted(waiting),
            wanted.map(|enough| (enough, us(300))),
            "{released} released, {waiting} waiting"
        );
    }
}
