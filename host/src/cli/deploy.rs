//! `quarry deploy`: checks the guests of a revision, uploads them, has it rolled out, and waits until every shard runs it.

use serde_json::{Map, Value};

use super::args::Deploy;
use super::rollout::follow;
use super::rollout::wait::Goal;
use super::way::{Way, interruptible, who};
use super::{Error, Exit, Output};
use crate::config::Config;
use crate::deploy::grants::{self, Grant};
use crate::deploy::limits::limits;
use crate::deploy::objects::digest;
use crate::deploy::wire::{DraftBody, GatesBody, ModuleBody, OrderBody, PlanWord};
use crate::guest::wasm::inspect;

mod oci;
mod plan;
mod source;

use source::Source;

/// Deploys, or shows what that would change.
pub(super) async fn run(args: &Deploy, out: Output) -> Result<Exit, Error> {
    let (way, sources, order) = interruptible(async {
        let sources = source::read(args, out).await?;
        let way = Way::open(&args.place).await?;
        let order = order(args, &sources);
        for source in &sources {
            check(source, &way).await?;
        }
        Ok((way, sources, order))
    })
    .await?;
    if args.plan {
        return interruptible(plan::show(&way, &sources, &order, out)).await;
    }
    let ordered = interruptible(async {
        // Before a large upload, for its errors: a node that cannot be reached, or takes no orders.
        way.status().await?;
        for source in &sources {
            let stored = way.upload(source.component.clone()).await?;
            if !out.json && stored["stored"] == true {
                let size = source.component.len();
                out.note(&format!("uploaded {} ({size} bytes)", source.shown));
            }
        }
        way.order(order).await
    })
    .await?;
    if !out.json {
        match ordered["outcome"].as_str() {
            Some("begun") => out.note(&format!(
                "revision {} is recorded; rollout {} begins",
                ordered["revision"], ordered["rollout"]
            )),
            Some("running") => out.note(&format!(
                "just this is being rolled out already, as revision {}",
                ordered["revision"]
            )),
            _ => {}
        }
    }
    follow(&way, &ordered, args.wait, Goal::Forth, out).await
}

/// What is asked of the cluster.
fn order(args: &Deploy, sources: &[Source]) -> OrderBody {
    let by = who();
    let (plan, percent) = match (args.wave, args.canary, &args.shards) {
        (Some(percent), ..) => (PlanWord::Waves, Some(percent)),
        (_, Some(percent), _) => (PlanWord::Canary, Some(percent)),
        (_, _, Some(_)) => (PlanWord::Chosen, None),
        _ => (PlanWord::All, None),
    };
    OrderBody {
        draft: Some(DraftBody {
            modules: sources.iter().map(module).collect(),
            author: by.clone(),
            note: args.note.clone(),
        }),
        by,
        plan,
        percent,
        shards: args.shards.clone(),
        gates: GatesBody {
            traps: args.max_traps,
            errors_percent: args.max_errors,
            latency_percent: args.max_latency.unwrap_or(0),
            least_calls: args.least_calls,
        },
        step_timeout: args.step_timeout,
        bake: args.bake,
        ..OrderBody::default()
    }
}

fn module(source: &Source) -> ModuleBody {
    ModuleBody {
        name: source.name.clone(),
        digest: digest(&source.component).to_string(),
        options: source.options.clone(),
        limits: source.limits.clone(),
        grants: source.grants.clone(),
        prefix: source.prefix.clone(),
    }
}

/// Checks what can be checked here. Where no node does it before anything changes, that is all of it.
async fn check(source: &Source, way: &Way) -> Result<(), Error> {
    let shown = &source.shown;
    let refused = |why: &dyn std::fmt::Display| Error::Failed(format!("{shown}: {why}"));
    inspect(&source.component).map_err(|error| refused(&error))?;
    let config = Config::default();
    let limits =
        limits(&config, &source.limits).map_err(|error| Error::Usage(error.to_string()))?;
    let text = Value::Object(source.options.clone()).to_string();
    if text.len() > quarry_core::deploy::MAX_OPTIONS {
        return Err(Error::Usage(format!(
            "the options have {} bytes as JSON; at most {} are allowed",
            text.len(),
            quarry_core::deploy::MAX_OPTIONS
        )));
    }
    for grant in &source.grants {
        let grant = grant.parse::<Grant>();
        grant.map_err(|error| Error::Usage(error.to_string()))?;
    }
    if !way.has_node() {
        _ = grants::honoured(&source.grants).map_err(|why| refused(&why))?;
        super::verify::check(&config, limits, &source.component, shown, &text).await?;
    }
    Ok(())
}

/// Options as they are in the order.
fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
