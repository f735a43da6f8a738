//! Reads the members of a request's query.

use super::maintenance::decode_percent;
use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

/// Members of a query by name, with decoded values.
pub(super) struct QueryMembers<'a>(Vec<(&'a str, String)>);

impl<'a> QueryMembers<'a> {
    /// Splits `query`, which may have members with the names `known`, as `usage` describes.
    ///
    /// # Errors
    ///
    /// A message about an unknown member, or about a value that is not UTF-8.
    pub(super) fn parse(query: &'a str, known: &[&str], usage: &str) -> Result<Self, String> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let members = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                return Err(format!("unknown parameter: the query may have {usage}"));
            }
            let value = decode_percent(value).ok_or_else(|| format!("the value of {name} is not UTF-8"))?;
            Ok((name, value))
        });
        members.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the value of the last member `name`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().rfind(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Reads the value of the member `name`, which is `on` or `off`.
    pub(super) fn on_or_off(&self, name: &str) -> Result<Option<bool>, String> {
        let read = |value| match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("{name} is neither on nor off")),
        };
        self.value(name).map(read).transpose()
    }

    /// Reads the value of the member `name`, a number in `range`.
    pub(super) fn number<T>(&self, name: &str, range: &RangeInclusive<T>) -> Result<Option<T>, String>
    where
        T: FromStr + PartialOrd + Display,
    {
        let read = |value: &str| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("{name} is not a number from {} to {}", range.start(), range.end()))
        };
        self.value(name).map(read).transpose()
    }
}

/// Formats the value of a member that is `on` or `off`.
pub(super) const fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}
