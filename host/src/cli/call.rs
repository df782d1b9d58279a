//! `quarry call` and `quarry query`: one request, its reply's bytes as they are.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read as _};
use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};

use super::args::{self, Request};
use super::{Error, Exit, Output, shards};
use crate::call::{Durability, Read, Target};
use crate::client::{self, Client, Reply};
use crate::config::units::{Size, Span};

/// The largest payload that is read from a file or from standard input, in bytes: the largest that `http.max_body` allows.
const PAYLOAD_MAX_BYTES: u64 = 1 << 30;

/// Makes a call.
pub(super) async fn call(args: args::Call, out: Output) -> Result<Exit, Error> {
    let durability = args.durability.map(|durability| match durability {
        args::Durability::Applied => Durability::Applied,
        args::Durability::Durable => Durability::Durable,
    });
    let (client, call, include) = prepare(args.request).await?;
    let reply = interruptible(client.call(call, durability)).await?;
    show(&reply, include, out)
}

/// Asks a query.
pub(super) async fn query(args: args::Query, out: Output) -> Result<Exit, Error> {
    let read = match args.read {
        args::Read::Applied => Read::Applied,
        args::Read::Durable => Read::Durable,
    };
    let (client, call, include) = prepare(args.request).await?;
    let reply = interruptible(client.query(call, read)).await?;
    show(&reply, include, out)
}

/// Waits for a request, or for Ctrl-C.
pub(super) async fn interruptible<T>(
    request: impl Future<Output = Result<T, client::Error>>,
) -> Result<T, Error> {
    tokio::select! {
        // The signal first: it is watched for before anything is sent.
        biased;
        _ = tokio::signal::ctrl_c() => Err(Error::Interrupted),
        outcome = request => Ok(outcome?),
    }
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Self {
        let text = error.to_string();
        match error {
            client::Error::Url { .. } | client::Error::TooLong { .. } => Self::Usage(text),
            client::Error::Unreachable { .. }
            | client::Error::Lost { .. }
            | client::Error::Timeout { .. } => Self::Unreachable(text),
            client::Error::Refused(_) => Self::Refused(error),
            client::Error::Foreign { .. } => Self::Failed(text),
        }
    }
}

async fn prepare(request: Request) -> Result<(Client, client::Call, bool), Error> {
    let client = Client::new(&request.server.server)?;
    let payload = match (request.payload.data, &request.payload.file) {
        (Some(text), _) => text.into(),
        (None, Some(file)) => read(file)?,
        (None, None) => Bytes::new(),
    };
    let headers = request
        .header
        .into_iter()
        .map(|header| (header.name, header.value))
        .collect();
    let revision = request.target.revision;
    // Last, so that it is still so when the call gets there.
    let target = match (request.target.key, request.target.shard, revision) {
        (Some(key), None, _) => Target::key(key),
        (None, Some(shard), _) => Target::Shard(shard),
        (None, None, Some(revision)) => {
            let shards = shards::listed(&client).await?;
            Target::Shard(running(&shards, revision)?)
        }
        _ => {
            let text = "give one of --key and --shard, or --revision for a shard that runs it";
            return Err(Error::Usage(text.into()));
        }
    };
    let (method, timeout) = (request.method, request.timeout.map(|Span(timeout)| timeout));
    Ok((
        client,
        client::Call {
            method,
            target,
            payload,
            timeout,
            headers,
            revision,
        },
        request.include,
    ))
}

/// The first shard that serves calls by a revision.
fn running(shards: &[Value], revision: u64) -> Result<u32, Error> {
    let serves = |shard: &&Value| shard["status"] == "running" && shard["revision"] == revision;
    let first = shards.iter().find(serves);
    if let Some(shard) = first.and_then(|shard| u32::try_from(shard["shard"].as_u64()?).ok()) {
        return Ok(shard);
    }
    let mut run: BTreeMap<u64, usize> = BTreeMap::new();
    for revision in shards.iter().filter_map(|shard| shard["revision"].as_u64()) {
        *run.entry(revision).or_default() += 1;
    }
    let run: Vec<String> = run
        .iter()
        .map(|(revision, count)| format!("revision {revision} on {count}"))
        .collect();
    let run = if run.is_empty() {
        "none of them has a guest".into()
    } else {
        run.join(", ")
    };
    Err(Error::NoShard(format!(
        "no shard serves calls by revision {revision}, and nothing was sent; of the cluster's {} shards: {run}",
        shards.len()
    )))
}

/// Reads a payload, within a bound.
fn read(file: &Path) -> Result<Bytes, Error> {
    let (name, mut input): (_, Box<dyn std::io::Read>) = if file == Path::new("-") {
        (
            "standard input".to_owned(),
            Box::new(std::io::stdin().lock()),
        )
    } else {
        let name = file.display().to_string();
        let input = std::fs::File::open(file).map_err(|source| Error::Io {
            what: format!("cannot open {name}"),
            source,
        })?;
        (name, Box::new(input))
    };
    let mut bytes = Vec::new();
    input
        .by_ref()
        .take(PAYLOAD_MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::Io {
            what: format!("cannot read {name}"),
            source,
        })?;
    if bytes.len() as u64 > PAYLOAD_MAX_BYTES {
        return Err(Error::Usage(format!(
            "{name} is larger than {}, the largest payload that a node can be set to accept",
            Size(PAYLOAD_MAX_BYTES)
        )));
    }
    Ok(bytes.into())
}

fn show(reply: &Reply, include: bool, out: Output) -> Result<Exit, Error> {
    if include {
        for (name, value) in &reply.headers {
            out.note(&format!(
                "{name}: {}",
                String::from_utf8_lossy(value.as_bytes())
            ));
        }
        out.note("");
    }
    if out.json {
        out.json(&as_json(reply))?;
        return Ok(Exit::Done);
    }
    out.bytes(&reply.payload)?;
    // A prompt should not stick to the reply; what is redirected stays as it is.
    if std::io::stdout().is_terminal() && reply.payload.last().is_some_and(|byte| *byte != b'\n') {
        out.bytes(b"\n")?;
    }
    Ok(Exit::Done)
}

fn as_json(reply: &Reply) -> Value {
    let number = |name| reply.header(name).and_then(|text| text.parse::<u64>().ok());
    let mut value = json!({
        "shard": number("quarry-shard"),
        "seq": number("quarry-seq"),
        "revision": number("quarry-revision"),
        "node": reply.header("quarry-node"),
        "content_type": reply.header("content-type"),
    });
    match std::str::from_utf8(&reply.payload) {
        Ok(text) => value["payload"] = text.into(),
        Err(_) => value["payload_base64"] = base64(&reply.payload).into(),
    }
    value
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_as_json() {
        let mut headers = http::HeaderMap::new();
        for (name, value) in [
            ("quarry-shard", "3"),
            ("quarry-seq", "17"),
            ("quarry-revision", "2"),
            ("quarry-node", "n1"),
            ("content-type", "text/plain"),
        ] {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        let text = as_json(&Reply {
            payload: "42".into(),
            headers: headers.clone(),
        });
        assert_eq!(
            text,
            json!({"shard": 3, "seq": 17, "revision": 2, "node": "n1", "content_type": "text/plain", "payload": "42"})
        );
        let bytes = as_json(&Reply {
            payload: Bytes::from_static(b"\xff\x00"),
            headers,
        });
        assert_eq!(bytes["payload_base64"], "/wA=");
        assert_eq!(bytes.get("payload"), None);
    }

    #[test]
    fn a_shard_that_runs_a_revision() {
        let shard = |shard, status, revision: Option<u64>| json!({"shard": shard, "status": status, "revision": revision});
        let shards = [
            shard(0, "running", Some(1)),
            shard(1, "swapping", Some(2)),
            shard(2, "running", Some(2)),
            shard(3, "running", Some(2)),
            shard(4, "unassigned", None),
        ];
        assert_eq!(running(&shards, 1).expect("one"), 0);
        assert_eq!(running(&shards, 2).expect("one"), 2);
        let error = running(&shards, 3).expect_err("none");
        assert_eq!(
            (error.code(), error.exit()),
            ("wrong-revision", Exit::Refused)
        );
        let text = error.to_string();
        let says = "of the cluster's 5 shards: revision 1 on 1, revision 2 on 3";
        assert!(text.contains(says), "{text}");
        let error = running(&shards[4..], 3).expect_err("none").to_string();
        assert!(error.ends_with("none of them has a guest"), "{error}");
    }

    #[test]
    fn base64_of_every_length() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_payload_file_that_is_not_there_is_named() {
        let error = read(Path::new("no/such/file")).expect_err("not there");
        assert!(
            error.to_string().contains("cannot open no/such/file"),
            "{error}"
        );
    }
}
