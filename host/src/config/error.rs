//! What is wrong with a configuration, and what was probably meant.

use std::fmt;

use super::{Config, Origin};

/// Everything that is wrong with a configuration; at least one problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, as far as it could be told; empty for a file that cannot be read at all.
    pub key: String,
    /// Where the value came from; none for values that were set in Rust.
    pub origin: Option<Origin>,
    /// What is wrong, and what is expected. Shows no credentials.
    pub message: String,
}

impl Error {
    /// Nothing wrong, or all of it.
    pub(super) fn of(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Self { problems })
        }
    }

    /// One problem of a value that was set in Rust.
    pub(crate) fn one(key: &str, message: String) -> Self {
        Self {
            problems: vec![Problem {
                key: key.into(),
                origin: None,
                message,
            }],
        }
    }

    /// Every problem, in the order of the layers.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [problem] => write!(f, "bad configuration: {problem}"),
            problems => {
                write!(f, "bad configuration, {} problems:", problems.len())?;
                problems
                    .iter()
                    .try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.key.as_str(), &self.origin) {
            ("", Some(origin)) => write!(f, "{origin}: {}", self.message),
            ("", None) => f.write_str(&self.message),
            (key, Some(origin)) => write!(f, "`{key}` ({origin}): {}", self.message),
            (key, None) => write!(f, "`{key}`: {}", self.message),
        }
    }
}

/// The message for a key that does not exist.
pub(super) fn unknown_key(name: &str) -> String {
    let section = format!("{name}.");
    let inside: Vec<_> = Config::keys()
        .filter_map(|key| key.name.strip_prefix(&section))
        .collect();
    if !inside.is_empty() {
        return format!(
            "is a section, not a key; its keys are {}",
            inside.join(", ")
        );
    }
    let sections = Config::keys()
        .filter_map(|key| key.name.split_once('.'))
        .map(|(section, _)| section);
    let known = Config::keys().map(|key| key.name).chain(sections);
    match nearest(name, known) {
        Some(near) => format!("unknown key; the nearest one is `{near}`"),
        None => "unknown key; `quarry config --describe` lists them all".into(),
    }
}

/// The candidate that is most like `name`, if one is like it at all. A right last word in a wrong section counts as near.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // Bounds the work on a hostile name; no key is longer than half of it.
    let name: Vec<char> = name.chars().take(64).collect();
    let last = |word: &[char]| {
        word.iter()
            .rposition(|&c| c == '.')
            .map_or(0, |dot| dot + 1)
    };
    let most = (name.len() / 3).max(2);
    let scored = candidates.filter_map(|candidate| {
        let chars: Vec<char> = candidate.chars().collect();
        let whole = distance(&name, &chars);
        let moved = distance(&name[last(&name)..], &chars[last(&chars)..]) + 1;
        let score = whole.min(if moved <= 2 { moved } else { usize::MAX });
        (score <= most).then_some((score, whole, candidate))
    });
    scored.min().map(|(_, _, candidate)| candidate)
}

/// How many characters must be added, removed or replaced.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
