//! The ways in which a guest can end.

use std::hint::black_box;

/// What the language does for an error that nobody foresaw.
pub fn throw(message: &str) -> ! {
    panic!("{message}")
}

/// Ends the instance at once.
pub fn abort() -> ! {
    std::process::abort()
}

/// Calls itself without an end; what it did of each level comes after the next, so that no optimiser makes a loop of it.
pub fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    let deeper = black_box(recurse as fn(u64) -> u64)(depth + 1);
    deeper ^ black_box(frame)[0]
}

/// Takes memory without an end.
pub fn allocate() -> ! {
    let mut held = Vec::new();
    loop {
        held.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Computes without an end.
pub fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}
