//! How a test describes its host.

use std::cell::RefCell;
use std::rc::Rc;

use log::LevelFilter;

use super::world::{Scope, Settings, World};
use super::{Host, Instance, Limits, MergeOperator};
use crate::error::{Error, Result};
use crate::guest::Exported;

/// Describes a [`Host`]: by default shard 0 of 1 in cluster `test`, on node `test-node`, revision 1, no options, no merge
/// operator, the default limits, and log lines of every level.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    /// The cluster's name.
    pub fn cluster(mut self, name: &str) -> Self {
        self.settings.cluster = name.to_owned();
        self
    }

    /// The shard's number, from 0, and how many shards the cluster has.
    pub fn shard(mut self, number: u32, count: u32) -> Self {
        assert!(
            number < count,
            "shard {number} of {count}: shards are numbered from 0"
        );
        self.settings.shard = number;
        self.settings.shard_count = count;
        self
    }

    /// The node's name.
    pub fn node(mut self, name: &str) -> Self {
        self.settings.node = name.to_owned();
        self
    }

    /// The revision that the guest belongs to.
    pub fn revision(mut self, revision: u64) -> Self {
        self.settings.revision = revision;
        self
    }

    /// The module's options: a JSON object.
    pub fn options(mut self, json: &str) -> Self {
        self.settings.options = json.to_owned();
        self
    }

    /// The cluster's merge operator.
    pub fn merge_operator(mut self, operator: MergeOperator) -> Self {
        self.settings.merge_operator = Some(operator);
        self
    }

    /// Other limits than the defaults.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// The most detailed level of log lines that goes anywhere.
    pub fn log_level(mut self, level: LevelFilter) -> Self {
        self.settings.log_level = level;
        self
    }

    /// Checks the options (`invalid-options` where the guest refuses them), and starts the guest (with its error where it
    /// does not start).
    pub fn start<G: Exported>(self) -> Result<Host> {
        crate::logger::install();
        let options = self.settings.options.clone();
        if !serde_json::from_str(&options).is_ok_and(|value: serde_json::Value| value.is_object()) {
            return Err(Error::new(
                "invalid-options",
                format!("options are a JSON object, not `{options}`"),
            ));
        }
        let world = Rc::new(RefCell::new(World::new(self.settings, G::EXPORTS)));
        if G::EXPORTS.options {
            World::enter(&world, Scope::validation(), || G::validate(&options))
                .0
                .map_err(|why| Error::new("invalid-options", why))?;
        }
        let make: fn() -> Box<dyn Instance> = || Box::new(G::default());
        let mut host = Host {
            world,
            make,
            exports: G::EXPORTS,
            calls: None,
            queries: None,
        };
        host.start()?;
        Ok(host)
    }
}
