//! The name by which a request reached this node.
//!
//! A web page can have its own name point to an address here (DNS rebinding). Its requests are then of the same origin as the page, for
//! the browser and for [`super::origin`], and only `Host` tells that the name is not this node's. An address cannot be
//! bent like that, so addresses pass.

use std::net::IpAddr;

use ::http::header::HOST;
use ::http::{Request, StatusCode};

use super::{HttpOptions, Problem};

/// Characters of a host that an error shows.
const SHOWN_CHARS: usize = 128;

/// Refuses a request for a name that is not this node's. HTTP/1.0 without a `Host` passes: no browser sends that.
pub(super) fn check<B>(request: &Request<B>, options: &HttpOptions) -> Result<(), Problem> {
    let local = options.listen.ip().to_canonical().is_loopback();
    if !local && options.hosts.is_empty() {
        return Ok(());
    }
    let authority = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => match request.headers().get(HOST) {
            Some(host) => host.to_str().unwrap_or("\u{fffd}"),
            None => return Ok(()),
        },
    };
    // A second one could be the one that a proxy looked at.
    let single = request.headers().get_all(HOST).iter().count() <= 1;
    let host = without_port(authority);
    let is_listed = |name: &String| name == "*" || name.eq_ignore_ascii_case(host);
    if single && (is_own(host, local) || options.hosts.iter().any(is_listed)) {
        return Ok(());
    }
    let shown: String = host.chars().take(SHOWN_CHARS).collect();
    let also = if local {
        "`localhost` and loopback addresses"
    } else {
        "`localhost` and addresses"
    };
    Err(Problem::host(
        StatusCode::FORBIDDEN,
        "forbidden-host",
        format!(
            "the request is for the host {shown:?}, which is no name of this node; beside {also}, `http.hosts` lists its names"
        ),
    ))
}

/// Whether a host is this node without being listed. On a loopback address other addresses make no sense.
fn is_own(host: &str, local: bool) -> bool {
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse::<IpAddr>()
        .is_ok_and(|address| !local || address.to_canonical().is_loopback())
}

/// A host as it stands in `Host`, without its port.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !is_bare_v6(authority) =>
        {
            host
        }
        _ => authority,
    }
}

/// An IPv6 address needs brackets before a port can follow.
fn is_bare_v6(authority: &str) -> bool {
    !authority.starts_with('[') && authority.matches(':').count() > 1
}

/// Whether this can be an entry of `http.hosts`: `*`, a name, or an address.
pub(crate) fn is_host(text: &str) -> bool {
    text == "*" || text.parse::<IpAddr>().is_ok() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_name_that_was_made_to_point_here_is_refused() {
        const LOOPBACK: &str = "127.0.0.1:7070";
        const ANY: &str = "0.0.0.0:7070";
        let none: &[&str] = &[];
        for (listen, hosts, host, fine) in [
            (LOOPBACK, none, "127.0.0.1:7070", true),
            (LOOPBACK, none, "127.0.0.1", true),
            (LOOPBACK, none, "127.8.9.10:1", true),
            (LOOPBACK, none, "localhost:7070", true),
            (LOOPBACK, none, "LocalHost", true),
            (LOOPBACK, none, "[::1]:7070", true),
            (LOOPBACK, none, "[::1]", true),
            (LOOPBACK, none, "[::ffff:127.0.0.1]:7070", true),
            ("[::1]:7070", none, "[::1]:7070", true),
            ("[::1]:7070", none, "evil.example:7070", false),
            (LOOPBACK, none, "evil.example:7070", false),
            (LOOPBACK, none, "evil.example", false),
            (LOOPBACK, none, "localhost.evil.example:7070", false),
            (LOOPBACK, none, "127.0.0.1.evil.example", false),
            (LOOPBACK, none, "10.0.0.7:7070", false),
            (LOOPBACK, none, "", false),
            (LOOPBACK, none, "localhost:x", false),
            // A proxy on the same machine that passes on the name it was asked for.
            (LOOPBACK, &["api.example.com"], "API.example.com:443", true),
            (LOOPBACK, &["api.example.com"], "localhost", true),
            (LOOPBACK, &["api.example.com"], "example.com", false),
            (LOOPBACK, &["*"], "evil.example", true),
            // Elsewhere nothing is known of the node's names, until some are listed.
            (ANY, none, "node-7.internal:7070", true),
            (ANY, &["node-7.internal"], "node-7.internal:7070", true),
            (ANY, &["node-7.internal"], "10.0.0.7:7070", true),
            (ANY, &["node-7.internal"], "evil.example:7070", false),
        ] {
            let mut options = HttpOptions::from(&Config::default());
            options.listen = listen.parse().expect("an address");
            options.hosts = hosts.iter().map(ToString::to_string).collect();
            let request = Request::builder().uri("/v1/call/put").header(HOST, host);
            let checked = check(&request.body(()).expect("a request"), &options);
            assert_eq!(checked.is_ok(), fine, "{listen} {hosts:?} {host:?}");
            if let Err(problem) = checked {
                assert_eq!(
                    (problem.status.as_u16(), &*problem.code),
                    (403, "forbidden-host")
                );
                assert!(
                    problem.detail.contains("http.hosts")
                        && problem.detail.contains(without_port(host)),
                    "{}",
                    problem.detail
                );
            }
        }
    }

    #[test]
    fn the_name_stands_in_one_place() {
        let options = HttpOptions::from(&Config::default());
        let of = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            check(&request.body(()).expect("a request"), &options).is_ok()
        };
        assert!(of("/", &[]), "HTTP/1.0");
        // HTTP/2 has it in the request's own address.
        assert!(of("http://localhost:7070/", &[]));
        assert!(!of("http://evil.example/", &[]));
        assert!(!of("http://evil.example/", &["localhost"]));
        assert!(!of("/", &["localhost", "evil.example"]));
    }

    #[test]
    fn names_are_told_from_other_texts() {
        for good in [
            "*",
            "localhost",
            "api.example.com",
            "node_7",
            "10.0.0.7",
            "::1",
        ] {
            assert!(is_host(good), "{good}");
        }
        for bad in [
            "",
            "a..b",
            "api.example.com:80",
            "https://api.example.com",
            "a b",
            "*.example.com",
            "[::1]",
        ] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}
