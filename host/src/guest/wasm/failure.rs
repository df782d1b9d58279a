//! What went wrong with a guest: an error within its bounds, or a trap of the right kind with a text that helps.

use std::time::Duration;

use wasmtime::component::ResourceTableError;
use wasmtime::{FrameInfo, PoolConcurrencyLimitError, WasmBacktrace};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi_http::FieldMapError;

use super::bindings::types;
use super::engine::BACKTRACE_FRAMES;
use super::meter::CpuTimeUsedUp;
use super::state::State;
use crate::guest::{Failure, GuestError, LAST_WROTE, Limits, NoRoom, Trap, TrapKind};

/// The longest code of a guest's error, in bytes.
const CODE_MAX_BYTES: usize = 64;
/// The longest message of a guest's error, in bytes.
const MESSAGE_MAX_BYTES: usize = 8 << 10;
/// The longest text that a code which is none is quoted with, in bytes.
const QUOTE_MAX_BYTES: usize = 128;
/// The most functions that a recursion goes round.
const RECURSION_MAX_FUNCTIONS: usize = 4;
/// Frames of a trap that its message names.
const FRAMES_SHOWN: usize = 5;

/// What the guest was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It was being made.
    Instantiate,
    /// It ran.
    Call,
}

/// The guest's own error.
pub(super) fn error(error: types::Error) -> Failure {
    Failure::Error(bounded(GuestError {
        code: error.code,
        message: error.message,
        retryable: error.retryable,
    }))
}

/// Holds an error to what the WIT says of codes and messages.
pub(super) fn bounded(mut error: GuestError) -> GuestError {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if error.code.is_empty()
        || error.code.len() > CODE_MAX_BYTES
        || !error.code.bytes().all(allowed)
    {
        let mut code = std::mem::replace(&mut error.code, "guest-error".into());
        cut(&mut code, QUOTE_MAX_BYTES);
        error.message = format!(
            "{} (the guest's code {code:?} is not 1 to {CODE_MAX_BYTES} bytes of a-z, 0-9 and -)",
            error.message
        );
    }
    cut(&mut error.message, MESSAGE_MAX_BYTES);
    error
}

/// The call lasted too long.
pub(super) fn wall_time((setting, limit): (&str, Duration)) -> Trap {
    Trap::new(
        TrapKind::WallTime,
        format!("it lasted longer than {setting} ({limit:?})"),
    )
}

/// The reply is too large; `size` where it is known.
pub(super) fn reply_too_large(size: Option<usize>, limits: &Limits) -> Trap {
    let size = size.map_or_else(
        || "a reply".into(),
        |size| format!("a reply of {size} bytes"),
    );
    Trap::new(
        TrapKind::ReplyTooLarge,
        format!("{size} is over limits.reply ({} bytes)", limits.reply),
    )
}

/// Tells why an instance was not made, on a node with room for so many.
pub(super) fn not_made(
    error: &wasmtime::Error,
    state: &State,
    limits: &Limits,
    instances: u32,
) -> Failure {
    if error.is::<PoolConcurrencyLimitError>() {
        Failure::NoRoom(NoRoom::Node { instances })
    } else {
        Failure::Trap(classify(error, state, limits, Phase::Instantiate))
    }
}

/// Tells what kind of end an instance came to.
pub(super) fn classify(
    error: &wasmtime::Error,
    state: &State,
    limits: &Limits,
    phase: Phase,
) -> Trap {
    let words = state.output.take_last_words();
    let (kind, reason) = reason(error, state, limits, phase);
    let mut message = reason;
    if matches!(kind, TrapKind::Aborted | TrapKind::Memory) && !words.is_empty() {
        message.push_str(LAST_WROTE);
        message.push_str(&words);
    }
    if matches!(
        kind,
        TrapKind::Aborted | TrapKind::StackOverflow | TrapKind::CpuTime | TrapKind::Memory
    ) {
        message.push_str(&frames(error));
    }
    cut(&mut message, MESSAGE_MAX_BYTES);
    Trap::new(kind, message)
}

fn reason(
    error: &wasmtime::Error,
    state: &State,
    limits: &Limits,
    phase: Phase,
) -> (TrapKind, String) {
    if error.is::<CpuTimeUsedUp>() {
        return (
            TrapKind::CpuTime,
            format!(
                "it ran for longer than limits.cpu_time ({:?})",
                limits.cpu_time
            ),
        );
    }
    let trap = error.downcast_ref::<wasmtime::Trap>();
    if trap == Some(&wasmtime::Trap::StackOverflow) {
        return (
            TrapKind::StackOverflow,
            "its stack of 1 MiB is used up; it recurses too deep".into(),
        );
    }
    if trap == Some(&wasmtime::Trap::MemoryOutOfBounds) && recurses(error) {
        let reason = "it reached below its memory, deep in a recursion: the stack that it keeps there is used up";
        return (TrapKind::StackOverflow, reason.into());
    }
    if let Some(wanted) = state.limiter.refused() {
        let limit = state.limiter.limit();
        return (
            TrapKind::Memory,
            format!(
                "it wanted {wanted} bytes of memory, over limits.memory ({limit} bytes), and then ended"
            ),
        );
    }
    if let Some(trap) = trap {
        return (TrapKind::Aborted, trap.to_string());
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return (
            TrapKind::Aborted,
            format!("it exited with status {}", exit.0),
        );
    }
    if is_copy_limit(error) {
        return if error.is::<WasmBacktrace>() {
            (TrapKind::Aborted, "it handed the host more data at once than any limit allows (limits.batch, limits.value)".into())
        } else {
            (
                TrapKind::ReplyTooLarge,
                reply_too_large(None, limits).message,
            )
        };
    }
    if error.is::<FieldMapError>() {
        let reason = format!(
            "the headers of an HTTP request or answer are over limits.http_headers ({} bytes, with about 40 for each name and each value)",
            limits.http_headers
        );
        return (TrapKind::Aborted, reason);
    }
    if let Some(error) = error.downcast_ref::<ResourceTableError>() {
        let reason = match error {
            ResourceTableError::Full => {
                "it holds too many streams, pollables, headers and bodies at once; drop some".into()
            }
            error => format!(
                "it used a stream, a pollable, headers or a body of a request that has ended ({error})"
            ),
        };
        return (TrapKind::Aborted, reason);
    }
    if phase == Phase::Instantiate {
        return (TrapKind::Instantiate, format!("{error:#}"));
    }
    // What is left is data that breaks the component ABI: text that is not UTF-8, pointers that lead out of memory.
    (TrapKind::Aborted, format!("{:#}", Plain(error)))
}

/// Whether the guest had the host copy more than [`wasmtime::Store::set_hostcall_fuel`] allows. The error has no public type.
fn is_copy_limit(error: &wasmtime::Error) -> bool {
    error
        .root_cause()
        .to_string()
        .contains("fuel allocated for hostcalls")
}

/// Whether the innermost frames are as many as are kept, and of a few functions only. Most languages keep a second stack in memory, at
/// its very beginning, and one that recurses uses that up first.
fn recurses(error: &wasmtime::Error) -> bool {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else {
        return false;
    };
    let mut functions: Vec<_> = backtrace
        .frames()
        .iter()
        .map(FrameInfo::func_index)
        .collect();
    let frames = functions.len();
    functions.sort_unstable();
    functions.dedup();
    frames >= BACKTRACE_FRAMES && functions.len() <= RECURSION_MAX_FUNCTIONS
}

/// The innermost functions at which it ended.
fn frames(error: &wasmtime::Error) -> String {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else {
        return String::new();
    };
    let names = backtrace
        .frames()
        .iter()
        .filter_map(|frame| frame.func_name())
        .take(FRAMES_SHOWN);
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("; in {}", names.join(" < "))
    }
}

/// An error's own words, without the backtrace that stands before them.
struct Plain<'a>(&'a wasmtime::Error);

impl std::fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let chain: Vec<_> = self
            .0
            .chain()
            .map(ToString::to_string)
            .filter(|text| !text.starts_with("error while executing at"))
            .collect();
        f.write_str(&chain.join(": "))
    }
}

fn cut(text: &mut String, max: usize) {
    text.truncate(text.floor_char_boundary(max));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_held_to_their_bounds() {
        let long = "x".repeat(CODE_MAX_BYTES);
        for (code, kept) in [
            ("no-such-thing", true),
            (&long, true),
            ("", false),
            ("Bad", false),
            ("a b", false),
            ("ä", false),
        ] {
            let error = bounded(GuestError::new(code, "text"));
            assert_eq!(
                error.code,
                if kept { code } else { "guest-error" },
                "{code}"
            );
            assert_eq!(
                error.message.contains(&format!("{code:?}")),
                !kept,
                "{code}"
            );
        }
        let error = bounded(GuestError::new(
            "x".repeat(CODE_MAX_BYTES + 1),
            "ä".repeat(MESSAGE_MAX_BYTES),
        ));
        assert_eq!(error.code, "guest-error");
        assert!(error.message.len() <= MESSAGE_MAX_BYTES && error.message.ends_with('ä'));
    }
}
