//! The parameters of a request: strict, each at most once, and an error names the parameter, its value and what is valid.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use crate::call::{Durability, Read, Target};
use crate::config::units::Span;
use crate::guest::METHOD_MAX_BYTES;

pub(super) mod terms;

/// Why a request's path or parameters are refused: the text for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(String);

impl Refused {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The parameters of a call or a query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallQuery {
    pub(super) target: Target,
    pub(super) timeout: Option<Duration>,
    pub(super) durability: Option<Durability>,
    pub(super) read: Read,
    pub(super) revision: Option<u64>,
}

/// Parameters of `POST /v1/call/...`.
const CALL: &[&str] = &[
    "key",
    "key_base64",
    "shard",
    "durability",
    "timeout",
    "revision",
];
/// Parameters of `POST /v1/query/...`.
const QUERY: &[&str] = &["key", "key_base64", "shard", "read", "timeout", "revision"];

impl CallQuery {
    /// Of a call.
    pub(super) fn call(query: &str, most: Duration) -> Result<Self, Refused> {
        Self::parse(query, CALL, most)
    }

    /// Of a query.
    pub(super) fn query(query: &str, most: Duration) -> Result<Self, Refused> {
        Self::parse(query, QUERY, most)
    }

    fn parse(query: &str, valid: &'static [&'static str], most: Duration) -> Result<Self, Refused> {
        let mut fields = Fields::parse(query, valid)?;
        Ok(Self {
            target: fields.target()?,
            timeout: fields.timeout(most)?,
            durability: fields.durability()?,
            read: fields
                .choice(
                    "read",
                    &[("applied", Read::Applied), ("durable", Read::Durable)],
                )?
                .unwrap_or_default(),
            revision: fields.number("revision", 0, u64::MAX)?,
        })
    }
}

/// The method of a call, from the rest of its path: 1 to [`METHOD_MAX_BYTES`] bytes of text without spaces and control characters. A
/// slash is part of it.
pub(super) fn method(path: &str) -> Result<String, Refused> {
    let decoded = decode(path, "the method")?;
    let bytes = decoded.len();
    if bytes == 0 {
        return Err(Refused::new(
            "the path has no method: write /v1/call/METHOD or /v1/query/METHOD",
        ));
    }
    if bytes > METHOD_MAX_BYTES {
        return Err(Refused::new(format!(
            "the method has {bytes} bytes; at most {METHOD_MAX_BYTES} are allowed"
        )));
    }
    let name = String::from_utf8(decoded.into_owned())
        .map_err(|_| Refused::new(format!("the method `{}` is not UTF-8", short(path))))?;
    if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Refused::new(format!(
            "the method `{}` has a space or a control character",
            short(path)
        )));
    }
    Ok(name)
}

/// A shard's number.
pub(super) fn shard(text: &str) -> Result<u32, Refused> {
    // `parse` alone would take a sign.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(shard) = digits.then(|| text.parse().ok()).flatten() {
        return Ok(shard);
    }
    Err(Refused::new(format!(
        "`{}` is not the number of a shard: write 0 to one less than the number of shards",
        short(text)
    )))
}

/// Refuses all parameters.
pub(super) fn none(query: &str) -> Result<(), Refused> {
    Fields::parse(query, &[]).map(|_| ())
}

/// The parameters of `GET /v1/lookup`.
pub(super) fn lookup(query: &str) -> Result<Target, Refused> {
    Fields::parse(query, &["key", "key_base64", "shard"])?.target()
}

/// The parameters of `GET /v1/status`.
pub(super) fn timeout(query: &str, most: Duration) -> Result<Option<Duration>, Refused> {
    Fields::parse(query, &["timeout"])?.timeout(most)
}

/// The parameters of `POST /v1/shards/{shard}/move`.
pub(super) fn to(query: &str, most: Duration) -> Result<(String, Option<Duration>), Refused> {
    let mut fields = Fields::parse(query, &["to", "timeout"])?;
    let to = fields.text("to")?.ok_or_else(|| {
        Refused::new("`to` is missing: give the name of a node, as `GET /v1/nodes` lists them")
    })?;
    Ok((to, fields.timeout(most)?))
}

/// The name of a node, from a path. Which names there are the cluster knows.
pub(super) fn node(path: &str) -> Result<String, Refused> {
    let name = decode(path, "the node")?;
    String::from_utf8(name.into_owned())
        .map_err(|_| Refused::new(format!("the node `{}` is not UTF-8", short(path))))
}

/// The parameters of `GET /v1/shards/{shard}/durable`.
pub(super) fn durable(query: &str, most: Duration) -> Result<(u64, Option<Duration>), Refused> {
    let mut fields = Fields::parse(query, &["seq", "timeout"])?;
    let text = fields
        .text("seq")?
        .ok_or_else(|| Refused::new("`seq` is missing: give the `quarry-seq` of a reply"))?;
    let seq = text.parse().map_err(|_| {
        Refused::new(format!(
            "seq=`{}` is not a sequence number: write a whole number, as `quarry-seq` has it",
            short(&text)
        ))
    })?;
    Ok((seq, fields.timeout(most)?))
}

/// The number of a revision, from a path.
pub(super) fn revision(text: &str) -> Result<u64, Refused> {
    number(text).filter(|number| *number > 0).ok_or_else(|| {
        Refused::new(format!(
            "`{}` is not the number of a revision: write a whole number from 1",
            short(text)
        ))
    })
}

/// The parameters of `GET /v1/revisions`: which numbers to stay below, and how many to list, 1 to `most`.
pub(super) fn revisions(query: &str, most: usize) -> Result<(Option<u64>, usize), Refused> {
    let mut fields = Fields::parse(query, &["below", "limit"])?;
    let below = fields.number("below", 1, u64::MAX)?;
    let limit = fields.number("limit", 1, most as u64)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    Ok((below, limit.unwrap_or(most)))
}

/// The parameters of `POST /v1/revisions/prune`: how many of the newest revisions stay.
pub(super) fn keep(query: &str) -> Result<Option<usize>, Refused> {
    let keep = Fields::parse(query, &["keep"])?.number("keep", 1, u64::from(u32::MAX))?;
    Ok(keep.and_then(|keep| usize::try_from(keep).ok()))
}

/// The parameters of `GET /v1/rollout`: the counter of the record that was seen, and how long to wait for another one.
pub(super) fn rollout(query: &str, most: Duration) -> Result<(Option<u64>, Duration), Refused> {
    let mut fields = Fields::parse(query, &["since", "wait"])?;
    let since = fields.number("since", 0, u64::MAX)?;
    let Some(text) = fields.text("wait")? else {
        return Ok((since, Duration::ZERO));
    };
    let Span(wait) = text
        .parse()
        .map_err(|error| Refused::new(format!("wait: {error}")))?;
    if wait > most {
        return Err(Refused::new(format!(
            "wait={} is over {}",
            short(&text),
            Span(most)
        )));
    }
    Ok((since, wait))
}

/// The parameters of `POST /v1/rollout/abort`: who wants it.
pub(super) fn by(query: &str) -> Result<String, Refused> {
    Ok(Fields::parse(query, &["by"])?
        .text("by")?
        .unwrap_or_default())
}

/// A whole number without a sign, which `parse` alone would take.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Parameters as they came, each taken out by whoever reads it.
struct Fields<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Fields<'a> {
    fn parse(query: &'a str, valid: &'static [&'static str]) -> Result<Self, Refused> {
        let mut found: Vec<(&'static str, &'a str)> = Vec::with_capacity(valid.len());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(known) = valid.iter().find(|known| **known == name) else {
                let valid = if valid.is_empty() {
                    "this route has none".into()
                } else {
                    format!("valid are {}", valid.join(", "))
                };
                return Err(Refused::new(format!(
                    "there is no parameter `{}`; {valid}",
                    short(name)
                )));
            };
            if found.iter().any(|(name, _)| name == known) {
                return Err(Refused::new(format!(
                    "the parameter `{known}` is given more than once"
                )));
            }
            found.push((known, value));
        }
        Ok(Self(found))
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn text(&mut self, name: &'static str) -> Result<Option<String>, Refused> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let bytes = decode_form(value, name)?;
        let text = String::from_utf8(bytes.into_owned())
            .map_err(|_| Refused::new(format!("{name}=`{}` is not UTF-8", short(value))))?;
        Ok(Some(text))
    }

    fn number(
        &mut self,
        name: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, Refused> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        let found = number(text).filter(|number| (least..=most).contains(number));
        found.map(Some).ok_or_else(|| {
            Refused::new(format!(
                "{name}=`{}` is not a whole number from {least} to {most}",
                short(text)
            ))
        })
    }

    fn target(&mut self) -> Result<Target, Refused> {
        match (
            self.take("key"),
            self.take("key_base64"),
            self.take("shard"),
        ) {
            (Some(key), None, None) => Ok(Target::Key(routing_key(Bytes::copy_from_slice(
                &decode_form(key, "key")?,
            ))?)),
            (None, Some(key), None) => Ok(Target::Key(routing_key(
                base64(&decode_form(key, "key_base64")?)?.into(),
            )?)),
            (None, None, Some(text)) => Ok(Target::Shard(shard(text)?)),
            (None, None, None) => Err(Refused::new(
                "say where it goes: `key`, `key_base64` or `shard` is missing",
            )),
            _ => Err(Refused::new(
                "give only one of `key`, `key_base64` and `shard`",
            )),
        }
    }

    fn durability(&mut self) -> Result<Option<Durability>, Refused> {
        self.choice(
            "durability",
            &[
                ("durable", Durability::Durable),
                ("applied", Durability::Applied),
            ],
        )
    }

    fn timeout(&mut self, most: Duration) -> Result<Option<Duration>, Refused> {
        let Some(text) = self.text("timeout")? else {
            return Ok(None);
        };
        let timeout = text
            .parse::<Span>()
            .map_err(|error| Refused::new(format!("timeout: {error}")))?
            .0;
        if timeout < Duration::from_millis(1) || timeout > most {
            return Err(Refused::new(format!(
                "timeout={} is not within 1ms and {} (`call.max_timeout`)",
                short(&text),
                Span(most)
            )));
        }
        Ok(Some(timeout))
    }

    fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        let found = choices.iter().find(|(choice, _)| *choice == text);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let valid: Vec<_> = choices
                .iter()
                .map(|(choice, _)| format!("`{choice}`"))
                .collect();
            Refused::new(format!(
                "{name}=`{}` is not one of {}",
                short(text),
                valid.join(" and ")
            ))
        })
    }
}

fn routing_key(key: Bytes) -> Result<Bytes, Refused> {
    if key.is_empty() {
        return Err(Refused::new(
            "the key is empty; to call a shard without a key, give `shard`",
        ));
    }
    Ok(key)
}

/// Percent-decoding; `+` is itself, as in a path.
fn decode<'a>(text: &'a str, what: &str) -> Result<Cow<'a, [u8]>, Refused> {
    percent(text, what, b'+')
}

/// Percent-decoding of a parameter; `+` is a space, as every form and most clients have it, and `%2B` a plus.
fn decode_form<'a>(text: &'a str, what: &str) -> Result<Cow<'a, [u8]>, Refused> {
    percent(text, what, b' ')
}

fn percent<'a>(text: &'a str, what: &str, plus: u8) -> Result<Cow<'a, [u8]>, Refused> {
    let bytes = text.as_bytes();
    if !bytes
        .iter()
        .any(|b| *b == b'%' || (*b == b'+' && plus != b'+'))
    {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => out.push(plus),
            b'%' => {
                let value = match tail {
                    [high, low, ..] => hex(*high).zip(hex(*low)),
                    _ => None,
                };
                let Some((high, low)) = value else {
                    let at = bytes.len() - tail.len() - 1;
                    return Err(Refused::new(format!(
                        "{what}: the % at byte {at} is not followed by two hex digits; a percent sign is written %25"
                    )));
                };
                out.push(high << 4 | low);
                rest = &tail[2..];
            }
            other => out.push(*other),
        }
    }
    Ok(Cow::Owned(out))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// Base64 in the standard or the URL alphabet, with or without padding. A space counts as the `+` that it was before decoding.
fn base64(text: &[u8]) -> Result<Vec<u8>, Refused> {
    let padding = text
        .iter()
        .rev()
        .take(2)
        .take_while(|b| **b == b'=')
        .count();
    let digits = &text[..text.len() - padding];
    let refused = || {
        Refused::new(format!(
            "key_base64=`{}` is not base64",
            short(&String::from_utf8_lossy(text))
        ))
    };
    if digits.len() % 4 == 1 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return Err(refused());
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' | b' ' => 62,
                b'/' | b'_' => 63,
                _ => return Err(refused()),
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        let [_, bytes @ ..] = bits.to_be_bytes();
        // Bits after the last whole byte have to be zero: otherwise two texts would be the same key.
        let (whole, left) = bytes.split_at(group.len() - 1);
        if left.iter().any(|byte| *byte != 0) {
            return Err(refused());
        }
        out.extend_from_slice(whole);
    }
    Ok(out)
}

/// At most 64 characters of a text for a message.
fn short(text: &str) -> String {
    let mut cut: String = text.chars().take(64).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(600);

    #[test]
    fn parameters_of_a_call() {
        let key = |key: &[u8]| Target::Key(Bytes::copy_from_slice(key));
        for (query, target, durability, timeout) in [
            ("key=a", key(b"a"), None, None),
            (
                "key=user%2F1&durability=applied",
                key(b"user/1"),
                Some(Durability::Applied),
                None,
            ),
            ("key=a+b%2Bc", key(b"a b+c"), None, None),
            ("key=%00%ff", key(b"\x00\xff"), None, None),
            ("key_base64=AP8", key(b"\x00\xff"), None, None),
            ("key_base64=AP8%3D", key(b"\x00\xff"), None, None),
            ("key_base64=-_-_", key(b"\xfb\xff\xbf"), None, None),
            ("key_base64=+/+/", key(b"\xfb\xff\xbf"), None, None),
            ("shard=0&timeout=500ms", Target::Shard(0), None, Some(500)),
            (
                "&shard=4294967295&&timeout=5s&durability=durable",
                Target::Shard(u32::MAX),
                Some(Durability::Durable),
                Some(5000),
            ),
        ] {
            let expected = CallQuery {
                target,
                durability,
                read: Read::Applied,
                timeout: timeout.map(Duration::from_millis),
                revision: None,
            };
            assert_eq!(CallQuery::call(query, MOST), Ok(expected), "{query}");
        }
        let read = CallQuery::query("shard=1&read=durable", MOST).map(|query| query.read);
        assert_eq!(read, Ok(Read::Durable));
        for (query, revision) in [("shard=1", None), ("shard=1&revision=7", Some(7))] {
            let of_call = CallQuery::call(query, MOST).map(|query| query.revision);
            let of_query = CallQuery::query(query, MOST).map(|query| query.revision);
            assert_eq!((of_call, of_query), (Ok(revision), Ok(revision)), "{query}");
        }
    }

    #[test]
    fn parameters_of_deployments() {
        let hour = Duration::from_secs(3600);
        assert_eq!(revision("7"), Ok(7));
        assert_eq!(revisions("", 100), Ok((None, 100)));
        assert_eq!(revisions("below=7&limit=2", 100), Ok((Some(7), 2)));
        assert_eq!(keep("keep=3"), Ok(Some(3)));
        assert_eq!(rollout("", hour), Ok((None, Duration::ZERO)));
        let second = Duration::from_secs(1);
        assert_eq!(rollout("since=0&wait=1s", hour), Ok((Some(0), second)));
        assert_eq!(by("by=ann%40box"), Ok("ann@box".into()));
        let errors = [
            (revision("0").err(), "`0` is not the number of a revision"),
            (revision("+1").err(), "is not the number of a revision"),
            (revisions("limit=0", 100).err(), "from 1 to 100"),
            (revisions("limit=101", 100).err(), "from 1 to 100"),
            (revisions("below=-1", 100).err(), "is not a whole number"),
            (keep("keep=0").err(), "from 1"),
            (rollout("wait=2h", hour).err(), "wait=2h is over 60m"),
            (rollout("wait=soon", hour).err(), "is not a duration"),
            (rollout("since=x", hour).err(), "is not a whole number"),
        ];
        for (error, says) in errors {
            let error = error.expect(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, part) in [
            ("", "`key`, `key_base64` or `shard` is missing"),
            ("key=a&shard=1", "only one of"),
            ("key=a&key_base64=AP8", "only one of"),
            ("key=a&key=b", "`key` is given more than once"),
            ("key=", "the key is empty"),
            ("key", "the key is empty"),
            ("key_base64=", "the key is empty"),
            ("key=%", "the % at byte 0"),
            ("key=ab%4", "the % at byte 2"),
            ("key=ab%4gx", "the % at byte 2"),
            ("key_base64=A", "not base64"),
            ("key_base64=AP9", "not base64"),
            ("key_base64=A===", "not base64"),
            ("key_base64=AP8==", "not base64"),
            ("key_base64=A*==", "not base64"),
            ("shard=", "`` is not the number of a shard"),
            ("shard=-1", "`-1` is not the number of a shard"),
            ("shard=+1", "`+1` is not the number of a shard"),
            (
                "shard=4294967296",
                "`4294967296` is not the number of a shard",
            ),
            ("shard=1.0", "`1.0`"),
            (
                "shard=1&durability=eventual",
                "durability=`eventual` is not one of `durable` and `applied`",
            ),
            ("shard=1&durability=", "durability=`` is not one of"),
            ("shard=1&timeout=5", "timeout: \"5\" is not a duration"),
            ("shard=1&timeout=0s", "timeout=0s is not within 1ms and 10m"),
            (
                "shard=1&timeout=601s",
                "timeout=601s is not within 1ms and 10m (`call.max_timeout`)",
            ),
            ("shard=1&timeout=%ff", "timeout=`%ff` is not UTF-8"),
            (
                "shard=1&read=durable",
                "there is no parameter `read`; valid are key, key_base64, shard, durability, timeout, revision",
            ),
            ("shard=1&revision=+2", "revision=`+2` is not a whole number"),
            ("shard=1&revision=", "revision=`` is not a whole number"),
            ("Shard=1", "there is no parameter `Shard`"),
        ] {
            let refused = CallQuery::call(query, MOST).expect_err(query).to_string();
            assert!(refused.contains(part), "{query}: {refused}");
        }
        assert_eq!(
            none("a=1").expect_err("refused").to_string(),
            "there is no parameter `a`; this route has none"
        );
        assert!(
            durable("timeout=1s", MOST)
                .expect_err("refused")
                .to_string()
                .contains("`seq` is missing")
        );
        assert!(
            durable("seq=x", MOST)
                .expect_err("refused")
                .to_string()
                .contains("seq=`x`")
        );
        assert_eq!(
            durable("seq=18446744073709551615&timeout=1s", MOST),
            Ok((u64::MAX, Some(Duration::from_secs(1))))
        );
        let long = CallQuery::call(&"x".repeat(10_000), MOST)
            .expect_err("refused")
            .to_string();
        assert!(
            long.len() < 300,
            "a message does not repeat all of a hostile text"
        );
    }

    #[test]
    fn methods() {
        for (path, name) in [
            ("put", "put"),
            ("main/put", "main/put"),
            ("gr%C3%B6%C3%9Fe", "größe"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(method(path).as_deref(), Ok(name));
        }
        let long = "m".repeat(METHOD_MAX_BYTES);
        assert_eq!(method(&long).as_deref(), Ok(long.as_str()));
        for (path, part) in [
            ("", "no method"),
            ("a%20b", "a space"),
            ("a%00", "control character"),
            ("%ff", "not UTF-8"),
            ("%f", "two hex digits"),
            (&format!("{long}m"), "129 bytes; at most 128"),
        ] {
            let refused = method(path).expect_err(path).to_string();
            assert!(refused.contains(part), "{path}: {refused}");
        }
    }
}
