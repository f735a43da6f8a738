//! JSON objects that litequic writes and `litequic ctl` reads, which may be of another version.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Declares objects of `/status`. A member that is missing, or of another kind than expected, as from an older or a
/// younger litequic, has its default when it is read; members that are not known are ignored.
macro_rules! objects {
    ($($(#[$object:meta])* $name:ident { $($(#[$meta:meta])* $member:ident: $kind:ty,)* })*) => {$(
        $(#[$object])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$meta])* #[serde(deserialize_with = "deserialize_lenient")] pub $member: $kind,)*
        }

        impl Lenient for $name {
            fn from_json_value(value: Json) -> Self {
                serde_json::from_value(value).unwrap_or_default()
            }
        }
    )*};
}

pub(super) use objects;

/// Counters and gauges, by name and labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Samples(pub BTreeMap<String, u64>);

/// A value that may be null, which is not the same as missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Nullable<T> {
    /// The value.
    Value(T),
    /// Null.
    Null,
    /// Missing, or of another kind than expected.
    #[default]
    #[serde(skip_deserializing)]
    Unknown,
}

/// A member of an object, read from what another version of litequic may have written.
pub(super) trait Lenient {
    /// The value, or the default if it is of another kind.
    fn from_json_value(value: Json) -> Self;
}

impl<T: DeserializeOwned> Lenient for Option<T> {
    fn from_json_value(value: Json) -> Self {
        serde_json::from_value(value).ok()
    }
}

impl<T: DeserializeOwned + Default> Lenient for Vec<T> {
    fn from_json_value(value: Json) -> Self {
        let Json::Array(items) = value else { return Self::new() };
        items.into_iter().map(|item| serde_json::from_value(item).unwrap_or_default()).collect()
    }
}

impl<T: DeserializeOwned> Lenient for Nullable<T> {
    fn from_json_value(value: Json) -> Self {
        serde_json::from_value(value).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Samples {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Map::deserialize(deserializer)?;
        Ok(Self(all.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()))
    }
}

/// Reads a member of an object.
pub(super) fn deserialize_lenient<'de, D: Deserializer<'de>, T: Lenient>(deserializer: D) -> Result<T, D::Error> {
    Json::deserialize(deserializer).map(T::from_json_value)
}

impl<T> From<Option<T>> for Nullable<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::Value)
    }
}

impl<T> Nullable<T> {
    /// The value, if there is one.
    pub fn known_value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Null | Self::Unknown => None,
        }
    }
}
