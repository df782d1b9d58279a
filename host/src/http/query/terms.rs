//! The terms of a request under `/http`. Its path and parameters are the guest's, so they stand in headers, in the same words as
//! the parameters of a call.

use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::{Fields, Refused, routing_key, shard, short};
use crate::call::{Durability, Target};

/// Where the request goes.
pub(in crate::http) const SHARD: HeaderName = HeaderName::from_static("quarry-shard");
/// Where the request goes.
pub(in crate::http) const KEY: HeaderName = HeaderName::from_static("quarry-key");
const MODULE: HeaderName = HeaderName::from_static("quarry-module");
const DURABILITY: HeaderName = HeaderName::from_static("quarry-durability");
const TIMEOUT: HeaderName = HeaderName::from_static("quarry-timeout");
const REVISION: HeaderName = HeaderName::from_static("quarry-revision");

/// All of them, which the guest does not get; but for the key, which it gets in a form of its own.
pub(in crate::http) const OURS: [HeaderName; 6] =
    [SHARD, KEY, MODULE, DURABILITY, TIMEOUT, REVISION];

/// How a request is run.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct Terms {
    /// Where to, if a header says so.
    pub(in crate::http) target: Option<Target>,
    pub(in crate::http) module: Option<String>,
    pub(in crate::http) durability: Option<Durability>,
    pub(in crate::http) timeout: Option<Duration>,
    pub(in crate::http) revision: Option<u64>,
}

impl Terms {
    /// Those of a request with these headers.
    pub(in crate::http) fn of(headers: &HeaderMap, most: Duration) -> Result<Self, Refused> {
        let target = match (one(headers, &SHARD)?, one(headers, &KEY)?) {
            (None, None) => None,
            (Some(number), None) => Some(Target::Shard(shard(text(&SHARD, number)?)?)),
            // Any bytes that a header can have, as they are.
            (None, Some(key)) => Some(Target::Key(routing_key(key.as_bytes().to_vec().into())?)),
            (Some(_), Some(_)) => {
                return Err(Refused::new(
                    "give only one of the headers `quarry-shard` and `quarry-key`",
                ));
            }
        };
        let module = match one(headers, &MODULE)? {
            None => None,
            Some(name) => Some(text(&MODULE, name)?.to_owned()),
        };
        let mut fields = Fields(Vec::new());
        let words = [
            (&DURABILITY, "durability"),
            (&TIMEOUT, "timeout"),
            (&REVISION, "revision"),
        ];
        for (name, word) in words {
            if let Some(value) = one(headers, name)? {
                fields.0.push((word, text(name, value)?));
            }
        }
        let of = |name: &HeaderName| {
            let name = name.clone();
            move |refused: Refused| Refused::new(format!("the header `{name}`: {refused}"))
        };
        Ok(Self {
            target,
            module,
            durability: fields.durability().map_err(of(&DURABILITY))?,
            timeout: fields.timeout(most).map_err(of(&TIMEOUT))?,
            revision: fields
                .number("revision", 0, u64::MAX)
                .map_err(of(&REVISION))?,
        })
    }
}

/// Where a path says that it goes: `shard/N/rest` or `key/K/rest`, without the slash before. With what of it the guest does not see.
pub(in crate::http) fn prefix(path: &str) -> Result<Option<(Target, &str)>, Refused> {
    let Some((kind, rest)) = path.split_once('/') else {
        return Ok(None);
    };
    let place = rest.split('/').next().unwrap_or_default();
    let target = match kind {
        "shard" => Target::Shard(shard(place)?),
        "key" => {
            let key = super::decode(place, "the key")?;
            Target::Key(routing_key(key.into_owned().into())?)
        }
        _ => return Ok(None),
    };
    Ok(Some((target, &path[..kind.len() + 1 + place.len()])))
}

fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, Refused> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Refused::new(format!(
            "the header `{name}` is given more than once"
        ))),
        (value, None) => Ok(value),
    }
}

fn text<'h>(name: &HeaderName, value: &'h HeaderValue) -> Result<&'h str, Refused> {
    value.to_str().map_err(|_| {
        let value = String::from_utf8_lossy(value.as_bytes());
        Refused::new(format!(
            "the header `{name}` is {:?}, which is no plain text",
            short(&value)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(600);

    fn headers(fields: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().expect("a name");
            headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn headers_say_where_and_how() {
        let none = Terms {
            target: None,
            module: None,
            durability: None,
            timeout: None,
            revision: None,
        };
        assert_eq!(Terms::of(&headers(&[]), MOST), Ok(none));
        let all = headers(&[
            ("quarry-key", b"a/b %41\xff"),
            ("quarry-module", b"web"),
            ("quarry-durability", b"applied"),
            ("quarry-timeout", b"5s"),
            ("quarry-revision", b"7"),
        ]);
        let terms = Terms {
            target: Some(Target::key(&b"a/b %41\xff"[..])),
            module: Some("web".into()),
            durability: Some(Durability::Applied),
            timeout: Some(Duration::from_secs(5)),
            revision: Some(7),
        };
        assert_eq!(Terms::of(&all, MOST), Ok(terms));
        let shard = Terms::of(&headers(&[("quarry-shard", b"3")]), MOST).map(|t| t.target);
        assert_eq!(shard, Ok(Some(Target::Shard(3))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, says) in [
            (
                &[("quarry-shard", &b"1"[..]), ("quarry-key", b"a")][..],
                "only one of",
            ),
            (
                &[("quarry-shard", b"1"), ("quarry-shard", b"1")],
                "`quarry-shard` is given more than once",
            ),
            (&[("quarry-shard", b"-1")], "`-1` is not the number"),
            (&[("quarry-shard", b"\xff")], "no plain text"),
            (&[("quarry-key", b"")], "the key is empty"),
            (
                &[("quarry-durability", b"eventual")],
                "the header `quarry-durability`: durability=`eventual` is not one of",
            ),
            (
                &[("quarry-timeout", b"1h")],
                "the header `quarry-timeout`: timeout=1h is not within",
            ),
            (&[("quarry-revision", b"x")], "the header `quarry-revision`"),
        ] {
            let refused = Terms::of(&headers(fields), MOST)
                .expect_err(says)
                .to_string();
            assert!(refused.contains(says), "{fields:?}: {refused}");
        }
    }

    #[test]
    fn a_path_says_where() {
        for (path, expected) in [
            ("", None),
            ("shard", None),
            ("other/3/a", None),
            ("shard/3", Some((Target::Shard(3), "shard/3"))),
            ("shard/3/a/b", Some((Target::Shard(3), "shard/3"))),
            (
                "key/a%2Fb%00/c",
                Some((Target::key(&b"a/b\0"[..]), "key/a%2Fb%00")),
            ),
            ("key/a+b", Some((Target::key("a+b"), "key/a+b"))),
        ] {
            assert_eq!(prefix(path), Ok(expected), "{path}");
        }
        for (path, says) in [
            ("shard/", "is not the number"),
            ("shard/x/y", "`x` is not the number"),
            ("key/", "the key is empty"),
            ("key//a", "the key is empty"),
            ("key/%", "the key: the %"),
        ] {
            let refused = prefix(path).expect_err(path).to_string();
            assert!(refused.contains(says), "{path}: {refused}");
        }
    }
}
