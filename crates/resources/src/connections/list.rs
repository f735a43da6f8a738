//! Scans a worker's connections for an operator, few at a time, so that no other task of the worker waits long. Pure:
//! the caller passes the time, and decides when the next part is scanned.

use super::registered_connection::{EvictionReason, RegisteredConnection};
use super::registry::ConnectionRegistry;
use super::sent_rate::{MAX_RATE_INTERVAL, MIN_RATE_INTERVAL, ScanTimes};
use litequic_telemetry::clients::{ClientReport, ConnectionName, ListQuery, OpenConnection, Selection, TopN};
use std::{
    rc::{Rc, Weak},
    time::Instant,
    vec,
};

/// Maximum number of connections that one call scans.
const MAX_SCANNED: usize = 1_000;
/// Maximum number of connections that one call scans if it asks each one's transport, and of rows that one call
/// describes: TCP_INFO is a system call, and s2n-quic takes a connection's lock.
const MAX_DESCRIBED: usize = 100;

/// Position of a scan: the number of the next connection.
#[derive(Debug, Clone, Copy, Default)]
struct ScanCursor(u64);

impl ScanCursor {
    /// Passes the next connections of `accounts`, at most `most`, to `see`, each with its number. Returns whether more
    /// may follow.
    fn visit_connections(
        &mut self,
        accounts: &ConnectionRegistry,
        most: usize,
        mut see: impl FnMut(u64, &Rc<RegisteredConnection>),
    ) -> bool {
        let mut looked = 0;
        for (id, state) in accounts.open.borrow().range(self.0..).take(most) {
            looked += 1;
            self.0 = id.saturating_add(1);
            see(*id, state);
        }
        looked == most
    }
}

/// Scan that makes a list of connections.
#[derive(Debug)]
pub struct ListScan {
    worker: usize,
    query: ListQuery,
    cursor: ScanCursor,
    top_rows: TopN<(u64, Rc<RegisteredConnection>)>,
    list: WorkerList,
}

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

impl ListScan {
    /// A scan for a list of the connections of `worker`.
    pub fn new(worker: usize, query: ListQuery) -> Self {
        Self {
            worker,
            query,
            cursor: ScanCursor::default(),
            top_rows: TopN::new(query.limit),
            list: WorkerList::default(),
        }
    }

    /// Scans the next connections, 1,000 at most. Returns whether more may follow.
    pub fn collect_rows(&mut self, accounts: &ConnectionRegistry, now: Instant) -> bool {
        let Self { worker, query, cursor, top_rows: best, list } = self;
        let most = if query.sort.needs_transport() { MAX_DESCRIBED } else { MAX_SCANNED };
        cursor.visit_connections(accounts, most, |number, state| {
            let Some(connection) = state.connection.get().and_then(Weak::upgrade) else {
                list.handshakes += u64::from(!state.ready.get());
                return;
            };
            list.connections += 1;
            let rate = state.measure_sent_rate(now);
            let name = ConnectionName { worker: *worker, number };
            if query.selection.selects_connection(name, connection.remote_address(), connection.http_version()) {
                list.selected += 1;
                let key = state.connection_sort_value(query, rate, &*connection, now);
                best.offer_value(key, (*worker, number), || (number, Rc::clone(state)));
            }
        })
    }

    /// Rows of the list, once all connections are scanned.
    pub fn into_list_rows(self, accounts: &ConnectionRegistry, now: Instant) -> ListRows {
        let Self { worker, top_rows: best, mut list, .. } = self;
        let looks =
            accounts.scan_times.get().filter(|looks| now.saturating_duration_since(looks.last) <= MAX_RATE_INTERVAL);
        let first = looks.map_or(now, |looks| looks.first);
        accounts.scan_times.set(Some(ScanTimes { first, last: now }));
        list.has_rates = now.saturating_duration_since(first) >= MIN_RATE_INTERVAL;
        ListRows { worker, rows: best.into_sorted().into_iter(), list }
    }
}

/// Rows of a list that are being described.
#[derive(Debug)]
pub struct ListRows {
    worker: usize,
    rows: vec::IntoIter<(u64, Rc<RegisteredConnection>)>,
    list: WorkerList,
}

impl ListRows {
    /// Describes the next rows, 100 at most. Returns whether more follow.
    pub fn describe_rows(&mut self, now: Instant) -> bool {
        let Self { worker, rows, list } = self;
        let next = rows.by_ref().take(MAX_DESCRIBED);
        let reports =
            next.filter_map(|(number, state)| state.client_report(ConnectionName { worker: *worker, number }, now));
        list.reports.extend(reports);
        rows.len() > 0
    }

    /// The list, once all rows are described.
    pub fn into_worker_list(self) -> WorkerList {
        self.list
    }
}

/// Scan that closes connections.
#[derive(Debug)]
pub struct CloseScan {
    worker: usize,
    selection: Selection,
    reason: EvictionReason,
    cursor: ScanCursor,
    /// Number of connections that were closed so far.
    pub closed: u64,
}

impl CloseScan {
    /// A scan that closes the connections of `worker` that `selection` selects: `at_once`, or gracefully, once their
    /// requests have ended.
    pub fn new(worker: usize, selection: Selection, at_once: bool) -> Self {
        let reason = if at_once { EvictionReason::OperatorNow } else { EvictionReason::Operator };
        Self { worker, selection, reason, cursor: ScanCursor::default(), closed: 0 }
    }

    /// Scans the next connections, 1,000 at most. Returns whether more may follow.
    pub fn close_selected(&mut self, accounts: &ConnectionRegistry) -> bool {
        let Self { worker, selection, reason, cursor, closed } = self;
        cursor.visit_connections(accounts, MAX_SCANNED, |number, state| {
            let name = ConnectionName { worker: *worker, number };
            let is_selected = match (state.connection.get().and_then(Weak::upgrade), state.client.get()) {
                (Some(open), _) => selection.selects_connection(name, open.remote_address(), open.http_version()),
                (None, Some(client)) => selection.selects_handshake(name, client),
                (None, None) => false,
            };
            if is_selected && state.is_closed_by(*reason) {
                *closed += 1;
                accounts.evict_connection(number, state, *reason);
            }
        })
    }
}

/// Scan of the connections that are ready for requests.
#[derive(Debug)]
pub struct OpenScan {
    worker: usize,
    selection: Selection,
    cursor: ScanCursor,
}

impl OpenScan {
    /// A scan of the connections of `worker` that `selection` selects.
    pub fn new(worker: usize, selection: Selection) -> Self {
        Self { worker, selection, cursor: ScanCursor::default() }
    }

    /// Scans the next connections, 1,000 at most, and passes the selected ones to `see`. Returns whether more may
    /// follow.
    pub fn visit_selected(&mut self, accounts: &ConnectionRegistry, mut see: impl FnMut(&dyn OpenConnection)) -> bool {
        let Self { worker, selection, cursor } = self;
        cursor.visit_connections(accounts, MAX_SCANNED, |number, state| {
            let Some(open) = state.connection.get().and_then(Weak::upgrade) else { return };
            if selection.selects_connection(
                ConnectionName { worker: *worker, number },
                open.remote_address(),
                open.http_version(),
            ) {
                see(&*open);
            }
        })
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
    use futures_util::task::noop_waker_ref;
    use litequic_telemetry::clients::{ConnectionDescription, ListOrder, TransportReport};
    use std::{
        net::SocketAddr,
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

    /// The list, and the number of calls that the scan took.
    fn list(accounts: &ConnectionRegistry, query: ListQuery, now: Instant) -> (WorkerList, u32) {
        let (mut walk, mut looks) = (ListScan::new(3, query), 1);
        while walk.collect_rows(accounts, now) {
            looks += 1;
        }
        (described(walk.into_list_rows(accounts, now), now), looks)
    }

    fn described(mut rows: ListRows, now: Instant) -> WorkerList {
        while rows.describe_rows(now) {}
        rows.into_worker_list()
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
            assert_eq!((list.connections, list.selected, list.handshakes, looks), (5, 5, 1, 1));
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
        assert_eq!((all.connections, all.reports.len(), looks), (2_500, 50, 3));
        let by_rtt = ListQuery { sort: ListOrder::Rtt, ..ListQuery::default() };
        assert_eq!(list(&accounts, by_rtt, Instant::now()).1, 26, "each connection is asked");
        // Some connections end between two calls.
        let mut walk = ListScan::new(0, ListQuery { limit: 10_000, ..ListQuery::default() });
        assert!(walk.collect_rows(&accounts, Instant::now()));
        clients.drain(900..1_100);
        assert!(walk.collect_rows(&accounts, Instant::now()));
        assert!(!walk.collect_rows(&accounts, Instant::now()));
        let list = described(walk.into_list_rows(&accounts, Instant::now()), Instant::now());
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
            let mut walk = CloseScan::new(0, selection, at_once);
            while walk.close_selected(&accounts) {}
            walk.closed
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
