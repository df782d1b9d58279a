//! The type of a function as text, in the notation of WIT.

use wasmparser::component_types::{ComponentDefinedType, ComponentFuncTypeId, ComponentValType};
use wasmparser::types::TypesRef;

/// How deep types are written out; deeper ones are no type of the API.
const DEPTH_MAX: usize = 8;

/// Renders a function's type, with the types that it names written out.
pub(super) fn render(types: TypesRef<'_>, id: ComponentFuncTypeId) -> String {
    let function = &types[id];
    let params: Vec<_> = function.params.iter().map(|(name, ty)| format!("{name}: {}", value(types, ty, 0))).collect();
    let prefix = if function.async_ { "async " } else { "" };
    let result = function.result.as_ref().map_or_else(String::new, |ty| format!(" -> {}", value(types, ty, 0)));
    format!("{prefix}func({}){result}", params.join(", "))
}

fn value(types: TypesRef<'_>, ty: &ComponentValType, depth: usize) -> String {
    if depth > DEPTH_MAX {
        return "...".into();
    }
    let inner = |ty: &ComponentValType| value(types, ty, depth + 1);
    let optional = |ty: &Option<ComponentValType>| ty.as_ref().map_or_else(|| "_".into(), inner);
    let id = match ty {
        ComponentValType::Primitive(primitive) => return primitive.to_string(),
        ComponentValType::Type(id) => *id,
    };
    match &types[id] {
        ComponentDefinedType::Primitive(primitive) => primitive.to_string(),
        ComponentDefinedType::Record(record) => {
            let fields: Vec<_> = record.fields.iter().map(|(name, ty)| format!("{name}: {}", inner(ty))).collect();
            format!("record {{ {} }}", fields.join(", "))
        }
        ComponentDefinedType::List { element, .. } => format!("list<{}>", inner(element)),
        ComponentDefinedType::Option { ty, .. } => format!("option<{}>", inner(ty)),
        ComponentDefinedType::Tuple(tuple) => {
            let types: Vec<_> = tuple.types.iter().map(inner).collect();
            format!("tuple<{}>", types.join(", "))
        }
        ComponentDefinedType::Result { ok: None, err: None, .. } => "result".into(),
        ComponentDefinedType::Result { ok, err: None, .. } => format!("result<{}>", optional(ok)),
        ComponentDefinedType::Result { ok, err, .. } => format!("result<{}, {}>", optional(ok), optional(err)),
        ComponentDefinedType::Variant(variant) => {
            let cases: Vec<_> = variant.cases.keys().map(ToString::to_string).collect();
            format!("variant {{ {} }}", cases.join(", "))
        }
        ComponentDefinedType::Enum(cases) => {
            let cases: Vec<_> = cases.iter().map(ToString::to_string).collect();
            format!("enum {{ {} }}", cases.join(", "))
        }
        ComponentDefinedType::Flags(_) => "flags".into(),
        ComponentDefinedType::Own(_) => "a resource".into(),
        ComponentDefinedType::Borrow(_) => "borrow<a resource>".into(),
        // The types of the API have none of these.
        _ => "another type".into(),
    }
}
