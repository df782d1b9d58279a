//! "Did you mean": the valid name nearest to a misspelt one.

/// Names longer than this are not compared.
const MAX_LENGTH: usize = 64;

/// The candidate that takes the fewest edits, if they are few enough for a slip of the pen.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.len() > MAX_LENGTH {
        return None;
    }
    let bound = (name.len() / 3).max(1);
    let scored = candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate));
    scored
        .filter(|(edits, _)| *edits <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The number of letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let valid = ["aws_region", "aws_endpoint", "manifest_poll_interval"];
        for (name, expected) in [
            ("aws_regoin", Some("aws_region")),
            ("aws_endpont", Some("aws_endpoint")),
            ("manifest_pol_intervall", Some("manifest_poll_interval")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, valid), expected, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), valid), None);
    }

    #[test]
    fn distances() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
            ("ü", "u", 1),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }
}
