//! What is deployed: components from files, from projects that are built, or from OCI image layouts, each with what goes with it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quarry_core::deploy::{MAX_MODULES, is_module_name};
use serde_json::{Map, Value};

use super::super::args::{Assignment, Deploy, DeployTarget};
use super::super::way::pairs;
use super::super::{Error, Output, running, verify};
use super::oci;
use crate::config::{Config, FileSource, Flag, Loaded, Origin, Sources};
use crate::deploy::limits::OF_A_REVISION;

/// A component, with what goes with it.
#[derive(Debug)]
pub(super) struct Source {
    /// The module's name.
    pub name: String,
    /// The component.
    pub component: Bytes,
    /// Where it came from, for messages.
    pub shown: String,
    /// Options for the guest.
    pub options: Map<String, Value>,
    /// Limits that differ from the nodes' own.
    pub limits: BTreeMap<String, String>,
    /// What it may use beyond its shard.
    pub grants: BTreeSet<String>,
    /// The beginning of all keys that it sees.
    pub prefix: String,
}

/// What was given for one module.
#[derive(Debug, Default, PartialEq, Eq)]
struct Terms {
    options: Vec<Assignment>,
    limits: Vec<Assignment>,
    grants: BTreeSet<String>,
    prefix: Option<String>,
}

/// Reads all of them, in the order in which they are started. Options, limits and grants of each are those of its project's quarry.toml, of this
/// process's environment, and those given here, in that order.
pub(super) async fn read(args: &Deploy, out: Output) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for (part, terms) in args.targets.iter().zip(terms(args)?) {
        sources.push(one(part, terms, out).await?);
    }
    Ok(sources)
}

async fn one(part: &DeployTarget, terms: Terms, out: Output) -> Result<Source, Error> {
    let target = &*part.path;
    let (component, shown, folder) = if oci::is_layout(target) {
        let component = oci::component(target)?;
        (component, target.display().to_string(), target.to_owned())
    } else {
        let (path, folder) = verify::target(target, out).await?;
        (running::read(&path)?, path.display().to_string(), folder)
    };
    // The file beside a component may be that of another module; a project's is its own.
    let file = if part.name.is_some() && !target.is_dir() {
        FileSource::None
    } else {
        FileSource::IfPresent(folder.join("quarry.toml"))
    };
    let mut sources = Sources::of_process(file);
    for option in terms.options {
        sources.flags.push(Flag {
            flag: "--option".into(),
            key: format!("module.options.{}", option.name),
            value: option.value,
        });
    }
    let loaded = Config::load(&sources)?;
    let mut limits = of_project(&loaded);
    limits.extend(pairs(&terms.limits));
    let mut grants = terms.grants;
    grants.extend(loaded.config.module.grants);
    let named = part.name.clone();
    Ok(Source {
        name: named.unwrap_or_else(|| loaded.config.module.name.clone()),
        component,
        shown,
        options: loaded.config.module.options,
        limits,
        grants,
        prefix: terms.prefix.unwrap_or_default(),
    })
}

/// What was given for each target, in their order. With names each option, limit, prefix and grant says whose it is.
fn terms(args: &Deploy) -> Result<Vec<Terms>, Error> {
    let names = names(&args.targets)?;
    let mut all: Vec<Terms> = names.iter().map(|_| Terms::default()).collect();
    let listed = || {
        let listed: Vec<&str> = names.iter().flatten().copied().collect();
        listed.join(", ")
    };
    let place = |flag: &str, given: &str, module: &str| {
        let at = names.iter().position(|name| *name == Some(module));
        at.ok_or_else(|| {
            let known = match names[..] {
                [None] => "the target has no name: write NAME=TARGET to give it one".into(),
                _ => format!("the modules here are {}", listed()),
            };
            Error::Usage(format!(
                "{flag} {given}: there is no module `{module}`; {known}"
            ))
        })
    };
    // The one target without a name takes all of it as it is.
    let alone = names == [None];
    for (flag, given) in [("--option", &args.option), ("--limit", &args.limit)] {
        for pair in given {
            let (at, pair) = if alone {
                (0, pair.clone())
            } else {
                let shown = format!("{}=...", pair.name);
                let Some((module, name)) = pair.name.split_once('.') else {
                    return Err(Error::Usage(format!(
                        "{flag} {shown}: with named modules write whose it is, MODULE.NAME=VALUE; the modules here are {}",
                        listed()
                    )));
                };
                let (name, value) = (name.to_owned(), pair.value.clone());
                (place(flag, &shown, module)?, Assignment { name, value })
            };
            let terms = &mut all[at];
            let into = if flag == "--option" {
                &mut terms.options
            } else {
                &mut terms.limits
            };
            into.push(pair);
        }
    }
    for pair in &args.prefix {
        let shown = format!("{}={}", pair.name, pair.value);
        let at = place("--prefix", &shown, &pair.name)?;
        if all[at].prefix.replace(pair.value.clone()).is_some() {
            let name = &pair.name;
            return Err(Error::Usage(format!(
                "--prefix {shown}: the module `{name}` has a prefix already; it sees the keys of one"
            )));
        }
    }
    for given in &args.grant {
        let (at, grant) = match given.split_once('=') {
            Some((module, grant)) => (place("--grant", given, module)?, grant),
            None if alone => (0, given.as_str()),
            None => {
                return Err(Error::Usage(format!(
                    "--grant {given}: with named modules write whose it is, MODULE=GRANT; the modules here are {}",
                    listed()
                )));
            }
        };
        all[at].grants.insert(grant.to_owned());
    }
    Ok(all)
}

/// The names of the targets: of several, each has one of its own.
fn names(targets: &[DeployTarget]) -> Result<Vec<Option<&str>>, Error> {
    if targets.len() > MAX_MODULES {
        return Err(Error::Usage(format!(
            "{} modules are too many: a revision has 1 to {MAX_MODULES}",
            targets.len()
        )));
    }
    let mut names = Vec::new();
    for part in targets {
        let shown = part.path.display();
        let name = part.name.as_deref();
        match name {
            None if targets.len() > 1 => {
                return Err(Error::Usage(format!(
                    "`{shown}` has no name, and of several modules each has one: write NAME={shown}"
                )));
            }
            Some(name) if !is_module_name(name) => {
                return Err(Error::Usage(format!(
                    "`{name}` is no name of a module: valid are 1 to 64 lower-case letters, digits and `-`, beginning with a letter. A path with a `=` is written with its folder, like ./{name}={shown}"
                )));
            }
            Some(twice) if names.contains(&name) => {
                return Err(Error::Usage(format!(
                    "two modules are named `{twice}`; each has a name of its own"
                )));
            }
            _ => names.push(name),
        }
    }
    Ok(names)
}

/// The limits that the project's file sets, of those that a revision may set. The others are a node's own.
fn of_project(loaded: &Loaded) -> BTreeMap<String, String> {
    let named = OF_A_REVISION.iter().filter_map(|limit| {
        let key = format!("limits.{limit}");
        let set = matches!(loaded.origin(&key), Origin::File(..));
        let value = set.then(|| loaded.config.text(&key)).flatten()?;
        Some(((*limit).to_owned(), value))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;
    use crate::cli::args::Command;

    fn given(line: &str) -> Result<Vec<Terms>, Error> {
        let words = ["quarry", "deploy"].into_iter().chain(line.split(' '));
        match Cli::try_parse_from(words).expect(line).command {
            Command::Deploy(args) => terms(&args),
            other => panic!("{other:?}"),
        }
    }

    fn pair(name: &str, value: &str) -> Assignment {
        let (name, value) = (name.into(), value.into());
        Assignment { name, value }
    }

    #[test]
    fn each_module_gets_what_is_its_own() {
        let line = "main=a users=b --prefix users=u/ --option users.a.b=3 --option main.x=y=z --limit users.memory=1MiB --grant main=http:h";
        let expected = [
            Terms {
                options: vec![pair("x", "y=z")],
                grants: BTreeSet::from(["http:h".to_owned()]),
                ..Terms::default()
            },
            Terms {
                options: vec![pair("a.b", "3")],
                limits: vec![pair("memory", "1MiB")],
                prefix: Some("u/".into()),
                ..Terms::default()
            },
        ];
        assert_eq!(given(line).expect(line), expected);
        // One target without a name takes all as it stands.
        let line = "./a=b.wasm --option a.b=3 --limit memory=1MiB --grant http:h";
        let expected = Terms {
            options: vec![pair("a.b", "3")],
            limits: vec![pair("memory", "1MiB")],
            grants: BTreeSet::from(["http:h".to_owned()]),
            prefix: None,
        };
        assert_eq!(given(line).expect(line), [expected]);
    }

    #[test]
    fn what_fits_no_module_is_named() {
        for (line, says) in [
            ("a b", "`a` has no name"),
            ("main=a b", "write NAME=b"),
            ("main=a main=b", "two modules are named `main`"),
            ("Main=a", "`Main` is no name of a module"),
            ("=a", "`` is no name of a module"),
            ("main=a --option x=1", "MODULE.NAME=VALUE"),
            (
                "main=a --option other.x=1",
                "there is no module `other`; the modules here are main",
            ),
            (
                "main=a users=b --limit user.memory=1",
                "the modules here are main, users",
            ),
            ("main=a --prefix users=u/", "there is no module `users`"),
            ("a --prefix main=u/", "write NAME=TARGET"),
            (
                "main=a --prefix main=u/ --prefix main=v/",
                "has a prefix already",
            ),
            ("main=a --grant http:h", "MODULE=GRANT"),
            ("main=a --grant users=http:h", "there is no module `users`"),
        ] {
            let error = given(line).expect_err(line);
            assert_eq!(error.code(), "usage", "{line}");
            let text = error.to_string();
            assert!(text.contains(says), "{line}: {text}");
        }
        let many: Vec<String> = (0..17).map(|n| format!("m{n}=a")).collect();
        let error = given(&many.join(" ")).expect_err("too many").to_string();
        assert!(error.contains("17 modules are too many"), "{error}");
    }
}
