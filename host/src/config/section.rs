//! One declaration per key: its field, doc, default, kind and bounds. The structs, their defaults and the table of keys
//! all come from it, so they cannot disagree.

use serde_json::Value;

use super::{Config, kind::Kind};

/// A key of the configuration.
#[derive(Clone, Copy)]
pub struct Key {
    /// The whole name, like `http.listen`.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// What it is for, in prose.
    pub doc: &'static str,
    /// Whether it may be left unset; the empty text then unsets it.
    pub optional: bool,
    pub(super) get: fn(&Config) -> Value,
    pub(super) set: fn(&mut Config, &Value) -> Result<(), String>,
}

impl Key {
    /// The environment variable of this key. Of a table it holds the whole table as JSON; an entry's variable has `_` and the
    /// entry's name behind it, with `__` between the names of nested tables.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("QUARRY_{}", self.name.to_uppercase().replace('.', "_"))
    }

    /// Checks a value and returns its canonical form.
    pub(super) fn read(&self, value: &Value) -> Result<Value, String> {
        if self.optional && value.is_null() {
            return Ok(Value::Null);
        }
        self.kind.read(value)
    }
}

/// Declares a part of the configuration. `|c| c.http` says where it lies within [`Config`].
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident, $prefix:literal, $keys:ident, |$c:ident| $place:expr;
        $($(#[doc = $doc:literal])+ $field:ident: $ty:ty = $default:expr, $kind:expr;)*
        $(parts { $($(#[doc = $part_doc:literal])+ $part:ident: $part_ty:ty;)* })?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, PartialEq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $ty,)*
            $($($(#[doc = $part_doc])+ pub $part: $part_ty,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($($part: Default::default(),)*)? }
            }
        }

        impl ::std::fmt::Debug for $name {
            /// Without credentials.
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut out = f.debug_struct(stringify!($name));
                $(
                    let value = $crate::config::kind::Field::get(&self.$field, $kind);
                    out.field(stringify!($field), &format_args!("{}", $crate::config::redact::shown($kind, value)));
                )*
                $($(out.field(stringify!($part), &self.$part);)*)?
                out.finish()
            }
        }

        const $keys: &[$crate::config::section::Key] = &[$($crate::config::section::Key {
            name: concat!($prefix, stringify!($field)),
            kind: $kind,
            doc: concat!($($doc),+),
            optional: <$ty as $crate::config::kind::Field>::OPTIONAL,
            get: |$c| $crate::config::kind::Field::get(&$place.$field, $kind),
            set: |$c, value| $crate::config::kind::Field::set(&mut $place.$field, value),
        }),*];
    };
}
pub(super) use section;
