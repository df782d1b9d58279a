//! The threads that maintenance runs on.

use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::clock::driven::Heritage;

const NAME: &str = "quarry-maintain";
/// Niceness added to each thread of the runtime: at 10, a shard thread that wants the core gets about nine times the share.
const NICENESS: i32 = 10;

/// Threads for blocking calls (a `file://` store reads and writes on those), beside the workers.
const BLOCKING_THREADS: usize = 8;

/// A runtime for compaction and garbage collection whose threads run at low priority (niceness +10 on Linux; elsewhere the
/// priority is left alone), so that they take only what guests and shard threads leave. One thread is right for most nodes.
///
/// Keep it apart from every other runtime, pass its handle as [`Options::runtime`](super::Options), and shut it down
/// (`shutdown_timeout`) after the last [`Registration`](super::Registration) has stopped. It must not be dropped inside
/// async code.
///
/// # Errors
/// When the system refuses the threads.
pub fn runtime(threads: usize) -> io::Result<Runtime> {
    let clock = Heritage::here();
    let taken = clock.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name(NAME)
        .enable_all()
        .on_thread_start(move || {
            taken.take();
            lower_priority();
        })
        .build()?;
    clock.watch(NAME, runtime.handle());
    Ok(runtime)
}

/// Lowers the priority of the calling thread. A refusal leaves it as it is: maintenance works all the same.
#[cfg(target_os = "linux")]
fn lower_priority() {
    #[expect(
        unsafe_code,
        reason = "the standard library cannot set a thread's priority"
    )]
    // SAFETY: setpriority takes no pointers. On Linux, PRIO_PROCESS with 0 names the calling thread alone.
    let refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) } != 0;
    if refused {
        tracing::debug!(error = %io::Error::last_os_error(), "maintenance keeps its thread's priority");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Niceness of the calling thread: field 19 of its stat line, counted after the name in brackets.
    #[cfg(target_os = "linux")]
    fn niceness() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("proc is mounted");
        let (_, fields) = stat.rsplit_once(')').expect("the name ends with a bracket");
        fields
            .split_whitespace()
            .nth(16)
            .expect("field 19")
            .parse()
            .expect("a number")
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn its_threads_are_nicer_and_the_others_are_not() {
        let before = niceness();
        let runtime = runtime(1).expect("threads");
        let worker =
            runtime.block_on(async { tokio::spawn(async { niceness() }).await.expect("no panic") });
        // The niceness is set, not added to that of the process.
        assert_eq!(worker, NICENESS);
        let blocking = runtime.block_on(async {
            tokio::task::spawn_blocking(niceness)
                .await
                .expect("no panic")
        });
        assert_eq!(blocking, NICENESS);
        assert_eq!(niceness(), before);
    }

    #[test]
    fn no_threads_is_taken_as_one() {
        let runtime = runtime(0).expect("threads");
        assert_eq!(runtime.handle().metrics().num_workers(), 1);
    }
}
