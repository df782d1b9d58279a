//! What calls came to, by revision: how a rollout tells whether a revision is worse than the one before.
//!
//! A call costs its shard a few plain additions: the shards of a thread share a book that nobody else writes. How long calls take is only
//! measured while somebody wants to know.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock;

/// Revisions that a book keeps that no shard runs any more.
const KEPT: usize = 8;
/// Buckets of times: 8 for each doubling, so that a bucket is at most an eighth wide, up to 71 minutes.
const BUCKETS: usize = 240;

/// The books of a node.
#[derive(Debug)]
pub struct Samples {
    /// One a shard thread.
    threads: Vec<Arc<Book>>,
    queries: Arc<Book>,
    timed: Arc<AtomicBool>,
    /// What had been counted when a rollout began, and its number.
    base: Mutex<(u64, BTreeMap<u64, Counts>)>,
}

/// What the shards of one thread count, by revision.
#[derive(Debug)]
pub struct Book {
    tallies: Mutex<Vec<(u64, Arc<Tally>)>>,
    timed: Arc<AtomicBool>,
}

/// What is counted of one revision.
#[derive(Debug)]
pub struct Tally {
    calls: AtomicU64,
    errors: AtomicU64,
    traps: AtomicU64,
    lost: AtomicU64,
    took: [AtomicU64; BUCKETS],
}

/// How a call ended, as far as its revision is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a reply.
    Reply,
    /// With the guest's error.
    Error,
    /// With a trap.
    Trap,
}

/// What was counted of a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Calls and queries that ended.
    pub calls: u64,
    /// Of these, those that the guest failed with an error.
    pub errors: u64,
    /// Traps, those without a call included.
    pub traps: u64,
    /// Calls that waited for a swap, and whose time ran out before it was done.
    pub lost: u64,
    /// How long calls took that were measured, within the guest.
    pub took: Times,
}

/// A distribution of times, each within an eighth.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct Times(BTreeMap<u16, u64>);

impl Samples {
    /// Empty books for so many shard threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let timed = Arc::new(AtomicBool::new(false));
        let book = || Arc::new(Book::new(timed.clone()));
        Self {
            threads: (0..threads.max(1)).map(|_| book()).collect(),
            queries: book(),
            timed: timed.clone(),
            base: Mutex::default(),
        }
    }

    /// The book of the thread that carries a shard.
    #[must_use]
    pub fn shard(&self, shard: u32) -> Arc<Book> {
        self.threads[shard as usize % self.threads.len()].clone()
    }

    /// The book of queries, which several threads write.
    #[must_use]
    pub fn queries(&self) -> Arc<Book> {
        self.queries.clone()
    }

    /// Counts for a rollout from now on, unless it does already; `timed` says whether it wants to know how long calls take.
    pub fn begin(&self, number: u64, timed: bool) {
        self.timed.store(timed, Ordering::Relaxed);
        let mut base = self.lock();
        if base.0 != number {
            *base = (number, self.all());
        }
    }

    /// Nobody wants to know how long calls take any more.
    pub fn untimed(&self) {
        self.timed.store(false, Ordering::Relaxed);
    }

    /// What was counted of each revision since a rollout began; none if it is not counted for.
    #[must_use]
    pub fn since(&self, number: u64) -> Option<BTreeMap<u64, Counts>> {
        let base = self.lock();
        if base.0 != number {
            return None;
        }
        let mut all = self.all();
        for (revision, counts) in &mut all {
            if let Some(before) = base.1.get(revision) {
                counts.less(before);
            }
        }
        Some(all)
    }

    fn all(&self) -> BTreeMap<u64, Counts> {
        let mut all: BTreeMap<u64, Counts> = BTreeMap::new();
        for book in self.threads.iter().chain([&self.queries]) {
            for (revision, tally) in &*book.lock() {
                all.entry(*revision).or_default().add(&tally.counts());
            }
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Counts>)> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn new(timed: Arc<AtomicBool>) -> Self {
        Self {
            tallies: Mutex::default(),
            timed,
        }
    }

    /// Where calls of a revision are counted.
    #[must_use]
    pub fn tally(&self, revision: u64) -> Arc<Tally> {
        let mut tallies = self.lock();
        if let Some((_, tally)) = tallies.iter().find(|(known, _)| *known == revision) {
            return tally.clone();
        }
        if tallies.len() >= KEPT {
            // The oldest that nobody counts on.
            let unused = tallies
                .iter()
                .position(|(_, tally)| Arc::strong_count(tally) == 1);
            if let Some(unused) = unused {
                tallies.remove(unused);
            }
        }
        let tally = Arc::new(Tally::default());
        tallies.push((revision, tally.clone()));
        tally
    }

    /// When a call begins, if it is to be measured.
    #[must_use]
    pub fn begun(&self) -> Option<Instant> {
        self.timed.load(Ordering::Relaxed).then(clock::now)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<Tally>)>> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            calls: 0.into(),
            errors: 0.into(),
            traps: 0.into(),
            lost: 0.into(),
            took: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Tally {
    /// A call ended. Only for the thread of the book.
    pub fn ended(&self, how: Ending, begun: Option<Instant>) {
        one_more(&self.calls);
        match how {
            Ending::Reply => {}
            Ending::Error => one_more(&self.errors),
            Ending::Trap => one_more(&self.traps),
        }
        if let Some(begun) = begun {
            let took = clock::now().saturating_duration_since(begun);
            one_more(&self.took[bucket(micros(took))]);
        }
    }

    /// The guest trapped, and no call of its. Only for the thread of the book.
    pub fn trapped(&self) {
        one_more(&self.traps);
    }

    /// A call that waited for a swap ran out of time. Only for the thread of the book.
    pub fn lost(&self) {
        one_more(&self.lost);
    }

    /// A query ended. For any thread.
    pub fn queried(&self, how: Ending) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match how {
            Ending::Reply => 0,
            Ending::Error => self.errors.fetch_add(1, Ordering::Relaxed),
            Ending::Trap => self.traps.fetch_add(1, Ordering::Relaxed),
        };
    }

    fn counts(&self) -> Counts {
        let took = self.took.iter().zip(0_u16..);
        let took = took.filter_map(|(count, bucket)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0).then_some((bucket, count))
        });
        Counts {
            calls: self.calls.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            traps: self.traps.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            took: Times(took.collect()),
        }
    }
}

/// Nobody else writes it, so it takes no locked instruction.
fn one_more(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Counts {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.calls, other.calls),
            (&mut self.errors, other.errors),
            (&mut self.traps, other.traps),
            (&mut self.lost, other.lost),
        ] {
            *mine = mine.saturating_add(theirs);
        }
        self.took.add(&other.took);
    }

    fn less(&mut self, before: &Self) {
        for (mine, theirs) in [
            (&mut self.calls, before.calls),
            (&mut self.errors, before.errors),
            (&mut self.traps, before.traps),
            (&mut self.lost, before.lost),
        ] {
            *mine = mine.saturating_sub(theirs);
        }
        for (bucket, count) in &mut self.took.0 {
            let before = before.took.0.get(bucket).copied().unwrap_or(0);
            *count = count.saturating_sub(before);
        }
        self.took.0.retain(|_, count| *count > 0);
    }
}

impl From<Vec<(u16, u64)>> for Times {
    fn from(buckets: Vec<(u16, u64)>) -> Self {
        let mut times = Self::default();
        for (bucket, count) in buckets {
            let mine = times.0.entry(bucket).or_default();
            *mine = mine.saturating_add(count);
        }
        times
    }
}

impl From<Times> for Vec<(u16, u64)> {
    fn from(times: Times) -> Self {
        times.0.into_iter().collect()
    }
}

impl Times {
    /// One more.
    pub fn record(&mut self, took: Duration) {
        let bucket = u16::try_from(bucket(micros(took))).unwrap_or(u16::MAX);
        *self.0.entry(bucket).or_default() += 1;
    }

    /// Those of another as well.
    pub fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            let mine = self.0.entry(*bucket).or_default();
            *mine = mine.saturating_add(*count);
        }
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The time that so many percent do not exceed, in microseconds, rounded up by at most an eighth; 0 without any.
    #[must_use]
    pub fn percentile_us(&self, percent: u8) -> u64 {
        let rank = u128::from(self.count()) * u128::from(percent.min(100));
        let rank = rank.div_ceil(100).max(1);
        let mut seen = 0_u128;
        for (bucket, count) in &self.0 {
            seen += u128::from(*count);
            if seen >= rank {
                return upper_us(*bucket);
            }
        }
        0
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// The bucket of a time in microseconds: itself below 8, and then 8 for each doubling.
fn bucket(us: u32) -> usize {
    if us < 8 {
        return us as usize;
    }
    let doubling = us.ilog2() - 3;
    let within = (us >> doubling) - 8;
    (8 + doubling * 8 + within) as usize
}

/// The longest time of a bucket; of one that there is not, the longest of all.
fn upper_us(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < 8 {
        return bucket;
    }
    let (doubling, within) = ((bucket - 8) / 8, (bucket - 8) % 8);
    let last = (9 + within).checked_shl(u32::try_from(doubling).unwrap_or(u32::MAX));
    last.map_or(u64::from(u32::MAX), |next| {
        (next - 1).min(u64::from(u32::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_a_bucket_that_is_at_most_an_eighth_wide() {
        let mut next = 0;
        for bucket_of in 0..BUCKETS {
            let upper = upper_us(bucket_of as u16);
            for us in [next, upper] {
                assert_eq!(bucket(us as u32), bucket_of, "{us}");
            }
            assert!(upper - next <= upper / 8, "{bucket_of}: {next} to {upper}");
            next = upper + 1;
        }
        assert_eq!(next, 1 << 32, "they hold every time");
        assert_eq!(upper_us(u16::MAX), u64::from(u32::MAX), "of another node");
    }

    #[test]
    fn percentiles_are_of_all_that_was_measured() {
        let mut times = Times::default();
        assert_eq!((times.count(), times.percentile_us(99)), (0, 0));
        for us in 1..=100 {
            times.record(Duration::from_micros(us));
        }
        let mut other = Times::default();
        other.record(Duration::from_secs(10_000));
        times.add(&other);
        assert_eq!(times.count(), 101);
        // What is rounded up by at most an eighth.
        for (percent, least) in [(0, 1), (50, 51), (99, 100)] {
            let found = times.percentile_us(percent);
            assert!(
                (least..=least + least / 8 + 1).contains(&found),
                "{percent}: {found}"
            );
        }
        assert_eq!(times.percentile_us(100), u64::from(u32::MAX));
    }

    #[test]
    fn a_rollout_sees_what_came_after_its_beginning() {
        let samples = Samples::new(2);
        let [first, second] = [0, 1].map(|shard| samples.shard(shard).tally(1));
        first.ended(Ending::Reply, None);
        assert_eq!(samples.since(7), None, "it does not count for it");
        samples.begin(7, true);
        let begun = samples.shard(0).begun();
        assert!(begun.is_some(), "it measures");
        first.ended(Ending::Error, begun);
        second.ended(Ending::Trap, None);
        second.trapped();
        second.lost();
        samples.queries().tally(2).queried(Ending::Error);
        // Twice is as good as once.
        samples.begin(7, false);
        assert_eq!(samples.shard(0).begun(), None);
        let since = samples.since(7).expect("counted");
        let short = |revision| {
            let counts: &Counts = &since[&revision];
            let Counts {
                calls,
                errors,
                traps,
                lost,
                took,
            } = counts;
            (*calls, *errors, *traps, *lost, took.count())
        };
        assert_eq!(short(1), (2, 1, 2, 1, 1));
        assert_eq!(short(2), (1, 1, 0, 0, 0));
        samples.begin(8, false);
        assert_eq!(samples.since(8).expect("counted")[&1], Counts::default());
    }

    #[test]
    fn a_book_forgets_revisions_that_nobody_runs() {
        let samples = Samples::new(1);
        let book = samples.shard(0);
        let running = book.tally(1);
        for revision in 2..100 {
            book.tally(revision).trapped();
        }
        assert_eq!(book.lock().len(), KEPT);
        assert!(Arc::ptr_eq(&running, &book.tally(1)), "one that runs stays");
    }
}
