//! `quarry bench`: what Quarry costs on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::args::{Bench, BenchCluster, BenchCompile, BenchOf, BenchSwap};
use super::running::{self, Signals};
use super::{Error, Exit, Output, build, new};
use crate::bench::cluster::{self, Figure};
use crate::bench::{self, Options, Report, compile, swap};
use crate::config::Config;
use crate::guest::Module;
use crate::store::Store;
use crate::telemetry;

/// The guest's project, written where it can be built.
const MANIFEST: &str = include_str!("../../templates/bench/Cargo.toml.in");
const SOURCE: &str = include_str!("../../templates/bench/lib.rs");

pub(super) async fn run(args: &Bench, out: Output) -> Result<Exit, Error> {
    let mut config = Config::default();
    // Nodes that are cut off on purpose have much to say about it; what goes wrong otherwise is told by the measurement.
    let level = if args.what.is_some() { "off" } else { "warn" };
    config.log.level = level.into();
    telemetry::init(&config.log)?;
    let scratch = tempfile::tempdir().map_err(|source| Error::Io {
        what: "no folder for the bench".into(),
        source,
    })?;
    let mut signals = Signals::watch()?;
    match &args.what {
        Some(BenchOf::Cluster(args)) => {
            return several(args, scratch.path(), &mut signals, out).await;
        }
        Some(BenchOf::Swap(args)) => {
            return swaps(args, scratch.path(), &mut signals, out).await;
        }
        Some(BenchOf::Compile(args)) => {
            return compiles(args, scratch.path(), &mut signals, out).await;
        }
        None => {}
    }
    let measured = async {
        let component = guest(scratch.path(), out).await?;
        let options = options(args, scratch.path())?;
        let make = |config| load(component.clone(), config);
        bench::run(&options, make, |text| out.note(text))
            .await
            .map_err(|error| Error::Failed(error.to_string()))
    };
    let report = tokio::select! {
        report = measured => report?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    if out.json {
        out.json(&report)?;
    } else {
        print(&report, out)?;
    }
    Ok(Exit::Done)
}

/// Measures a cluster, and prints each figure as soon as it is known; as JSON all at the end, also of those that came before a Ctrl-C.
async fn several(
    args: &BenchCluster,
    scratch: &Path,
    signals: &mut Signals,
    out: Output,
) -> Result<Exit, Error> {
    let options = cluster::Options {
        only: args.only.clone(),
        quick: args.quick,
        latency: args.latency.0,
        native: args.native,
    };
    let mut figures: Vec<Figure> = Vec::new();
    let mut printed = Ok(());
    let unread = Notify::new();
    let measured = async {
        let component = match options.native {
            true => PathBuf::new(),
            false => guest(scratch, out).await?,
        };
        let make = |config| load(component.clone(), config);
        let found = |figure: Figure| {
            if !out.json {
                let part = figures.last().map(|last| last.part);
                if part != Some(figure.part) && printed.is_ok() {
                    printed = out.line(&format!("\n{}", figure.part.title()));
                }
                if printed.is_ok() {
                    printed = out.line(&figure.line());
                }
                if printed.is_err() {
                    unread.notify_one();
                }
            }
            figures.push(figure);
        };
        let measured = cluster::run(&options, make, |text| out.note(text), found).await;
        measured.map_err(|error| Error::Failed(error.to_string()))
    };
    let measured = tokio::select! {
        measured = measured => measured,
        _ = signals.next() => Err(Error::Interrupted),
        // Nobody reads any more.
        () = unread.notified() => Ok(()),
    };
    printed?;
    if out.json {
        out.json(&figures)?;
    }
    measured.map(|()| Exit::Done)
}

/// Measures swaps.
async fn swaps(
    args: &BenchSwap,
    scratch: &Path,
    signals: &mut Signals,
    out: Output,
) -> Result<Exit, Error> {
    let options = swap::Options {
        swaps: if args.quick {
            args.swaps.min(20)
        } else {
            args.swaps
        },
        shards: args.shards,
        callers: args.callers,
        store: match &args.store {
            Some(store) => store.clone(),
            None => format!("file://{}", scratch.join("store").display()),
        },
    };
    let measured = async {
        let own = guest(scratch, out).await?;
        let other = args.component.clone().unwrap_or_else(|| own.clone());
        let config = options.config();
        let guests = running::engine(&config)?;
        let mut revisions = Vec::new();
        for (revision, component) in [(1, &own), (2, &other)] {
            revisions.push(running::load(&guests, &config, component, revision).await?);
        }
        let measured = swap::measure(&options, config, &revisions, |text| out.note(text)).await;
        measured.map_err(|error| Error::Failed(error.to_string()))
    };
    let report = tokio::select! {
        report = measured => report?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    if out.json {
        out.json(&report)?;
    } else {
        for line in report.lines() {
            out.line(&line)?;
        }
    }
    Ok(Exit::Done)
}

/// Measures what compiling costs.
async fn compiles(
    args: &BenchCompile,
    scratch: &Path,
    signals: &mut Signals,
    out: Output,
) -> Result<Exit, Error> {
    let options = compile::Options {
        component: running::read(&args.component)?,
        time: args.time.0,
        shards: args.shards,
        callers: args.callers,
        ttl: args.lease_ttl.0,
        folder: scratch.to_owned(),
    };
    let config = options.config();
    config
        .validate()
        .map_err(|error| Error::Usage(error.to_string()))?;
    let measured = async {
        let own = match args.native {
            true => None,
            false => Some(running::read(&guest(scratch, out).await?)?),
        };
        let measured = compile::measure(&options, own.as_ref(), |text| out.note(text)).await;
        measured.map_err(|error| Error::Failed(error.to_string()))
    };
    let report = tokio::select! {
        report = measured => report?,
        _ = signals.next() => return Err(Error::Interrupted),
    };
    if out.json {
        out.json(&report)?;
    } else {
        for line in report.lines() {
            out.line(&line)?;
        }
    }
    Ok(Exit::Done)
}

async fn load(component: PathBuf, config: Config) -> Result<Arc<dyn Module>, String> {
    let guests = running::engine(&config).map_err(|error| error.to_string())?;
    let module = running::load(&guests, &config, &component, 1).await;
    module.map_err(|error| error.to_string())
}

fn options(args: &Bench, scratch: &Path) -> Result<Options, Error> {
    let seconds = if args.quick { 1 } else { args.seconds };
    let stores = match &args.store {
        Some(store) => vec![store.clone()],
        None => vec![
            "memory:".to_owned(),
            format!("file://{}", scratch.join("store").display()),
        ],
    };
    let store_options = args
        .store_option
        .iter()
        .map(|option| (option.name.clone(), option.value.clone()))
        .collect();
    for store in &stores {
        Store::open(store, &store_options).map_err(|error| Error::Usage(error.to_string()))?;
    }
    let idle_shards = if args.quick { 100 } else { 1000 };
    Ok(Options {
        time: Duration::from_secs(seconds),
        stores,
        store_options,
        only: args.only.clone(),
        idle_shards,
    })
}

/// Builds the bench's guest.
async fn guest(scratch: &Path, out: Output) -> Result<PathBuf, Error> {
    let dir = scratch.join("guest");
    let written = |what: &str, source| Error::Io {
        what: format!("cannot write the bench's guest: {what}"),
        source,
    };
    fs::create_dir_all(dir.join("src")).map_err(|source| written("its folder", source))?;
    let sdk = new::sdk::rust(None)?;
    fs::write(dir.join("Cargo.toml"), MANIFEST.replace("{sdk}", &sdk))
        .map_err(|source| written("Cargo.toml", source))?;
    fs::write(dir.join("src/lib.rs"), SOURCE).map_err(|source| written("src/lib.rs", source))?;
    out.note("building the bench's guest");
    let module = build::module_of(&dir)?;
    Ok(build::build(&dir, &module, |line| out.note(line))
        .await?
        .path)
}

fn print(report: &Report, out: Output) -> Result<(), Error> {
    out.line(&format!("{} cores", report.cores))?;
    for store in &report.stores {
        out.line(&format!("\n{}", store.store))?;
        out.line(&format!(
            "  {:<44} {:<7} {:>12} {:>12} {:>12} {:>7}",
            "", "", "per second", "p50", "p99", "failed"
        ))?;
        for entry in &store.entries {
            out.line(&format!(
                "  {:<44} {:<7} {:>12.0} {:>12} {:>12} {:>7}",
                entry.name,
                entry.what,
                entry.per_second,
                time(entry.p50_us),
                time(entry.p99_us),
                entry.failed
            ))?;
        }
    }
    if let Some(idle) = &report.idle {
        out.line(&format!(
            "\n{} idle shards: opened in {:.1} s, {:.0} MiB ({:.0} KiB each), {:.2} % of a core",
            idle.shards,
            idle.open_seconds,
            idle.memory_mib,
            idle.memory_mib * 1024.0 / f64::from(idle.shards),
            idle.cpu_percent
        ))?;
    }
    for spin in &report.spin {
        let place = if spin.shard_threads == 1 {
            "on its thread"
        } else {
            "on another thread"
        };
        out.line(&format!(
            "a neighbour's p99, {place}: {} alone, {} beside a spinning guest",
            time(spin.alone_p99_us),
            time(spin.beside_p99_us)
        ))?;
    }
    Ok(())
}

fn time(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.2} us")
    } else {
        format!("{:.2} ms", us / 1000.0)
    }
}
