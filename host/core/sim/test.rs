//! The simulator as a test: seeds that must pass, and broken rules that must not.

#[path = "simulator.rs"]
mod simulator;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quarry_core::rules::Mutation;
use simulator::setup::Climate;
use simulator::teeth::{FOUND, TEETH, Tooth};
use simulator::world::Figures;

/// Seeds that every check of the project runs. A night's worth is the example's business.
const SEEDS: u64 = 2000;

#[test]
fn no_seed_breaks_a_promise() {
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let total = Mutex::new(Figures::default());
    on_all_processors(SEEDS, |seed| {
        if failed.load(Ordering::Relaxed) {
            return;
        }
        let outcome = simulator::run(seed, Climate::Usual, None, false);
        total.lock().expect("figures").add(&outcome.figures);
        if outcome.violation.is_some() {
            failed.store(true, Ordering::Relaxed);
            *failure.lock().expect("a failure") = Some(outcome.describe(Climate::Usual, None));
        }
    });
    if let Some(words) = failure.into_inner().expect("a failure") {
        panic!("{words}");
    }
    let total = total.into_inner().expect("figures");
    println!("{total:#?}");
    // A world in which nothing happens would break nothing.
    assert!(total.strikes > 10 * SEEDS / 2, "{total:?}");
    assert!(total.calls_done * 2 > total.calls, "{total:?}");
    assert!(
        total.self_fenced > SEEDS / 10 && total.tombstones > SEEDS / 4,
        "{total:?}"
    );
    let rollouts = (total.rollouts, total.adopted, total.rolled_back);
    assert!(
        total.rollouts > SEEDS && total.orders > 2 * total.rollouts,
        "{total:?}"
    );
    assert!(
        total.adopted > SEEDS / 2 && total.rolled_back > SEEDS / 8,
        "{rollouts:?}"
    );
    // Losing a claim to somebody else is rare, and moves are as few as they can be.
    assert!(total.claims_lost * 2 < total.claims, "{total:?}");
    assert!(total.moves <= total.moves_least, "{total:?}");
}

#[test]
fn a_seed_replays() {
    for seed in [3, 17, 1_000_003] {
        let run = || format!("{:?}", simulator::run(seed, Climate::Usual, None, false));
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn every_broken_rule_is_noticed() {
    let listed: BTreeSet<Mutation> = TEETH.iter().map(|tooth| tooth.mutation).collect();
    let missing: Vec<&Mutation> = Mutation::ALL
        .iter()
        .filter(|mutation| !listed.contains(mutation))
        .collect();
    assert!(missing.is_empty(), "no oracle is named for {missing:?}");
    let survivors = Mutex::new(Vec::new());
    on_all_processors(TEETH.len() as u64, |index| {
        let tooth = &TEETH[usize::try_from(index).expect("an index")];
        match bitten(tooth) {
            Ok(words) => println!("{words}"),
            Err(words) => survivors.lock().expect("words").push(words),
        }
    });
    let survivors = survivors.into_inner().expect("words");
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

/// What was found beyond the seeds of every check stays mended.
#[test]
fn no_seed_breaks_a_promise_again() {
    for (seed, climate) in FOUND {
        let outcome = simulator::run(*seed, *climate, None, false);
        let broken = outcome.violation.is_some();
        assert!(!broken, "{}", outcome.describe(*climate, None));
    }
}

/// Runs seeds until an oracle notices; it has to be one of those that are expected.
fn bitten(tooth: &Tooth) -> Result<String, String> {
    let name = format!("{:?}", tooth.mutation);
    for seed in tooth.from..tooth.from + tooth.seeds {
        let outcome = simulator::run(seed, tooth.climate, Some(tooth.mutation), false);
        let Some(violation) = &outcome.violation else {
            continue;
        };
        let words = format!(
            "{name}: seed {seed}, {}: {}",
            violation.oracle, violation.words
        );
        if tooth.oracles.contains(&violation.oracle) {
            return Ok(words);
        }
        return Err(format!("{words}; {:?} should have noticed", tooth.oracles));
    }
    Err(format!(
        "{name} survived {} seeds from {}",
        tooth.seeds, tooth.from
    ))
}

/// Does something for each of the numbers below `count`, on all processors.
fn on_all_processors(count: u64, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    work(index);
                }
            });
        }
    });
}
