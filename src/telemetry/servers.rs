//! Counters of origins' servers.

use super::{
    counter::{Counter, Gauge},
    table::{Table, plain},
};
use std::{collections::BTreeMap, sync::Arc};

/// One server as one worker sees it, which alone counts here.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    /// Requests that it was chosen for, retries included.
    pub requests: Counter,
    /// Requests that failed there.
    pub failures: Counter,
    /// Times it was left out for that.
    pub ejections: Counter,
    /// 1 while it is left out.
    pub ejected: Gauge,
    /// Connections that are open or being opened.
    pub connections: Gauge,
    /// Requests that wait for one.
    pub waiting: Gauge,
}

/// One server as its checks see it; the control thread counts here.
#[derive(Debug, Default)]
pub struct CheckMetrics {
    /// 1 while it is well.
    pub up: Gauge,
    /// Checks that went well.
    pub passed: Counter,
    /// Checks that failed.
    pub failed: Counter,
}

/// An origin's name, and a server's address.
pub type ServerName = (Arc<str>, Arc<str>);

/// Something of each server. Those of earlier configurations stay until they are told to go.
#[derive(Debug)]
pub struct ServerTable<T>(Table<ServerName, T>);

impl<T> Default for ServerTable<T> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<T: Default> ServerTable<T> {
    /// That of `server` of `origin`, to be kept by whoever counts: this takes a lock.
    pub fn of(&self, origin: &str, server: &str) -> Arc<T> {
        self.0.of((plain(origin), plain(server)))
    }

    /// What `read` finds at that server, if it is known; asking makes it no more so.
    pub(super) fn look(&self, origin: &str, server: &str, read: impl Fn(&T) -> u64) -> u64 {
        self.all().get(&(plain(origin), plain(server))).map_or(0, |counters| read(counters))
    }

    /// Forgets all but `servers`.
    pub fn keep(&self, servers: &[ServerName]) {
        let servers: Vec<ServerName> = servers.iter().map(|(origin, server)| (plain(origin), plain(server))).collect();
        self.0.keep(|name| servers.contains(name));
    }

    /// All of them.
    pub(super) fn all(&self) -> Arc<BTreeMap<ServerName, Arc<T>>> {
        self.0.all()
    }

    /// Those of each server over `tables`.
    pub(super) fn merged<'a>(tables: impl Iterator<Item = &'a Self>) -> BTreeMap<ServerName, Vec<Arc<T>>>
    where
        T: 'a,
    {
        Table::merged(tables.map(|table| &table.0))
    }

    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

/// A family of [`ServerMetrics`].
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: Read,
}

/// What is read of a server, and how.
pub(super) enum Read {
    Counter(fn(&ServerMetrics) -> &Counter),
    Gauge(fn(&ServerMetrics) -> &Gauge),
}

impl Read {
    /// Of one server, whose counters `workers` are.
    pub(super) fn sum(&self, workers: &[Arc<ServerMetrics>]) -> u64 {
        let one = |worker: &Arc<ServerMetrics>| match self {
            Self::Counter(read) => read(worker).get(),
            Self::Gauge(read) => read(worker).get(),
        };
        workers.iter().map(one).sum()
    }
}

/// All of them.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "origin_server_requests",
        help: "Requests for which each server of an origin was chosen, retries included.",
        read: Read::Counter(|server| &server.requests),
    },
    Family {
        name: "origin_server_failures",
        help: "Requests that failed at each server of an origin: no connection, no response in time, or a broken one.",
        read: Read::Counter(|server| &server.failures),
    },
    Family {
        name: "origin_server_ejections",
        help: "Times that a worker left a server of an origin out for failures.",
        read: Read::Counter(|server| &server.ejections),
    },
    Family {
        name: "origin_server_ejected",
        help: "Workers that leave a server of an origin out now.",
        read: Read::Gauge(|server| &server.ejected),
    },
    Family {
        name: "origin_server_connections",
        help: "Connections to each server of an origin that are open or being opened.",
        read: Read::Gauge(|server| &server.connections),
    },
    Family {
        name: "origin_server_queue",
        help: "Requests that wait for a connection to each server of an origin.",
        read: Read::Gauge(|server| &server.waiting),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_counters_are_summed_over_workers_and_forgotten_when_told() {
        let workers: [ServerTable<ServerMetrics>; 2] = [ServerTable::default(), ServerTable::default()];
        workers[0].of("o", "unix:/\"x").requests.add(2);
        workers[1].of("o", "unix:/\"x").requests.add(3);
        workers[1].of("p", "http://a:80").ejected.set(1);
        let merged = ServerTable::merged(workers.iter());
        let requests = |origin: &str, server: &str| FAMILIES[0].read.sum(&merged[&(origin.into(), server.into())]);
        assert_eq!((requests("o", "unix:/_x"), requests("p", "http://a:80")), (5, 0));
        workers[1].keep(&[("p".into(), "http://a:80".into())]);
        assert_eq!(workers[1].all().len(), 1);
    }
}
