//! Durations as `"15s"` and sizes as `"64MiB"`: one spelling in the file, the environment, flags and JSON.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A kibibyte.
pub const KIB: u64 = 1 << 10;
/// A mebibyte.
pub const MIB: u64 = 1 << 20;
/// A gibibyte.
pub const GIB: u64 = 1 << 30;

/// Units of a duration with their length in nanoseconds, shortest first.
const TIMES: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
/// Units of a size with their length in bytes, smallest first.
const SIZES: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", KIB),
    ("MiB", MIB),
    ("GiB", GIB),
    ("TiB", 1 << 40),
];

/// A length of time, written as a whole number and a unit: `"15s"`, `"250ms"`, `"10m"`. At most 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A number of bytes, written as a whole number and a unit: `"64MiB"`, `"65535B"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// Text that is no duration or no size. The message names the units that are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        match number_with_unit(text, &TIMES) {
            Ok(nanos) => Ok(Self(Duration::from_nanos(nanos))),
            Err(fault) => Err(UnitError(format!(
                "{} is not a duration ({fault}): write a whole number and one of ns, us, ms, s, m, h, d, like \"15s\" or \"250ms\"",
                quoted(text)
            ))),
        }
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "0" {
            return Ok(Self(0));
        }
        match number_with_unit(text, &SIZES) {
            Ok(bytes) => Ok(Self(bytes)),
            Err(fault) => Err(UnitError(format!(
                "{} is not a size ({fault}): write a whole number and one of B, KiB, MiB, GiB, TiB, like \"64MiB\"",
                quoted(text)
            ))),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Saturates past 584 years, which no setting allows.
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        if nanos == 0 {
            return f.write_str("0s");
        }
        // "60s" reads better than "1m": minutes and up begin at two of them.
        let fits = |&&(_, unit): &&(&str, u64)| {
            nanos.is_multiple_of(unit) && (unit < 60_000_000_000 || nanos / unit >= 2)
        };
        let (name, unit) = TIMES.iter().rfind(fits).unwrap_or(&TIMES[0]);
        write!(f, "{}{name}", nanos / unit)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0B");
        }
        let (name, unit) = SIZES
            .iter()
            .rfind(|(_, unit)| self.0.is_multiple_of(*unit))
            .unwrap_or(&SIZES[0]);
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Result<u64, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("it does not begin with a digit");
    }
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    if unit.is_empty() {
        return Err("the unit is missing");
    }
    let (_, scale) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or("the unit is unknown")?;
    let number: u64 = number.parse().map_err(|_| "the number is too large")?;
    number.checked_mul(*scale).ok_or("the number is too large")
}

/// The text for a message: quoted, escaped and cut, as it comes from outside.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    if text.chars().count() <= MAX_CHARS {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(MAX_CHARS).collect();
    format!("{:?}", format!("{start}..."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, millis, shown) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("250ms", 250, "250ms"),
            ("1500ms", 1_500, "1500ms"),
            ("15s", 15_000, "15s"),
            ("15 s", 15_000, "15s"),
            ("60s", 60_000, "60s"),
            ("1m", 60_000, "60s"),
            ("10m", 600_000, "10m"),
            ("2h", 7_200_000, "2h"),
            ("2d", 172_800_000, "2d"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string(), shown, "{text}");
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span, "{text}");
        }
        for (text, fault) in [
            ("", "does not begin with a digit"),
            ("-1s", "does not begin with a digit"),
            ("15", "unit is missing"),
            ("1.5s", "unit is unknown"),
            ("5 minutes", "unit is unknown"),
            ("99999999999999999999s", "too large"),
            ("99999999999d", "too large"),
            ("١s", "does not begin with a digit"),
        ] {
            let message = text.parse::<Span>().unwrap_err().to_string();
            assert!(
                message.contains(fault) && message.contains("ns, us, ms, s, m, h, d"),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes, shown) in [
            ("0", 0, "0B"),
            ("65535B", 65_535, "65535B"),
            ("64KiB", 65_536, "64KiB"),
            ("1024KiB", MIB, "1MiB"),
            ("16MiB", 16 * MIB, "16MiB"),
            ("3GiB", 3 * GIB, "3GiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(size.to_string(), shown, "{text}");
        }
        for text in [
            "",
            "64",
            "64MB",
            "64mib",
            "MiB",
            "-1B",
            "1.5GiB",
            "99999999TiB",
        ] {
            let message = text.parse::<Size>().unwrap_err().to_string();
            assert!(
                message.contains("B, KiB, MiB, GiB, TiB"),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn both_travel_through_json() {
        let json = serde_json::to_string(&(Span(Duration::from_secs(90)), Size(MIB))).unwrap();
        assert_eq!(json, r#"["90s","1MiB"]"#);
        assert_eq!(
            serde_json::from_str::<(Span, Size)>(&json).unwrap(),
            (Span(Duration::from_secs(90)), Size(MIB))
        );
        assert!(serde_json::from_str::<Span>("15").is_err());
    }
}
