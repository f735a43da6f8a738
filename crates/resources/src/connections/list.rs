//! Scans a worker's connections for an operator, few at a time, so that no other task of the worker waits long.

use super::registered_connection::{EvictionReason, RegisteredConnection};
use super::registry::ConnectionRegistry;
use super::sent_rate::{MAX_RATE_INTERVAL, MIN_RATE_INTERVAL, ScanTimes};
use litequic_telemetry::clients::{ClientReport, ConnectionName, ListQuery, OpenConnection, Selection, TopN};
use std::{
    rc::{Rc, Weak},
    time::Instant,
};
use tokio::task::yield_now;

/// Maximum number of connections that are scanned before other tasks run.
const MAX_SCANNED: usize = 1_000;
/// Maximum number of connections that are scanned if each one's transport is asked, and of rows that are described,
/// before other tasks run: TCP_INFO is a system call, and s2n-quic takes a connection's lock.
const MAX_DESCRIBED: usize = 100;

/// Part of a list that one worker has made.
#[derive(Debug, Default)]
pub struct WorkerList {
    /// First rows of the list.
    pub reports: Vec<ClientReport>,
    /// Number of connections that are ready for requests.
    pub connections: u64,
    /// Number of ready connections that the query selects.
    pub selected: u64,
    /// Number of connections over TCP that are in a handshake.
    pub handshakes: u64,
    /// Whether the rates cover the last seconds; otherwise this scan has begun to measure them.
    pub has_rates: bool,
}

impl ConnectionRegistry {
    /// Passes each connection to `see` with its number. Other tasks run after each `most` connections.
    async fn visit_connections(&self, most: usize, mut see: impl FnMut(u64, &Rc<RegisteredConnection>)) {
        let mut next = 0;
        loop {
            let mut scanned = 0;
            for (number, state) in self.open.borrow().range(next..).take(most) {
                scanned += 1;
                next = number.saturating_add(1);
                see(*number, state);
            }
            if scanned < most {
                return;
            }
            yield_now().await;
        }
    }

    /// Lists the connections, all of `worker`. `now` returns the time.
    pub async fn list_connections(&self, worker: usize, query: ListQuery, now: impl Fn() -> Instant) -> WorkerList {
        let (mut list, mut best) = (WorkerList::default(), TopN::new(query.limit));
        let most = if query.sort.needs_transport() { MAX_DESCRIBED } else { MAX_SCANNED };
        let scan = self.visit_connections(most, |number, state| {
            let Some(connection) = state.connection.get().and_then(Weak::upgrade) else {
                list.handshakes += u64::from(!state.ready.get());
                return;
            };
            list.connections += 1;
            let (name, now) = (ConnectionName { worker, number }, now());
            let rate = state.measure_sent_rate(now);
            if query.selection.selects_connection(name, connection.remote_address(), connection.http_version()) {
                list.selected += 1;
                let key = state.connection_sort_value(&query, rate, &*connection, now);
                best.offer_value(key, (worker, number), || (name, Rc::clone(state)));
            }
        });
        scan.await;
        let last = now();
        let looks = self.scan_times.get();
        let looks = looks.filter(|looks| last.saturating_duration_since(looks.last) <= MAX_RATE_INTERVAL);
        let first = looks.map_or(last, |looks| looks.first);
        self.scan_times.set(Some(ScanTimes { first, last }));
        list.has_rates = last.saturating_duration_since(first) >= MIN_RATE_INTERVAL;
        for rows in best.into_sorted().chunks(MAX_DESCRIBED) {
            yield_now().await;
            list.reports.extend(rows.iter().filter_map(|(name, state)| state.client_report(*name, now())));
        }
        list
    }

    /// Closes the connections, all of `worker`, that `selection` selects: `at_once`, or gracefully, once their requests
    /// have ended. Returns their number.
    pub async fn close_connections(&self, worker: usize, selection: Selection, at_once: bool) -> u64 {
        let reason = if at_once { EvictionReason::OperatorNow } else { EvictionReason::Operator };
        let mut closed = 0;
        let scan = self.visit_connections(MAX_SCANNED, |number, state| {
            let name = ConnectionName { worker, number };
            let is_selected = match (state.connection.get().and_then(Weak::upgrade), state.client.get()) {
                (Some(open), _) => selection.selects_connection(name, open.remote_address(), open.http_version()),
                (None, Some(client)) => selection.selects_handshake(name, client),
                (None, None) => false,
            };
            if is_selected && state.is_closed_by(reason) {
                closed += 1;
                self.evict_connection(number, state, reason);
            }
        });
        scan.await;
        closed
    }

    /// Passes the connections, all of `worker`, that are ready for requests and that `selection` selects, to `see`.
    pub async fn visit_selected(&self, worker: usize, selection: Selection, mut see: impl FnMut(&dyn OpenConnection)) {
        let scan = self.visit_connections(MAX_SCANNED, |number, state| {
            let Some(open) = state.connection.get().and_then(Weak::upgrade) else { return };
            let name = ConnectionName { worker, number };
            if selection.selects_connection(name, open.remote_address(), open.http_version()) {
                see(&*open);
            }
        });
        scan.await;
    }
}

impl RegisteredConnection {
    /// Bytes a second that the connection sends, measured at `now`.
    fn measure_sent_rate(&self, now: Instant) -> u64 {
        let mut rate = self.rate.get();
        let measured =
            rate.update_rate(self.traffic.sent_and_received().0, now.saturating_duration_since(self.opened_at));
        self.rate.set(rate);
        measured
    }

    fn connection_sort_value(
        &self,
        query: &ListQuery,
        sent_rate: u64,
        connection: &dyn OpenConnection,
        now: Instant,
    ) -> u64 {
        use litequic_telemetry::clients::ListOrder;
        let (sent, received) = self.traffic.sent_and_received();
        match query.sort {
            ListOrder::SentRate => sent_rate,
            ListOrder::Sent => sent,
            ListOrder::Received => received,
            ListOrder::Open => self.requests.get().into(),
            ListOrder::Since => {
                u64::try_from(now.saturating_duration_since(self.opened_at).as_micros()).unwrap_or(u64::MAX)
            }
            ListOrder::Rtt | ListOrder::Loss => connection.path_report().transport_sort_value(query.sort),
            ListOrder::Held => self.memory_bytes(),
        }
    }

    /// Row of the connection `name`; `None` if the connection has ended meanwhile.
    fn client_report(&self, name: ConnectionName, now: Instant) -> Option<ClientReport> {
        let connection = self.connection.get()?.upgrade()?;
        let (sent, received) = self.traffic.sent_and_received();
        let open = self.requests.get();
        Some(ClientReport {
            name,
            address: connection.remote_address(),
            protocol: connection.http_version(),
            age: now.saturating_duration_since(self.opened_at),
            idle: (open == 0).then(|| now.saturating_duration_since(self.last_used.get())),
            open,
            sent,
            sent_rate: self.rate.get().rate.into(),
            received,
            held: self.memory_bytes(),
            transport: connection.path_report(),
            description: connection.describe_connection(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{ConnectionEntry, ConnectionPool};
    use futures_util::{FutureExt as _, task::noop_waker_ref};
    use litequic_telemetry::clients::{ConnectionDescription, ListOrder, TransportReport};
    use std::{
        net::SocketAddr,
        pin::{Pin, pin},
        task::{Context, Poll},
        time::Duration,
    };

    struct Open {
        address: SocketAddr,
        rtt: u64,
    }

    impl OpenConnection for Open {
        fn remote_address(&self) -> SocketAddr {
            self.address
        }

        fn http_version(&self) -> &'static str {
            if self.address.is_ipv4() { "HTTP/3" } else { "HTTP/2" }
        }

        fn path_report(&self) -> TransportReport {
            TransportReport { rtt: Some(Duration::from_millis(self.rtt)), ..TransportReport::default() }
        }

        fn describe_connection(&self) -> ConnectionDescription {
            ConnectionDescription {
                local: self.address,
                server_name: None,
                tls: "1.3",
                group: None,
                resumed: None,
                certificate: None,
                requests: 0,
            }
        }
    }

    /// Registered connection, open until dropped.
    struct Client {
        account: ConnectionEntry,
        _open: Rc<Open>,
    }

    fn open(accounts: &Rc<ConnectionRegistry>, address: &str, rtt: u64) -> Client {
        let address = address.parse().unwrap();
        let account = accounts.admit_connection(ConnectionPool::Quic, None, u32::MAX).unwrap();
        let open = Rc::new(Open { address, rtt });
        account.set_client_address(address);
        account.mark_ready();
        let weak = Rc::downgrade(&open);
        account.set_open_connection(weak);
        Client { account, _open: open }
    }

    fn poll<T>(scan: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        scan.poll(&mut Context::from_waker(noop_waker_ref()))
    }

    /// The output of `scan`, and the number of times that it ran.
    fn finish<T>(mut scan: Pin<&mut impl Future<Output = T>>) -> (T, u32) {
        let mut looks = 1;
        loop {
            match poll(scan.as_mut()) {
                Poll::Ready(output) => return (output, looks),
                Poll::Pending => looks += 1,
            }
        }
    }

    fn list(accounts: &ConnectionRegistry, query: ListQuery, now: Instant) -> (WorkerList, u32) {
        finish(pin!(accounts.list_connections(3, query, || now)))
    }

    fn numbers(list: &WorkerList) -> Vec<u64> {
        list.reports.iter().map(|report| report.name.number).collect()
    }

    fn end(client: &ConnectionEntry) -> Option<EvictionReason> {
        match client.poll_eviction(&Context::from_waker(noop_waker_ref()), &mut None) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_list_has_the_first_rows_by_each_order_and_counts_all() {
        let accounts = Rc::<ConnectionRegistry>::default();
        let clients: Vec<Client> =
            (0..5).map(|nth| open(&accounts, &format!("192.0.2.{nth}:1"), [30, 10, 50, 20, 40][nth])).collect();
        let _handshake = accounts.admit_connection(ConnectionPool::Tls, None, u32::MAX).unwrap();
        clients[3].account.traffic_counter().count_sent(100);
        clients[1].account.traffic_counter().count_sent(50);
        clients[4].account.traffic_counter().count_received(70);
        clients[2].account.set_open_requests(2);
        clients[0].account.set_open_requests(1);
        clients[0].account.add_memory_counter(|| 5_000_000);
        let now = Instant::now();
        for (sort, expected) in [
            (ListOrder::Sent, [3, 1, 0]),
            (ListOrder::Received, [4, 0, 1]),
            (ListOrder::Open, [2, 0, 1]),
            (ListOrder::Since, [0, 1, 2]),
            (ListOrder::Rtt, [2, 4, 0]),
            (ListOrder::Loss, [0, 1, 2]),
            (ListOrder::Held, [0, 2, 1]),
        ] {
            let (list, looks) = list(&accounts, ListQuery { sort, limit: 3, ..ListQuery::default() }, now);
            assert_eq!(numbers(&list), expected, "{sort}");
            assert_eq!((list.connections, list.selected, list.handshakes, looks), (5, 5, 1, 2));
        }
        let selection = Selection { client: Some("192.0.2.4/31".parse().unwrap()), protocol: None };
        let (few, _) = list(&accounts, ListQuery { selection, ..ListQuery::default() }, now);
        assert_eq!((numbers(&few), few.connections, few.selected), (vec![4], 5, 1));
        let selection = Selection { client: None, protocol: Some("HTTP/2") };
        let (none, _) = list(&accounts, ListQuery { selection, ..ListQuery::default() }, now);
        assert_eq!((numbers(&none), none.selected), (vec![], 0));
    }

    #[test]
    fn a_scan_takes_a_thousand_connections_and_counts_none_twice() {
        let accounts = Rc::<ConnectionRegistry>::default();
        let mut clients: Vec<Client> = (0..2_500).map(|_| open(&accounts, "192.0.2.1:1", 1)).collect();
        let (all, looks) = list(&accounts, ListQuery::default(), Instant::now());
        assert_eq!((all.connections, all.reports.len(), looks), (2_500, 50, 4));
        let by_rtt = ListQuery { sort: ListOrder::Rtt, ..ListQuery::default() };
        assert_eq!(list(&accounts, by_rtt, Instant::now()).1, 27, "each connection is asked");
        // Some connections end while other tasks run.
        let query = ListQuery { limit: 10_000, ..ListQuery::default() };
        let mut scan = pin!(accounts.list_connections(0, query, Instant::now));
        assert!(poll(scan.as_mut()).is_pending());
        clients.drain(900..1_100);
        let (list, _) = finish(scan);
        assert_eq!((list.connections, list.reports.len()), (2_400, 2_300));
    }

    #[test]
    fn a_rate_covers_the_time_between_two_scans() {
        let accounts = Rc::<ConnectionRegistry>::default();
        let client = open(&accounts, "192.0.2.1:1", 1);
        let start = Instant::now();
        let mut last = 0;
        for (at, sent, has_rates, rate) in [
            // The connection is open for less than the shortest time of a measurement.
            (0, 1_000, false, 2_000),
            (300, 50_000, false, 2_000),
            (1_000, 101_000, true, 100_000),
            (1_200, 900_000, true, 100_000),
            (2_000, 1_101_000, true, 1_000_000),
            // The last measurement is too long ago.
            (60_000, 9_101_000, false, 0),
            (61_000, 9_301_000, true, 200_000),
        ] {
            client.account.traffic_counter().count_sent(sent - last);
            last = sent;
            let (list, _) = list(&accounts, ListQuery::default(), start + Duration::from_millis(at));
            let measured = list.reports[0].sent_rate;
            assert!(measured.abs_diff(rate) <= rate / 100, "{at}: {measured}");
            assert_eq!((list.has_rates, list.reports[0].sent), (has_rates, sent), "{at}");
        }
    }

    #[test]
    fn selected_connections_are_closed_gracefully_and_then_at_once() {
        let accounts = Rc::<ConnectionRegistry>::default();
        let clients = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "[2001:db8::1]:1"];
        let clients = clients.map(|address| open(&accounts, address, 1));
        let handshake = accounts.admit_connection(ConnectionPool::Tls, None, u32::MAX).unwrap();
        handshake.set_client_address("192.0.2.1:3".parse().unwrap());
        let close = |text: &str, at_once| {
            let selection = Selection { client: Some(text.parse().unwrap()), protocol: None };
            accounts.close_connections(0, selection, at_once).now_or_never().unwrap()
        };
        assert_eq!(close("192.0.2.1:1", false), 1);
        assert_eq!(
            clients.each_ref().map(|client| end(&client.account)),
            [Some(EvictionReason::Operator), None, None, None]
        );
        assert_eq!(close("192.0.2.1", false), 2, "one is closed already");
        assert_eq!(end(&handshake), Some(EvictionReason::Operator));
        assert_eq!(close("192.0.2.0/24", true), 4);
        assert_eq!(end(&clients[0].account), Some(EvictionReason::OperatorNow));
        assert_eq!(close("192.0.2.0/24", true), 0);
        assert_eq!((end(&clients[3].account), close("0-3", false)), (None, 1));
        assert_eq!(end(&clients[3].account), Some(EvictionReason::Operator));
    }
}
