//! Responses by route.

use super::{
    counter::Counter,
    table::{Table, plain},
};
use http::StatusCode;
use std::{collections::BTreeMap, sync::Arc};

/// Status classes, as the label says them.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
/// Protocols, in the order of [`Spoken`].
const PROTOCOLS: [&str; 3] = ["h3", "h2", "h1"];

/// What a client spoke, as the label says it.
#[derive(Debug, Clone, Copy)]
pub enum Spoken {
    /// HTTP/3
    H3,
    /// HTTP/2
    H2,
    /// HTTP/1.1, and 1.0
    H1,
}

/// One route's responses on one worker, which alone counts here.
#[derive(Debug, Default)]
pub struct RouteMetrics {
    /// By protocol and class.
    responses: [[Counter; CLASSES.len()]; PROTOCOLS.len()],
    /// Requests that its `rate_limit` refused.
    pub limited: Counter,
}

impl RouteMetrics {
    /// A final response to a client that `spoken` is of.
    pub fn count(&self, spoken: Spoken, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        let [h3, h2, h1] = &self.responses;
        let classes = match spoken {
            Spoken::H3 => h3,
            Spoken::H2 => h2,
            Spoken::H1 => h1,
        };
        // There is no class beyond 5xx that anybody sends.
        if let Some(counter) = classes.get(class.min(CLASSES.len() - 1)) {
            counter.increment();
        }
    }
}

/// Protocol, class, and how many responses.
type Count = (&'static str, &'static str, u64);

impl RouteMetrics {
    /// The responses of one route, whose counters `workers` are.
    pub(super) fn responses(workers: &[Arc<Self>]) -> impl Iterator<Item = Count> {
        let sum = |protocol: usize, class: usize| {
            let one = |worker: &Arc<Self>| worker.responses.get(protocol)?.get(class).map(Counter::get);
            workers.iter().filter_map(one).sum()
        };
        PROTOCOLS.into_iter().enumerate().flat_map(move |(nth, protocol)| {
            CLASSES.into_iter().enumerate().map(move |(of, class)| (protocol, class, sum(nth, of)))
        })
    }

    /// The requests of one route that its limit refused.
    pub(super) fn refused(workers: &[Arc<Self>]) -> u64 {
        workers.iter().map(|worker| worker.limited.get()).sum()
    }
}

/// One worker's routes by name. Those of earlier configurations stay: what was counted was counted.
#[derive(Debug, Default)]
pub struct RouteTable(Table<Arc<str>, RouteMetrics>);

impl RouteTable {
    /// That of the route `name`, to be kept by whoever counts: this takes a lock.
    pub fn of(&self, name: &str) -> Arc<RouteMetrics> {
        self.0.of(plain(name))
    }

    /// The counters of each route over `tables`.
    pub(super) fn merged<'a>(tables: impl Iterator<Item = &'a Self>) -> BTreeMap<Arc<str>, Vec<Arc<RouteMetrics>>> {
        Table::merged(tables.map(|table| &table.0))
    }

    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routes_responses_are_summed_over_workers_and_survive_its_configuration() {
        let workers = [RouteTable::default(), RouteTable::default()];
        for (worker, spoken, status) in [
            (0, Spoken::H3, 200),
            (1, Spoken::H3, 204),
            (1, Spoken::H2, 503),
            (0, Spoken::H2, 999),
            (0, Spoken::H1, 200),
        ] {
            workers[worker].of("a.test/\"x").count(spoken, StatusCode::from_u16(status).unwrap());
        }
        workers[0].of("*/");
        let merged = RouteTable::merged(workers.iter());
        let of = |route: &str, protocol, class| {
            let mut responses = RouteMetrics::responses(&merged[route]);
            responses.find(|(of, in_class, _)| (*of, *in_class) == (protocol, class)).unwrap().2
        };
        assert_eq!(
            (of("a.test/_x", "h3", "2xx"), of("a.test/_x", "h1", "2xx"), of("a.test/_x", "h3", "5xx")),
            (2, 1, 0)
        );
        assert_eq!((merged.len(), of("a.test/_x", "h2", "5xx"), of("*/", "h2", "2xx")), (2, 2, 0));
    }
}
