//! Splits a request's query into members.

use super::maintenance::decode_percent;

/// Returns names and decoded values of a query. A value that is not UTF-8 is an error.
pub(super) fn query_members(query: &str) -> impl Iterator<Item = Result<(&str, String), String>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        decode_percent(value).map(|value| (name, value)).ok_or_else(|| format!("the value of {name} is not UTF-8"))
    })
}
