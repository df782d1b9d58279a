use super::super::tests::wat::Wat;
use super::*;

fn code(bytes: &[u8]) -> String {
    match inspect(bytes) {
        Ok(_) => "ok".into(),
        Err(error) => format!("{}: {error}", error.code()),
    }
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is WebAssembly")
}

fn with_import(imports: &'static str) -> Vec<u8> {
    Wat {
        imports,
        ..Wat::default()
    }
    .build()
}

#[test]
fn what_is_no_guest_is_refused_and_told_why() {
    let good = Wat::default().build();
    let mut broken = good.clone();
    broken[8] ^= 0x40;
    for (name, bytes, expected) in [
        (
            "empty",
            Vec::new(),
            "not-wasm: this is not WebAssembly: it begins with nothing",
        ),
        (
            "an ELF file",
            b"\x7fELF\x02\x01".to_vec(),
            "not-wasm: this is not WebAssembly: it begins with 7f 45 4c 46",
        ),
        (
            "the magic number alone",
            b"\0asm".to_vec(),
            "invalid-component",
        ),
        (
            "a core module",
            component("(module)"),
            "core-module: this is a core module, not a component",
        ),
        (
            "cut short",
            good[..good.len() / 2].to_vec(),
            "invalid-component",
        ),
        ("the first section changed", broken, "invalid-component"),
        (
            "no exports",
            component("(component)"),
            "wrong-world: this component is not a Quarry guest: it exports neither quarry:shard/handler@0.1.x nor wasi:http/incoming-handler@0.2.x; it exports nothing",
        ),
        (
            "another world",
            Wat {
                export: "wasi:cli/run@0.2.0",
                ..Wat::default()
            }
            .build(),
            "wrong-world: this component is not a Quarry guest: it exports neither quarry:shard/handler@0.1.x nor wasi:http/incoming-handler@0.2.x; it exports wasi:cli/run@0.2.0",
        ),
        (
            "a newer minor",
            Wat {
                export: "quarry:shard/handler@0.2.0",
                ..Wat::default()
            }
            .build(),
            "other-version: this component is built for quarry:shard/handler@0.2.0, and this node has quarry:shard@0.1.0; update the nodes",
        ),
        (
            "an older minor",
            Wat {
                export: "quarry:shard/handler@0.0.9",
                ..Wat::default()
            }
            .build(),
            "other-version: this component is built for quarry:shard/handler@0.0.9, and this node has quarry:shard@0.1.0; build it again",
        ),
        (
            "without call",
            Wat {
                function: "run",
                ..Wat::default()
            }
            .build(),
            "wrong-type: quarry:shard/handler@0.1.0.call has the type `nothing`",
        ),
        (
            "another error",
            Wat {
                error: r#"(record (field "code" u32))"#,
                ..Wat::default()
            }
            .build(),
            "wrong-type: quarry:shard/handler@0.1.0.call has the type `func(method: string, key: option<list<u8>>, payload: list<u8>) -> result<list<u8>, record { code: u32 }>`",
        ),
        (
            "an unknown import",
            with_import(r#"(import "acme:secrets/store@1.0.0" (instance))"#),
            "unknown-import: this component imports acme:secrets/store@1.0.0, which is not offered; a guest may import quarry:shard/types, quarry:shard/shard",
        ),
        (
            "an unknown interface of ours",
            with_import(r#"(import "quarry:shard/teleport@0.1.0" (instance))"#),
            "unknown-import: this component imports quarry:shard/teleport@0.1.0",
        ),
        (
            "a plain import",
            with_import(r#"(import "db" (func))"#),
            "unknown-import: this component imports db",
        ),
        (
            "a function in place of an interface",
            with_import(r#"(import "quarry:shard/db@0.1.0" (func))"#),
            "unknown-import",
        ),
        (
            "a newer function",
            with_import(
                r#"(import "quarry:shard/durability@0.1.9" (instance (export "flush-everything" (func (result u64)))))"#,
            ),
            "missing-function: this component needs quarry:shard/durability@0.1.9.flush-everything, which this node (quarry:shard@0.1.0) does not have; update the nodes to a version that has quarry:shard@0.1.9, or do not use it",
        ),
        (
            "a function that there never was",
            with_import(
                r#"(import "quarry:shard/durability@0.1.0" (instance (export "flush-everything" (func (result u64)))))"#,
            ),
            "missing-function: this component needs quarry:shard/durability@0.1.0.flush-everything, which this node (quarry:shard@0.1.0) does not have; no host of quarry:shard@0.1.0 has it",
        ),
        (
            "a newer minor imported",
            with_import(r#"(import "quarry:shard/log@0.2.0" (instance))"#),
            "other-version: this component is built for quarry:shard/log@0.2.0",
        ),
        (
            "HTTP",
            with_import(r#"(import "wasi:http/outgoing-handler@0.2.6" (instance))"#),
            "ok",
        ),
        (
            "an export for HTTP of another version",
            Wat {
                export: "wasi:http/incoming-handler@0.3.0",
                ..Wat::default()
            }
            .build(),
            "other-version: this component exports wasi:http/incoming-handler@0.3.0, and this node has WASI 0.2",
        ),
        (
            "an export for HTTP of other types",
            Wat {
                export: "wasi:http/incoming-handler@0.2.9",
                function: "handle",
                ..Wat::default()
            }
            .build(),
            "wrong-type: wasi:http/incoming-handler@0.2.9.handle has the type",
        ),
        (
            "WASI 0.3",
            with_import(r#"(import "wasi:cli/stdout@0.3.0" (instance))"#),
            "refused-import: this component imports wasi:cli/stdout@0.3.0, which guests are not granted: this node has WASI 0.2",
        ),
        (
            "unknown WASI",
            with_import(r#"(import "wasi:nn/graph@0.2.0" (instance))"#),
            "unknown-import: this component imports wasi:nn/graph@0.2.0",
        ),
        ("good", good, "ok"),
        (
            "a later patch",
            Wat {
                export: "quarry:shard/handler@0.1.7",
                ..Wat::default()
            }
            .build(),
            "ok",
        ),
        (
            "sockets and files that are not used",
            with_import(
                r#"(import "wasi:sockets/tcp@0.2.6" (instance)) (import "wasi:filesystem/types@0.2.0" (instance))"#,
            ),
            "ok",
        ),
    ] {
        let found = code(&bytes);
        assert!(
            found.starts_with(expected),
            "{name}:\n found {found}\n  not {expected}"
        );
    }
}

#[test]
fn an_error_names_its_file() {
    let error = inspect(b"x").expect_err("refused").in_file("shard.wasm");
    assert_eq!(
        error.to_string(),
        "shard.wasm: this is not WebAssembly: it begins with 78; give the .wasm file of a component"
    );
    assert_eq!(error.code(), "not-wasm");
}

#[test]
fn a_guest_is_described() {
    // An export that nobody knows is kept in the list and does no harm.
    let bytes = Wat { imports: r#"(import "wasi:random/random@0.2.6" (instance)) (import "quarry:shard/shard@0.1.3" (instance $shard (export "number" (func (result u32))))) (export "extra" (instance $shard))"#, ..Wat::default() }.build();
    let found = inspect(&bytes).expect("a guest");
    assert_eq!(found.size, bytes.len() as u64);
    assert_eq!(found.digest, digest(&bytes));
    assert_eq!(found.api, "0.1.0");
    assert_eq!((found.handler, found.exports), (true, Exports::default()));
    assert_eq!(
        found.imports,
        ["quarry:shard/types@0.1.0", "quarry:shard/shard@0.1.3"]
    );
    assert_eq!(found.wasi_imports, ["wasi:random/random@0.2.6"]);
    assert_eq!(found.other_exports, ["extra"]);
}

#[test]
fn the_digest_is_sha_256() {
    assert_eq!(
        digest(b"abc"),
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn garbage_is_refused_without_a_panic() {
    let good = Wat::default().build();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..400 {
        let mut bytes = good.clone();
        for _ in 0..=round % 4 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(seed >> 33).expect("31 bits") % bytes.len();
            bytes[at] = u8::try_from(seed >> 24 & 0xff).expect("8 bits");
        }
        _ = inspect(&bytes);
    }
}

/// The tables say what the WIT files say.
#[test]
fn the_tables_are_the_wit() {
    let (mut interfaces, mut functions) = (Vec::new(), Vec::new());
    for text in [
        include_str!("../../../../../wit/types.wit"),
        include_str!("../../../../../wit/shard.wit"),
        include_str!("../../../../../wit/current-call.wit"),
        include_str!("../../../../../wit/db.wit"),
        include_str!("../../../../../wit/durability.wit"),
        include_str!("../../../../../wit/durable-events.wit"),
        include_str!("../../../../../wit/timers.wit"),
        include_str!("../../../../../wit/timer-events.wit"),
        include_str!("../../../../../wit/cluster.wit"),
        include_str!("../../../../../wit/metrics.wit"),
        include_str!("../../../../../wit/log.wit"),
        include_str!("../../../../../wit/handler.wit"),
        include_str!("../../../../../wit/queries.wit"),
        include_str!("../../../../../wit/lifecycle.wit"),
        include_str!("../../../../../wit/handoff.wit"),
        include_str!("../../../../../wit/migration.wit"),
        include_str!("../../../../../wit/options.wit"),
    ] {
        let (mut interface, mut resource) = (String::new(), None);
        let mut above = "";
        for line in text.lines() {
            let text = line.trim_start();
            let items = ["interface ", "resource ", "record ", "enum ", "type "];
            let item = items.iter().any(|item| text.starts_with(item))
                || (text.contains(": func(") && !text.starts_with("//"));
            let said = above.trim_start().starts_with("///");
            assert!(said || !item, "{line:?} is not documented");
            above = line;
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["interface", name, ..] => {
                    interface = format!("quarry:shard/{name}");
                    interfaces.push(interface.clone());
                }
                ["resource", name, ..] => resource = Some(name),
                ["}"] if line.starts_with("  }") => resource = None,
                [name, ..] if line.contains(": func(") && !name.starts_with("//") => {
                    let name = name.split(':').next().unwrap_or_default();
                    let name = resource.map_or_else(
                        || name.to_owned(),
                        |resource| format!("[method]{resource}.{name}"),
                    );
                    functions.push(format!("{interface}.{name}"));
                }
                _ => {}
            }
        }
    }
    let imports = offered::IMPORTS
        .iter()
        .map(|(interface, functions)| (*interface, functions.to_vec()));
    let exports = std::iter::once((HANDLER, &offered::HANDLER_FUNCTIONS[..]))
        .chain(offered::OPTIONAL_EXPORTS);
    let exports = exports.map(|(interface, functions)| {
        (interface, functions.iter().map(|(name, _)| *name).collect())
    });
    let tables: Vec<(&str, Vec<&str>)> = imports.chain(exports).collect();
    let mut known: Vec<_> = tables
        .iter()
        .map(|(interface, _)| (*interface).to_owned())
        .collect();
    known.sort_unstable();
    interfaces.sort_unstable();
    assert_eq!(interfaces, known);
    let mut known: Vec<_> = tables
        .iter()
        .flat_map(|(interface, names)| names.iter().map(move |name| format!("{interface}.{name}")))
        .collect();
    known.sort_unstable();
    functions.sort_unstable();
    assert_eq!(functions, known);
}
