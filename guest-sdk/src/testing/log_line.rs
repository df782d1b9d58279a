//! What the guest logged.

use log::Level;

/// The longest message, in bytes; the rest is cut, as the host does.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Fields of a line; further ones are cut.
const MAX_FIELDS: usize = 32;
/// The longest field name or value, in bytes; the rest is cut.
const MAX_FIELD_BYTES: usize = 1 << 10;

/// A line that the guest logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its level.
    pub level: Level,
    /// Its text, up to 16 KiB.
    pub message: String,
    /// Its fields: up to 32 of up to 1 KiB.
    pub fields: Vec<(String, String)>,
}

impl LogLine {
    pub(crate) fn new(level: Level, message: &str, fields: &[(String, String)]) -> Self {
        let cut_field = |(name, value): &(String, String)| {
            (cut(name, MAX_FIELD_BYTES), cut(value, MAX_FIELD_BYTES))
        };
        LogLine {
            level,
            message: cut(message, MAX_MESSAGE_BYTES),
            fields: fields.iter().take(MAX_FIELDS).map(cut_field).collect(),
        }
    }
}

fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}
