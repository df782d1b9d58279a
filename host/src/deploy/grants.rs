//! What a revision may use beyond its shard: the form of a grant, and whether this node can honour it. `guest/outgoing.rs` holds guests to it.
//!
//! | grant | what it allows |
//! |---|---|
//! | `http:HOST` | outgoing HTTP to this host, at the ports 80 and 443 |
//! | `http:HOST:PORT` | the same, at this port alone |
//!
//! HOST is a name, an IPv4 address, or `*.example.com` for every name below `example.com` (and not itself). Everything that is not granted is
//! denied.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use quarry_core::deploy::ModuleSpec;
use quarry_core::lease::record::RecordError;

/// The longest host, as DNS has it.
const MAX_HOST: usize = 253;
/// The longest part of a host between two dots.
const MAX_LABEL: usize = 63;
/// The ports of a grant that names none.
const HTTP_PORTS: [u16; 2] = [80, 443];

/// A grant. Its text is the only one of what it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Outgoing HTTP.
    Http {
        /// To these hosts,
        host: Hosts,
        /// at this port; without one, at 80 and 443.
        port: Option<u16>,
    },
}

/// The hosts of a grant, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// This one.
    One(String),
    /// Every name below this one.
    Below(String),
}

/// A grant that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("grant {given:?}: {why}")]
pub struct BadGrant {
    /// What was given, cut.
    pub given: String,
    /// What is wrong, and what is valid.
    pub why: String,
}

impl Grant {
    /// Whether it allows HTTP to a host, in any case of letters, at a port.
    #[must_use]
    pub fn allows(&self, to: &str, at: u16) -> bool {
        let Self::Http { host, port } = self;
        let to = to.to_ascii_lowercase();
        let host = match host {
            Hosts::One(host) => *host == to,
            Hosts::Below(parent) => to
                .strip_suffix(parent.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|name| !name.is_empty()),
        };
        host && port.map_or(HTTP_PORTS.contains(&at), |port| port == at)
    }
}

/// Checks the grants of a revision's modules.
///
/// # Errors
/// The first that is none, with the module, and what is valid.
pub fn check(modules: &[ModuleSpec]) -> Result<(), RecordError> {
    for module in modules {
        for given in &module.grants {
            given.parse::<Grant>().map_err(|error| RecordError::Field {
                object: format!("module {}", module.name),
                field: "grants",
                value: error.given,
                valid: error.why,
            })?;
        }
    }
    Ok(())
}

/// These grants as this node honours them. The one place that says so: a guest that was started without one that it was given would fail at
/// work instead of here.
///
/// # Errors
/// Which it cannot honour, as one of a newer version, and what to do.
pub fn honoured(grants: &BTreeSet<String>) -> Result<Arc<[Grant]>, String> {
    let parsed = grants.iter().map(|given| {
        given.parse().map_err(|error: BadGrant| {
            format!("it is granted what this node cannot honour: {error}. Deploy it without, or update the node")
        })
    });
    parsed.collect()
}

/// The grants of texts that were checked; what is none is left out.
#[must_use]
pub fn grants<'g>(texts: impl IntoIterator<Item = &'g String>) -> Arc<[Grant]> {
    let parsed = texts.into_iter().filter_map(|text| text.parse().ok());
    parsed.collect()
}

impl FromStr for Grant {
    type Err = BadGrant;

    fn from_str(given: &str) -> Result<Self, BadGrant> {
        let bad = |why: String| BadGrant {
            given: given.chars().take(80).collect(),
            why,
        };
        let Some(("http", place)) = given.split_once(':') else {
            let kind: String = given.chars().take_while(|c| *c != ':').take(20).collect();
            return Err(bad(format!(
                "there is no kind `{kind}`; valid is http:HOST[:PORT], where HOST may be *.example.com"
            )));
        };
        let (host, port) = match place.split_once(':') {
            None => (place, None),
            Some((host, text)) => {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let port = text.parse().ok().filter(|port| digits && *port > 0);
                let why = || bad(format!("the port `{text}` is none; valid are 1 to 65535"));
                (host, Some(port.ok_or_else(why)?))
            }
        };
        // Another text for the same port would be another grant.
        if port.is_some_and(|port: u16| !given.ends_with(&format!(":{port}"))) {
            return Err(bad("write the port without a zero before it".into()));
        }
        let (name, below) = match host.strip_prefix("*.") {
            Some(parent) => (parent, true),
            None => (host, false),
        };
        if !is_host(name) {
            return Err(bad(format!(
                "the host `{host}` is none; valid are names of lower-case letters, digits and `-` between dots, at most {MAX_HOST} bytes, IPv4 addresses, and *.example.com"
            )));
        }
        if below && (!name.contains('.') || name.bytes().all(|b| b == b'.' || b.is_ascii_digit())) {
            return Err(bad(format!(
                "`{host}` is too wide; a `*` stands before a name of two parts or more, like *.example.com"
            )));
        }
        if is_number(name) && name.parse::<Ipv4Addr>().is_err() {
            return Err(bad(format!(
                "`{host}` is an address in another form than requests name it; write the four numbers, like 10.0.0.1"
            )));
        }
        let name = name.to_owned();
        let host = if below {
            Hosts::Below(name)
        } else {
            Hosts::One(name)
        };
        Ok(Self::Http { host, port })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Http { host, port } = self;
        match host {
            Hosts::One(host) => write!(f, "http:{host}")?,
            Hosts::Below(parent) => write!(f, "http:*.{parent}")?,
        }
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Whether a URL takes this name for an address: its last part is a number (URL standard, section 3.6).
fn is_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_host(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= MAX_HOST && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_form() {
        for (grant, is_one) in [
            ("http:127.0.0.1", true),
            ("http:10.0.0.1:80", true),
            ("http:1.example.com", true),
            ("http:0x.example", true),
            ("http:127.1", false),
            ("http:2130706433", false),
            ("http:0x7f000001", false),
            ("http:127.0.0.01", false),
        ] {
            let parsed = grant.parse::<Grant>();
            assert_eq!(parsed.is_ok(), is_one, "{grant}: {parsed:?}");
        }
    }

    #[test]
    fn a_grant_allows_what_it_says_and_nothing_else() {
        for (given, to, at, allows) in [
            ("http:api.example.com", "api.example.com", 443, true),
            ("http:api.example.com", "API.Example.com", 80, true),
            ("http:api.example.com", "api.example.com", 8080, false),
            ("http:api.example.com", "example.com", 443, false),
            ("http:api.example.com", "x.api.example.com", 443, false),
            ("http:api.example.com:8080", "api.example.com", 8080, true),
            ("http:api.example.com:8080", "api.example.com", 443, false),
            ("http:*.example.com", "a.example.com", 443, true),
            ("http:*.example.com", "a.b.example.com", 443, true),
            ("http:*.example.com", "example.com", 443, false),
            ("http:*.example.com", ".example.com", 443, false),
            ("http:*.example.com", "evilexample.com", 443, false),
            ("http:localhost:7070", "localhost", 7070, true),
            ("http:10.0.0.7", "10.0.0.7", 80, true),
        ] {
            let grant: Grant = given.parse().expect(given);
            assert_eq!(grant.to_string(), given);
            assert_eq!(grant.allows(to, at), allows, "{given} to {to}:{at}");
        }
    }

    #[test]
    fn what_is_no_grant_is_refused_with_what_is_valid() {
        let long = format!("http:{}", "a.".repeat(126) + "ab");
        for (given, says) in [
            ("", "there is no kind ``; valid is http:HOST[:PORT]"),
            ("files:/etc", "there is no kind `files`"),
            ("http", "there is no kind `http`"),
            ("HTTP:a.b", "there is no kind `HTTP`"),
            ("http:", "the host `` is none"),
            ("http:A.b", "lower-case"),
            ("http:a..b", "is none"),
            ("http:-a.b", "is none"),
            ("http:a.b/", "is none"),
            ("http://a.b", "is none"),
            ("http:*", "is none"),
            ("http:*.com", "too wide"),
            ("http:*.0.0.1", "too wide"),
            ("http:a.*.b", "is none"),
            ("http:a.b:0", "valid are 1 to 65535"),
            ("http:a.b:65536", "valid are 1 to 65535"),
            ("http:a.b:+1", "valid are 1 to 65535"),
            ("http:a.b:080", "without a zero"),
            ("http:a.b:1:2", "valid are 1 to 65535"),
            ("http:[::1]:80", "is none"),
            (long.as_str(), "at most 253 bytes"),
        ] {
            let error = given.parse::<Grant>().expect_err(given).to_string();
            assert!(error.contains(says), "{given}: {error}");
            assert!(error.len() < 700, "a message does not repeat all of it");
        }
    }

    #[test]
    fn what_is_a_grant_is_honoured_and_what_is_none_is_named() {
        let of = |texts: &[&str]| honoured(&texts.iter().map(ToString::to_string).collect());
        assert_eq!(of(&[]).map(|grants| grants.len()), Ok(0));
        assert_eq!(
            of(&["http:a.b", "http:*.c.d:80"]).map(|grants| grants.len()),
            Ok(2)
        );
        let why = of(&["http:a.b", "files:/data"]).expect_err("none of this version");
        assert!(
            why.contains("files:/data") && why.contains("update the node"),
            "{why}"
        );
    }
}
