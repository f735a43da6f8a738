//! The members of a request's query.

use super::maintenance::decode_percent;

/// Members of a query, decoded. Fails for one that is no text.
pub(super) fn query_members(query: &str) -> impl Iterator<Item = Result<(&str, String), String>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        decode_percent(value).map(|value| (name, value)).ok_or_else(|| format!("{name} is no text"))
    })
}
