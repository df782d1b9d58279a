//! The languages that `quarry new` makes projects in, and that `quarry build` builds without being told how.
//!
//! A further language is a row of `LANGUAGES`, its templates in `new/templates.rs`, and its recipe in `build/recipe.rs`.

use clap::ValueEnum;

/// A language with a template and a recipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Rust
    #[default]
    Rust,
    /// TypeScript
    #[value(alias = "typescript")]
    Ts,
    /// JavaScript
    #[value(alias = "javascript")]
    Js,
    /// Python
    #[value(alias = "py")]
    Python,
    /// C
    C,
    /// Go
    #[value(alias = "golang")]
    Go,
}

/// Each language with its names in `module.language`, the first of which templates use.
const LANGUAGES: [(Language, &[&str]); 6] = [
    (Language::Rust, &["rust"]),
    (Language::Ts, &["typescript", "ts"]),
    (Language::Js, &["javascript", "js"]),
    (Language::Python, &["python"]),
    (Language::C, &["c"]),
    (Language::Go, &["go"]),
];

impl Language {
    /// The language that `module.language` names, if it is one of these.
    pub(super) fn of(name: &str) -> Option<Self> {
        let row = LANGUAGES.iter().find(|(_, names)| names.contains(&name))?;
        Some(row.0)
    }

    /// The line that makes a guest of a program in this language: it exports the handler of calls.
    pub(super) fn export(self) -> &'static str {
        match self {
            Self::Rust => {
                "`quarry_guest::export!(Guest);`, with the name of your type, in src/lib.rs"
            }
            Self::Ts | Self::Js => "`export default defineGuest({ calls: { ... } })` to src/app",
            Self::Python => "`@export` before the class of the guest, in app/__init__.py",
            Self::C => {
                "`QUARRY_EXPORT_CALL(call)`, with the name of your function, to a file in src"
            }
            Self::Go => {
                "`import quarry \"quarry/guest\"`, and `func init() { quarry.Handle(call) }`, to main.go"
            }
        }
    }

    /// The languages as `module.language` names them, for messages.
    pub(super) fn known() -> String {
        LANGUAGES.map(|(_, names)| names[0]).join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_a_name() {
        for language in Language::value_variants() {
            let row = LANGUAGES.iter().find(|(other, _)| other == language);
            let (_, names) = row.expect("a row");
            for name in *names {
                assert_eq!(Language::of(name), Some(*language), "{name}");
            }
        }
        assert_eq!(Language::of("cobol"), None);
        assert_eq!(Language::of("Rust"), None);
    }
}
