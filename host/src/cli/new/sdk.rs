//! The guest SDKs: where Rust's is, and the files of the others, which a project gets a copy of.

use std::path::{Path, PathBuf};

use crate::cli::Error;

/// A file that is part of this program: its path in the project, and its text.
pub(super) type File = (&'static str, &'static str);

/// The SDK of the checkout that this program was built from.
const SDK_OF_CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-sdk");

/// The SDK as a value of a Cargo dependency.
pub(in crate::cli) fn rust(given: Option<&Path>) -> Result<String, Error> {
    let at = |path: PathBuf| {
        format!(
            "{{ path = {} }}",
            toml::Value::from(path.to_string_lossy().into_owned())
        )
    };
    match given {
        Some(path) => {
            if !path.join("Cargo.toml").is_file() {
                let path = path.display();
                return Err(Error::Usage(format!(
                    "{path} is not the guest SDK: it has no Cargo.toml"
                )));
            }
            let source = |source| Error::Io {
                what: format!("cannot find {}", path.display()),
                source,
            };
            Ok(at(path.canonicalize().map_err(source)?))
        }
        None => Path::new(SDK_OF_CHECKOUT).canonicalize().map(at).map_err(|_| {
            Error::Usage(format!(
                "the guest SDK is not at {SDK_OF_CHECKOUT}, where this program was built: give its folder with --sdk-path"
            ))
        }),
    }
}

/// The files below a folder of `guest-sdk/`, as files of a project's folder.
macro_rules! files {
    ($from:literal => $to:literal: $($path:literal)*) => {
        &[$((
            concat!($to, $path),
            include_str!(concat!("../../../../guest-sdk/", $from, $path)),
        )),*]
    };
}

/// The interface that guests of every language share.
pub(in crate::cli) const WIT: &[File] = files!("wit/" => "quarry_guest/wit/":
    "cluster.wit" "current-call.wit" "db.wit" "durability.wit" "durable-events.wit" "handler.wit" "handoff.wit" "lifecycle.wit" "log.wit"
    "metrics.wit" "migration.wit" "options.wit" "queries.wit" "shard.wit" "timer-events.wit" "timers.wit" "types.wit" "worlds.wit"
);

/// The interfaces of WASI that guests with HTTP need beside it.
pub(super) const WASI: &[File] =
    files!("wasi/" => "quarry_guest/wasi/": "clocks.wit" "http.wit" "io.wit");

/// For JavaScript and TypeScript.
pub(super) const JS: &[File] = files!("js/" => "quarry_guest/":
    "README.md" "VERSION" "build.js" "index.d.ts" "package.json" "src/bytes.js" "src/call.js" "src/cluster.js" "src/component.js" "src/context.js"
    "src/cursor.js" "src/db.js" "src/durability.js" "src/error.js" "src/guest.js" "src/http.js" "src/incoming.js" "src/index.js" "src/log.js"
    "src/metrics.js" "src/testing.js" "src/testing/clock.js"
    "src/testing/current.js" "src/testing/database.js" "src/testing/store.js" "src/testing/world.js" "src/testing/xxh64.js" "src/timer.js"
    "src/timers.js" "src/wit/component/cluster.js" "src/wit/component/current-call.js" "src/wit/component/db.js"
    "src/wit/component/durability.js" "src/wit/component/log.js" "src/wit/component/metrics.js" "src/wit/component/shard.js"
    "src/wit/component/timers.js" "src/wit/testing/cluster.js" "src/wit/testing/current-call.js" "src/wit/testing/db.js"
    "src/wit/testing/durability.js" "src/wit/testing/log.js" "src/wit/testing/metrics.js" "src/wit/testing/shard.js" "src/wit/testing/timers.js"
    "testing.d.ts"
);

/// For Python.
pub(super) const PYTHON: &[File] = files!("python/quarry_guest/" => "quarry_guest/":
    "README.md" "VERSION" "__init__.py" "_call.py" "_component.py" "_errors.py" "_guest.py" "_incoming.py" "_testing/__init__.py"
    "_testing/clock.py" "_testing/current.py" "_testing/database.py" "_testing/faces.py" "_testing/store.py" "_testing/world.py"
    "_testing/xxh64.py" "_wit.py" "build.py" "cluster.py" "codec.py" "context.py" "db.py" "durability.py" "log.py" "metrics.py" "py.typed"
    "testing.py" "timers.py" "wsgi.py"
);

/// For C.
pub(super) const C: &[File] = files!("c/" => "quarry_guest/":
    "README.md" "VERSION" "bindings/README.md" "bindings/quarry_wit.c" "bindings/quarry_wit.h" "quarry.h" "quarry_export.h" "src/db.c" "src/exports.c"
    "src/format.c" "src/host.c" "src/internal.h" "src/memory.c" "src/text.c"
    "testing/database.c" "testing/double.h" "testing/expect.c" "testing/host.c" "testing/quarry_test.h"
);

/// For Go.
pub(super) const GO: &[File] = files!("go/" => "quarry_guest/":
    "README.md" "VERSION" "cluster/cluster.go" "db/db.go" "db/scan.go" "durability/durability.go" "durability/export.go" "export.go" "go.mod"
    "handoff/export.go" "handoff/handoff.go" "internal/abi/memory.go" "internal/abi/memory_wasm.s" "internal/abi/native.go"
    "internal/abi/values.go" "internal/guest/export.go" "internal/guest/guest.go" "internal/host/bindings.go" "internal/host/native.go" "internal/host/native_more.go"
    "internal/host/types.go" "internal/host/wasip1.go" "internal/host/wasip1_more.go" "lifecycle/export.go" "lifecycle/lifecycle.go" "log.go"
    "metrics/metrics.go" "migration/export.go" "migration/migration.go" "options/export.go" "options/options.go" "quarry.go"
    "quarrytest/quarrytest.go" "queries/export.go" "queries/queries.go" "timers/export.go" "timers/timers.go"
);

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    #[test]
    fn the_sdk_is_looked_for() {
        let home = tempfile::tempdir().unwrap();
        let error = rust(Some(home.path())).unwrap_err();
        assert!(error.to_string().contains("has no Cargo.toml"), "{error}");
        fs::write(home.path().join("Cargo.toml"), "").unwrap();
        let value = rust(Some(home.path())).unwrap();
        let parsed: toml::Table = format!("sdk = {value}").parse().unwrap();
        assert_eq!(
            Path::new(parsed["sdk"]["path"].as_str().unwrap()),
            home.path().canonicalize().unwrap()
        );
    }

    /// A file that is added to an SDK has to be added here, or projects lack it.
    #[test]
    fn every_file_of_an_sdk_is_part_of_the_program() {
        for (folder, to, files) in [
            ("wit", "quarry_guest/wit/", WIT),
            ("wasi", "quarry_guest/wasi/", WASI),
            ("js", "quarry_guest/", JS),
            ("python/quarry_guest", "quarry_guest/", PYTHON),
            ("c", "quarry_guest/", C),
            ("go", "quarry_guest/", GO),
        ] {
            let home = Path::new(SDK_OF_CHECKOUT).join(folder);
            let there: BTreeSet<String> = listed(&home, "")
                .iter()
                .map(|path| format!("{to}{path}"))
                .collect();
            let here = files.iter().map(|(path, _)| (*path).to_owned()).collect();
            assert_eq!(there, here, "{folder}");
        }
    }

    #[test]
    fn every_sdk_is_stamped_with_this_programs_version() {
        for (language, files) in [("js", JS), ("python", PYTHON), ("c", C), ("go", GO)] {
            let stamp = files
                .iter()
                .find(|(path, _)| *path == "quarry_guest/VERSION");
            let (_, version) = stamp.unwrap_or_else(|| panic!("{language} has none"));
            assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"), "{language}");
        }
        let (_, manifest) = JS
            .iter()
            .find(|(path, _)| *path == "quarry_guest/package.json")
            .expect("a manifest");
        let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap();
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    }

    /// The files of a folder, but for its tests and what tools make.
    fn listed(folder: &Path, prefix: &str) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if ["test", "node_modules", "__pycache__"].contains(&name.as_str()) {
                continue;
            }
            let path = format!("{prefix}{name}");
            if entry.file_type().unwrap().is_dir() {
                found.extend(listed(&entry.path(), &format!("{path}/")));
            } else {
                found.push(path);
            }
        }
        found
    }
}
