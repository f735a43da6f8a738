//! Responses by route. Routes come with the configuration, so that they have no line in the table of metrics.

use super::counter::Counter;
use http::StatusCode;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Status classes, as the label says them.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// One route's responses on one worker, which alone counts here.
#[derive(Debug, Default)]
pub struct RouteMetrics([Counter; CLASSES.len()]);

impl RouteMetrics {
    /// A final response.
    pub fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        // There is no class beyond 5xx that anybody sends.
        if let Some(counter) = self.0.get(class.min(CLASSES.len() - 1)) {
            counter.increment();
        }
    }
}

/// One worker's routes by name. Those of earlier configurations stay: what was counted was counted.
#[derive(Debug, Default)]
pub struct RouteTable(Mutex<BTreeMap<Arc<str>, Arc<RouteMetrics>>>);

impl RouteTable {
    /// That of the route `name`, to be kept by whoever counts: this takes a lock, which a scrape takes as well.
    pub fn of(&self, name: &str) -> Arc<RouteMetrics> {
        // The exposition format would need both escaped, and its library does not.
        let name = name.replace(['"', '\\'], "_");
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(routes.entry(name.into()).or_default())
    }

    /// The sums over `tables`, by route and class.
    pub(super) fn sums<'a>(tables: impl Iterator<Item = &'a Self>) -> BTreeMap<(Arc<str>, &'static str), u64> {
        let mut sums = BTreeMap::new();
        for table in tables {
            for (name, route) in &*table.0.lock().unwrap_or_else(PoisonError::into_inner) {
                for (class, counter) in CLASSES.into_iter().zip(&route.0) {
                    *sums.entry((Arc::clone(name), class)).or_default() += counter.get();
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routes_responses_are_summed_over_workers_and_survive_its_configuration() {
        let workers = [RouteTable::default(), RouteTable::default()];
        for (worker, status) in [(0, 200), (1, 204), (1, 503), (0, 999)] {
            workers[worker].of("a.test/\"x").count(StatusCode::from_u16(status).unwrap());
        }
        workers[0].of("*/");
        let sums = RouteTable::sums(workers.iter());
        let of = |route: &str, class| sums[&(Arc::from(route), class)];
        assert_eq!((of("a.test/_x", "2xx"), of("a.test/_x", "4xx"), of("a.test/_x", "5xx")), (2, 0, 2));
        assert_eq!((sums.len(), of("*/", "2xx")), (8, 0));
    }
}
