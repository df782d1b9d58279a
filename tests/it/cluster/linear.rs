//! A checker of linearizability: is there an order of the calls, each between its begin and its end, in which a model of one object gives
//! every answer that was seen? A call of unknown outcome may have run at any time after its begin, or never.
//!
//! The search goes through the history in time, and places calls only when one ends that must have been placed (after Lowe, "Testing for
//! linearizability"). What it carries along is the set of all states that the object may be in. An acceptance is always right. The first
//! search places calls of unknown outcome only where nothing goes without them; only when that finds no order, a second one tries all.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

/// States that a search carries along at most.
const MAX_STATES: usize = 200_000;

/// An object that runs one call after the other.
pub trait Model {
    type State: Clone + Eq + Hash + Debug;
    type Op: Debug;
    type Answer: PartialEq + Debug;

    fn run(state: &Self::State, op: &Self::Op) -> (Self::State, Self::Answer);
}

/// A call. Times come from one counter, so no two are the same.
#[derive(Debug)]
pub struct Done<Op, Answer> {
    pub op: Op,
    pub began: u64,
    /// What it answered and when; none when nobody knows whether it ran.
    pub ended: Option<(u64, Answer)>,
}

pub type History<M> = Vec<Done<<M as Model>::Op, <M as Model>::Answer>>;

#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No order gives the answer of this call.
    Violation { call: usize, text: String },
    /// There are too many possibilities to try.
    Undecided,
}

/// Whether the history of one object is linearizable.
pub fn check<M: Model>(start: &M::State, history: &History<M>) -> Result<(), Refusal> {
    match search::<M>(start, history, true) {
        Ok(()) => Ok(()),
        Err(_) => search::<M>(start, history, false),
    }
}

/// Calls that were placed before their end: those that will end, and those of unknown outcome.
type Placed = (BTreeSet<usize>, BTreeSet<usize>);

/// What the object may be. With the same state and the same calls placed that will end, fewer calls of unknown outcome leave more open, so
/// only the sets without a subset among them are kept.
struct States<S> {
    found: HashMap<(S, BTreeSet<usize>), Vec<BTreeSet<usize>>>,
    count: usize,
}

impl<S: Clone + Eq + Hash> States<S> {
    fn new() -> Self {
        Self {
            found: HashMap::new(),
            count: 0,
        }
    }

    /// False when there is one already that leaves as much open.
    fn add(&mut self, state: S, (sure, maybe): Placed) -> bool {
        let sets = self.found.entry((state, sure)).or_default();
        if sets.iter().any(|set| set.is_subset(&maybe)) {
            return false;
        }
        let before = sets.len();
        sets.retain(|set| !maybe.is_subset(set));
        self.count = self.count + 1 + sets.len() - before;
        sets.push(maybe);
        true
    }

    fn all(self) -> impl Iterator<Item = (S, Placed)> {
        self.found.into_iter().flat_map(|((state, sure), sets)| {
            sets.into_iter()
                .map(move |maybe| (state.clone(), (sure.clone(), maybe)))
        })
    }
}

fn search<M: Model>(start: &M::State, history: &History<M>, lazy: bool) -> Result<(), Refusal> {
    let mut events: Vec<(u64, usize, bool)> = Vec::new();
    for (call, done) in history.iter().enumerate() {
        events.push((done.began, call, false));
        if let Some((at, _)) = &done.ended {
            events.push((*at, call, true));
        }
    }
    events.sort_unstable();
    let mut pending = BTreeSet::new();
    let mut states = States::new();
    states.add(start.clone(), Placed::default());
    for (_, call, ends) in events {
        if !ends {
            pending.insert(call);
            continue;
        }
        let before: Vec<_> = states.all().collect();
        states = place::<M>(history, &pending, &before, call, lazy)?;
        if states.count == 0 {
            return Err(violation::<M>(history, &before, call));
        }
        pending.remove(&call);
    }
    Ok(())
}

/// The states after `call` was placed, with what must come before it.
fn place<M: Model>(
    history: &History<M>,
    pending: &BTreeSet<usize>,
    before: &[(M::State, Placed)],
    call: usize,
    lazy: bool,
) -> Result<States<M::State>, Refusal> {
    let mut placed = States::new();
    let mut seen = States::new();
    // Of states with so many more calls of unknown outcome.
    let mut level = before.to_vec();
    while !level.is_empty() {
        let mut next = Vec::new();
        while let Some((state, at)) = level.pop() {
            if !seen.add(state.clone(), at.clone()) {
                continue;
            }
            if seen.count + placed.count > MAX_STATES {
                return Err(Refusal::Undecided);
            }
            let (sure, maybe) = at;
            if sure.contains(&call) {
                let mut sure = sure;
                sure.remove(&call);
                placed.add(state, (sure, maybe));
                continue;
            }
            for other in pending {
                if sure.contains(other) || maybe.contains(other) {
                    continue;
                }
                let (after, answer) = M::run(&state, &history[*other].op);
                match &history[*other].ended {
                    Some((_, seen)) if *seen != answer => {}
                    Some(_) => {
                        let mut sure = sure.clone();
                        sure.insert(*other);
                        level.push((after, (sure, maybe.clone())));
                    }
                    // It would change nothing.
                    None if after == state => {}
                    None => {
                        let mut maybe = maybe.clone();
                        maybe.insert(*other);
                        next.push((after, (sure.clone(), maybe)));
                    }
                }
            }
        }
        if lazy && placed.count > 0 {
            break;
        }
        level = next;
    }
    Ok(placed)
}

fn violation<M: Model>(
    history: &History<M>,
    before: &[(M::State, Placed)],
    call: usize,
) -> Refusal {
    let states: Vec<_> = before.iter().take(8).map(|(state, _)| state).collect();
    let first = call.saturating_sub(12);
    let around = &history[first..history.len().min(call + 12)];
    Refusal::Violation {
        call,
        text: format!(
            "{:?} cannot be, as the object was one of {states:?}; around it, from call {first} on: {around:#?}",
            history[call]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Register;

    #[derive(Debug, Clone, Copy)]
    enum Op {
        Put(u32),
        Get,
        Add(u32),
    }

    impl Model for Register {
        type State = u32;
        type Op = Op;
        type Answer = u32;

        fn run(state: &u32, op: &Op) -> (u32, u32) {
            match op {
                Op::Put(value) => (*value, 0),
                Op::Get => (*state, *state),
                Op::Add(more) => (state + more, state + more),
            }
        }
    }

    /// `(op, began, ended, answer)`; an end of 0 is an unknown outcome.
    fn of(calls: &[(Op, u64, u64, u32)]) -> Result<(), Refusal> {
        let done = |&(op, began, ended, answer): &(Op, u64, u64, u32)| Done {
            op,
            began,
            ended: (ended > 0).then_some((ended, answer)),
        };
        check::<Register>(&0, &calls.iter().map(done).collect())
    }

    #[test]
    fn histories_of_a_register_are_told_apart() {
        use Op::{Add, Get, Put};
        let good: &[&[_]] = &[
            &[],
            &[(Put(1), 1, 2, 0), (Get, 3, 4, 1)],
            // Calls that overlap go either way.
            &[(Put(1), 1, 4, 0), (Get, 2, 3, 1)],
            &[(Put(1), 1, 4, 0), (Get, 2, 3, 0)],
            &[(Put(1), 1, 6, 0), (Put(2), 2, 5, 0), (Get, 7, 8, 1)],
            &[(Put(1), 1, 6, 0), (Put(2), 2, 5, 0), (Get, 7, 8, 2)],
            // A reader sees it, and so does the next.
            &[
                (Put(1), 1, 9, 0),
                (Get, 2, 3, 0),
                (Get, 4, 5, 1),
                (Get, 6, 7, 1),
            ],
            // Of unknown outcome: at once, late, or never.
            &[(Put(1), 1, 0, 0), (Get, 2, 3, 1)],
            &[(Put(1), 1, 0, 0), (Get, 2, 3, 0), (Get, 4, 5, 1)],
            &[(Put(1), 1, 0, 0), (Get, 2, 3, 0), (Get, 4, 5, 0)],
            &[
                (Put(1), 1, 0, 0),
                (Put(2), 2, 3, 0),
                (Get, 4, 5, 1),
                (Get, 6, 7, 1),
            ],
            // Both unknown ones ran, and only then is it so much.
            &[(Add(5), 1, 0, 0), (Add(7), 2, 0, 0), (Add(1), 3, 4, 13)],
            // Long after its caller gave up.
            &[(Add(1), 1, 0, 0), (Put(4), 2, 3, 0), (Get, 4, 5, 5)],
        ];
        for calls in good {
            assert_eq!(of(calls), Ok(()), "{calls:?}");
        }
        let bad: &[&[_]] = &[
            // Lost.
            &[(Put(1), 1, 2, 0), (Get, 3, 4, 0)],
            // Never written.
            &[(Put(1), 1, 2, 0), (Get, 3, 4, 2)],
            // From before its time.
            &[(Get, 1, 2, 1), (Put(1), 3, 4, 0)],
            &[(Get, 1, 2, 1), (Put(1), 3, 0, 0)],
            // Stale.
            &[(Put(1), 1, 2, 0), (Put(2), 3, 4, 0), (Get, 5, 6, 1)],
            // There, and gone again.
            &[(Put(1), 1, 9, 0), (Get, 2, 3, 1), (Get, 4, 5, 0)],
            &[(Put(1), 1, 0, 0), (Get, 2, 3, 1), (Get, 4, 5, 0)],
            // It runs once at most.
            &[
                (Put(1), 1, 0, 0),
                (Get, 2, 3, 1),
                (Put(2), 4, 5, 0),
                (Get, 6, 7, 1),
            ],
            &[(Add(5), 1, 0, 0), (Add(1), 2, 3, 11)],
            // Made twice, and lost.
            &[(Add(1), 1, 2, 1), (Add(1), 3, 4, 3)],
            &[(Add(1), 1, 2, 1), (Add(1), 3, 4, 1)],
            // Two readers that disagree about the order.
            &[
                (Put(1), 1, 20, 0),
                (Put(2), 2, 21, 0),
                (Get, 3, 4, 1),
                (Get, 5, 6, 2),
                (Get, 7, 8, 1),
            ],
        ];
        for calls in bad {
            let refused = of(calls).expect_err(&format!("{calls:?}"));
            assert!(matches!(refused, Refusal::Violation { .. }), "{refused:?}");
        }
    }

    #[test]
    fn what_nobody_can_tell_is_said_to_be_so() {
        // Each may have run or not, and every sum is another state: none is the answer.
        let mut calls: Vec<_> = (0..24).map(|n| (Op::Add(1 << n), n + 1, 0, 0)).collect();
        calls.push((Op::Add(0), 100, 101, u32::MAX));
        assert_eq!(of(&calls), Err(Refusal::Undecided));
    }
}
