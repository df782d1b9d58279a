//! The table by itself, at moments of the test's own.

use quarry_core::timers::Failure;

use super::*;

const WALL: u64 = 1_000_000;

struct Bench {
    table: Table,
    began: Instant,
    module: Arc<str>,
}

impl Bench {
    fn new() -> Self {
        let mut table = Table::default();
        let module: Arc<str> = "main".into();
        table.serve(vec![module.clone()]);
        Self {
            table,
            began: Instant::now(),
            module,
        }
    }

    /// So many milliseconds after the beginning, on both clocks.
    fn at(&self, ms: u64) -> Now {
        Now {
            clock: self.began + Duration::from_millis(ms),
            wall_ms: WALL + ms,
        }
    }

    fn volatile(&mut self, name: &str, ms: u64) {
        let volatile = Volatile {
            at: self.began + Duration::from_millis(ms),
            due_ms: WALL + ms,
            payload: name.to_owned().into(),
        };
        self.table.set(&self.module.clone(), name, volatile);
    }

    fn durable(&mut self, name: &str, ms: u64) {
        self.table
            .set_durable(&self.module.clone(), name, WALL + ms);
    }

    fn fires(&mut self, ms: u64) -> Vec<String> {
        let now = self.at(ms);
        let firing = std::iter::from_fn(|| self.table.take_due(now));
        firing.map(|firing| firing.name.to_string()).collect()
    }

    /// When it is to be looked at next, in milliseconds from then.
    fn next(&self, ms: u64) -> Option<u128> {
        let now = self.at(ms);
        let next = self.table.next(now)?;
        Some(next.saturating_duration_since(now.clock).as_millis())
    }
}

#[test]
fn what_is_due_for_longest_comes_first_and_nothing_early() {
    let mut bench = Bench::new();
    for (name, ms) in [("d", 40), ("b", 20), ("tie-1", 30), ("tie-2", 30)] {
        bench.volatile(name, ms);
    }
    for (name, ms) in [("c", 29), ("a", 10), ("e", 50)] {
        bench.durable(name, ms);
    }
    assert_eq!(bench.next(0), Some(10));
    assert!(bench.fires(9).is_empty());
    assert_eq!(bench.fires(10), ["a"]);
    assert_eq!(bench.next(10), Some(10));
    assert_eq!(bench.fires(39), ["b", "c", "tie-1", "tie-2"]);
    assert_eq!(bench.fires(1_000), ["d", "e"]);
    assert_eq!(bench.next(1_000), None);
    // Durable ones are there until they are removed, and fire no more by themselves.
    assert_eq!(bench.table.len(), 3);
    assert_eq!(bench.table.bytes(), 0);
}

/// The wall clock decides about durable timers, and no other.
#[test]
fn each_kind_has_its_own_clock() {
    let mut bench = Bench::new();
    bench.volatile("volatile", 100);
    bench.durable("durable", 100);
    let ahead = Now {
        wall_ms: WALL + 100,
        ..bench.at(0)
    };
    let fired = bench.table.take_due(ahead).expect("due");
    assert_eq!((&*fired.name, fired.late), ("durable", Duration::ZERO));
    assert_eq!(bench.table.take_due(ahead), None);
    let behind = Now {
        wall_ms: 0,
        ..bench.at(150)
    };
    let fired = bench.table.take_due(behind).expect("due");
    assert_eq!(&*fired.name, "volatile");
    assert_eq!(fired.late, Duration::from_millis(50));
    assert_eq!(fired.payload, Some("volatile".into()));
}

#[test]
fn far_times_are_approached_in_naps() {
    let mut bench = Bench::new();
    bench.durable("far", 600_000_000);
    assert_eq!(bench.next(0), Some(NAP.as_millis()));
    assert_eq!(bench.next(600_000_000 - 5), Some(5));
    assert_eq!(bench.next(600_000_001), Some(0));
}

#[test]
fn what_failed_waits_and_is_forgotten_once_it_is_set_anew() {
    let mut bench = Bench::new();
    bench.durable("a", 0);
    let fired = bench.table.take_due(bench.at(0)).expect("due");
    let failed = |bench: &mut Bench, ms, failure| {
        let now = bench.at(ms).clock;
        let failed = bench.table.failed(fired.id, failure, now);
        failed.map(|(failures, pause)| (failures, pause.as_secs()))
    };
    assert_eq!(failed(&mut bench, 0, Failure::Error), Some((1, 1)));
    assert_eq!(bench.table.due_ms("main", "a"), Some(WALL), "as it was");
    assert!(bench.fires(999).is_empty());
    assert_eq!(bench.fires(1_000), ["a"]);
    assert_eq!(failed(&mut bench, 1_000, Failure::Trap), Some((2, 20)));
    assert!(bench.fires(20_999).is_empty());
    bench.table.begin_anew();
    assert_eq!(bench.fires(2_000), ["a"]);
    assert_eq!(failed(&mut bench, 2_000, Failure::Error), Some((1, 1)));
    bench.durable("a", 5_000);
    assert_eq!(failed(&mut bench, 3_000, Failure::Error), None);
    assert!(!bench.table.has(fired.id));
    assert!(bench.fires(4_999).is_empty());
    assert_eq!(bench.fires(5_000), ["a"]);
}

#[test]
fn timers_belong_to_modules_that_take_them() {
    let mut bench = Bench::new();
    let other: Arc<str> = "other".into();
    bench.volatile("v", 1);
    bench.durable("d", 1);
    bench.table.set_durable(&other, "d", WALL + 2);
    assert_eq!(bench.next(0), Some(1));
    bench.table.serve(vec![other.clone()]);
    assert_eq!(bench.table.due_ms("main", "v"), None);
    assert_eq!(bench.table.due_ms("main", "d"), Some(WALL + 1));
    let fired = bench.table.take_due(bench.at(9)).expect("due");
    assert_eq!((&*fired.module, &*fired.name), ("other", "d"));
    assert!(bench.fires(9).is_empty());
    bench.table.serve(Vec::new());
    assert_eq!(bench.next(9), None);
    bench.table.serve(vec![bench.module.clone()]);
    assert_eq!(bench.fires(9), ["d"]);
}

#[test]
fn what_a_trap_takes_is_volatile() {
    let mut bench = Bench::new();
    bench.volatile("v", 1);
    bench.durable("d", 1);
    bench.volatile("both", 1);
    bench.durable("both", 2);
    assert_eq!(bench.table.bytes(), 2);
    bench.table.forget_volatile();
    assert_eq!((bench.table.len(), bench.table.bytes()), (2, 0));
    assert_eq!(bench.fires(5), ["d", "both"]);
    assert!(bench.table.remove("main", "d"));
    assert!(!bench.table.remove("main", "d"));
    assert!(!bench.table.remove("none", "d"));
}
