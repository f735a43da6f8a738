//! Declares JSON objects that litequic writes and that a `litequic ctl` of another version may read.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Declares objects of `/status`. When read, a missing member or one of an unexpected type, as from another version of
/// litequic, gets its default, and unknown members are ignored.
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

/// Values of counters and gauges, by name and labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Samples(pub BTreeMap<String, u64>);

/// A member of an object that another version of litequic may have written.
pub(super) trait Lenient {
    /// Converts a JSON value, or returns the default if its type is unexpected.
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

impl<'de> Deserialize<'de> for Samples {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Map::deserialize(deserializer)?;
        Ok(Self(all.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()))
    }
}

/// Deserializes a member of an object without failing on an unexpected type.
pub(super) fn deserialize_lenient<'de, D: Deserializer<'de>, T: Lenient>(deserializer: D) -> Result<T, D::Error> {
    Json::deserialize(deserializer).map(T::from_json_value)
}
