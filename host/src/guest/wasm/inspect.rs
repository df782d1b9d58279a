//! Looks at a component before anything is compiled or run: whether it is one, whether it is a guest, and whether this node has what it
//! wants. Pure: bytes in, findings out. `quarry verify`, `quarry deploy` and every node ask the same questions.

use serde::Serialize;
use sha2::{Digest, Sha256};
use wasmparser::component_types::{ComponentEntityType, ComponentFuncTypeId};
use wasmparser::types::TypesRef;
use wasmparser::{Parser, Payload, Validator, WasmFeatures};

use super::error::{Error, HANDLER, HTTP_HANDLER, OFFERED_VERSION, Reason};
use crate::guest::Exports;

mod offered;
mod signature;

#[cfg(test)]
pub(super) use offered::WASI_IMPORTS;

/// The largest component, in bytes. Python guests, the largest known, have 20 MB.
pub const COMPONENT_MAX_BYTES: usize = 128 << 20;
/// Names listed in an error, at most.
const NAMES_MAX: usize = 12;

/// What a component is and wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Its size, in bytes.
    pub size: u64,
    /// `sha256:` and the hex digest of its bytes.
    pub digest: String,
    /// The version of `quarry:shard` that it is built for: that of its handler, or of what else it has of it.
    pub api: String,
    /// Whether it exports `handler`. One that does not has `wasi:http/incoming-handler`.
    pub handler: bool,
    /// Which of the optional exports it has.
    pub exports: Exports,
    /// Its imports of `quarry:shard`, with their versions.
    pub imports: Vec<String>,
    /// Its imports of WASI, with their versions.
    pub wasi_imports: Vec<String>,
    /// What it exports beside; nobody uses it.
    pub other_exports: Vec<String>,
}

/// Checks a component.
///
/// # Errors
/// The first [`Reason`] for which it cannot be a guest of this node.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, Error> {
    if bytes.len() > COMPONENT_MAX_BYTES {
        return Err(Reason::TooLarge {
            size: bytes.len() as u64,
            limit: COMPONENT_MAX_BYTES as u64,
        }
        .into());
    }
    if Parser::is_core_wasm(bytes) {
        return Err(Reason::CoreModule.into());
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(Reason::NotWasm {
            begins: begins(bytes),
        }
        .into());
    }
    let names = Names::of(bytes)?;
    let types = Validator::new_with_features(features())
        .validate_all(bytes)
        .map_err(|error| Reason::Invalid(error.to_string()))?;
    let types = types.as_ref();

    let handler = find(&names.exports, HANDLER);
    let http = find(&names.exports, HTTP_HANDLER);
    let mut used = Vec::new();
    let mut optional = [false; offered::OPTIONAL_EXPORTS.len()];
    if let Some(export) = handler {
        check_version(export)?;
        check_export(types, export, &offered::HANDLER_FUNCTIONS)?;
        used.push(export.name);
    }
    if let Some(export) = http {
        check_http_version(export)?;
        check_export(types, export, &offered::HTTP_HANDLER_FUNCTIONS)?;
        used.push(export.name);
    }
    if used.is_empty() {
        return Err(wrong_world(&names.exports));
    }
    for (found, (interface, functions)) in optional.iter_mut().zip(offered::OPTIONAL_EXPORTS) {
        if let Some(export) = find(&names.exports, interface) {
            check_version(export)?;
            check_export(types, export, functions)?;
            used.push(export.name);
            *found = true;
        }
    }
    let (mut imports, mut wasi_imports) = (Vec::new(), Vec::new());
    for import in &names.imports {
        check_import(types, import)?;
        let list = if import.name.starts_with("wasi:") {
            &mut wasi_imports
        } else {
            &mut imports
        };
        list.push(import.name.to_owned());
    }
    let [
        queries,
        lifecycle,
        options,
        durable_events,
        timer_events,
        handoff,
        migration,
    ] = optional;
    Ok(Inspection {
        size: bytes.len() as u64,
        digest: digest(bytes),
        api: api(handler, &names).to_owned(),
        handler: handler.is_some(),
        exports: Exports {
            queries,
            lifecycle,
            options,
            durable_events,
            timer_events,
            handoff,
            migration,
            http: http.is_some(),
        },
        imports,
        wasi_imports,
        other_exports: names
            .exports
            .iter()
            .filter(|export| !used.contains(&export.name))
            .map(|export| export.name.to_owned())
            .collect(),
    })
}

/// `sha256:` and the hex digest of a component's bytes, which is its name in the store.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// What the engine takes: no threads, no component-model async.
fn features() -> WasmFeatures {
    let mut features = WasmFeatures::default();
    features.remove(
        WasmFeatures::THREADS
            | WasmFeatures::CM_ASYNC
            | WasmFeatures::GC
            | WasmFeatures::EXCEPTIONS,
    );
    features
}

/// The names of a component's imports and exports.
struct Names<'a> {
    imports: Vec<Name<'a>>,
    exports: Vec<Name<'a>>,
}

/// The name of an import or export: `namespace:package/interface@version`, or a plain one without version.
#[derive(Clone, Copy)]
struct Name<'a> {
    name: &'a str,
    interface: &'a str,
    version: &'a str,
}

impl<'a> Name<'a> {
    fn new(name: &'a str) -> Self {
        let (interface, version) = name.split_once('@').unwrap_or((name, ""));
        Self {
            name,
            interface,
            version,
        }
    }
}

impl<'a> Names<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, Error> {
        let invalid =
            |error: wasmparser::BinaryReaderError| Error::new(Reason::Invalid(error.to_string()));
        let mut names = Self {
            imports: Vec::new(),
            exports: Vec::new(),
        };
        let mut depth = 0_u32;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(invalid)? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        names
                            .imports
                            .push(Name::new(import.map_err(invalid)?.name.name));
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        names
                            .exports
                            .push(Name::new(export.map_err(invalid)?.name.name));
                    }
                }
                _ => {}
            }
        }
        Ok(names)
    }
}

fn find<'a>(names: &[Name<'a>], interface: &str) -> Option<Name<'a>> {
    names
        .iter()
        .find(|name| name.interface == interface)
        .copied()
}

/// The version of the API that a guest is built for; that of this host where it uses none of it.
fn api<'a>(handler: Option<Name<'a>>, names: &Names<'a>) -> &'a str {
    let all = names.exports.iter().chain(&names.imports);
    let mut ours = all.filter(|name| name.interface.starts_with("quarry:shard/"));
    let name = handler.or_else(|| ours.next().copied());
    name.map_or(OFFERED_VERSION, |name| name.version)
}

/// An export has to have functions of the right types. What it has beside is for hosts to come.
fn check_export(
    types: TypesRef<'_>,
    export: Name<'_>,
    functions: &[(&str, &'static str)],
) -> Result<(), Error> {
    let item = types.component_item_for_export(export.name);
    for (function, expected) in functions {
        let name = || format!("{}.{function}", export.name);
        let found = item.and_then(|item| function_of(types, &item.ty, function));
        let found = found.map_or_else(|| "nothing".to_owned(), |id| signature::render(types, id));
        if found != *expected {
            return Err(Reason::WrongType {
                name: name(),
                found,
                expected,
            }
            .into());
        }
    }
    Ok(())
}

/// An import has to be offered, and each of its functions too. Whether their types fit is checked when it is linked.
fn check_import(types: TypesRef<'_>, import: &Name<'_>) -> Result<(), Error> {
    let name = import.name.to_owned();
    if offered::WASI_IMPORTS.contains(&import.interface) {
        if is_patch_of(import.version, "0.2") {
            return Ok(());
        }
        let advice = "this node has WASI 0.2; build it for wasm32-wasip2";
        return Err(Reason::RefusedImport { name, advice }.into());
    }
    let Some((_, functions)) = offered::IMPORTS
        .iter()
        .find(|(interface, _)| *interface == import.interface)
    else {
        return Err(match newer_patch(*import) {
            Some(advice) => Reason::NewerInterface { name, advice },
            None => Reason::UnknownImport {
                name,
                offered: offered::list(),
            },
        }
        .into());
    };
    check_version(*import)?;
    let Some(item) = types.component_item_for_import(import.name) else {
        return Ok(());
    };
    let ComponentEntityType::Instance(instance) = item.ty else {
        return Err(Reason::UnknownImport {
            name,
            offered: offered::list(),
        }
        .into());
    };
    for (function, item) in &types[instance].exports {
        if matches!(item.ty, ComponentEntityType::Func(_))
            && !functions.contains(&function.as_str())
        {
            let advice = newer_patch(*import).unwrap_or_else(|| {
                format!("no host of quarry:shard@{OFFERED_VERSION} has it: build it against the WIT of an SDK")
            });
            return Err(Reason::MissingFunction {
                name: format!("{name}.{function}"),
                advice,
            }
            .into());
        }
    }
    Ok(())
}

fn check_http_version(export: Name<'_>) -> Result<(), Error> {
    if is_patch_of(export.version, "0.2") {
        return Ok(());
    }
    Err(Reason::OtherHttp {
        name: export.name.to_owned(),
    }
    .into())
}

fn check_version(name: Name<'_>) -> Result<(), Error> {
    if is_patch_of(name.version, "0.1") {
        return Ok(());
    }
    let newer = minor(name.version) > minor(OFFERED_VERSION);
    let advice = if newer {
        "update the nodes, or build it with an older SDK"
    } else {
        "build it again with an SDK for 0.1.x"
    };
    Err(Reason::OtherVersion {
        name: name.name.to_owned(),
        advice,
    }
    .into())
}

/// What to do about something of ours that came in a later patch than this node has; none where the version does not say so.
fn newer_patch(name: Name<'_>) -> Option<String> {
    let patch = |version: &str| version.rsplit('.').next()?.parse::<u32>().ok();
    let ours = name.interface.starts_with("quarry:shard/") && is_patch_of(name.version, "0.1");
    let version = name.version;
    (ours && patch(version) > patch(OFFERED_VERSION)).then(|| {
        format!("update the nodes to a version that has quarry:shard@{version}, or do not use it")
    })
}

/// Whether `version` is `line` with a patch number.
fn is_patch_of(version: &str, line: &str) -> bool {
    let patch = version
        .strip_prefix(line)
        .and_then(|rest| rest.strip_prefix('.'));
    patch.is_some_and(|patch| patch.parse::<u32>().is_ok())
}

fn minor(version: &str) -> (u64, u64) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn function_of(
    types: TypesRef<'_>,
    item: &ComponentEntityType,
    function: &str,
) -> Option<ComponentFuncTypeId> {
    let ComponentEntityType::Instance(instance) = item else {
        return None;
    };
    match types[*instance].exports.get(function)?.ty {
        ComponentEntityType::Func(id) => Some(id),
        _ => None,
    }
}

fn wrong_world(exports: &[Name<'_>]) -> Error {
    let mut names: Vec<_> = exports
        .iter()
        .take(NAMES_MAX)
        .map(|export| export.name)
        .collect();
    if exports.is_empty() {
        names.push("nothing");
    } else if exports.len() > NAMES_MAX {
        names.push("and more");
    }
    Reason::WrongWorld {
        exports: names.join(", "),
    }
    .into()
}

fn begins(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing (the file is empty)".into();
    }
    let hex: Vec<_> = bytes
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    hex.join(" ")
}

#[cfg(test)]
mod tests;
