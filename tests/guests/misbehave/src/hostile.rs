//! Traps, loops, floods and odd replies.

use std::hint::black_box;
use std::io::Write as _;

use quarry_guest::prelude::*;

use crate::{number, number_or};

/// The reply of a method of this module.
pub fn run(call: &Call) -> Option<Result<Reply>> {
    Some(match call.method() {
        "trap" => panic!(
            "trapped on purpose: {}",
            String::from_utf8_lossy(call.payload())
        ),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(0),
        "spin" => spin(),
        "spin-ms" => spin_ms(call),
        "allocate" => allocate(),
        "recurse" => Ok(Reply::text(recurse(black_box(1), black_box(u64::MAX)))),
        "recurse-with-frames" => Ok(Reply::text(recurse_with_frames(black_box(u64::MAX)))),
        "out-of-bounds" => Ok(Reply::text(call.payload()[black_box(usize::MAX)])),
        "flood-log" => flood_log(call),
        "flood-stderr" => flood_stderr(call),
        "log" => log(call),
        "stdout" => print(call, &mut std::io::stdout()),
        "stderr" => print(call, &mut std::io::stderr()),
        "big-reply" => big_reply(call),
        "echo" => Ok(Reply::bytes(call.payload())),
        "error" => error(call),
        "big-error" => Err(Error::new("big-error", "x".repeat(1 << 20))),
        "content-type" => {
            Ok(Reply::bytes("typed").content_type(String::from_utf8_lossy(call.payload())))
        }
        "reply-when-applied" => call
            .required_key()
            .and_then(|key| db::put(key, call.payload()))
            .map(|seq| Reply::text(seq).when_applied()),
        _ => return None,
    })
}

fn spin() -> ! {
    let mut turns = 0u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

/// Computes for about the milliseconds in the payload.
fn spin_ms(call: &Call) -> Result<Reply> {
    let length = std::time::Duration::from_millis(number(call.text()?)?);
    let start = std::time::Instant::now();
    let mut turns = 0u64;
    while start.elapsed() < length {
        for _ in 0..10_000 {
            turns = black_box(turns.wrapping_add(1));
        }
    }
    Ok(Reply::text(turns))
}

/// Takes memory until there is none.
fn allocate() -> Result<Reply> {
    let mut held = Vec::new();
    loop {
        held.push(black_box(vec![1u8; 1 << 20]));
    }
}

/// Ackermann's function: recursion that no optimiser makes a loop of, without frames in memory, so that it is the host's
/// stack for WebAssembly that ends. With 1 as `m` it goes `n` deep at once.
fn recurse(m: u64, n: u64) -> u64 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => recurse(m - 1, 1),
        (m, n) => recurse(m - 1, recurse(m, n - 1)),
    }
}

/// Recursion with large frames, so that the stack in the guest's own memory ends first. It traps as an access out of bounds.
fn recurse_with_frames(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == 0 {
        0
    } else {
        black_box(recurse_with_frames(depth - 1)) + black_box(frame)[0] % 2
    }
}

/// As many lines of 1 KiB as the payload says (100,000 unless it does).
fn flood_log(call: &Call) -> Result<Reply> {
    let lines = number_or(call, 100_000)?;
    let text = "x".repeat(1_000);
    for line in 0..lines {
        log::info!(line; "{line} {text}");
    }
    Ok(Reply::text(lines))
}

/// As many MiB without a line's end as the payload says (64 unless it does).
fn flood_stderr(call: &Call) -> Result<Reply> {
    let mebibytes = number_or(call, 64)?;
    let block = vec![b'x'; 1 << 20];
    for _ in 0..mebibytes {
        std::io::stderr().write_all(&block).map_err(failed_write)?;
    }
    Ok(Reply::text(mebibytes))
}

/// Logs the payload at every level, with fields.
fn log(call: &Call) -> Result<Reply> {
    let text = call.text()?;
    for level in [
        log::Level::Error,
        log::Level::Warn,
        log::Level::Info,
        log::Level::Debug,
        log::Level::Trace,
    ] {
        log::log!(level, method = call.method(), length = text.len(); "{text}");
    }
    Ok(Reply::empty())
}

/// Writes the payload and a line's end.
fn print(call: &Call, to: &mut dyn std::io::Write) -> Result<Reply> {
    to.write_all(call.payload())
        .and_then(|()| to.write_all(b"\n"))
        .and_then(|()| to.flush())
        .map_err(failed_write)?;
    Ok(Reply::empty())
}

fn failed_write(why: std::io::Error) -> Error {
    Error::new("write-failed", why.to_string())
}

/// As many zeros as the payload says.
fn big_reply(call: &Call) -> Result<Reply> {
    let size = number(call.text()?)?;
    let size = usize::try_from(size).map_err(Error::invalid_payload)?;
    Ok(Reply::bytes(vec![0u8; size]))
}

/// The error whose code is the payload's first word; `retryable` after it makes it that.
fn error(call: &Call) -> Result<Reply> {
    let mut words = call.text()?.split(' ');
    let code = words.next().unwrap_or_default().to_owned();
    let error = Error::new(code.clone(), format!("failed on purpose with `{code}`"));
    Err(if words.next() == Some("retryable") {
        error.retryable()
    } else {
        error
    })
}
