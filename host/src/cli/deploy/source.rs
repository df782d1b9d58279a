//! What is deployed: a component from a file, from a project that is built, or from an OCI image layout.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::super::args::Assignment;
use super::super::way::pairs;
use super::super::{Error, Output, running, verify};
use super::oci;
use crate::config::{Config, FileSource, Flag, Loaded, Origin, Sources};
use crate::deploy::limits::OF_A_REVISION;

/// A component, with what goes with it.
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
}

/// Reads it. Options and limits are those of the project's quarry.toml, of this process's environment, and those given here, in that order.
pub(super) async fn read(
    target: &Path,
    options: &[Assignment],
    limits: &[Assignment],
    out: Output,
) -> Result<Source, Error> {
    let (component, shown, folder) = if oci::is_layout(target) {
        let component = oci::component(target)?;
        (component, target.display().to_string(), target.to_owned())
    } else {
        let (path, folder) = verify::target(target, out).await?;
        (running::read(&path)?, path.display().to_string(), folder)
    };
    let file = FileSource::IfPresent(folder.join("quarry.toml"));
    let mut sources = Sources::of_process(file);
    for option in options {
        sources.flags.push(Flag {
            flag: "--option".into(),
            key: format!("module.options.{}", option.name),
            value: option.value.clone(),
        });
    }
    let loaded = Config::load(&sources)?;
    let mut of_project = of_project(&loaded);
    of_project.extend(pairs(limits));
    Ok(Source {
        name: loaded.config.module.name.clone(),
        component,
        shown,
        options: loaded.config.module.options,
        limits: of_project,
    })
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
