//! Every verb as a user types it: exit codes, messages, JSON, closed pipes, Ctrl-C.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::support::process::{Process, Setup, Signal, folder, guest, quarry, run, until};

mod deploy;
mod projects;
mod refusals;
mod sdks;

/// The error that a verb prints with `--json`.
#[track_caller]
fn error(stderr: &str) -> Value {
    let line = stderr
        .lines()
        .find(|line| line.starts_with(r#"{"error""#))
        .unwrap_or_else(|| panic!("no error in {stderr:?}"));
    serde_json::from_str::<Value>(line).expect("JSON")["error"].clone()
}

/// A URL at which nothing listens, as long as the socket lives: it has the port, and takes no connection.
fn nobody() -> (tokio::net::TcpSocket, String) {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .bind((Ipv4Addr::LOCALHOST, 0).into())
        .expect("a port");
    let url = format!("http://{}", socket.local_addr().expect("an address"));
    (socket, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_at_a_node() {
    let folder = folder();
    let node = Setup::fresh("kv", 2).start().await;
    let good = folder.path().join("good.tsv");
    let bad = folder.path().join("bad.tsv");
    std::fs::write(&good, "a\t1\nb\t2\n").expect("lines");
    std::fs::write(&bad, "c\t3\nno-value-but-a-key\n\tno key\n").expect("lines");
    let (good, bad) = (good.display().to_string(), bad.display().to_string());
    // Words, exit code, and what standard output and standard error have in them.
    let cases: &[(&[&str], i32, &str, &str)] = &[
        (
            &["call", "put", "--key", "greeting", "-d", "hello"],
            0,
            "",
            "",
        ),
        (&["call", "get", "--key", "greeting"], 0, "hello", ""),
        (
            &[
                "query", "get", "--key", "greeting", "--read", "durable", "-i",
            ],
            0,
            "hello",
            "quarry-shard: ",
        ),
        (
            &["query", "get", "--key", "nobody"],
            4,
            "",
            "there is no key `nobody` (not-found, HTTP 404)",
        ),
        (&["call", "nothing", "--key", "a"], 4, "", "unknown-method"),
        (
            &["call", "get", "--shard", "9"],
            4,
            "",
            "there is no shard 9: the cluster has 2, from 0 to 1",
        ),
        (&["call", "get"], 2, "", "--key"),
        (
            &["call", "put", "--key", "a", "--file", "no/such/file"],
            1,
            "",
            "cannot open no/such/file",
        ),
        (&["status"], 0, "2 running", ""),
        (&["shards"], 0, "running", ""),
        (&["load", "--format", "tsv", &good], 0, "2 acknowledged", ""),
        (
            &["load", "--format", "tsv", &bad],
            4,
            "1 failed",
            "line 3: bad-line: the key is empty",
        ),
        (&["load", "no/such/file"], 1, "", "cannot open no/such/file"),
        (
            &["load", "--format", "lines", "--key", "1", &good],
            2,
            "",
            "--key goes with",
        ),
    ];
    for (words, code, out, err) in cases {
        let server = ["--server", &node.url];
        let ended = run(&[*words, &server[..]].concat()).await.with(*code);
        assert!(
            ended.stdout.contains(out),
            "{words:?}: no {out:?} in {ended:#?}"
        );
        assert!(
            ended.stderr.contains(err),
            "{words:?}: no {err:?} in {ended:#?}"
        );
        // The same with JSON: data or an error, and the same exit.
        let ended = run(&[*words, &server[..], &["--json"]].concat())
            .await
            .with(*code);
        if *code == 0 {
            ended.json();
        } else if words[0] == "load" && *code == 4 {
            assert_eq!(ended.json()["failed"], 1, "{ended:#?}");
        } else if *code != 2 || words[0] == "load" {
            let error = error(&ended.stderr);
            assert!(
                error["code"].is_string()
                    && error["message"]
                        .as_str()
                        .is_some_and(|text| !text.is_empty()),
                "{error}"
            );
        }
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_without_a_node_say_that_it_is_not_there() {
    let (_socket, url) = nobody();
    let folder = folder();
    let lines = folder.path().join("lines");
    std::fs::write(&lines, "a\nb\nc\n").expect("lines");
    let lines = lines.display().to_string();
    for words in [
        &["call", "get", "--key", "a"][..],
        &["query", "get", "--key", "a"],
        &["status"],
        &["shards"],
    ] {
        let ended = run(&[words, &["--server", &url]].concat()).await.with(3);
        assert!(
            ended.stderr.starts_with("error: ") && ended.stderr.contains(&url),
            "{words:?}: {ended:#?}"
        );
        let ended = run(&[words, &["--server", &url, "--json"]].concat())
            .await
            .with(3);
        assert_eq!(error(&ended.stderr)["code"], "unreachable", "{words:?}");
    }
    let ended = run(&[
        "load",
        "--json",
        "--give-up-after",
        "2",
        "--concurrency",
        "1",
        "--server",
        &url,
        &lines,
    ])
    .await
    .with(3);
    assert_eq!(
        (
            ended.json()["ended"].as_str(),
            ended.json()["failed"].as_u64()
        ),
        (Some("gave-up"), Some(2)),
        "{ended:#?}"
    );
    assert!(
        ended.stderr.contains("\"line\":1") && ended.stderr.contains(&url),
        "{ended:#?}"
    );
    // A URL that is none is a mistake of whoever typed it.
    let ended = run(&["status", "--server", "ftp://host"]).await.with(2);
    assert!(
        ended.stderr.contains("neither http nor https"),
        "{ended:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_that_need_no_node() {
    let folder = folder();
    let store = format!("file://{}", folder.path().join("data").display());
    let kv = guest("kv").display().to_string();
    let handoff = guest("handoff").display().to_string();
    let migrate = guest("migrate").display().to_string();
    let text = folder.path().join("text.wasm");
    std::fs::write(&text, "hello").expect("a file");
    let text = text.display().to_string();
    let project = folder.path().join("no-project");
    std::fs::create_dir(&project).expect("a folder");
    let project = project.display().to_string();
    let cases: &[(&[&str], i32, &str, &str)] = &[
        (&["doctor", "--store", &store], 0, "ok", ""),
        (&["doctor", "--store", "memory:"], 0, "ok", ""),
        (
            &["doctor", "--store", "ftp://host"],
            2,
            "",
            "is unknown: expected a store URL",
        ),
        (&["config"], 0, "shards", ""),
        (&["config", "--describe"], 0, "QUARRY_LIMITS_MEMORY", ""),
        (&["config", "--set", "shard=4"], 2, "", "shard"),
        // What a start would refuse, though each key is of the right kind.
        (
            &["config", "--set", "settings.wal_enabled=false"],
            2,
            "",
            "wal_enabled",
        ),
        (&["config", "--merge-operator", "u65-add"], 2, "", "u64-add"),
        (
            &["config", "--store-option", "aws_region=eu"],
            2,
            "",
            "aws_region",
        ),
        (
            &["config", "--store", "file:///no/such/folder"],
            0,
            "/no/such/folder",
            "",
        ),
        (&["verify", &kv], 0, "queries", ""),
        (
            &["verify", &handoff],
            0,
            "handler, lifecycle, durable-events, handoff",
            "",
        ),
        (&["verify", &migrate], 0, "handler, queries, migration", ""),
        (&["verify", &text], 1, "", "text.wasm"),
        (&["verify", "no/such.wasm"], 1, "", "no/such.wasm"),
        (&["build", &project], 2, "", "quarry new NAME"),
        (&["new", "9lives"], 2, "", "9lives"),
        (&["dev", &project], 2, "", "quarry new NAME"),
    ];
    for (words, code, out, err) in cases {
        let ended = run(words).await.with(*code);
        assert!(
            ended.stdout.contains(out),
            "{words:?}: no {out:?} in {ended:#?}"
        );
        assert!(
            ended.stderr.contains(err),
            "{words:?}: no {err:?} in {ended:#?}"
        );
        let ended = run(&[words, &["--json"][..]].concat()).await.with(*code);
        match code {
            0 => _ = ended.json(),
            _ => assert!(
                error(&ended.stderr)["message"]
                    .as_str()
                    .is_some_and(|message| message.contains(err)),
                "{ended:#?}"
            ),
        }
    }
    for words in [&["--help"][..], &["--version"], &["serve", "--help"]] {
        run(words).await.with(0);
    }
    run(&["fly"]).await.with(2);
    for words in [&["fly", "--json"][..], &["call", "put", "--json"]] {
        let ended = run(words).await.with(2);
        assert_eq!(error(&ended.stderr)["code"], "usage", "{ended:#?}");
    }
    assert!(
        !Path::new("/no").exists(),
        "to show a configuration makes nothing"
    );
}

/// Whoever reads may stop reading (`| head -1`): the program ends, and it is no failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_is_no_failure() {
    let node = Setup::fresh("kv", 1).start().await;
    node.call("put", "a", &"x".repeat(1 << 20))
        .await
        .expect("put");
    for words in [
        &["--help"][..],
        &["config"],
        &["config", "--describe", "--json"],
        &["doctor", "--store", "memory:"],
        &["call", "get", "--key", "a", "--server", &node.url],
        &["status", "--json", "--server", &node.url],
        &["shards", "--server", &node.url],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut child = quarry(words)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let ended = until("the program ends", || child.try_wait().expect("a child")).await;
        let stderr = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
        assert_eq!((ended.code(), stderr.as_str()), (Some(0), ""), "{words:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_what_waits() {
    // Accepts and never answers.
    let silent = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    for words in [
        &["call", "get", "--key", "a"][..],
        &["query", "get", "--key", "a"],
        &["status"],
        &["shards"],
    ] {
        let process = Process::spawn(quarry(&[words, &["--server", &url]].concat()));
        let connection = silent.accept().await.expect("a connection");
        process.signal(Signal::Interrupt);
        let ended = process.ended().await.with(130);
        assert_eq!(ended.stderr, "error: interrupted\n", "{words:?}");
        drop(connection);
    }
    // A load whose input does not end: what was sent is waited for; the second Ctrl-C leaves it.
    let mut load = quarry(&["load", "--json", "--server", &url]);
    load.stdin(Stdio::piped());
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    load.stdin(reader);
    let load = Process::spawn(load);
    std::io::Write::write_all(&mut writer, b"a line\n").expect("a line");
    let connection = silent.accept().await.expect("a connection");
    load.signal(Signal::Interrupt);
    load.complains(|text| text.contains("waiting for 1 in progress").then_some(()))
        .await;
    load.signal(Signal::Interrupt);
    let ended = load.ended().await.with(130);
    assert_eq!(
        (
            ended.json()["ended"].as_str(),
            ended.json()["failed"].as_u64()
        ),
        (Some("interrupted"), Some(1)),
        "{ended:#?}"
    );
    let line = r#"{"code":"abandoned","line":1,"#;
    assert!(ended.stderr.contains(line), "{ended:#?}");
    drop((connection, writer));
}

/// Ctrl-C at `dev` and `build` ends the compilers, too.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_build() {
    let folder = folder();
    let pid = folder.path().join("pid");
    let toml = "[module]\npath = \"a.wasm\"\nbuild = \"echo $$ > pid; echo building >&2; sleep 600; true\"\n";
    std::fs::write(folder.path().join("quarry.toml"), toml).expect("quarry.toml");
    for verb in ["build", "dev"] {
        let process = Process::spawn(quarry(&[verb, &folder.path().display().to_string()]));
        process
            .complains(|text| text.contains("building").then_some(()))
            .await;
        process.signal(Signal::Interrupt);
        process.ended().await.with(130);
        let shell: u32 = std::fs::read_to_string(&pid)
            .expect("a pid")
            .trim()
            .parse()
            .expect("a number");
        until(&format!("process {shell} is gone"), || {
            gone(shell).then_some(())
        })
        .await;
    }
}

/// Whether a process ended; a dead one may wait for its parent to look.
fn gone(pid: u32) -> bool {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    std::fs::read_to_string(stat).map_or(true, |text| {
        text.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    })
}
