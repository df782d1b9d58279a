//! The arguments of the verbs that operate a cluster.

use clap::{Args, Subcommand};

use super::Server;
use crate::config::units::Span;

pub(super) const SHARD_EXAMPLES: &str = "\
A shard that was moved stays where it is until that node leaves, is drained, or would have too many without it.

Examples:
  quarry shard move 7 --to node-b
  quarry shard move 7 --to node-b --timeout 10s
  quarry shard restart 7                           a new instance of its guest; heals a quarantine";

pub(super) const NODES_EXAMPLES: &str = "\
Examples:
  quarry nodes
  quarry nodes --json | jq '.[] | select(.state == \"live\") | .node'";

pub(super) const NODE_EXAMPLES: &str = "\
A drained node goes on running, and takes shards again after `uncordon`. Stopping a node (SIGTERM, Ctrl-C) drains it, too.

Examples:
  quarry node drain node-b                         waits until it has no shard
  quarry node drain node-b --timeout 5m
  quarry node cordon node-b                        it takes no further shards, and keeps its own
  quarry node uncordon node-b";

/// Arguments of `quarry shard`.
#[derive(Debug, Args)]
pub struct Shard {
    #[command(subcommand)]
    pub verb: ShardVerb,
}

/// What can be done to a shard.
#[derive(Debug, Subcommand)]
pub enum ShardVerb {
    /// Move a shard to a node, and wait until it runs there
    Move {
        /// The shard's number
        #[arg(value_name = "SHARD")]
        shard: u32,
        /// The node that is to have it
        #[arg(long, value_name = "NODE")]
        to: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        server: Server,
    },
    /// Make a new instance of a shard's guest; heals a quarantine
    Restart {
        /// The shard's number
        #[arg(value_name = "SHARD")]
        shard: u32,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        server: Server,
    },
}

/// Arguments of `quarry nodes`.
#[derive(Debug, Args)]
pub struct Nodes {
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `quarry node`.
#[derive(Debug, Args)]
pub struct NodeOrder {
    #[command(subcommand)]
    pub verb: NodeVerb,
}

/// What can be done to a node.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Hand over a node's shards, and wait until it has none
    Drain {
        /// The node's name
        #[arg(value_name = "NAME")]
        node: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        server: Server,
    },
    /// Keep further shards away from a node
    Cordon {
        /// The node's name
        #[arg(value_name = "NAME")]
        node: String,
        #[command(flatten)]
        server: Server,
    },
    /// Let a node take shards again
    Uncordon {
        /// The node's name
        #[arg(value_name = "NAME")]
        node: String,
        #[command(flatten)]
        server: Server,
    },
}

/// How long to wait.
#[derive(Clone, Copy, Debug, Args)]
pub struct Wait {
    /// Give up waiting after this long; what was begun goes on
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub timeout: Span,
}
