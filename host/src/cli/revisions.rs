//! `quarry revisions`, `quarry revision` and `quarry modules`: what lies in the bucket.

use std::fmt::Write as _;

use serde_json::Value;

use super::args::{Modules, RevisionVerb, Revisions, RevisionsVerb};
use super::output::{self, Column};
use super::way::{Way, interruptible};
use super::{Error, Exit, Output};

/// How much of a digest a table shows.
const SHORT: usize = 12;

const REVISIONS: [Column; 6] = [
    ("REVISION", |revision| output::cell(&revision["revision"])),
    ("STATE", |revision| output::cell(&revision["state"])),
    ("MODULES", |revision| match revision["error"].as_str() {
        Some(error) => output::cell(&error.into()),
        None => modules_of(revision),
    }),
    ("AUTHOR", |revision| output::cell(&revision["author"])),
    ("RECORDED", |revision| output::utc(&revision["created_ms"])),
    ("NOTE", |revision| output::cell(&revision["note"])),
];

const MODULES: [Column; 3] = [
    ("DIGEST", |module| output::cell(&module["digest"])),
    ("BYTES", |module| output::cell(&module["size"])),
    ("STORED", |module| output::utc(&module["stored_ms"])),
];

/// Lists revisions, or removes some.
pub(super) async fn list(args: Revisions, out: Output) -> Result<Exit, Error> {
    if let Some(RevisionsVerb::Prune {
        revision,
        keep,
        place,
    }) = args.verb
    {
        let pruned = interruptible(async {
            let way = Way::open(&place).await?;
            match revision {
                Some(number) => way.prune_revision(number).await,
                None => way.prune(keep).await,
            }
        });
        return pruned_text(&pruned.await?, out);
    }
    let listed = interruptible(async {
        let way = Way::open(&args.place).await?;
        way.revisions(args.below, args.limit.into()).await
    });
    let listed = listed.await?;
    let revisions = listed["revisions"].as_array().cloned().unwrap_or_default();
    if out.json {
        out.json(&revisions)?;
        return Ok(Exit::Done);
    }
    out.bytes(output::table(&REVISIONS, &revisions).as_bytes())?;
    if let (Some(last), true) = (revisions.last(), listed["more"] == true) {
        let below = &last["revision"];
        out.note(&format!("there are older ones: --below {below}"));
    }
    Ok(Exit::Done)
}

/// Shows a revision.
pub(super) async fn show(verb: RevisionVerb, out: Output) -> Result<Exit, Error> {
    let RevisionVerb::Show { revision, place } = verb;
    let found = interruptible(async { Way::open(&place).await?.revision(revision).await }).await?;
    if out.json {
        out.json(&found)?;
    } else {
        out.bytes(text(&found).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// Lists the components.
pub(super) async fn modules(args: &Modules, out: Output) -> Result<Exit, Error> {
    let found = interruptible(async { Way::open(&args.place).await?.modules().await }).await?;
    let modules = found["modules"].as_array().cloned().unwrap_or_default();
    if out.json {
        out.json(&modules)?;
    } else {
        out.bytes(output::table(&MODULES, &modules).as_bytes())?;
    }
    Ok(Exit::Done)
}

fn pruned_text(pruned: &Value, out: Output) -> Result<Exit, Error> {
    if out.json {
        out.json(pruned)?;
        return Ok(Exit::Done);
    }
    let count = |field: &str| pruned[field].as_array().map_or(0, Vec::len);
    let (revisions, modules, kept) = (count("revisions"), count("modules"), count("kept"));
    out.note(&format!(
        "removed {revisions} revisions and {modules} modules; {kept} revisions are left"
    ));
    Ok(Exit::Done)
}

/// A revision for a person.
fn text(revision: &Value) -> String {
    let mut text = String::new();
    let state = revision["state"].as_str();
    let state = state.map(|state| format!(" ({state})")).unwrap_or_default();
    _ = writeln!(text, "revision {}{state}", revision["revision"]);
    _ = writeln!(text, "  recorded  {}", output::utc(&revision["created_ms"]));
    _ = writeln!(text, "  author    {}", output::cell(&revision["author"]));
    for line in revision["note"].as_str().unwrap_or_default().lines() {
        _ = writeln!(text, "  note      {line}");
    }
    for module in revision["modules"].as_array().into_iter().flatten() {
        _ = writeln!(text, "  module    {}", output::cell(&module["name"]));
        _ = writeln!(text, "    digest  {}", output::cell(&module["digest"]));
        _ = writeln!(text, "    bytes   {}", module["size"]);
        _ = writeln!(text, "    options {}", module["options"]);
        for (name, value) in module["limits"].as_object().into_iter().flatten() {
            _ = writeln!(text, "    limit   {name} = {}", output::cell(value));
        }
        for grant in module["grants"].as_array().into_iter().flatten() {
            _ = writeln!(text, "    grant   {}", output::cell(grant));
        }
        if let Some(prefix) = module["prefix"]
            .as_str()
            .filter(|prefix| !prefix.is_empty())
        {
            _ = writeln!(text, "    keys    that begin with {prefix}");
        }
    }
    text
}

/// The modules of a revision, each with the beginning of its digest.
fn modules_of(revision: &Value) -> String {
    let modules = revision["modules"].as_array().into_iter().flatten();
    let names: Vec<String> = modules
        .map(|module| {
            let digest: String = output::cell(&module["digest"])
                .chars()
                .take(SHORT)
                .collect();
            format!("{}@{digest}", output::cell(&module["name"]))
        })
        .collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision() -> Value {
        json!({
            "revision": 3, "state": "stable", "author": "ann@box", "created_ms": 1_764_494_478_123_u64, "note": "why\nmore",
            "modules": [{"name": "main", "digest": "ab".repeat(32), "size": 7, "options": {"a": 1}, "limits": {"memory": "64MiB"}, "grants": [], "prefix": ""}],
        })
    }

    #[test]
    fn a_line_a_revision() {
        let broken = json!({"revision": 2, "error": "revisions/2.json has version 9; this build reads version 1"});
        let expected = "\
REVISION  STATE   MODULES                                                     AUTHOR   RECORDED              NOTE
3         stable  main@abababababab                                           ann@box  2025-11-30T09:21:18Z  why
2         -       revisions/2.json has version 9; this build reads version 1  -        -                     -
";
        assert_eq!(output::table(&REVISIONS, &[revision(), broken]), expected);
    }

    #[test]
    fn all_of_a_revision() {
        let shown = text(&revision());
        for part in [
            "revision 3 (stable)",
            "note      more",
            "options {\"a\":1}",
            "limit   memory = 64MiB",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(!shown.contains("keys"), "{shown}");
    }
}
