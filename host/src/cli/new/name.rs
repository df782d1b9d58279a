//! The name of a project.

use std::path::Path;

use crate::cli::{Error, language::Language};

/// The last part of the path, if a package can have it as its name.
pub(super) fn of(path: &Path, language: Language) -> Result<String, Error> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let rules = "use 1 to 64 of a-z, 0-9, - and _, beginning with a letter";
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    let fits = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
    if !begins || !fits || name.len() > 64 {
        return Err(Error::Usage(format!(
            "{:?} cannot be a project's name: {rules}",
            path.display().to_string()
        )));
    }
    let (taken, to) = match language {
        Language::Rust => (&TO_RUST[..], "Rust"),
        Language::Ts | Language::Js => (&TO_NPM[..], "npm"),
        Language::Python => (&TO_PYTHON[..], "Python"),
        Language::C => (&[][..], "C"),
        Language::Go => (&TO_GO[..], "Go"),
    };
    if taken.contains(&name) {
        return Err(Error::Usage(format!(
            "{name:?} cannot be a project's name, it means something to {to}: {rules}"
        )));
    }
    Ok(name.to_owned())
}

/// Keywords, crates and folders that a package cannot be called by.
const TO_RUST: [&str; 63] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "proc_macro",
    "pub",
    "quarry-guest",
    "quarry_guest",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Modules that Go keeps for itself, and the one that the project depends on.
const TO_GO: [&str; 7] = ["all", "cmd", "example", "main", "quarry", "std", "vendor"];

/// Packages that the project itself depends on, and a folder of npm's.
const TO_NPM: [&str; 5] = [
    "node_modules",
    "quarry-guest",
    "quarry_guest",
    "rolldown",
    "typescript",
];

/// Modules of the project itself.
const TO_PYTHON: [&str; 4] = ["app", "quarry-guest", "quarry_guest", "tests"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[test]
    fn names_are_checked() {
        for good in [
            "greeter",
            "my-guest",
            "a",
            "x/y/my_guest2",
            "./greeter",
            "greeter/",
        ] {
            assert!(of(Path::new(good), Language::Rust).is_ok(), "{good}");
        }
        for bad in [
            "",
            "..",
            "/",
            "Greeter",
            "9lives",
            "-x",
            "my guest",
            "my.guest",
            "fn",
            "test",
            "quarry-guest",
            "ünder",
        ] {
            let error = of(Path::new(bad), Language::Rust).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage, "{bad}");
            assert!(
                error.to_string().contains(&format!("{bad:?}")),
                "{bad}: {error}"
            );
        }
        assert!(of(Path::new(&"a".repeat(65)), Language::Rust).is_err());
    }

    #[test]
    fn a_name_that_means_something_is_refused() {
        for (name, language, to) in [
            ("fn", Language::Rust, "Rust"),
            ("typescript", Language::Ts, "npm"),
            ("rolldown", Language::Js, "npm"),
            ("app", Language::Python, "Python"),
        ] {
            let error = of(Path::new(name), language).unwrap_err().to_string();
            assert!(error.contains(&format!("something to {to}")), "{error}");
        }
        assert_eq!(of(Path::new("fn"), Language::Ts).unwrap(), "fn");
    }
}
