//! Files that are no guests of this node: each is refused before anything of it runs, with a stable code and the name of the thing.

use std::sync::Arc;

use bytes::Bytes;
use quarry::Cluster;
use quarry::guest::Limits;
use quarry::guest::wasm::COMPONENT_MAX_BYTES;

use crate::support::guests::{component, runtime, text};
use crate::support::native::{call, config};
use crate::support::store::within;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_guest_is_refused_by_name() {
    let kv = component("kv");
    let cut = kv.slice(..kv.len() / 2);
    let mut damaged = kv.to_vec();
    damaged[8] ^= 0x40;
    #[rustfmt::skip]
    let cases: Vec<(&str, Bytes, &str, &[&str])> = vec![
        ("nothing", Bytes::new(), "not-wasm", &["the file is empty"]),
        ("text", "hello".into(), "not-wasm", &["68 65 6c 6c"]),
        ("a program", b"\x7fELF\x02\x01\x01".as_slice().into(), "not-wasm", &["7f 45 4c 46"]),
        ("a component cut short", cut, "invalid-component", &["not a valid component"]),
        ("a damaged component", damaged.into(), "invalid-component", &["not a valid component"]),
        ("a very large file", vec![0; COMPONENT_MAX_BYTES + 1].into(), "component-too-large", &["134217729 bytes", "134217728"]),
        ("core-module.wat", text("core-module.wat"), "core-module", &["wasm32-wasip2"]),
        ("foreign-world.wat", text("foreign-world.wat"), "wrong-world", &["quarry:shard/handler", "it exports"]),
        ("wrong-signature.wat", text("wrong-signature.wat"), "wrong-type", &["quarry:shard/handler@0.1.0.call", "func(number: u32) -> u32"]),
        ("newer-minor.wat", text("newer-minor.wat"), "other-version", &["quarry:shard/handler@0.2.0", "quarry:shard@0.1.0", "update the nodes"]),
        ("newer-function.wat", text("newer-function.wat"), "missing-function", &["quarry:shard/durability@0.1.9.flush-everything"]),
        ("unknown-import.wat", text("unknown-import.wat"), "unknown-import", &["acme:secrets/store@1.0.0", "quarry:shard/db"]),
        ("unknown-quarry-import.wat", text("unknown-quarry-import.wat"), "unknown-import", &["quarry:shard/teleport@0.1.0"]),
    ];
    for (name, bytes, code, says) in cases {
        let loaded =
            within(runtime().load(bytes, "main".into(), 1, Arc::new(Limits::default()))).await;
        let error = loaded.map(|_| ()).expect_err(name);
        assert_eq!(error.code(), code, "{name}: {error}");
        for part in says {
            assert!(error.to_string().contains(part), "{name}: {error}");
        }
        let in_file = error.in_file("guest.wasm").to_string();
        assert!(in_file.starts_with("guest.wasm: "), "{in_file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_guest_runs() {
    let config = config();
    let limits = Arc::new(Limits::from(&config));
    let module = runtime()
        .load(text("minimal.wat"), "main".into(), 1, limits)
        .await
        .expect("a guest");
    assert!(
        module
            .inspection()
            .expect("looked at")
            .wasi_imports
            .is_empty()
    );
    let cluster = Cluster::start(Arc::new(config), module)
        .await
        .expect("start");
    let reply = within(call(&cluster, "a", "anything", "at all"))
        .await
        .expect("a reply");
    assert_eq!(
        (reply.payload.len(), reply.revision, reply.content_type),
        (0, 1, None)
    );
    cluster.stop().await;
}
