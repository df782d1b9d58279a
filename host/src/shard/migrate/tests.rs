use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;

use super::*;
use crate::guest::{GuestError, Reply, Request, StopReason};

/// What a step comes to.
#[derive(Debug, Clone, Copy)]
enum Step {
    More,
    Done,
    Fails,
    Traps,
    Hangs,
    /// More, once this time has passed.
    Takes(Duration),
}

/// An instance whose steps are given.
struct Steps {
    left: VecDeque<Step>,
    from: Arc<Mutex<Vec<u64>>>,
}

#[async_trait]
impl Instance for Steps {
    async fn start(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn call(&mut self, _: &Request) -> Result<Reply, Failure> {
        Ok(Reply::default())
    }

    async fn durable(&mut self, _: Vec<crate::guest::notify::Tag>) -> Result<(), Failure> {
        Ok(())
    }

    async fn stop(&mut self, _: StopReason) -> Result<(), Failure> {
        Ok(())
    }

    async fn suspend(&mut self) -> Result<Bytes, Failure> {
        Ok(Bytes::new())
    }

    async fn resume(&mut self, _: u64, _: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    async fn migrate(&mut self, from_revision: u64) -> Result<bool, Failure> {
        self.from.lock().expect("revisions").push(from_revision);
        match self.left.pop_front().expect("a further step") {
            Step::More => Ok(false),
            Step::Done => Ok(true),
            Step::Fails => Err(Failure::Error(GuestError::retryable("mine", "no"))),
            Step::Traps => Err(Failure::Trap(Trap::new(TrapKind::Aborted, "panic"))),
            Step::Hangs => std::future::pending().await,
            Step::Takes(time) => {
                let end = clock::now() + time;
                while clock::now() < end {
                    tokio::task::yield_now().await;
                }
                Ok(false)
            }
        }
    }
}

fn migration(steps: &[Step], limits: &Limits) -> (Migration, Arc<Mutex<Vec<u64>>>) {
    let from = Arc::new(Mutex::new(Vec::new()));
    let instance = Steps {
        left: steps.iter().copied().collect(),
        from: from.clone(),
    };
    (Migration::new(Box::new(instance), 7, limits), from)
}

#[tokio::test(start_paused = true)]
async fn steps_end_with_true_with_a_failure_or_with_their_time() {
    let ample = Limits::default();
    let late = Limits {
        migrate_time: Duration::ZERO,
        ..Limits::default()
    };
    for (steps, limits, says) in [
        (&[Step::Done][..], &ample, None),
        (&[Step::More, Step::More, Step::Done], &ample, None),
        (&[Step::Done], &late, None),
        (&[Step::More], &late, Some("not done after 1 steps and ")),
        (&[Step::More], &late, Some("(limits.migrate_time 0ns)")),
        (
            &[Step::More, Step::Fails],
            &ample,
            Some("mine: step 2 of the migration, "),
        ),
        (&[Step::Fails], &ample, Some("after its beginning: no")),
        (
            &[Step::More, Step::Traps],
            &ample,
            Some("guest aborted: step 2 of the migration, "),
        ),
        (
            &[Step::More, Step::Hangs],
            &ample,
            Some("longer than limits.migrate_step_time and 5s"),
        ),
    ] {
        let (mut migration, from) = migration(steps, limits);
        let ended = loop {
            match migration.step().await {
                Ok(false) => {}
                Ok(true) => break None,
                Err(Failure::Error(error)) => break Some(error.to_string()),
                Err(Failure::Trap(trap)) => break Some(trap.to_string()),
                Err(Failure::NoRoom(why)) => panic!("{steps:?}: {why}"),
            }
        };
        match (&ended, says) {
            (None, None) => {}
            (Some(text), Some(says)) => assert!(text.contains(says), "{steps:?}: {text}"),
            _ => panic!("{steps:?}: {ended:?}"),
        }
        let from = from.lock().expect("revisions").clone();
        assert_eq!(from, vec![7; steps.len()], "{steps:?}: each ran once");
    }
}

/// What a guest says of its error is kept: whether trying again may help.
#[tokio::test]
async fn an_error_keeps_its_code() {
    let (mut migration, _) = migration(&[Step::Fails], &Limits::default());
    let Err(Failure::Error(error)) = migration.step().await else {
        panic!("it fails");
    };
    assert!(error.code == "mine" && error.retryable, "{error:?}");
}

#[tokio::test]
async fn calls_have_as_long_as_the_step_took() {
    const TIME: Duration = Duration::from_millis(5);
    let steps = [Step::Takes(TIME), Step::More];
    let (mut migration, _) = migration(&steps, &Limits::default());
    let begun = clock::now();
    assert!(migration.next() <= begun, "the first is due at once");
    assert_eq!(migration.step().await, Ok(false));
    let ended = clock::now();
    assert!(migration.next() >= begun + TIME * 2);
    assert!(migration.next() <= ended + (ended - begun));
}

#[tokio::test(start_paused = true)]
async fn a_step_goes_before_calls_when_it_is_due_and_not_sooner() {
    let now = clock::now();
    let hour = Duration::from_secs(3600);
    assert!(Due::At(now).before_calls().now_or_never().is_some());
    for due in [Due::At(now + hour), Due::Idle, Due::Never] {
        assert!(due.before_calls().now_or_never().is_none(), "{due:?}");
    }
    // It wakes by itself.
    let due = Due::At(now + hour);
    let waits = tokio::time::timeout(hour * 2, due.before_calls());
    waits.await.expect("within the time");
    assert!(Due::Idle.is_some() && due.is_some() && !Due::Never.is_some());
}
