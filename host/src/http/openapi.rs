//! This API as an OpenAPI document, written by hand in `openapi.json`; a test holds it to the routes.

use std::sync::LazyLock;

use bytes::Bytes;

/// The document, with this program's version in the place that is left for it.
pub(super) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
        Bytes::from(TEXT.replacen(
            "\"0.0.0\"",
            concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
            1,
        ))
    });
    DOCUMENT.clone()
}

const TEXT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::ROUTES;
    use super::*;

    /// The methods that OpenAPI has a word for.
    const EVERY: [&str; 8] = [
        "GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE",
    ];

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let document: Value = serde_json::from_slice(&document()).expect("JSON");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let paths = document["paths"].as_object().expect("paths");
        let documented = paths.iter().flat_map(|(path, item)| {
            let methods = item
                .as_object()
                .expect("path item")
                .keys()
                .filter(|key| !matches!(key.as_str(), "parameters" | "description"));
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        let served = ROUTES.iter().flat_map(|route| {
            let methods = route
                .method
                .as_ref()
                .map_or_else(|| EVERY.to_vec(), |method| vec![method.as_str()]);
            methods
                .into_iter()
                .map(|method| format!("{method} {}", route.path))
        });
        assert_eq!(
            documented.collect::<BTreeSet<_>>(),
            served.collect::<BTreeSet<_>>()
        );
        for route in ROUTES {
            let item = &paths[route.path];
            let summary = match &route.method {
                Some(method) => &item[method.as_str().to_lowercase()]["summary"],
                None => &item["get"]["summary"],
            };
            assert_eq!(*summary, route.summary, "{}", route.path);
        }
    }

    #[test]
    fn references_lead_somewhere_and_path_parameters_are_described() {
        let document: Value = serde_json::from_slice(&document()).expect("JSON");
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 20, "the walk found only {references:?}");
        for reference in references {
            let pointer = reference
                .strip_prefix('#')
                .expect("a reference within the document");
            assert!(
                document.pointer(pointer).is_some(),
                "{reference} leads nowhere"
            );
        }
        for (path, item) in document["paths"].as_object().expect("paths") {
            let Some((_, rest)) = path.split_once('{') else {
                continue;
            };
            let (name, _) = rest.split_once('}').expect("a closed brace");
            let text = item.to_string();
            let described = text.contains(&format!("#/components/parameters/{name}\""));
            assert!(described, "{path} does not describe {name}");
        }
    }

    fn collect(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text) if name == "$ref" => into.push(text.to_owned()),
                        _ => collect(value, into),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
            _ => {}
        }
    }
}
