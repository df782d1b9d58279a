//! `quarry verify`: checks a component without a server, down to its options.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::args::Verify;
use super::{Error, Exit, Output, build, running};
use crate::clock;
use crate::config::{Config, FileSource, Flag, Sources};
use crate::guest::wasm::{Inspection, inspect};
use crate::guest::{Failure, Limits, Module};

pub(super) async fn run(args: &Verify, out: Output) -> Result<Exit, Error> {
    let (path, folder) = target(&args.target, out).await?;
    let file = FileSource::IfPresent(folder.join("quarry.toml"));
    let mut sources = Sources::of_process(file);
    for option in &args.option {
        sources.flags.push(Flag {
            flag: "--option".into(),
            key: format!("module.options.{}", option.name),
            value: option.value.clone(),
        });
    }
    let config = Config::load(&sources)?.config;
    let shown = path.display().to_string();
    let bytes = running::read(&path)?;
    let inspection = inspect(&bytes).map_err(|error| Error::Failed(format!("{shown}: {error}")))?;
    let begun = clock::now();
    let options = Value::Object(config.module.options.clone()).to_string();
    let checked = inspection.exports.options;
    check(&config, Limits::from(&config), &bytes, &shown, &options).await?;
    let compiled = clock::now().saturating_duration_since(begun);
    if out.json {
        out.json(&json!({
            "path": shown,
            "component": inspection,
            "compiled_ms": u64::try_from(compiled.as_millis()).unwrap_or(u64::MAX),
            "options": config.module.options,
            "options_checked": checked,
        }))?;
        return Ok(Exit::Done);
    }
    out.line(&format!("{shown} is a Quarry guest"))?;
    out.line(&format!("  size      {} bytes", inspection.size))?;
    out.line(&format!("  digest    {}", inspection.digest))?;
    out.line(&format!("  exports   {}", exports(&inspection)))?;
    out.line(&format!(
        "  compiled  in {compiled:.0?} (kept in the cache)"
    ))?;
    out.line(&format!(
        "  options   {options}{}",
        if checked {
            ", accepted by the guest"
        } else {
            ", which the guest does not check"
        }
    ))?;
    Ok(Exit::Done)
}

/// Compiles a component, makes an instance of it, and has that check its options.
pub(super) async fn check(
    config: &Config,
    limits: Limits,
    component: &Bytes,
    shown: &str,
    options: &str,
) -> Result<(), Error> {
    let guests = running::engine(config)?;
    let (name, limits) = (config.module.name.as_str(), Arc::new(limits));
    let loaded = guests.load(component.clone(), name.into(), 0, limits).await;
    let module = loaded.map_err(|error| Error::Failed(format!("{shown}: {error}")))?;
    let done = if module.describe().exports.options {
        module.validate(options).await
    } else {
        module.try_out(options).await
    };
    done.map_err(|failure| {
        Error::Failed(match failure {
            Failure::Error(error) => format!(
                "{shown}: the guest refuses its options {options}: {}",
                error.message
            ),
            Failure::Trap(trap) => {
                format!("{shown}: the guest failed when an instance of it was made to check its options: {trap}")
            }
            Failure::NoRoom(why) => format!("{shown}: its options were not checked: {why}"),
        })
    })
}

/// The component's file, and the folder whose quarry.toml goes with it. Where a project does not say what its build makes, the build is asked,
/// which does nothing when nothing has changed.
pub(super) async fn target(target: &Path, out: Output) -> Result<(PathBuf, PathBuf), Error> {
    if target.is_dir() {
        let module = build::module_of(target)?;
        let Some(path) = module.path.clone() else {
            let built = build::build(target, &module, |line| out.note(line)).await?;
            return Ok((built.path, target.to_owned()));
        };
        if !path.exists() {
            let message = format!(
                "there is no {}: build it with `quarry build {}`",
                path.display(),
                target.display()
            );
            return Err(Error::Failed(message));
        }
        return Ok((path, target.to_owned()));
    }
    let folder = target.parent().map(Path::to_owned).unwrap_or_default();
    Ok((target.to_owned(), folder))
}

fn exports(inspection: &Inspection) -> String {
    let exports = inspection.exports;
    let all = [
        ("handler", inspection.handler),
        ("wasi:http/incoming-handler", exports.http),
        ("queries", exports.queries),
        ("lifecycle", exports.lifecycle),
        ("options", exports.options),
        ("durable-events", exports.durable_events),
        ("timer-events", exports.timer_events),
        ("handoff", exports.handoff),
        ("migration", exports.migration),
    ];
    let names: Vec<_> = all
        .into_iter()
        .filter(|(_, there)| *there)
        .map(|(name, _)| name)
        .collect();
    names.join(", ")
}
