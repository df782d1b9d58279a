//! What the settings of several nodes mean together: which combinations make sense, and the fixed list of `static`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::kind::Kind;
use super::units::{Span, quoted};
use super::{Config, Strategy};

/// The longest address that a node can tell others, in bytes: a name of DNS and a port.
pub const ADVERTISE_MAX_BYTES: usize = 256;
/// The most nodes of a fixed list.
const NODES_MAX: usize = 1024;

/// A node of the fixed list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticNode {
    /// Its name.
    pub name: String,
    /// Where it is reached; without one, calls for its shards cannot be forwarded.
    pub address: Option<String>,
}

impl Config {
    /// How often a node makes its round: `lease.interval`, or a third of `lease.ttl`.
    #[must_use]
    pub fn lease_interval(&self) -> Duration {
        self.lease.interval.unwrap_or(self.lease.ttl / 3)
    }

    /// How long before the end of a lease its owner stops: `lease.margin`, or a sixth of `lease.ttl`.
    #[must_use]
    pub fn lease_margin(&self) -> Duration {
        self.lease.margin.unwrap_or(self.lease.ttl / 6)
    }

    /// The nodes of the fixed list, in its order.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn static_nodes(&self) -> Result<Vec<StaticNode>, (&'static str, String)> {
        let key = "static.nodes";
        let mut nodes: Vec<StaticNode> = Vec::new();
        if self.fixed.nodes.len() > NODES_MAX {
            let count = self.fixed.nodes.len();
            return Err((key, format!("{count} nodes; at most {NODES_MAX}")));
        }
        for entry in &self.fixed.nodes {
            let (name, address) = match entry.split_once('=') {
                Some((name, address)) => (name, Some(address)),
                None => (entry.as_str(), None),
            };
            if Kind::Name.read(&name.into()).is_err() {
                let expected = Kind::Name.expects();
                return Err((
                    key,
                    format!("{} does not begin with {expected}", quoted(entry)),
                ));
            }
            if let Some(problem) = address.and_then(address_problem) {
                return Err((key, format!("{}: {problem}", quoted(entry))));
            }
            if nodes.iter().any(|node| node.name == name) {
                return Err((key, format!("the node {} is twice in it", quoted(name))));
            }
            nodes.push(StaticNode {
                name: name.into(),
                address: address.map(Into::into),
            });
        }
        Ok(nodes)
    }

    /// The owner of each shard by the fixed list or map.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn static_owners(&self) -> Result<Vec<String>, (&'static str, String)> {
        let nodes = self.static_nodes()?;
        if nodes.is_empty() {
            let message = "it is empty: list every node, `NAME` or `NAME=HOST:PORT`";
            return Err(("static.nodes", message.into()));
        }
        if self.fixed.map.is_empty() {
            let owners =
                (0..self.shards as usize).map(|shard| nodes[shard % nodes.len()].name.clone());
            return Ok(owners.collect());
        }
        let key = "static.map";
        let mut owners: BTreeMap<u32, &str> = BTreeMap::new();
        for (name, shards) in &self.fixed.map {
            if !nodes.iter().any(|node| node.name == *name) {
                return Err((
                    key,
                    format!("the node {} is not in static.nodes", quoted(name)),
                ));
            }
            for range in shards
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
            {
                let (first, last) = self
                    .range(range)
                    .map_err(|problem| (key, format!("{}: {problem}", quoted(name))))?;
                for shard in first..=last {
                    if let Some(other) = owners.insert(shard, name) {
                        let message = format!(
                            "shard {shard} is on both {} and {}",
                            quoted(other),
                            quoted(name)
                        );
                        return Err((key, message));
                    }
                }
            }
        }
        match (0..self.shards).find(|shard| !owners.contains_key(shard)) {
            Some(shard) => Err((
                key,
                format!(
                    "shard {shard} is on no node; there are {} shards",
                    self.shards
                ),
            )),
            None => Ok(owners.into_values().map(str::to_owned).collect()),
        }
    }

    /// `N` or `N-M`.
    fn range(&self, text: &str) -> Result<(u32, u32), String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < self.shards => Ok((first, last)),
            _ => Err(format!(
                "{} is neither a shard nor a range of shards like 0-3; there are {}, from 0 to {}",
                quoted(text),
                self.shards,
                self.shards - 1
            )),
        }
    }
}

/// What is wrong between the keys of several nodes whose values are fine alone.
pub(super) fn misfits(config: &Config) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    timing(config, &mut found);
    if config.strategy == Strategy::Static {
        match config.static_owners() {
            Ok(owners) => {
                let listed = config
                    .static_nodes()
                    .is_ok_and(|nodes| nodes.iter().any(|node| node.name == config.node));
                if !listed {
                    let mut known: Vec<_> = owners.iter().map(String::as_str).collect();
                    known.sort_unstable();
                    known.dedup();
                    known.truncate(8);
                    let message = format!(
                        "the node {} is not in static.nodes, which has {}",
                        quoted(&config.node),
                        known.join(", ")
                    );
                    found.push(("node", message));
                }
            }
            Err(problem) => found.push(problem),
        }
    } else {
        for (key, set) in [
            ("static.nodes", !config.fixed.nodes.is_empty()),
            ("static.map", !config.fixed.map.is_empty()),
        ] {
            if set {
                let message = "it has no effect without strategy = \"static\": remove it, or set the strategy";
                found.push((key, message.into()));
            }
        }
    }
    let internal = &config.internal;
    if config.strategy == Strategy::Local {
        let fresh = Config::default();
        for (key, set) in [
            ("lease.ttl", config.lease.ttl != fresh.lease.ttl),
            ("lease.interval", config.lease.interval.is_some()),
            ("lease.margin", config.lease.margin.is_some()),
            ("lease.layout", config.lease.layout != fresh.lease.layout),
            ("internal.listen", internal.listen != fresh.internal.listen),
            ("internal.advertise", internal.advertise.is_some()),
        ] {
            if set {
                let message = "it has no effect with strategy = \"local\", where this node has the store to itself: set strategy = \"lease\" (--strategy lease) for a cluster, or remove it";
                found.push((key, message.into()));
            }
        }
    }
    if let Some(problem) = internal.advertise.as_deref().and_then(address_problem) {
        found.push(("internal.advertise", problem));
    }
    if config.strategy != Strategy::Local
        && internal.advertise.is_none()
        && internal.listen.ip().is_unspecified()
    {
        let listen = internal.listen;
        let message = format!(
            "it is unset, and internal.listen {listen} is no address at which other nodes reach this one: set it to HOST:PORT"
        );
        found.push(("internal.advertise", message));
    }
    found
}

/// An owner must have time to renew twice before it has to stop, and to stop before anyone else may begin, whose clock may run faster.
/// The bounds are those of the loop.
fn timing(config: &Config, found: &mut Vec<(&'static str, String)>) {
    let (ttl, interval, margin) = (
        config.lease.ttl,
        config.lease_interval(),
        config.lease_margin(),
    );
    let [long, pause, room] = [ttl, interval, margin].map(Span);
    if margin >= ttl / 2 {
        let half = Span(ttl / 2);
        let message = format!(
            "{room} is not under {half}, half of lease.ttl: an owner would stop most of the time"
        );
        found.push(("lease.margin", message));
    } else if margin * 20 < ttl {
        let least = Span(ttl / 20);
        let message = format!(
            "{room} is under {least}, a twentieth of lease.ttl: clocks do not all run at the same speed"
        );
        found.push(("lease.margin", message));
    } else if interval * 2 + margin > ttl {
        let least = Span(interval * 2 + margin);
        let message = format!(
            "two intervals ({pause}) and lease.margin ({room}) are {least}, over lease.ttl ({long}): one renewal that fails would stop the shards"
        );
        found.push(("lease.interval", message));
    } else if interval < ttl / 100 {
        let least = Span(ttl / 100);
        let message = format!(
            "{pause} is under {least}, a hundredth of lease.ttl: it would cost requests and gain nothing"
        );
        found.push(("lease.interval", message));
    }
}

/// What is wrong with an address that other nodes are told.
fn address_problem(text: &str) -> Option<String> {
    let wrong = |why: &str| {
        Some(format!(
            "{} {why}: write HOST:PORT, like 10.0.0.5:7071 or node-a.internal:7071",
            quoted(text)
        ))
    };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address {
            _ if address.port() == 0 => wrong("has port 0, at which nobody is reached"),
            _ if address.ip().is_unspecified() => {
                wrong("is every address of this machine, which is nowhere for another")
            }
            _ => None,
        };
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return wrong("has no port");
    };
    let named = !host.is_empty()
        && host.len() <= 253
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    match port.parse::<u16>() {
        Ok(port) if port > 0 && named => None,
        _ => wrong("is no address"),
    }
}

#[cfg(test)]
mod tests {
    use quarry_core::control::ControlOptions;

    use super::*;

    fn keys(config: &Config) -> Vec<&'static str> {
        misfits(config).into_iter().map(|(key, _)| key).collect()
    }

    fn fixed(nodes: &[&str], map: &[(&str, &str)]) -> Config {
        let mut config = Config {
            strategy: Strategy::Static,
            node: "a".into(),
            shards: 4,
            ..Config::default()
        };
        config.fixed.nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        config.fixed.map = map
            .iter()
            .map(|&(name, shards)| (name.to_owned(), shards.to_owned()))
            .collect();
        config
    }

    #[test]
    fn the_fixed_list_gives_every_shard_one_owner() {
        for (nodes, map, owners) in [
            (&["a", "b"][..], &[][..], ["a", "b", "a", "b"]),
            (&["b", "a=10.0.0.1:7071", "c"], &[], ["b", "a", "c", "b"]),
            (
                &["a", "b"],
                &[("a", "0-2"), ("b", "3")],
                ["a", "a", "a", "b"],
            ),
            (
                &["a", "b"],
                &[("a", "1, 3"), ("b", "0,2")],
                ["b", "a", "b", "a"],
            ),
        ] {
            let config = fixed(nodes, map);
            assert_eq!(
                config.static_owners().expect("owners"),
                owners,
                "{nodes:?} {map:?}"
            );
            assert_eq!(keys(&config), [""; 0]);
        }
    }

    #[test]
    fn impossible_lists_are_refused_with_their_key() {
        for (nodes, map, key, part) in [
            (&[][..], &[][..], "static.nodes", "empty"),
            (&["a", "a"], &[], "static.nodes", "twice"),
            (&["a", "b c"], &[], "static.nodes", "\"b c\""),
            (&["a", "../b"], &[], "static.nodes", "../b"),
            (&["a", "b=nowhere"], &[], "static.nodes", "no port"),
            (&["b", "c"], &[], "node", "\"a\""),
            (&["a", "b"], &[("c", "0-3")], "static.map", "\"c\""),
            (
                &["a", "b"],
                &[("a", "0-3"), ("b", "3")],
                "static.map",
                "both",
            ),
            (&["a", "b"], &[("a", "0-2")], "static.map", "shard 3"),
            (&["a", "b"], &[("a", "0-4")], "static.map", "0-4"),
            (&["a", "b"], &[("a", "3-0")], "static.map", "3-0"),
            (&["a", "b"], &[("a", "x")], "static.map", "\"x\""),
        ] {
            let found = misfits(&fixed(nodes, map));
            assert_eq!(found.len(), 1, "{nodes:?} {map:?}: {found:?}");
            assert!(
                found[0].0 == key && found[0].1.contains(part),
                "{nodes:?} {map:?}: {found:?}"
            );
        }
        let idle = Config {
            strategy: Strategy::Lease,
            ..fixed(&["a"], &[])
        };
        assert_eq!(keys(&idle), ["static.nodes"]);
    }

    /// Whoever sets them wants a cluster, and forgot the strategy.
    #[test]
    fn what_only_a_cluster_has_is_refused_where_a_node_is_alone() {
        type Change = fn(&mut Config);
        let changes: [(&str, Change); 5] = [
            ("lease.ttl", |config| config.lease.ttl *= 2),
            ("lease.interval", |config| {
                config.lease.interval = Some(Duration::from_secs(4));
            }),
            ("lease.layout", |config| {
                config.lease.layout = crate::config::Layout::Shard;
            }),
            ("internal.listen", |config| {
                config.internal.listen.set_port(9000);
            }),
            ("internal.advertise", |config| {
                config.internal.advertise = Some("a:7071".into());
            }),
        ];
        for (key, change) in changes {
            let mut config = Config::default();
            change(&mut config);
            assert_eq!(keys(&config), [key]);
            config.strategy = Strategy::Lease;
            assert_eq!(keys(&config), [""; 0], "{key}");
        }
    }

    #[test]
    fn an_owner_has_time_to_renew_twice_and_to_stop() {
        let secs = |secs: f64| Some(Duration::from_secs_f64(secs));
        for (ttl, interval, margin, bad) in [
            (15.0, None, None, None),
            (1.0, None, None, None),
            (15.0, secs(6.25), None, None),
            (15.0, secs(6.3), None, Some("lease.interval")),
            (15.0, None, secs(7.5), Some("lease.margin")),
            (15.0, None, secs(5.0), None),
            (15.0, None, secs(5.1), Some("lease.interval")),
            (3.0, secs(5.0), None, Some("lease.interval")),
            (15.0, None, secs(0.7), Some("lease.margin")),
            (60.0, secs(0.5), None, Some("lease.interval")),
        ] {
            let mut config = Config {
                strategy: Strategy::Lease,
                ..Config::default()
            };
            config.lease.ttl = Duration::from_secs_f64(ttl);
            config.lease.interval = interval;
            config.lease.margin = margin;
            let found = keys(&config);
            let options = ControlOptions {
                lease_ttl: config.lease.ttl,
                interval,
                margin,
                ..ControlOptions::new("a".parse().expect("a name"), "c", 4)
            };
            assert_eq!(
                options.timing().is_ok(),
                found.is_empty(),
                "the loop agrees: {ttl} {interval:?} {margin:?}"
            );
            assert_eq!(
                found.first().copied(),
                bad,
                "{ttl} {interval:?} {margin:?}: {found:?}"
            );
        }
    }

    #[test]
    fn an_address_for_others_must_lead_here() {
        for good in [
            "10.0.0.5:7071",
            "[fd00::1]:7071",
            "node-a.internal:1",
            "localhost:65535",
        ] {
            assert_eq!(address_problem(good), None, "{good}");
        }
        for bad in [
            "",
            "10.0.0.5",
            "0.0.0.0:7071",
            "[::]:7071",
            "10.0.0.5:0",
            "host:70000",
            "http://host:1",
            "a/b:1",
            ":1",
        ] {
            assert!(address_problem(bad).is_some(), "{bad}");
        }
        let mut config = Config {
            strategy: Strategy::Lease,
            ..Config::default()
        };
        config.internal.listen = "0.0.0.0:7071".parse().expect("an address");
        assert_eq!(keys(&config), ["internal.advertise"]);
        config.internal.advertise = Some("10.0.0.5:7071".into());
        assert_eq!(keys(&config), [""; 0]);
    }
}
