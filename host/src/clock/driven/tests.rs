use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use tokio::sync::mpsc as channel;

use super::*;
use crate::clock;

const GRAIN: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn sleepers_wake_in_order_of_their_time_and_none_early_or_late() {
    let time = Time::new(GRAIN);
    let began = time.elapsed();
    let runtimes: Vec<_> = (0..3)
        .map(|_| time.clock().runtime().expect("threads"))
        .collect();
    let handles: Vec<_> = runtimes.iter().map(|one| one.handle().clone()).collect();
    let machine = Instant::now();
    let woken = time.run(&runtimes[0], async move {
        let (tell, mut told) = channel::unbounded_channel();
        for (number, seconds) in [5, 1, 7200, 3, 60, 2].into_iter().enumerate() {
            let tell = tell.clone();
            handles[number % handles.len()].spawn(async move {
                let begun = clock::now();
                clock::sleep(second(seconds)).await;
                tell.send((seconds, clock::now() - begun)).expect("heard");
            });
        }
        drop(tell);
        let mut woken = Vec::new();
        while let Some(one) = told.recv().await {
            woken.push(one);
        }
        woken
    });
    let order: Vec<_> = woken.iter().map(|(seconds, _)| *seconds).collect();
    assert_eq!(order, [1, 2, 3, 5, 60, 7200]);
    for (seconds, took) in woken {
        let late = took.checked_sub(second(seconds)).expect("not early");
        assert!(late < GRAIN, "{seconds} s took {took:?}");
    }
    assert!(time.elapsed() - began >= HOUR * 2);
    assert!(machine.elapsed() < HOUR);
}

#[test]
fn time_waits_for_work_on_any_thread_and_over_many() {
    let time = Time::new(GRAIN);
    let runtimes: Vec<_> = (0..4)
        .map(|_| time.clock().runtime().expect("threads"))
        .collect();
    let handles: Vec<_> = runtimes.iter().map(|one| one.handle().clone()).collect();
    let took = time.run(&runtimes[0], async move {
        // A timer is always due soon.
        let ticks = handles[3].spawn(async {
            loop {
                clock::sleep(GRAIN).await;
            }
        });
        let begun = clock::now();
        for hop in 0..40 {
            let work = handles[hop % 3 + 1].spawn(async {
                // Some of the machine's time, as a slow thread takes it.
                let (_still, nothing) = mpsc::channel::<()>();
                _ = nothing.recv_timeout(Duration::from_millis(3));
            });
            work.await.expect("no panic");
        }
        ticks.abort();
        clock::now() - begun
    });
    // 120 ms of the machine's, in which a clock of its own would have gone on as much; here at most a few steps slip through.
    assert!(took < GRAIN * 4, "{took:?} passed over the work");
}

#[test]
fn a_timeout_ends_what_takes_longer_and_nothing_else() {
    let time = Time::new(GRAIN);
    let runtime = time.clock().runtime().expect("threads");
    time.run(&runtime, async {
        let slow = async { clock::sleep(second(11)).await };
        assert_eq!(clock::timeout(second(10), slow).await, Err(clock::Elapsed));
        let fast = async { clock::sleep(second(9)).await };
        assert_eq!(clock::timeout(second(10), fast).await, Ok(()));
        let end = clock::now() + HOUR;
        let never = std::future::pending::<()>();
        assert_eq!(clock::timeout_at(end, never).await, Err(clock::Elapsed));
        assert!(clock::now() >= end);
        let mut sleep = std::pin::pin!(clock::sleep(HOUR));
        sleep.as_mut().reset(clock::now() + second(1));
        let begun = clock::now();
        sleep.await;
        assert!(clock::now() - begun < second(2));
        // Forgotten with its future.
        assert!(here().expect("a clock").0.time.timers().waiting.is_empty());
    });
}

#[test]
fn other_threads_keep_the_machines_time() {
    let time = Time::new(GRAIN);
    let runtime = time.clock().runtime().expect("threads");
    assert!(here().is_none());
    let before = clock::now();
    time.run(&runtime, async { clock::sleep(HOUR).await });
    assert!(clock::now() - before < HOUR / 2);
    let inside = time.run(&runtime, async { clock::now() });
    assert!(inside - before > HOUR / 2);
}

#[test]
fn each_clock_is_stepped_alone() {
    let time = Time::new(GRAIN);
    let (clock, other) = (time.clock(), time.clock());
    let read = |clock: &NodeClock| (clock.now(), clock.boot_nanos(), clock.wall_ms());
    let before = (read(&clock), read(&other));
    assert_eq!(before.0, before.1);
    clock.slept(HOUR);
    clock.set_wall(-1000);
    let (now, boot, wall) = before.0;
    assert_eq!(read(&clock), (now, boot + nanos(HOUR), wall - 1000));
    assert_eq!(read(&other), before.1);
    // What SlateDB reads stays.
    assert_eq!(clock.steady_wall_ms(), wall);
    // Whoever waits on the clock that counts sleep notices.
    let runtime = clock.runtime().expect("threads");
    let waited = time.run(&runtime, {
        let clock = clock.clone();
        async move {
            let begun = clock::now();
            let moment = clock::boot_now() + HOUR;
            let waits = tokio::spawn(clock::until(Some(moment)));
            clock::sleep(second(5)).await;
            clock.slept(HOUR);
            waits.await.expect("no panic");
            clock::now() - begun
        }
    });
    assert!(waited < second(7), "{waited:?}");
}

#[test]
fn a_paused_node_stands_while_time_goes_on() {
    let time = Time::new(GRAIN);
    let (clock, watch) = (time.clock(), time.clock());
    let node = clock.runtime().expect("threads");
    let main = watch.runtime().expect("threads");
    let ticks = Arc::new(AtomicU32::new(0));
    let counted = ticks.clone();
    node.spawn(async move {
        loop {
            clock::sleep(second(1)).await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    time.run(&main, async move {
        clock::sleep(second(10)).await;
        let before = ticks.load(Ordering::SeqCst);
        assert!(before >= 9);
        for _ in 0..3 {
            let paused = clock.pause();
            let stands = ticks.load(Ordering::SeqCst);
            clock::sleep(HOUR).await;
            assert_eq!(ticks.load(Ordering::SeqCst), stands);
            drop(paused);
            clock::sleep(second(10)).await;
            assert!(ticks.load(Ordering::SeqCst) >= stands + 9);
        }
    });
}
