//! Web pages: which of them may make requests.
//!
//! A node on one's own machine can be reached from any page that a browser there shows, and a plain POST asks for no permission
//! first. Browsers say where a request comes from: in `Origin`, and in `Sec-Fetch-Site`. Programs send neither, and pass.

use ::http::header::{HOST, ORIGIN};
use ::http::{HeaderName, Method, Request, StatusCode};

use super::Problem;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Refuses the request of a page that is neither this node's own nor of one of the origins `allowed`; `*` allows all.
pub(super) fn check<B>(request: &Request<B>, allowed: &[String]) -> Result<(), Problem> {
    let headers = request.headers();
    let cross = headers
        .get(SITE)
        .is_some_and(|site| site.as_bytes() == b"cross-site");
    let origin = headers.get(ORIGIN);
    if !cross && origin.is_none() {
        return Ok(());
    }
    let origin = origin.map(|origin| String::from_utf8_lossy(origin.as_bytes()));
    if let Some(origin) = &origin {
        let host = request.uri().authority().map(|host| host.as_str());
        let host = host.or_else(|| headers.get(HOST)?.to_str().ok());
        if !cross && host.is_some_and(|host| is_same(origin, host)) {
            return Ok(());
        }
    }
    let is_listed = |entry: &String| {
        entry == "*"
            || origin
                .as_ref()
                .is_some_and(|origin| entry.eq_ignore_ascii_case(origin))
    };
    if allowed.iter().any(is_listed) {
        return Ok(());
    }
    // A link from another page changes nothing, and that page does not see what it leads to.
    let is_link = headers
        .get(MODE)
        .is_some_and(|mode| mode.as_bytes() == b"navigate");
    if is_link && matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    let who = origin.map_or_else(
        || "a page of another site".to_owned(),
        |origin| format!("a page of {}", origin.chars().take(128).collect::<String>()),
    );
    Err(Problem::host(
        StatusCode::FORBIDDEN,
        "forbidden-origin",
        format!(
            "{who} made this request, which is not this node's own; `http.allow_origins` lists the origins that may"
        ),
    ))
}

/// Whether an origin is at this host and port; a port that its scheme has anyway may be left out.
fn is_same(origin: &str, host: &str) -> bool {
    let Some((scheme, at)) = origin.split_once("://") else {
        return false;
    };
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let bare = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    bare(at) == bare(host)
}

/// Whether this can be an entry of `http.allow_origins`: `*`, or what browsers send, such as `https://app.example.com:8443`.
pub(crate) fn is_origin(text: &str) -> bool {
    let parsed = |text: &str| {
        url::Url::parse(text).is_ok_and(|url| {
            url.origin()
                .ascii_serialization()
                .eq_ignore_ascii_case(text)
        })
    };
    matches!(text, "*" | "null") || parsed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_others_are_refused() {
        let none: &[&str] = &[];
        for (method, headers, allowed, fine) in [
            ("POST", "", none, true),
            ("POST", "origin=http://node:7070", none, true),
            (
                "POST",
                "origin=http://NODE:7070 sec-fetch-site=same-origin",
                none,
                true,
            ),
            ("POST", "origin=http://node:7071", none, false),
            ("POST", "origin=http://node", none, false),
            ("POST", "origin=https://evil.example", none, false),
            ("POST", "origin=null", none, false),
            ("POST", "sec-fetch-site=cross-site", none, false),
            (
                "POST",
                "sec-fetch-site=cross-site sec-fetch-mode=navigate",
                none,
                false,
            ),
            ("POST", "sec-fetch-site=none", none, true),
            (
                "GET",
                "sec-fetch-site=cross-site sec-fetch-mode=no-cors",
                none,
                false,
            ),
            (
                "GET",
                "sec-fetch-site=cross-site sec-fetch-mode=navigate",
                none,
                true,
            ),
            (
                "POST",
                "origin=https://app.example sec-fetch-site=cross-site",
                &["https://app.example"],
                true,
            ),
            (
                "POST",
                "origin=https://app.example.evil",
                &["https://app.example"],
                false,
            ),
            (
                "POST",
                "origin=https://evil.example sec-fetch-site=cross-site",
                &["*"],
                true,
            ),
        ] {
            let mut request = Request::builder()
                .method(method)
                .uri("/v1/call/put?key=a")
                .header("host", "node:7070");
            for header in headers.split_whitespace() {
                let (name, value) = header.split_once('=').expect("name=value");
                request = request.header(name, value);
            }
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            let checked = check(&request.body(()).expect("request"), &allowed);
            assert_eq!(checked.is_ok(), fine, "{method} {headers} {allowed:?}");
            if let Err(problem) = checked {
                assert_eq!(
                    (problem.status.as_u16(), &*problem.code),
                    (403, "forbidden-origin")
                );
                assert!(
                    problem.detail.contains("http.allow_origins"),
                    "{}",
                    problem.detail
                );
            }
        }
    }

    #[test]
    fn a_port_that_the_scheme_has_may_be_left_out() {
        for (origin, host, same) in [
            ("https://node", "node:443", true),
            ("http://node:80", "node", true),
            ("http://node", "node:443", false),
            ("https://[::1]:7070", "[::1]:7070", true),
            ("ftp://node", "node", false),
            ("node", "node", false),
        ] {
            assert_eq!(is_same(origin, host), same, "{origin} {host}");
        }
    }

    #[test]
    fn origins_are_told_from_other_texts() {
        for good in ["*", "null", "http://localhost:3000", "https://app.example"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "",
            "localhost:3000",
            "https://app.example/",
            "https://app.example/path",
            "app.example",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
