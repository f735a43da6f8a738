//! Reads and writes the order of `POST /maintenance`, which switches routes to maintenance and back. The query has
//! `state=on` or `state=off`, `route` with a name or a host, and `retry_after` in seconds. Pure.

use super::query::{QueryMembers, on_or_off};
use super::status::MaintenanceStatus;
use std::{fmt, ops::RangeInclusive};

/// Order of `POST /maintenance`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceOrder {
    /// Whether maintenance begins; `false` ends the maintenance.
    pub on: bool,
    /// Name of a route, or host of several routes; `None` for all routes.
    pub route: Option<String>,
    /// `Retry-After` for clients, in seconds.
    pub retry_after: u32,
}

/// Applies a maintenance order. Returns the routes in maintenance, or the reason why nothing changed.
pub type SwitchMaintenance = Box<dyn Fn(&MaintenanceOrder) -> Result<String, String> + Send + Sync>;

/// Formats the routes in maintenance, for people.
pub fn format_maintenance(all: &[MaintenanceStatus]) -> String {
    let line = |one: &MaintenanceStatus| {
        let target = one.target.as_deref().unwrap_or("all");
        let routes: String = one.routes.iter().map(|name| format!("  {name}\n")).collect();
        format!("{target} answers 503, Retry-After: {}\n{routes}", one.retry_after.unwrap_or_default())
    };
    if all.is_empty() { "no route is in maintenance\n".into() } else { all.iter().map(line).collect() }
}

impl MaintenanceOrder {
    /// Default of `retry_after` in seconds: a short maintenance.
    pub const DEFAULT_RETRY_AFTER: u32 = 300;
    /// Range of `retry_after` in seconds: after more than a week no client comes back.
    pub const RETRY_AFTER_RANGE: RangeInclusive<u32> = 1..=604_800;
    /// Bytes of a route's name or host. No name is longer than a name made of the longest host and the longest path of
    /// a request.
    const MAX_ROUTE_BYTES: usize = 4096;

    /// Reads the query of `/maintenance`.
    ///
    /// # Errors
    ///
    /// A message with the fault of the query.
    pub fn from_maintenance_query(query: &str) -> Result<Self, String> {
        let usage = "state=on or state=off, route=NAME_OR_HOST, retry_after=SECONDS";
        let members = QueryMembers::parse(query, &["state", "route", "retry_after"], usage)?;
        let on = members.on_or_off("state")?;
        let route = members.value("route").map(str::to_owned);
        if route.as_ref().is_some_and(|route| !(1..=Self::MAX_ROUTE_BYTES).contains(&route.len())) {
            return Err("route is neither a name nor a host".into());
        }
        let retry_after = members.number("retry_after", &Self::RETRY_AFTER_RANGE)?.unwrap_or(Self::DEFAULT_RETRY_AFTER);
        let on = on.ok_or("the query has neither state=on nor state=off")?;
        Ok(Self { on, route, retry_after })
    }
}

/// Formats the order as a query.
impl fmt::Display for MaintenanceOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state={}&retry_after={}", on_or_off(self.on), self.retry_after)?;
        let Some(route) = &self.route else { return Ok(()) };
        f.write_str("&route=")?;
        route.bytes().try_for_each(|byte| match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' => write!(f, "{}", char::from(byte)),
            _ => write!(f, "%{byte:02X}"),
        })
    }
}

/// Decodes percent-encoding; `None` if the result is not UTF-8.
pub(super) fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = tail.split_first_chunk::<2>()?;
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        bytes.push(u8::try_from(high? << 4 | low?).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_query_says_what_to_switch() {
        let order = |on, route: Option<&str>, retry_after| {
            Ok(MaintenanceOrder { on, route: route.map(str::to_owned), retry_after })
        };
        for (query, expected) in [
            ("state=on", order(true, None, 300)),
            ("state=off&route=a.test", order(false, Some("a.test"), 300)),
            ("route=a.test%2Fb%5bGET%5D&retry_after=60&state=on", order(true, Some("a.test/b[GET]"), 60)),
            ("", Err("the query has neither state=on nor state=off".into())),
            ("state=maybe", Err("state is neither on nor off".into())),
            ("state=on&route=", Err("route is neither a name nor a host".into())),
            ("state=on&route=%", Err("the value of route is not UTF-8".into())),
            ("state=on&route=%ff", Err("the value of route is not UTF-8".into())),
            ("state=on&retry_after=0", Err("retry_after is not a number from 1 to 604800".into())),
            ("state=on&retry_after=-1", Err("retry_after is not a number from 1 to 604800".into())),
            (
                "state=on&rout=a",
                Err("unknown parameter: the query may have state=on or state=off, route=NAME_OR_HOST, retry_after=SECONDS".into()),
            ),
        ] {
            assert_eq!(MaintenanceOrder::from_maintenance_query(query), expected, "{query}");
        }
    }

    proptest! {
        #[test]
        fn an_order_comes_back_as_it_was(on: bool, route in prop::option::of("\\PC{1,40}"), retry_after in 1..=604_800_u32) {
            let order = MaintenanceOrder { on, route, retry_after };
            let query = order.to_string();
            let uri = http::Uri::try_from(format!("/maintenance?{query}"));
            prop_assert!(uri.is_ok(), "{:?}", uri);
            prop_assert_eq!(MaintenanceOrder::from_maintenance_query(&query), Ok(order));
        }

        #[test]
        fn no_query_makes_it_panic(query in ".{0,60}") {
            let _ = MaintenanceOrder::from_maintenance_query(&query);
        }
    }
}
