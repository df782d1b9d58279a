//! Several processes on one folder, through the doors that their users have: any node answers for all, and an operator moves what is where.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quarry::call::Target;
use quarry::client;
use serde_json::Value;

use crate::support::process::{
    DEADLINE, Node, Process, Setup, Signal, call, folder, guest, quarry, run,
};

const SHARDS: u32 = 6;
const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// How long a move may take.
const PATIENCE: &str = "90s";

/// The lease of a node that nobody kills: longer than a machine that does other things at the same time may stall.
const LASTING: &str = "15s";
/// The lease of a node that somebody does.
const SHORT: &str = "6s";
/// How often nodes look at each other: by a third of the longer lease, every move would wait for seconds.
const ROUND: &str = "lease.interval=2s";

/// A node of these tests; each of its own name.
fn setup(data: &std::path::Path, name: &str, ttl: &str) -> Setup {
    let setup = Setup::in_folder("counter", data, SHARDS).named(name);
    setup.with(&[
        "--strategy",
        "lease",
        "--lease-ttl",
        ttl,
        "--set",
        ROUND,
        "--set",
        "call.park=60s",
    ])
}

async fn started(data: &std::path::Path, ttl: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in NAMES {
        nodes.push(setup(data, name, ttl).start().await);
    }
    balanced(&nodes).await;
    nodes
}

/// Waits until every node has its share, and all of it runs.
async fn balanced(nodes: &[Node]) {
    let share = SHARDS as u64 / nodes.len() as u64;
    let even = async {
        loop {
            let mut even = true;
            for node in nodes {
                let status = node.client.status().await.expect("a status");
                let members = status["nodes"].as_array().cloned().unwrap_or_default();
                let live: Vec<_> = members
                    .iter()
                    .filter(|member| member["state"] == "live")
                    .collect();
                even &= status["ready"] == true
                    && live.len() == nodes.len()
                    && live.iter().all(|member| member["shards"] == share);
            }
            if even {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(120), even).await;
    in_time.expect("the nodes share the shards");
}

async fn increment(node: &Node, shard: u32) -> Result<client::Reply, client::Error> {
    let call = client::Call {
        method: "increment".into(),
        target: Target::key(key(shard)),
        payload: "".into(),
        timeout: Some(Duration::from_secs(60)),
        headers: Vec::new(),
        revision: None,
    };
    node.client.call(call, None).await
}

/// A key of a shard.
fn key(shard: u32) -> String {
    (0..)
        .map(|n| format!("key-{n}"))
        .find(|key| quarry_core::hash::shard_for(key.as_bytes(), SHARDS) == shard)
        .expect("there is one")
}

/// The node that has a shard, as a node says.
async fn owner(node: &Node, shard: u32) -> String {
    let report = node.client.get(&format!("/v1/shards/{shard}")).await;
    let report = report.expect("a report");
    report["node"].as_str().unwrap_or("nobody").to_owned()
}

/// Increments keys of all shards through all nodes until it is told to stop; gives how often each was. Any call that fails ends the test.
fn load(nodes: &Arc<Vec<Node>>, stop: &Arc<AtomicBool>) -> Vec<tokio::task::JoinHandle<u64>> {
    let via = |via: usize| {
        let (nodes, stop) = (nodes.clone(), stop.clone());
        async move {
            let mut counts = 0;
            while !stop.load(Ordering::Acquire) {
                for shard in 0..SHARDS {
                    let reply = increment(&nodes[via], shard).await;
                    reply.unwrap_or_else(|error| {
                        panic!("shard {shard} via {}: {error}", NAMES[via])
                    });
                }
                counts += 1;
            }
            counts
        }
    };
    (0..nodes.len())
        .map(|node| tokio::spawn(via(node)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_for_all_and_an_operator_moves_shards_under_load() {
    let folder = folder();
    let nodes = Arc::new(started(&folder.path().join("data"), LASTING).await);
    // The same reply from everywhere: it names the node that ran it.
    for shard in 0..SHARDS {
        let has = owner(&nodes[0], shard).await;
        for (count, node) in nodes.iter().enumerate() {
            let reply = increment(node, shard).await.expect("a reply");
            assert_eq!(reply.payload, (count + 1).to_string());
            assert_eq!(reply.header("quarry-node"), Some(&*has));
            assert_eq!(reply.header("quarry-shard"), Some(&*shard.to_string()));
            for header in ["quarry-seq", "quarry-revision", "content-type"] {
                assert!(reply.header(header).is_some(), "{header}");
            }
            let seq = reply.header("quarry-seq").expect("a seq");
            let durable = format!("/v1/shards/{shard}/durable?seq={seq}");
            let durable = node.client.get(&durable).await.expect("durable");
            assert_eq!(durable["durable"], true);
        }
        // So are errors.
        let mut errors = Vec::new();
        for node in nodes.iter() {
            let error = node.call("no-such-method", &key(shard), "").await;
            errors.push(error.expect_err("unknown").to_string());
        }
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    }
    let metrics = reqwest::get(format!("{}/metrics", nodes[0].url)).await;
    let metrics = metrics.expect("metrics").text().await.expect("text");
    assert!(
        metrics.contains(r#"quarry_calls_remote_total{cluster="quarry",outcome="answered"}"#),
        "{metrics}"
    );

    // Whatever is moved while everything is called, no call fails.
    let stop = Arc::new(AtomicBool::new(false));
    let load = load(&nodes, &stop);
    let url = &*nodes[0].url;
    for (shard, to) in [("0", "n2"), ("0", "n3"), ("5", "n1")] {
        let moved = run(&[
            "shard",
            "move",
            shard,
            "--to",
            to,
            "--timeout",
            PATIENCE,
            "--server",
            url,
            "--json",
        ])
        .await;
        let report = moved.with(0).json();
        assert_eq!(
            (&report["node"], &report["status"]),
            (&to.into(), &"running".into())
        );
        // The other may have got there by itself, to balance the first.
        if shard == "0" {
            assert_eq!(
                (&report["pinned"], &report["why"]),
                (&true.into(), &"moved by an operator".into()),
                "{report:#}"
            );
        }
    }
    run(&[
        "node",
        "drain",
        "n3",
        "--timeout",
        PATIENCE,
        "--server",
        url,
    ])
    .await
    .with(0);
    for shard in 0..SHARDS {
        assert_ne!(owner(&nodes[2], shard).await, "n3");
    }
    // The others read of it in their next round.
    let draining = async {
        while !run(&["nodes", "--server", url])
            .await
            .with(0)
            .stdout
            .contains("draining")
        {}
    };
    let known = tokio::time::timeout(Duration::from_secs(30), draining).await;
    known.expect("n3 is known to be draining");
    // The last one keeps its shards: nobody would have them.
    let drain = |name| {
        [
            "node",
            "drain",
            name,
            "--timeout",
            PATIENCE,
            "--server",
            url,
        ]
    };
    run(&drain("n2")).await.with(0);
    let refused = run(&drain("n1")).await.with(4);
    assert!(
        refused.stderr.contains("no node but `n1` takes shards"),
        "{refused:#?}"
    );
    // n1 may come to know a little later than the command, which asks n2, that all are its own now.
    let taken = async {
        for shard in 0..SHARDS {
            while owner(&nodes[0], shard).await != "n1" {}
        }
    };
    let taken = tokio::time::timeout(Duration::from_secs(30), taken).await;
    taken.expect("n1 has all shards");
    for name in ["n2", "n3"] {
        run(&["node", "uncordon", name, "--server", url])
            .await
            .with(0);
    }
    balanced(&nodes).await;
    stop.store(true, Ordering::Release);
    let mut rounds = 0;
    for task in load {
        rounds += task.await.expect("no call failed");
    }
    for shard in 0..SHARDS {
        let reply = increment(&nodes[0], shard).await.expect("a reply");
        let expected = rounds + NAMES.len() as u64 + 1;
        assert_eq!(reply.payload, expected.to_string(), "each ran once");
    }
    let shards = run(&["shards", "--server", url]).await.with(0).stdout;
    assert!(
        shards.contains("GENERATION") && shards.contains("running"),
        "{shards}"
    );
    run(&["shard", "restart", "3", "--server", &nodes[2].url])
        .await
        .with(0);
    let status = run(&["status", "--server", url]).await.with(0).stdout;
    assert!(status.contains("3 live with 6 shards"), "{status}");

    // What an operator gets wrong is answered with what is valid.
    for (words, exit, part) in [
        (&["node", "drain", "n9"][..], 4, "n1, n2, n3"),
        (&["node", "cordon", "a/b"], 4, "n1, n2, n3"),
        (&["shard", "move", "0", "--to", "n9"], 4, "n1, n2, n3"),
        (&["shard", "move", "6", "--to", "n1"], 4, "from 0 to 5"),
        (&["shard", "restart", "6"], 4, "from 0 to 5"),
    ] {
        let ended = run(&[words, &["--server", url]].concat()).await.with(exit);
        assert!(ended.stderr.contains(part), "{words:?}: {}", ended.stderr);
    }
    for node in Arc::into_inner(nodes).expect("the load has ended") {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_while_the_shards_of_a_node_that_was_killed_are_taken_over() {
    let folder = folder();
    let mut nodes = started(&folder.path().join("data"), SHORT).await;
    let victim = nodes.pop().expect("a node");
    let mut lost = Vec::new();
    for shard in 0..SHARDS {
        increment(&nodes[0], shard).await.expect("a reply");
        if owner(&nodes[0], shard).await == "n3" {
            lost.push(shard);
        }
    }
    assert!(!lost.is_empty());
    victim.kill().await;
    // Nothing was in progress there: every call finds the new owner, and none is lost or made twice.
    let calls = lost
        .iter()
        .flat_map(|shard| nodes.iter().map(move |node| increment(node, *shard)));
    for reply in futures::future::join_all(calls).await {
        let reply = reply.expect("it waited for the new owner");
        assert_ne!(reply.header("quarry-node"), Some("n3"));
    }
    for shard in &lost {
        let reply = increment(&nodes[0], *shard).await.expect("a reply");
        assert_eq!(reply.payload, "4");
    }
    let listed = run(&["nodes", "--json", "--server", &nodes[0].url]).await;
    let listed = listed.with(0).json();
    let mut states = listed.as_array().expect("a list").iter();
    let dead = states.find(|node| node["node"] == "n3").expect("n3");
    assert_eq!(dead["state"], "dead", "{listed}");
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_for_a_while_keeps_nobody_and_is_told_so() {
    let folder = folder();
    let nodes = started(&folder.path().join("data"), SHORT).await;
    let mut shards = Vec::new();
    for shard in 0..SHARDS {
        if owner(&nodes[0], shard).await == "n3" {
            shards.push(shard);
        }
    }
    // So that there is a connection: on a new one it would be known that nothing was sent.
    increment(&nodes[0], shards[0]).await.expect("a reply");
    nodes[2].process.signal(Signal::Stop);
    let begun = std::time::Instant::now();
    let stalled = increment(&nodes[0], shards[0]).await;
    // Sent and never answered: nobody knows, and it is not sent again. Before the lease ended, that is all that can be said.
    let error = stalled.expect_err("its owner is stopped");
    assert_eq!(error.code(), "outcome-unknown", "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    // The status does not wait for it, and says why it knows nothing.
    let status = run(&["status", "--server", &nodes[0].url]).await;
    assert!(
        status.code == Some(1) || status.code == Some(0),
        "{status:?}"
    );
    // Others take over. Where the lease was seen a little later, a call may still have been sent.
    let reply = loop {
        match increment(&nodes[1], shards[0]).await {
            Ok(reply) => break reply,
            Err(error) => assert_eq!(error.code(), "outcome-unknown", "{error}"),
        }
        assert!(begun.elapsed() < 2 * DEADLINE, "{:?}", begun.elapsed());
    };
    assert_ne!(reply.header("quarry-node"), Some("n3"));
    // Back again, it answers for nothing that it has lost, and forwards like any other.
    nodes[2].process.signal(Signal::Continue);
    let count: u64 = text(&reply).parse().expect("a number");
    let reply = increment(&nodes[2], shards[0]).await.expect("a reply");
    assert_eq!(text(&reply), (count + 1).to_string());
    balanced(&nodes).await;
    // Whoever watches sees it: the figures of all nodes, and the events in the log of the one that was away.
    let mut sums = std::collections::BTreeMap::new();
    for node in &nodes {
        let text = reqwest::get(format!("{}/metrics", node.url)).await;
        let text = text.expect("metrics").text().await.expect("text");
        for line in text
            .lines()
            .filter(|line| line.starts_with("quarry_lease_"))
        {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let name = name.split('{').next().unwrap_or(name).to_owned();
            *sums.entry(name).or_insert(0.0) += value.parse::<f64>().expect("a number");
        }
    }
    let sum = |name: &str| {
        *sums
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {sums:?}"))
    };
    assert_eq!(sum("quarry_lease_owned_count"), f64::from(SHARDS));
    assert_eq!(sum("quarry_lease_unowned_count"), 0.0);
    assert_eq!(sum("quarry_lease_moves_count"), 0.0);
    assert!(sum("quarry_lease_deadline_slack_seconds") > 0.0, "{sums:?}");
    // All of them once, and those of the one that was stopped once more at the least; some were freed to balance.
    let again = f64::from(SHARDS) + shards.len() as f64;
    assert!(sum("quarry_lease_claims_total") >= again, "{sums:?}");
    assert!(sum("quarry_lease_releases_total") >= 1.0, "{sums:?}");
    assert!(sum("quarry_lease_sessions_lost_total") >= 1.0, "{sums:?}");
    assert!(sum("quarry_lease_self_fences_total") >= 1.0, "{sums:?}");
    for event in ["lease.self_fence", "lease.session_lost"] {
        nodes[2]
            .process
            .complains(|text| text.contains(event).then_some(()))
            .await;
    }
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_nobody_reaches_is_named() {
    let folder = folder();
    let data = folder.path().join("data");
    let reached = setup(&data, "n1", LASTING).start().await;
    // Nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let nowhere = port.local_addr().expect("an address").to_string();
    drop(port);
    let hidden = setup(&data, "n2", LASTING).with(&["--advertise", &nowhere]);
    let hidden = hidden.start().await;
    let shared = async {
        loop {
            let nodes = hidden.client.get("/v1/nodes").await.expect("nodes");
            let mut nodes = nodes["nodes"].as_array().into_iter().flatten();
            if nodes.all(|node| node["shards"] == 3) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), shared)
        .await
        .expect("shared");
    let mut failed = None;
    for shard in 0..SHARDS {
        if owner_by_lease(&reached, shard).await == "n2" {
            failed = Some(increment(&reached, shard).await.expect_err("not reached"));
            break;
        }
    }
    let error = failed.expect("a shard of n2");
    assert_eq!(error.code(), "unreachable", "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&nowhere) && text.contains("internal.advertise"),
        "{text}"
    );
    // The other way round all is well, and the status says what is wrong.
    for shard in 0..SHARDS {
        increment(&hidden, shard).await.expect("a reply");
    }
    let shards = run(&["shards", "--json", "--server", &reached.url]).await;
    let shards = shards.with(0).json();
    let unavailable = shards
        .as_array()
        .expect("a list")
        .iter()
        .filter(|shard| shard["status"] == "unavailable")
        .inspect(|shard| {
            let error = shard["last_error"].as_str().expect("a reason");
            assert!(error.contains(&nowhere), "{error}");
        });
    assert_eq!(unavailable.count(), 3);
    for node in [reached, hidden] {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_past_the_public_door_to_the_internal_one() {
    let folder = folder();
    let node = setup(&folder.path().join("data"), "n1", LASTING)
        .start()
        .await;
    let http = reqwest::Client::new();
    for path in ["/internal/call", "/internal/ask", "/internal/hello"] {
        let sent = http
            .post(format!("{}{path}", node.url))
            .header("quarry-node", "n1")
            .header("quarry-forwarded", "n2")
            .body("{}")
            .send();
        assert_eq!(sent.await.expect("answered").status(), 404, "{path}");
    }
    // Headers that look like a peer's change nothing.
    let url = format!("{}/v1/call/increment?key=a", node.url);
    let sent = http
        .post(url)
        .header("quarry-forwarded", "n2")
        .header("quarry-node", "n7")
        .send();
    let reply = sent.await.expect("answered");
    assert_eq!(
        (reply.status().as_u16(), &reply.headers()["quarry-node"]),
        (200, &"n1".parse().expect("a value"))
    );
    node.stop().await;
}

/// The node whose lease a shard's is, also where that does not answer.
async fn owner_by_lease(node: &Node, shard: u32) -> String {
    let lookup = node.client.get(&format!("/v1/lookup?shard={shard}")).await;
    let lookup: Value = lookup.expect("a location");
    lookup["node"].as_str().unwrap_or("n1").to_owned()
}

fn text(reply: &client::Reply) -> String {
    String::from_utf8_lossy(&reply.payload).into_owned()
}

/// The events that `dev --json` printed so far; the last one may not be whole yet.
fn events(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .map_while(Result::ok)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_runs_several_nodes_swaps_all_of_them_and_goes_on_when_one_is_killed() {
    let project = folder();
    let at = |name: &str| project.path().join(name);
    std::fs::copy(guest("counter"), at("source.wasm")).expect("copied");
    let toml = "shards = 4\n\n[module]\nlanguage = \"none\"\nbuild = \"cp source.wasm built.wasm\"\n\
                path = \"built.wasm\"\nwatch = [\"source.wasm\"]\n";
    std::fs::write(at("quarry.toml"), toml).expect("quarry.toml");
    let dir = project.path().display().to_string();
    let data = at("data").display().to_string();
    let dev = Process::spawn(quarry(&[
        "dev",
        &dir,
        "--nodes",
        "3",
        "--data-dir",
        &data,
        "--listen",
        "127.0.0.1:0",
        "--json",
    ]));
    let event = |kind: &'static str| {
        dev.prints(move |text| {
            let mut events = events(text).into_iter();
            events.find(|event| event["event"] == kind)
        })
    };
    let ready = event("ready").await;
    let nodes = ready["nodes"].as_array().expect("nodes").clone();
    assert_eq!(nodes.len(), 3, "{ready}");
    let client = |node: usize| {
        let url = nodes[node]["url"].as_str().expect("a URL");
        client::Client::new(url).expect("a client")
    };
    for node in 0..3 {
        let reply = call(&client(node), "increment", "a", "").await;
        assert_eq!(reply.expect("a reply"), (node + 1).to_string());
    }

    // Another component: every node runs it, and no shard moved for that.
    std::fs::copy(guest("kv"), at("source.wasm")).expect("copied");
    let reloaded = event("reloaded").await;
    // One that moves at that moment is opened with the new one.
    let shards = reloaded["shards"].as_u64().expect("a number");
    assert!((1..=4).contains(&shards), "{reloaded}");
    for node in 0..3 {
        call(&client(node), "put", "b", "v").await.expect("a reply");
    }

    // One is killed: the others have all shards soon.
    let pid = nodes[2]["pid"].as_u64().expect("a process").to_string();
    let killed = std::process::Command::new("sh")
        .args(["-c", "kill -KILL $0", &pid])
        .status();
    assert!(killed.expect("sh").success());
    let ended = event("ended").await;
    assert_eq!(ended["node"], nodes[2]["node"]);
    let all = async {
        loop {
            let status = client(0).status().await.expect("a status");
            if status["ready"] == true {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all)
        .await
        .expect("the others have all shards");

    // The end of this one is the end of all.
    dev.signal(Signal::Terminate);
    let ended = dev.ended().await.with(0);
    for node in 0..2 {
        let error = client(node).status().await.expect_err("it has ended");
        assert!(error.is_connection(), "{error}: {ended:#?}");
    }
}
