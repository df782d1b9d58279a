//! The files of a new project, by language.

use super::sdk::{self, File};
use crate::cli::language::Language;

/// The files of a template, as files of the project.
macro_rules! template {
    ($folder:literal: $($path:literal = $from:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../templates/", $folder, $from)))),*]
    };
}

// `.in` is the end of what tools would take for something of this repository: cargo a folder with a `Cargo.toml` for a package.

const RUST: &[File] = template!("rust/":
    "Cargo.toml" = "Cargo.toml.in",
    "src/lib.rs" = "lib.rs",
    "quarry.toml" = "quarry.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore",
);

const TS: &[File] = template!("ts/":
    "package.json" = "package.json.in",
    "package-lock.json" = "package-lock.json.in",
    "tsconfig.json" = "tsconfig.json.in",
    "src/app.ts" = "app.ts",
    "test/app.test.ts" = "app.test.ts",
    "quarry.toml" = "quarry.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore",
);

const JS: &[File] = template!("js/":
    "package.json" = "package.json.in",
    "package-lock.json" = "package-lock.json.in",
    "src/app.js" = "app.js",
    "test/app.test.js" = "app.test.js",
    "quarry.toml" = "quarry.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore",
);

const PYTHON: &[File] = template!("python/":
    "requirements.txt" = "requirements.txt",
    "app/__init__.py" = "app.py",
    "tests/__init__.py" = "tests_init.py",
    "tests/test_app.py" = "test_app.py",
    "quarry.toml" = "quarry.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore",
);

const C: &[File] = template!("c/":
    "src/main.c" = "main.c",
    "quarry.toml" = "quarry.toml",
    "README.md" = "README.md",
    "test/main_test.c" = "main_test.c",
    "Makefile" = "Makefile",
    "compile_flags.txt" = "compile_flags.txt",
    ".gitignore" = "gitignore",
);

const GO: &[File] = template!("go/":
    "go.mod" = "go.mod.in",
    "main.go" = "main.go.in",
    "main_test.go" = "main_test.go.in",
    "quarry.toml" = "quarry.toml",
    "README.md" = "README.md",
    ".gitignore" = "gitignore",
);

/// The files of a project in this language. In texts of its template, and only there, `{{name}}` and `{{sdk}}` stand for what the project is.
pub(in crate::cli) fn of(language: Language) -> (&'static [File], Vec<File>) {
    let (template, sdk): (_, &[&[File]]) = match language {
        Language::Rust => (RUST, &[]),
        Language::Ts => (TS, &[sdk::JS, sdk::WIT, sdk::WASI]),
        Language::Js => (JS, &[sdk::JS, sdk::WIT, sdk::WASI]),
        Language::Python => (PYTHON, &[sdk::PYTHON, sdk::WIT, sdk::WASI]),
        Language::C => (C, &[sdk::C]),
        Language::Go => (GO, &[sdk::GO]),
    };
    (template, sdk.concat())
}
