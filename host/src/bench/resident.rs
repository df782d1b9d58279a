//! What the linear memories of instances take, by what the system says of the address space that their pool reserved. The growth of the whole
//! process says nothing of them: compiling leaves behind hundreds of megabytes that whatever comes next is given first.

use std::ops::Range;

/// The smallest reservation that is looked at: a pool reserves some GiB for each memory, and an allocator's arenas are far below that.
const RESERVATION: u64 = 1 << 30;

/// Address space in which nothing can be used yet.
#[derive(Debug, Default)]
pub(super) struct Reserved(Vec<Range<u64>>);

/// What lies in it by now, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// What guests can use: the size of their memories.
    pub size: u64,
    /// What they have touched, each page that several share counted once for all of them.
    pub touched: u64,
}

impl Reserved {
    /// All of it, of this process. None where the system does not say.
    pub fn now() -> Self {
        Self::of(&mappings())
    }

    /// What guests have of it. None where the system does not say.
    pub fn used(&self) -> Option<Used> {
        if self.0.is_empty() {
            return None;
        }
        Some(self.used_of(&mappings()))
    }

    fn of(mappings: &str) -> Self {
        let all = read(mappings).into_iter();
        let reserved = all.filter(|mapping| {
            let size = mapping.range.end - mapping.range.start;
            !mapping.usable && size >= RESERVATION
        });
        Self(reserved.map(|mapping| mapping.range).collect())
    }

    fn used_of(&self, mappings: &str) -> Used {
        let mut used = Used::default();
        for mapping in read(mappings) {
            let inside = |range: &Range<u64>| {
                range.start <= mapping.range.start && mapping.range.end <= range.end
            };
            if mapping.usable && self.0.iter().any(inside) {
                used.size += mapping.range.end - mapping.range.start;
                used.touched += mapping.touched;
            }
        }
        used
    }
}

struct Mapping {
    range: Range<u64>,
    usable: bool,
    touched: u64,
}

fn mappings() -> String {
    std::fs::read_to_string("/proc/self/smaps").unwrap_or_default()
}

/// Reads what `proc_pid_smaps(5)` describes; what does not look like it is left out.
fn read(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some((start, end)) = first.split_once('-') {
            let bound = |text| u64::from_str_radix(text, 16).ok();
            if let (Some(start), Some(end)) = (bound(start), bound(end)) {
                mappings.push(Mapping {
                    range: start..end,
                    usable: words
                        .next()
                        .is_some_and(|rights| !rights.starts_with("---")),
                    touched: 0,
                });
            }
        } else if first == "Pss:"
            && let Some(mapping) = mappings.last_mut()
        {
            let kib = words.next().and_then(|word| word.parse::<u64>().ok());
            mapping.touched = kib.unwrap_or_default() * 1024;
        }
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
7f0000000000-7f0040000000 ---p 00000000 00:00 0 
Size:            1048576 kB
Pss:                   0 kB
7f0040000000-7f0044000000 ---p 00000000 00:00 0 
Size:              65536 kB
Pss:                   0 kB
7f0050000000-7f0050001000 rw-p 00000000 00:00 0                          [heap]
Size:                  4 kB
Pss:                   4 kB
";
    const AFTER: &str = "\
7f0000000000-7f0000020000 rw-p 00000000 00:01 5  /memfd:wasm-memory-image (deleted)
Size:                128 kB
Rss:                 100 kB
Pss:                  60 kB
Pss_Dirty:            20 kB
7f0000020000-7f0000030000 rw-p 00000000 00:00 0 
Size:                 64 kB
Pss:                   8 kB
7f0000030000-7f0040000000 ---p 00000000 00:00 0 
Size:            1048384 kB
Pss:                   0 kB
7f0040000000-7f0040100000 rw-p 00000000 00:00 0 
Size:               1024 kB
Pss:                1000 kB
7f0050000000-7f0050001000 rw-p 00000000 00:00 0                          [heap]
Size:                  4 kB
Pss:                   4 kB
";

    #[test]
    fn only_what_a_pool_reserved_counts() {
        let reserved = Reserved::of(BEFORE);
        assert_eq!(reserved.used_of(BEFORE), Used::default());
        let used = Used {
            size: 192 << 10,
            touched: 68 << 10,
        };
        assert_eq!(reserved.used_of(AFTER), used);
        assert_eq!(Reserved::of("no mappings").used(), None);
    }
}
