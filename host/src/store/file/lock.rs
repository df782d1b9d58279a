//! The locks under which a file is compared and replaced: by threads of one process and by processes of one machine alike.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Changes of different objects seldom wait for each other with this many locks.
const LOCKS: u64 = 16;
/// The longest wait for a lock. It is held for microseconds; only a stopped process keeps it longer.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Waits for the lock that an object shares with a few others. It is free again when the file is dropped, or its process
/// ends in whatever way.
pub(super) fn of_object(scratch: &Path, location: &str) -> io::Result<File> {
    let name = format!("lock-{:02}#0", fnv1a(location.as_bytes()) % LOCKS);
    // Opened anew for each use: the lock belongs to the open file, so threads exclude each other as processes do.
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(scratch.join(&name))?;
    let start = crate::clock::now();
    let mut pause = Duration::from_micros(20);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_WAIT => {
                let text = format!(
                    "another process has held {name} for {LOCK_WAIT:?}; is one stopped or stuck?"
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(2));
            }
        }
    }
}

/// The same in every process and every build, as all of them have to agree on the lock of an object.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another hash in another build would let two nodes change one object under different locks.
    #[test]
    fn the_lock_of_an_object_never_changes() {
        for (location, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(location.as_bytes()), hash, "{location}");
        }
    }
}
