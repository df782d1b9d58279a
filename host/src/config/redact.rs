//! Keeps credentials out of what is printed.

use serde_json::Value;

use super::kind::Kind;

/// What stands in the place of a credential.
pub const REDACTED: &str = "(redacted)";

/// Parts of a name that mark its value as a credential. Rather one too many: `aws_access_key_id` is hidden as well.
const MARKS: [&str; 9] = [
    "secret",
    "key",
    "token",
    "password",
    "passwd",
    "sas",
    "credential",
    "signature",
    "auth",
];

/// Whether an option of this name is taken for a credential.
#[must_use]
pub fn is_credential(name: &str) -> bool {
    let name = name.to_lowercase();
    MARKS.iter().any(|mark| name.contains(mark))
}

/// The value as it may be printed: credentials of tables are replaced, and what a URL says before its `@` is cut.
pub(super) fn shown(kind: Kind, mut value: Value) -> Value {
    match kind {
        Kind::Strings | Kind::Table => hide(&mut value),
        Kind::Url => {
            if let Value::String(text) = &mut value {
                *text = without_user(text);
            }
        }
        _ => {}
    }
    value
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                if is_credential(name) {
                    *value = Value::from(REDACTED);
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// Works on text that is no valid URL, too: it must not leak either.
fn without_user(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{REDACTED}@{place}"),
        (None, Some((_, place))) => format!("{REDACTED}@{place}"),
        (_, None) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_known_by_name() {
        for name in [
            "aws_secret_access_key",
            "AWS_SESSION_TOKEN",
            "azure_storage_sas",
            "password",
            "account-key",
            "Authorization",
        ] {
            assert!(is_credential(name), "{name}");
        }
        for name in ["aws_region", "aws_endpoint", "allow_http", "bucket"] {
            assert!(!is_credential(name), "{name}");
        }
    }

    #[test]
    fn credentials_are_hidden_at_any_depth() {
        let value = json!({"region": "eu", "api_token": "t0p", "peers": [{"password": "t0p", "name": "a"}], "secrets": {"a": "t0p"}});
        let shown = shown(Kind::Table, value);
        assert_eq!(
            shown,
            json!({"region": "eu", "api_token": REDACTED, "peers": [{"password": REDACTED, "name": "a"}], "secrets": REDACTED})
        );
    }

    #[test]
    fn urls_lose_their_user_and_query() {
        for (url, expected) in [
            ("s3://bucket/path", "s3://bucket/path"),
            ("s3://user:t0p@bucket", "s3://(redacted)@bucket"),
            ("s3://user:t0@p@bucket", "s3://(redacted)@bucket"),
            ("az://box?sas=t0p", "az://box"),
            ("user:t0p@bucket", "(redacted)@bucket"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(shown(Kind::Url, Value::from(url)), Value::from(expected));
        }
    }
}
