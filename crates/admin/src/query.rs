//! Splits a request's query into members.

use super::maintenance::decode_percent;

/// Returns names and decoded values of a query. A value that is not UTF-8 is an error.
pub(super) fn query_members(query: &str) -> impl Iterator<Item = Result<(&str, String), String>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        decode_percent(value).map(|value| (name, value)).ok_or_else(|| format!("the value of {name} is not UTF-8"))
    })
}

/// Reads the value of the member `name`, which is `on` or `off`.
pub(super) fn parse_on_off(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name} is neither on nor off")),
    }
}

/// Formats the value of a member that is `on` or `off`.
pub(super) const fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}
