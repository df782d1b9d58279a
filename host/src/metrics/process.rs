//! What this process uses, as the kernel tells it. Read when the metrics are.

use metrics::gauge;

use super::{CPU, FILES, MEMORY};

/// Sets the gauges of this process. What the system does not tell stays away.
pub fn sample() {
    if let Some(seconds) = cpu_seconds() {
        gauge!(CPU.name).set(seconds);
    }
    if let Some(bytes) = resident_bytes() {
        gauge!(MEMORY.name).set(bytes);
    }
    if let Some(files) = open_files() {
        gauge!(FILES.name).set(files);
    }
}

fn cpu_seconds() -> Option<f64> {
    // utime and stime are fields 14 and 15; the second field, the name, may hold spaces and ends at the last parenthesis. The kernel
    // gives them in ticks of 10 ms on every platform that has this file.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let (user, system) = (
        fields.next()?.parse::<f64>().ok()?,
        fields.next()?.parse::<f64>().ok()?,
    );
    Some((user + system) / 100.0)
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib = line.trim().strip_suffix(" kB")?.parse::<f64>().ok()?;
    Some(kib * 1024.0)
}

fn open_files() -> Option<f64> {
    let files = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(files.count() as f64)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        assert!(cpu_seconds().is_some_and(|seconds| (0.0..1e6).contains(&seconds)));
        assert!(resident_bytes().is_some_and(|bytes| (1e6..1e12).contains(&bytes)));
        assert!(open_files().is_some_and(|files| (3.0..1e6).contains(&files)));
    }
}
