//! The model of the object store: objects with tags, conditional writes, pages of lists, and what the way to it does to a request.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::queue::{MILLI, Time};
use super::rng::Rng;
use super::setup::{Setup, StoreFaults, Tags};

/// The objects of the bucket below the cluster's path.
#[derive(Debug)]
pub struct Store {
    objects: BTreeMap<String, Object>,
    tags: Tags,
    versions: u64,
}

/// An object as it lies in the store.
#[derive(Debug, Clone)]
pub struct Object {
    pub body: Vec<u8>,
    pub tag: u64,
}

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Create,
    Match(u64),
    /// An operator's hand, or a mutation.
    Always,
}

impl Store {
    pub fn new(tags: Tags) -> Self {
        Self {
            objects: BTreeMap::new(),
            tags,
            versions: 0,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Object> {
        self.objects.get(key)
    }

    /// The keys after `after` that begin with `prefix`, at most `limit`, and whether there are more.
    pub fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> (Vec<(&str, &Object)>, bool) {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut found = self
            .objects
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, object)| (key.as_str(), object));
        let page: Vec<_> = found.by_ref().take(limit).collect();
        let more = found.next().is_some();
        (page, more)
    }

    /// Writes an object when its condition holds; the error is the refusal.
    pub fn put(&mut self, key: &str, body: Vec<u8>, condition: Condition) -> Result<u64, ()> {
        let held = self.objects.get(key);
        match (condition, held) {
            (Condition::Create, Some(_)) | (Condition::Match(_), None) => return Err(()),
            (Condition::Match(tag), Some(object)) if object.tag != tag => return Err(()),
            _ => {}
        }
        self.versions += 1;
        let tag = match self.tags {
            Tags::Content => hash(&body),
            Tags::Unique => self.versions,
        };
        self.objects.insert(key.to_owned(), Object { body, tag });
        Ok(tag)
    }

    pub fn delete(&mut self, key: &str) -> bool {
        self.objects.remove(key).is_some()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }
}

/// The state of one node's way to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Way {
    /// Requests do not arrive.
    pub cut: bool,
    /// Requests arrive, answers do not.
    pub deaf: bool,
    /// The store answers 503 to everything.
    pub outage: bool,
    /// Reads fail, writes do not.
    pub blind: bool,
    /// Everything takes long.
    pub slow: bool,
}

/// What becomes of one request: when it takes effect, if ever, and when which answer comes, if ever; both counted from its sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    pub effect: Option<Time>,
    pub answer: Option<(Time, Answer)>,
}

/// Which answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The effect's own.
    Honest,
    /// An error; nothing happened, and the caller knows it.
    Refused,
    /// An error that leaves the caller in doubt.
    Failed,
    /// 409 or 412, whatever happened.
    Conflict,
}

/// How much longer than usual a request takes at the most in a quiet world.
pub const LONGEST: u64 = 5;

/// Draws the fate of a request. Without `hostile` every request takes its usual time and nothing fails.
pub fn fate(rng: &mut Rng, setup: &Setup, way: Way, put: bool, hostile: bool) -> Fate {
    let faults: &StoreFaults = &setup.faults;
    let mut delay = setup.store_delay / 2
        + rng
            .exponential(setup.store_delay / 2)
            .min(LONGEST * setup.store_delay);
    if hostile && (way.slow || rng.chance(faults.slow)) {
        delay = rng.heavy(
            setup.store_delay * if way.slow { 20 } else { 4 },
            faults.slow_most,
        );
    }
    let arrive = delay * rng.range(20, 81) / 100;
    let honest = Fate {
        effect: Some(arrive),
        answer: Some((delay, Answer::Honest)),
    };
    if way.cut {
        // Half of the time a cut network refuses at once, else it swallows.
        return Fate {
            effect: None,
            answer: rng.chance(0.5).then_some((MILLI, Answer::Refused)),
        };
    }
    if way.blind && !put {
        return Fate {
            effect: None,
            answer: Some((delay, Answer::Failed)),
        };
    }
    if way.deaf {
        return Fate {
            answer: None,
            ..honest
        };
    }
    if way.outage {
        let answer = if rng.chance(0.2) {
            None
        } else {
            Some((delay, Answer::Failed))
        };
        return Fate {
            effect: None,
            answer,
        };
    }
    if !hostile {
        return honest;
    }
    let weights = [
        faults.throttled,
        faults.before,
        faults.hang,
        if put { faults.after } else { 0.0 },
        if put { faults.conflict } else { 0.0 },
        if put { faults.own_conflict } else { 0.0 },
        if put { faults.hang_after } else { 0.0 },
        if put { faults.late } else { 0.0 },
    ];
    let total: f64 = weights.iter().sum();
    if !rng.chance(total) {
        return honest;
    }
    match rng.weighted(&weights) {
        Some(0) => Fate {
            effect: None,
            answer: Some((delay, Answer::Refused)),
        },
        Some(1) => Fate {
            effect: None,
            answer: Some((delay, Answer::Failed)),
        },
        Some(2) => Fate {
            effect: None,
            answer: None,
        },
        Some(3) => Fate {
            effect: Some(arrive),
            answer: Some((delay, Answer::Failed)),
        },
        Some(4) => Fate {
            effect: None,
            answer: Some((delay, Answer::Conflict)),
        },
        Some(5) => Fate {
            effect: Some(arrive),
            answer: Some((delay, Answer::Conflict)),
        },
        Some(6) => Fate {
            effect: Some(arrive),
            answer: None,
        },
        Some(_) => Fate {
            effect: Some(rng.range(delay, faults.late_most.max(delay + 1))),
            answer: rng.chance(0.5).then_some((delay, Answer::Failed)),
        },
        None => honest,
    }
}

/// FNV-1a: good enough to tell bodies apart.
fn hash(body: &[u8]) -> u64 {
    body.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_and_tags_are_what_the_store_makes_them() {
        for (tags, same) in [(Tags::Content, true), (Tags::Unique, false)] {
            let mut store = Store::new(tags);
            let tag = store
                .put("leases/000.json", b"a".to_vec(), Condition::Create)
                .unwrap();
            assert_eq!(
                store.put("leases/000.json", b"b".to_vec(), Condition::Create),
                Err(())
            );
            assert_eq!(
                store.put("leases/001.json", b"b".to_vec(), Condition::Match(tag)),
                Err(())
            );
            let again = store
                .put("leases/000.json", b"a".to_vec(), Condition::Match(tag))
                .unwrap();
            assert_eq!(again == tag, same, "{tags:?}");
            let other = store
                .put("leases/000.json", b"b".to_vec(), Condition::Always)
                .unwrap();
            assert_ne!(other, again);
            assert_eq!(
                store.put("leases/000.json", b"c".to_vec(), Condition::Match(again)),
                Err(())
            );
        }
    }

    #[test]
    fn lists_come_in_pages_after_a_name() {
        let mut store = Store::new(Tags::Unique);
        for name in ["a", "b/1", "b/2", "c"] {
            store.put(name, Vec::new(), Condition::Create).unwrap();
        }
        for (after, limit, names, more) in [
            ("", 2, vec!["a", "b/1"], true),
            ("b/1", 2, vec!["b/2", "c"], false),
            ("b/", 9, vec!["b/1", "b/2", "c"], false),
            ("c", 9, vec![], false),
        ] {
            let (found, rest) = store.list("", Some(after), limit);
            assert_eq!(
                found.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
                names,
                "{after}"
            );
            assert_eq!(rest, more, "{after}");
        }
    }

    #[test]
    fn without_hostility_every_request_is_answered_in_time() {
        let mut rng = Rng::new(1, 1);
        let setup = Setup::new(1);
        for _ in 0..10_000 {
            let fate = fate(&mut rng, &setup, Way::default(), true, false);
            let (Some(effect), Some((answer, Answer::Honest))) = (fate.effect, fate.answer) else {
                panic!("{fate:?}");
            };
            assert!(
                effect <= answer && answer <= (LONGEST + 1) * setup.store_delay,
                "{fate:?}"
            );
        }
    }
}
