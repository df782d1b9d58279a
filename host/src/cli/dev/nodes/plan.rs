//! With what each of the nodes is started.

use std::path::Path;
use std::time::Duration;

use super::name;
use crate::config::{FileSource, Loaded, Origin, Sources};

/// How long leases live here, unless the project says otherwise: who kills a node wants to see what becomes of it.
const LEASE_TTL: &str = "3s";
/// What the nodes are started with.
pub(super) struct Plan<'a> {
    pub sources: &'a Sources,
    pub loaded: &'a Loaded,
    pub store: &'a str,
    pub component: &'a Path,
}

impl Plan<'_> {
    /// The arguments of a node, from `serve` on.
    pub fn arguments(&self, node: usize) -> Vec<String> {
        let mut arguments = vec!["serve".to_owned()];
        let mut add = |name: &str, value: &str| {
            arguments.extend([name.to_owned(), value.to_owned()]);
        };
        match &self.sources.file {
            FileSource::Required(path) => add("--config", &path.to_string_lossy()),
            FileSource::IfPresent(path) if path.exists() => {
                add("--config", &path.to_string_lossy());
            }
            FileSource::IfPresent(_) | FileSource::None => {}
        }
        for flag in &self.sources.flags {
            add("--set", &format!("{}={}", flag.key, flag.value));
        }
        let is_default = |key| matches!(self.loaded.origin(key), Origin::Default);
        if is_default("lease.ttl") {
            add("--lease-ttl", LEASE_TTL);
        }
        if is_default("log.level") {
            add("--log-level", "warn,quarry::guest=info");
        }
        let mut listen = self.loaded.config.http.listen;
        if listen.port() != 0 {
            let port = usize::from(listen.port()) + node;
            listen.set_port(u16::try_from(port).unwrap_or(0));
        }
        add("--strategy", "lease");
        add("--name", &name(node));
        add("--store", self.store);
        add("--module", &self.component.to_string_lossy());
        add("--listen", &listen.to_string());
        add("--internal-listen", "127.0.0.1:0");
        arguments
    }

    /// How long the leases of its nodes live.
    pub fn ttl(&self) -> Duration {
        match self.loaded.origin("lease.ttl") {
            Origin::Default => Duration::from_secs(3),
            _ => self.loaded.config.lease.ttl,
        }
    }
}

/// A command line, for a shell.
pub(super) fn command(arguments: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%@+".contains(c);
    let words = arguments.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    format!("quarry {}", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Flag};

    fn arguments(sources: &Sources, node: usize) -> String {
        let mut leased = sources.clone();
        for (key, value) in [("strategy", "lease"), ("store", "file:///data")] {
            leased.flags.push(Flag {
                flag: "--nodes".into(),
                key: key.into(),
                value: value.into(),
            });
        }
        let loaded = Config::load(&leased).expect("a configuration");
        let plan = Plan {
            sources,
            loaded: &loaded,
            store: "file:///data",
            component: Path::new("/a/guest.wasm"),
        };
        command(&plan.arguments(node))
    }

    #[test]
    fn each_node_has_a_name_and_a_port_and_what_the_project_says() {
        assert_eq!(
            arguments(&Sources::default(), 2),
            "quarry serve --lease-ttl 3s --log-level 'warn,quarry::guest=info' --strategy lease --name node-3 --store file:///data \
             --module /a/guest.wasm --listen 127.0.0.1:7072 --internal-listen 127.0.0.1:0"
                .replace("'warn,quarry::guest=info'", "warn,quarry::guest=info")
        );
        let flag = |key: &str, value: &str| Flag {
            flag: "--set".into(),
            key: key.into(),
            value: value.into(),
        };
        let sources = Sources {
            flags: vec![
                flag("lease.ttl", "9s"),
                flag("http.listen", "127.0.0.1:0"),
                flag("module.options.greeting", "it's me"),
            ],
            ..Sources::default()
        };
        let line = arguments(&sources, 1);
        for part in [
            "--set lease.ttl=9s",
            r"--set 'module.options.greeting=it'\''s me'",
            "--listen 127.0.0.1:0 ",
            "--name node-2",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("--lease-ttl"), "{line}");
    }
}
