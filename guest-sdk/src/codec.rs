//! Typed keys and values.
//!
//! | type | as a key | as a value |
//! |---|---|---|
//! | `[u8]`, `[u8; N]`, `Vec<u8>` | itself | itself |
//! | `str`, `String` | UTF-8 | UTF-8 |
//! | unsigned integers | big-endian, so that keys sort as numbers do | little-endian, as merge operators take them |
//! | signed integers | big-endian with the sign bit flipped, so that keys sort as numbers do | little-endian, two's complement |
//! | `(A, B)`, `(A, B, C)` | one after the other; see [`FixedKey`] | - |
//! | [`Json<T>`] | - | JSON |
//! | `()` | - | no bytes |
//!
//! `&T` works wherever `T` does.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// A type that can be a key.
pub trait Key {
    /// The key's bytes. They sort as the values do.
    fn to_key(&self) -> Cow<'_, [u8]>;
}

/// A type that a key can be read back as.
pub trait FromKey: Sized {
    /// Reads a key. Fails with `invalid-data` where the bytes are of another form.
    fn from_key(key: &[u8]) -> Result<Self>;
}

/// A key whose bytes always have the same length, so that another part can follow it in a tuple and both can be read back.
///
/// ```
/// use quarry_guest::codec::{FromKey, Key};
///
/// let key = (7u32, "alice").to_key().into_owned();
/// assert_eq!(key, b"\0\0\0\x07alice");
/// assert_eq!(<(u32, String)>::from_key(&key).unwrap(), (7, "alice".to_owned()));
/// ```
pub trait FixedKey: Key + FromKey {
    /// The length in bytes.
    const LEN: usize;
}

/// A type that can be a value.
pub trait Value {
    /// The value's bytes. Fails with `invalid-value` where the value has no such form.
    fn to_value(&self) -> Result<Cow<'_, [u8]>>;
}

/// A type that a value can be read back as.
pub trait FromValue: Sized {
    /// Reads a value. Fails with `invalid-data` where the bytes are of another form.
    fn from_value(value: Vec<u8>) -> Result<Self>;
}

/// A value stored as JSON.
///
/// ```
/// use quarry_guest::codec::{FromValue, Json, Value};
///
/// let bytes = Json(&vec![1, 2, 3]).to_value().unwrap().into_owned();
/// assert_eq!(bytes, b"[1,2,3]");
/// assert_eq!(Json::<Vec<u8>>::from_value(bytes).unwrap().0, [1, 2, 3]);
/// assert_eq!(Json::<bool>::from_value(b"[]".to_vec()).unwrap_err().code(), "invalid-data");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> Value for Json<T> {
    fn to_value(&self) -> Result<Cow<'_, [u8]>> {
        serde_json::to_vec(&self.0)
            .map(Cow::Owned)
            .map_err(|why| Error::new("invalid-value", format!("a value has no JSON form: {why}")))
    }
}

impl<T: DeserializeOwned> FromValue for Json<T> {
    fn from_value(value: Vec<u8>) -> Result<Self> {
        serde_json::from_slice(&value)
            .map(Json)
            .map_err(Error::invalid_data)
    }
}

impl<T: Key + ?Sized> Key for &T {
    fn to_key(&self) -> Cow<'_, [u8]> {
        (**self).to_key()
    }
}

impl<T: Value + ?Sized> Value for &T {
    fn to_value(&self) -> Result<Cow<'_, [u8]>> {
        (**self).to_value()
    }
}

macro_rules! bytes {
    ($($type:ty $(, $n:ident)?;)*) => {$(
        impl$(<const $n: usize>)? Key for $type {
            fn to_key(&self) -> Cow<'_, [u8]> {
                let bytes: &[u8] = self.as_ref();
                Cow::Borrowed(bytes)
            }
        }

        impl$(<const $n: usize>)? Value for $type {
            fn to_value(&self) -> Result<Cow<'_, [u8]>> {
                let bytes: &[u8] = self.as_ref();
                Ok(Cow::Borrowed(bytes))
            }
        }
    )*};
}

bytes! {
    [u8];
    [u8; N], N;
    Vec<u8>;
    str;
    String;
}

impl FromKey for Vec<u8> {
    fn from_key(key: &[u8]) -> Result<Self> {
        Ok(key.to_vec())
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: Vec<u8>) -> Result<Self> {
        Ok(value)
    }
}

impl FromKey for String {
    fn from_key(key: &[u8]) -> Result<Self> {
        String::from_value(key.to_vec())
    }
}

impl FromValue for String {
    fn from_value(value: Vec<u8>) -> Result<Self> {
        String::from_utf8(value).map_err(Error::invalid_data)
    }
}

impl<const N: usize> FromKey for [u8; N] {
    fn from_key(key: &[u8]) -> Result<Self> {
        key.try_into().map_err(|_| wrong_length(N, key))
    }
}

impl<const N: usize> FixedKey for [u8; N] {
    const LEN: usize = N;
}

impl<const N: usize> FromValue for [u8; N] {
    fn from_value(value: Vec<u8>) -> Result<Self> {
        Self::from_key(&value)
    }
}

impl Value for () {
    fn to_value(&self) -> Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(&[]))
    }
}

impl FromValue for () {
    fn from_value(value: Vec<u8>) -> Result<Self> {
        if value.is_empty() {
            Ok(())
        } else {
            Err(wrong_length(0, &value))
        }
    }
}

macro_rules! integers {
    // `$flip` is what turns two's complement into an order of bytes.
    ($($type:ty, $flip:expr;)*) => {$(
        impl Key for $type {
            fn to_key(&self) -> Cow<'_, [u8]> {
                Cow::Owned((*self ^ $flip).to_be_bytes().to_vec())
            }
        }

        impl FromKey for $type {
            fn from_key(key: &[u8]) -> Result<Self> {
                <[u8; size_of::<$type>()]>::from_key(key).map(|bytes| <$type>::from_be_bytes(bytes) ^ $flip)
            }
        }

        impl FixedKey for $type {
            const LEN: usize = size_of::<$type>();
        }

        impl Value for $type {
            fn to_value(&self) -> Result<Cow<'_, [u8]>> {
                Ok(Cow::Owned(self.to_le_bytes().to_vec()))
            }
        }

        impl FromValue for $type {
            fn from_value(value: Vec<u8>) -> Result<Self> {
                <[u8; size_of::<$type>()]>::from_key(&value).map(<$type>::from_le_bytes)
            }
        }
    )*};
}

integers! {
    u8, 0;
    u16, 0;
    u32, 0;
    u64, 0;
    u128, 0;
    i8, i8::MIN;
    i16, i16::MIN;
    i32, i32::MIN;
    i64, i64::MIN;
    i128, i128::MIN;
}

impl<A: FixedKey, B: Key> Key for (A, B) {
    fn to_key(&self) -> Cow<'_, [u8]> {
        Cow::Owned([self.0.to_key(), self.1.to_key()].concat())
    }
}

impl<A: FixedKey, B: FromKey> FromKey for (A, B) {
    fn from_key(key: &[u8]) -> Result<Self> {
        let (first, rest) = split::<A>(key)?;
        Ok((first, B::from_key(rest)?))
    }
}

impl<A: FixedKey, B: FixedKey> FixedKey for (A, B) {
    const LEN: usize = A::LEN + B::LEN;
}

impl<A: FixedKey, B: FixedKey, C: Key> Key for (A, B, C) {
    fn to_key(&self) -> Cow<'_, [u8]> {
        Cow::Owned([self.0.to_key(), self.1.to_key(), self.2.to_key()].concat())
    }
}

impl<A: FixedKey, B: FixedKey, C: FromKey> FromKey for (A, B, C) {
    fn from_key(key: &[u8]) -> Result<Self> {
        let (first, rest) = split::<A>(key)?;
        let (second, rest) = split::<B>(rest)?;
        Ok((first, second, C::from_key(rest)?))
    }
}

fn split<A: FixedKey>(key: &[u8]) -> Result<(A, &[u8])> {
    let (first, rest) = key
        .split_at_checked(A::LEN)
        .ok_or_else(|| wrong_length(A::LEN, key))?;
    Ok((A::from_key(first)?, rest))
}

fn wrong_length(wanted: usize, bytes: &[u8]) -> Error {
    Error::invalid_data(format_args!("{} bytes where {wanted} belong", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_keys_sort_as_numbers_do() {
        let numbers = [i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX];
        let keys: Vec<_> = numbers.iter().map(|n| n.to_key().into_owned()).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for (number, key) in numbers.iter().zip(&keys) {
            assert_eq!(i64::from_key(key).as_ref(), Ok(number));
        }
        assert!(255u32.to_key() < 256u32.to_key());
    }

    #[test]
    fn values_come_back() {
        fn check<T: Value + FromValue + PartialEq + std::fmt::Debug>(value: T) {
            let bytes = value.to_value().unwrap().into_owned();
            assert_eq!(T::from_value(bytes), Ok(value));
        }
        check(0xfeed_u64);
        check(-5_i128);
        check("käse".to_owned());
        check(vec![0u8, 255]);
        check([1u8, 2, 3]);
        check(Json(
            vec![Some("a"), None]
                .into_iter()
                .map(|s| s.map(str::to_owned))
                .collect::<Vec<_>>(),
        ));
        check(());
    }

    #[test]
    fn tuples_come_back() {
        let key = (1u8, -2i16, "x").to_key().into_owned();
        assert_eq!(
            <(u8, i16, String)>::from_key(&key),
            Ok((1, -2, "x".to_owned()))
        );
        assert_eq!(
            <((u8, i16), String)>::from_key(&key),
            Ok(((1, -2), "x".to_owned()))
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        for error in [
            u64::from_value(vec![1, 2]).unwrap_err(),
            String::from_value(vec![0xff]).unwrap_err(),
            <()>::from_value(vec![0]).unwrap_err(),
            <[u8; 2]>::from_value(vec![]).unwrap_err(),
            <(u32, String)>::from_key(&[1]).unwrap_err(),
        ] {
            assert_eq!(error.code(), "invalid-data", "{error}");
        }
    }
}
