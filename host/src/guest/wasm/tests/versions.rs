//! Guests and hosts of different versions of the API, within 0.1.x and beyond: real components of the whole WIT, with every interface
//! imported and exported, built here from the WIT files as another version would have them.

use std::fmt::Write;

use wasmtime::Engine;
use wasmtime::component::{Component, Linker};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmSignature, WasmType};
use wit_parser::{Resolve, WorldItem};

use super::*;
use crate::guest::wasm::inspect::inspect;

/// The interfaces that a guest imports.
const IMPORTED: [&str; 8] = [
    "shard",
    "current-call",
    "db",
    "durability",
    "timers",
    "cluster",
    "log",
    "metrics",
];
/// And those that it exports.
const EXPORTED: [&str; 8] = [
    "handler",
    "queries",
    "lifecycle",
    "options",
    "durable-events",
    "timer-events",
    "handoff",
    "migration",
];
/// What a later version adds to an interface.
const NEWER: &str = "brand-new";

/// The API as another version has it.
#[derive(Clone, Copy)]
struct Version<'a> {
    number: &'a str,
    /// An interface that has a function more.
    grown: Option<&'a str>,
    /// Text that comes after the other interfaces, and an item of the guest's world.
    more: [&'a str; 2],
}

impl<'a> Version<'a> {
    fn of(number: &'a str) -> Self {
        Self {
            number,
            grown: None,
            more: [""; 2],
        }
    }

    fn wit(self) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../wit");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the WIT files")
            .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a file"))
            .collect();
        // The package's name has to come first.
        files.sort_by_key(|text| !text.starts_with("package "));
        let mut text = files.join("\n");
        let package = "package quarry:shard@0.1.0;";
        assert!(text.starts_with(package), "{text}");
        text = text.replacen(
            package,
            &format!("package quarry:shard@{};", self.number),
            1,
        );
        if let Some(interface) = self.grown {
            let begins = format!("\ninterface {interface} {{\n");
            assert!(text.contains(&begins), "{interface}");
            let grown = format!("{begins}  {NEWER}: func() -> u64;\n");
            text = text.replacen(&begins, &grown, 1);
        }
        let [interfaces, item] = self.more;
        format!("{text}\n{interfaces}\nworld everything {{ include full-guest; {item} }}\n")
    }

    /// A guest of this version that uses all of it but functions for which this does not hold.
    fn guest(self, uses: impl Fn(&str) -> bool) -> Bytes {
        let mut resolve = Resolve::default();
        let package = resolve.push_source("quarry.wit", &self.wit());
        let package = package.unwrap_or_else(|error| panic!("{error:#}"));
        let world = resolve.select_world(&[package], Some("everything"));
        let world = world.expect("the world");
        let mut core = "(module\n".to_owned();
        let of = |item: &WorldItem| match item {
            WorldItem::Interface { id, .. } => *id,
            other => panic!("{other:?}"),
        };
        for (key, item) in &resolve.worlds[world].imports {
            for (name, function) in &resolve.interfaces[of(item)].functions {
                if uses(name) {
                    let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
                    let (module, types) = (resolve.name_world_key(key), types(&signature));
                    writeln!(core, "(import {module:?} {name:?} (func {types}))").expect("text");
                }
            }
        }
        for (key, item) in &resolve.worlds[world].exports {
            for (name, function) in &resolve.interfaces[of(item)].functions {
                let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
                let name = format!("{}#{name}", resolve.name_world_key(key));
                let types = types(&signature);
                writeln!(core, "(func (export {name:?}) {types} unreachable)").expect("text");
            }
        }
        core.push_str(
            r#"(memory (export "memory") 1)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable))"#,
        );
        let mut module = ::wat::parse_str(&core).unwrap_or_else(|error| panic!("{error}: {core}"));
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
            .expect("described");
        let mut encoder = ComponentEncoder::default();
        let encoder = encoder.validate(true).module(&module).expect("a module");
        encoder.encode().expect("a component").into()
    }
}

fn types(signature: &WasmSignature) -> String {
    let shown = |word: &str, types: &[WasmType]| {
        let types: Vec<_> = types
            .iter()
            .map(|of| match of {
                WasmType::I64 | WasmType::PointerOrI64 => "i64",
                WasmType::F32 => "f32",
                WasmType::F64 => "f64",
                WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
            })
            .collect();
        format!("({word} {})", types.join(" "))
    };
    let [params, results] = [
        shown("param", &signature.params),
        shown("result", &signature.results),
    ];
    format!("{params} {results}")
}

/// Whether a component is taken by this host: looked at, compiled and linked. Else the code of the error, and its words.
async fn taken(bytes: Bytes) -> Result<(), (&'static str, String)> {
    let bench = Bench::new(Limits::default(), "{}").await;
    let loaded = bench.runtime.load(bytes, "main".into(), 1, bench.limits);
    match loaded.await {
        Ok(_) => Ok(()),
        Err(error) => Err((error.code(), error.to_string())),
    }
}

/// What the world of a guest names behind this word.
fn named(word: &str) -> Vec<&'static str> {
    let worlds = include_str!("../../../../../wit/worlds.wit");
    let items = worlds
        .lines()
        .filter_map(|line| line.trim().strip_prefix(word));
    items.filter_map(|item| item.strip_suffix(';')).collect()
}

#[test]
fn the_tables_are_the_world() {
    assert_eq!(named("import "), IMPORTED);
    assert_eq!(named("export "), EXPORTED);
}

#[tokio::test]
async fn a_guest_of_a_later_patch_runs_where_it_uses_nothing_new() {
    for number in ["0.1.0", "0.1.1", "0.1.12"] {
        let bytes = Version::of(number).guest(|_| true);
        let found = inspect(&bytes).expect("a guest");
        assert_eq!(found.api, number);
        assert_eq!(taken(bytes).await, Ok(()), "{number}");
    }
}

/// Over every interface of the world: what came later is refused by its name where it is used, and only there.
#[tokio::test]
async fn a_function_of_a_later_patch_is_refused_by_name_where_it_is_used() {
    for interface in IMPORTED {
        let version = Version {
            grown: Some(interface),
            ..Version::of("0.1.1")
        };
        let (code, says) = taken(version.guest(|_| true)).await.expect_err(interface);
        assert_eq!(code, "missing-function", "{says}");
        assert_eq!(
            says,
            format!(
                "this component needs quarry:shard/{interface}@0.1.1.brand-new, which this node (quarry:shard@0.1.0) does not have; \
                 update the nodes to a version that has quarry:shard@0.1.1, or do not use it"
            )
        );
        let without = version.guest(|name| name != NEWER);
        assert_eq!(taken(without).await, Ok(()), "{interface}");
    }
}

/// What a guest offers beyond this version is for hosts to come, and no reason to refuse it.
#[tokio::test]
async fn a_function_that_a_later_patch_has_guests_export_is_not_looked_at() {
    for interface in EXPORTED {
        let version = Version {
            grown: Some(interface),
            ..Version::of("0.1.1")
        };
        assert_eq!(taken(version.guest(|_| true)).await, Ok(()), "{interface}");
    }
}

#[tokio::test]
async fn an_interface_of_a_later_patch_is_refused_by_name_where_it_is_imported() {
    let version = Version {
        more: ["interface teleport { away: func(); }", "import teleport;"],
        ..Version::of("0.1.2")
    };
    let (code, says) = taken(version.guest(|_| true)).await.expect_err("refused");
    assert_eq!(code, "unknown-import", "{says}");
    assert_eq!(
        says,
        "this component imports quarry:shard/teleport@0.1.2, which this node (quarry:shard@0.1.0) does not have; \
         update the nodes to a version that has quarry:shard@0.1.2, or do not use it"
    );
    assert_eq!(taken(version.guest(|name| name != "away")).await, Ok(()));
    let exported = Version {
        more: ["interface teleport { away: func(); }", "export teleport;"],
        ..Version::of("0.1.2")
    };
    assert_eq!(taken(exported.guest(|_| true)).await, Ok(()));
}

#[tokio::test]
async fn a_guest_of_another_minor_is_refused() {
    for (number, advice) in [
        ("0.2.0", "update the nodes"),
        ("1.0.0", "update the nodes"),
        ("0.0.9", "build it again"),
    ] {
        let bytes = Version::of(number).guest(|_| true);
        let (code, says) = taken(bytes).await.expect_err(number);
        assert_eq!(code, "other-version", "{says}");
        assert!(says.contains(&format!("@{number}")), "{says}");
        assert!(says.contains(advice), "{says}");
    }
}

/// The other way round: a host that offers a later version, with more in every interface, takes the guests of today, as the engine links them.
#[test]
fn a_host_of_a_later_patch_takes_the_guests_of_this_one() {
    let engine = Engine::default();
    let guest = |version: Version<'_>| {
        let bytes = version.guest(|_| true);
        Component::new(&engine, &bytes).expect("a component")
    };
    let today = guest(Version::of("0.1.0"));
    // It offers what a guest of its own version asks for.
    let offers = |version: Version<'_>| {
        let mut linker = Linker::<()>::new(&engine);
        let all = guest(version);
        linker
            .define_unknown_imports_as_traps(&all)
            .expect("defined");
        linker
    };
    for interface in IMPORTED {
        let grown = Version {
            grown: Some(interface),
            ..Version::of("0.1.1")
        };
        let later = offers(grown);
        assert!(later.instantiate_pre(&today).is_ok(), "{interface}");
        // And a host of today does not take what asks for more, whatever is looked at before.
        let now = offers(Version::of("0.1.0"));
        let refused = now.instantiate_pre(&guest(grown)).err().expect(interface);
        assert!(format!("{refused:#}").contains(NEWER), "{refused:#}");
    }
    let other = offers(Version::of("0.2.0"));
    assert!(other.instantiate_pre(&today).is_err());
}
