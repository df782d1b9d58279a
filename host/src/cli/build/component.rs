//! Makes the component of a core module, so that compilers which end at core modules (C, Go) need no further tool.
//!
//! The world is what the module exports: `quarry:shard/queries@0.1.0#query` says that the guest has queries. What the module says of itself
//! (a section `component-type`, as the object files of bindings have) goes before that. A module that imports WASI 0.1 gets the adapter to 0.2.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as ADAPTER, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::Error;
use crate::cli::{language::Language, new::sdk::WIT};

/// The interfaces that a guest can export.
const EXPORTS: [&str; 8] = [
    "handler",
    "queries",
    "lifecycle",
    "options",
    "durable-events",
    "timer-events",
    "handoff",
    "migration",
];
const PACKAGE: &str = "quarry:shard/";
const VERSION: &str = "@0.1.0";
const CALL: &str = "quarry:shard/handler@0.1.0#call";
/// A larger module is not read: it is far above what the host takes.
const MAX_BYTES: u64 = 256 << 20;
const CORE: [u8; 8] = *b"\0asm\x01\0\0\0";
const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";

/// Puts the component of a core module in its place. A component stays as it is, and so does a file that is neither, or not there: what that
/// is, others find out. `language` is that of the project, where its tools are known to have made the file.
///
/// # Errors
/// Why it is no guest.
pub(super) async fn put(path: PathBuf, language: Option<Language>) -> Result<(), Error> {
    let shown = path.display().to_string();
    let done = tokio::task::spawn_blocking(move || put_now(&path, language)).await;
    done.unwrap_or_else(|error| Err(format!("making a component of it failed: {error}")))
        .map_err(|why| Error::NoComponent(format!("{shown} {why}")))
}

fn put_now(path: &Path, language: Option<Language>) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    match head(path) {
        Ok(Some(head)) if head == CORE => {}
        Ok(Some(head)) if head == COMPONENT => {
            let bytes = fs::metadata(path).map_err(unreadable)?.len();
            let lacks = bytes <= MAX_BYTES && lacks_handler(&fs::read(path).map_err(unreadable)?);
            return if lacks {
                Err(no_handler(language))
            } else {
                Ok(())
            };
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(error)),
    }
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MAX_BYTES {
        return Err(format!(
            "has {bytes} bytes; a core module may have {MAX_BYTES}"
        ));
    }
    let component = of(&fs::read(path).map_err(unreadable)?, language)?;
    // Whole or not at all: `quarry dev` may look at any time.
    let unwritable = |error: io::Error| format!("cannot be replaced by its component: {error}");
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(unwritable)?;
    io::Write::write_all(&mut file, &component).map_err(unwritable)?;
    let mode = fs::metadata(path).map_err(unwritable)?.permissions();
    fs::set_permissions(file.path(), mode).map_err(unwritable)?;
    file.persist(path)
        .map_err(|error| unwritable(error.error))?;
    Ok(())
}

fn head(path: &Path) -> io::Result<Option<[u8; 8]>> {
    let mut head = [0; 8];
    match io::Read::read_exact(&mut fs::File::open(path)?, &mut head) {
        Ok(()) => Ok(Some(head)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The component of a core module.
fn of(core: &[u8], language: Option<Language>) -> Result<Vec<u8>, String> {
    let module = read(core)?;
    let mut described = core.to_vec();
    if !module.is_described {
        let world = world(&module.exports, language)?;
        describe(&mut described, &world).map_err(|error| format!("gets no world: {error:#}"))?;
    }
    let encoded = || {
        let mut encoder = ComponentEncoder::default();
        encoder.validate(true).module(&described)?;
        if module.wants_wasi {
            encoder.adapter(ADAPTER, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?;
        }
        encoder.encode()
    };
    encoded().map_err(|error| format!("is a core module that cannot become a component: {error:#}"))
}

/// What of a module matters here.
struct Module {
    exports: Vec<String>,
    wants_wasi: bool,
    is_described: bool,
}

fn read(core: &[u8]) -> Result<Module, String> {
    let mut module = Module {
        exports: Vec::new(),
        wants_wasi: false,
        is_described: false,
    };
    let mut sections = || -> wasmparser::Result<()> {
        for payload in Parser::new(0).parse_all(core) {
            match payload? {
                Payload::ExportSection(section) => {
                    for export in section {
                        module.exports.push(export?.name.to_owned());
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        module.wants_wasi |= import?.module == ADAPTER;
                    }
                }
                Payload::CustomSection(section) => {
                    module.is_described |= section.name().starts_with("component-type");
                }
                _ => {}
            }
        }
        Ok(())
    };
    sections().map_err(|error| format!("is not whole: {error}"))?;
    Ok(module)
}

/// Whether a component is whole, and has a handler neither of calls nor of HTTP, of any version.
fn lacks_handler(component: &[u8]) -> bool {
    let calls = format!("{PACKAGE}handler@");
    let is_handler =
        |name: &str| name.starts_with(&calls) || name.starts_with("wasi:http/incoming-handler@");
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload {
            Ok(Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            Ok(Payload::ComponentExportSection(section)) if depth == 0 => {
                for export in section {
                    if export.is_ok_and(|export| is_handler(export.name.name)) {
                        return false;
                    }
                }
            }
            Ok(_) => {}
            // Not whole: it may be there.
            Err(_) => return false,
        }
    }
    true
}

fn no_handler(language: Option<Language>) -> String {
    match language {
        Some(language) => format!(
            "exports no handler of calls, so it is no guest: add {}",
            language.export()
        ),
        None => format!(
            "does not export `{CALL}`, so it is no guest: build a component, or a core module, with that export"
        ),
    }
}

/// The world of a module with these exports.
fn world(exports: &[String], language: Option<Language>) -> Result<String, String> {
    if !exports.iter().any(|name| name == CALL) {
        return Err(no_handler(language));
    }
    let mut world = "\nworld component {\n  include imports;\n".to_owned();
    let mut known: Vec<&str> = Vec::new();
    for name in exports {
        let Some(rest) = name.strip_prefix(PACKAGE) else {
            continue;
        };
        let interface = rest
            .split_once('#')
            .and_then(|(interface, _)| interface.strip_suffix(VERSION));
        match EXPORTS.iter().find(|known| Some(**known) == interface) {
            Some(interface) if !known.contains(interface) => known.push(interface),
            Some(_) => {}
            None => {
                return Err(format!(
                    "exports `{name}`, which no guest of quarry:shard{VERSION} has: its interfaces are {}",
                    EXPORTS.join(", ")
                ));
            }
        }
    }
    for interface in known {
        world.push_str(&format!("  export {interface};\n"));
    }
    world.push_str("}\n");
    Ok(world)
}

fn describe(core: &mut Vec<u8>, world: &str) -> anyhow::Result<()> {
    // The file with the package's name has to come first.
    let mut files: Vec<_> = WIT.iter().map(|(_, text)| *text).collect();
    files.sort_by_key(|text| !text.trim_start().starts_with("package "));
    let text = files.join("\n") + world;
    let mut resolve = Resolve::default();
    let package = resolve.push_source("quarry.wit", &text)?;
    let world = resolve.select_world(&[package], Some("component"))?;
    embed_component_metadata(core, &resolve, world, StringEncoding::UTF8, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest that does nothing, with these exports.
    fn module(exports: &str) -> Vec<u8> {
        let text = format!(
            r#"(module
                (import "quarry:shard/db@0.1.0" "get" (func (param i32 i32 i32)))
                (memory (export "memory") 1)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 8)
                (func $call (param i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
                (func $start (result i32) unreachable)
                (func $stop (param i32 i32))
                {exports})"#
        );
        wat::parse_str(text).unwrap()
    }

    const HANDLER: &str = r#"(export "quarry:shard/handler@0.1.0#call" (func $call))"#;

    #[test]
    fn the_world_is_what_is_exported() {
        for (more, expected) in [
            ("", &["handler"][..]),
            (
                r#"(export "quarry:shard/queries@0.1.0#query" (func $call)) (export "own" (func $start))"#,
                &["handler", "queries"],
            ),
            (
                r#"(export "quarry:shard/lifecycle@0.1.0#start" (func $start)) (export "quarry:shard/lifecycle@0.1.0#stop" (func $stop))"#,
                &["handler", "lifecycle"],
            ),
        ] {
            let component = of(&module(&format!("{HANDLER} {more}")), None).unwrap();
            assert!(!lacks_handler(&component));
            let text = String::from_utf8_lossy(&component);
            for interface in EXPORTS {
                let is_there = text.contains(&format!("quarry:shard/{interface}@0.1.0"));
                assert_eq!(
                    is_there,
                    expected.contains(&interface),
                    "{interface}: {more}"
                );
            }
            assert!(!text.contains("wasi:"), "{more}");
        }
    }

    #[test]
    fn a_component_needs_a_handler_of_calls_or_of_http() {
        for (export, lacks) in [
            ("quarry:shard/handler@0.1.0", false),
            ("wasi:http/incoming-handler@0.2.3", false),
            ("wasi:cli/run@0.2.3", true),
        ] {
            let text = format!(r#"(component (instance $i) (export "{export}" (instance $i)))"#);
            let component = wat::parse_str(&text).expect("a component");
            assert_eq!(lacks_handler(&component), lacks, "{export}");
        }
    }

    #[test]
    fn what_is_no_guest_is_said() {
        for (exports, part) in [
            ("", "does not export `quarry:shard/handler@0.1.0#call`"),
            (
                r#"(export "quarry:shard/handler@0.1.0#call" (func $stop))"#,
                "cannot become a component",
            ),
            (
                &format!(r#"{HANDLER} (export "quarry:shard/handlers@0.1.0#call" (func $call))"#),
                "its interfaces are handler, queries",
            ),
            (
                &format!(r#"{HANDLER} (export "quarry:shard/queries@0.2.0#query" (func $call))"#),
                "which no guest of quarry:shard@0.1.0 has",
            ),
            (
                &format!(
                    r#"{HANDLER} (export "quarry:shard/lifecycle@0.1.0#start" (func $start))"#
                ),
                "cannot become a component",
            ),
        ] {
            let error = of(&module(exports), None).unwrap_err();
            assert!(error.contains(part), "{exports}: {error}");
        }
        assert!(
            of(b"\0asm\x01\0\0\0\x07\xff", None)
                .unwrap_err()
                .contains("is not whole")
        );
    }

    #[tokio::test]
    async fn without_a_handler_the_line_to_add_is_said() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("guest.wasm");
        let empty = wat::parse_str("(component)").unwrap();
        for (language, part) in [
            (Language::Rust, "quarry_guest::export!"),
            (Language::C, "QUARRY_EXPORT_CALL(call)"),
            (Language::Go, "quarry.Handle(call)"),
            (Language::Ts, "defineGuest"),
            (Language::Python, "@export"),
        ] {
            for bytes in [&empty, &module("")] {
                fs::write(&path, bytes).unwrap();
                let error = put(path.clone(), Some(language)).await.unwrap_err();
                assert!(error.to_string().contains(part), "{error}");
            }
        }
        fs::write(&path, &empty).unwrap();
        let error = put(path.clone(), None).await.unwrap_err().to_string();
        assert!(error.contains("handler@0.1.0#call"), "{error}");
    }

    #[tokio::test]
    async fn only_core_modules_are_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("guest.wasm");
        put(path.clone(), None).await.unwrap();
        for kept in [&b"text"[..], b"\0asm\x0d\0\x01\0rest"] {
            fs::write(&path, kept).unwrap();
            put(path.clone(), None).await.unwrap();
            assert_eq!(fs::read(&path).unwrap(), kept);
        }
        let core = module(HANDLER);
        fs::write(&path, &core).unwrap();
        put(path.clone(), None).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), of(&core, None).unwrap());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
