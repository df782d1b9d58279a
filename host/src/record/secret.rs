//! The secret of a cluster, by which its nodes know each other. Whoever can read the bucket has it, and nobody else.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// 256 random bits. Never shown: logs and errors get `[secret]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The bytes, to key a message authentication code with.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// 64 hex digits.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The value is not repeated in the error.
        let wrong = || de::Error::custom("the secret is not 64 hex digits");
        let text = String::deserialize(deserializer)?;
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_to_json_and_back_and_into_no_text() {
        let secret = Secret::random();
        let json = serde_json::to_string(&secret).expect("json");
        assert_eq!(json.len(), 66);
        assert_eq!(
            serde_json::from_str::<Secret>(&json).expect("the same"),
            secret
        );
        assert_eq!(format!("{secret:?}"), "[secret]");
        for bad in [
            "00".to_owned(),
            "1".repeat(63),
            "g".repeat(64),
            "é".repeat(32),
        ] {
            let error = serde_json::from_str::<Secret>(&format!("\"{bad}\"")).expect_err("refused");
            assert!(!error.to_string().contains(&bad), "{error}");
        }
    }
}
