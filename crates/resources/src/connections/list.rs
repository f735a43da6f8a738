//! Looks through a worker's connections for an operator, so few at a time that no other task of the worker waits long.
//! Pure: the caller passes the time, and decides when the next look comes.

use super::account_state::{AccountState, EvictionReason};
use super::registry::MemoryAccounts;
use super::sent_rate::{LONGEST, Looks, SHORTEST};
use litequic_telemetry::clients::{Best, ClientReport, ConnectionName, ListQuery, OpenConnection, Selection};
use std::{
    rc::{Rc, Weak},
    time::Instant,
    vec,
};

/// Connections that one look goes through.
const LOOK: usize = 1_000;
/// Connections that one look goes through if it asks each one's transport, and rows that are described at once:
/// TCP_INFO is a system call, and s2n-quic takes a connection's lock.
const ASK: usize = 100;

/// The next connections of a walk, which takes some of them at a time.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor(u64);

impl Cursor {
    /// Passes the next connections of `accounts`, `most` of them, to `see`, each with its number. Returns whether there
    /// may be more.
    fn look(&mut self, accounts: &MemoryAccounts, most: usize, mut see: impl FnMut(u64, &Rc<AccountState>)) -> bool {
        let mut looked = 0;
        for (id, state) in accounts.open.borrow().range(self.0..).take(most) {
            looked += 1;
            self.0 = id.saturating_add(1);
            see(*id, state);
        }
        looked == most
    }
}

/// A list that is being made.
#[derive(Debug)]
pub struct ListWalk {
    worker: usize,
    query: ListQuery,
    cursor: Cursor,
    best: Best<(u64, Rc<AccountState>)>,
    list: WorkerList,
}

/// A worker's part of a list.
#[derive(Debug, Default)]
pub struct WorkerList {
    /// The first rows.
    pub reports: Vec<ClientReport>,
    /// Connections that are ready for requests.
    pub connections: u64,
    /// Connections of these that the query selects.
    pub selected: u64,
    /// Connections over TCP that are in a handshake.
    pub handshakes: u64,
    /// Whether the rates are those of the last seconds; otherwise this look has begun to measure them.
    pub has_rates: bool,
}

impl ListWalk {
    /// A list of the connections of `worker`.
    pub fn new(worker: usize, query: ListQuery) -> Self {
        Self { worker, query, cursor: Cursor::default(), best: Best::new(query.limit), list: WorkerList::default() }
    }

    /// Looks at the next connections, 1,000 at most. Returns whether there may be more.
    pub fn look(&mut self, accounts: &MemoryAccounts, now: Instant) -> bool {
        let Self { worker, query, cursor, best, list } = self;
        let most = if query.sort.needs_transport() { ASK } else { LOOK };
        cursor.look(accounts, most, |number, state| {
            let Some(connection) = state.connection.get().and_then(Weak::upgrade) else {
                list.handshakes += u64::from(!state.ready.get());
                return;
            };
            list.connections += 1;
            let rate = state.measure(now);
            let name = ConnectionName { worker: *worker, number };
            if query.selection.selects(name, connection.address(), connection.protocol()) {
                list.selected += 1;
                let key = state.key(query, rate, &*connection, now);
                best.add(key, (*worker, number), || (number, Rc::clone(state)));
            }
        })
    }

    /// The rows of the list, once all connections were looked at.
    pub fn rows(self, accounts: &MemoryAccounts, now: Instant) -> ListRows {
        let Self { worker, best, mut list, .. } = self;
        let looks = accounts.looks.get().filter(|looks| now.saturating_duration_since(looks.last) <= LONGEST);
        let first = looks.map_or(now, |looks| looks.first);
        accounts.looks.set(Some(Looks { first, last: now }));
        list.has_rates = now.saturating_duration_since(first) >= SHORTEST;
        ListRows { worker, rows: best.into_sorted().into_iter(), list }
    }
}

/// The rows of a list that are being described.
#[derive(Debug)]
pub struct ListRows {
    worker: usize,
    rows: vec::IntoIter<(u64, Rc<AccountState>)>,
    list: WorkerList,
}

impl ListRows {
    /// Describes the next rows, 100 at most. Returns whether there are more.
    pub fn describe(&mut self, now: Instant) -> bool {
        let Self { worker, rows, list } = self;
        let next = rows.by_ref().take(ASK);
        let reports = next.filter_map(|(number, state)| state.report(ConnectionName { worker: *worker, number }, now));
        list.reports.extend(reports);
        rows.len() > 0
    }

    /// The list, once all rows were described.
    pub fn list(self) -> WorkerList {
        self.list
    }
}

/// Connections that are being closed.
#[derive(Debug)]
pub struct CloseWalk {
    worker: usize,
    selection: Selection,
    reason: EvictionReason,
    cursor: Cursor,
    /// Connections that were closed so far.
    pub closed: u64,
}

impl CloseWalk {
    /// Closes those connections of `worker` that `selection` selects: `at_once`, or once their requests have ended.
    pub fn new(worker: usize, selection: Selection, at_once: bool) -> Self {
        let reason = if at_once { EvictionReason::OperatorNow } else { EvictionReason::Operator };
        Self { worker, selection, reason, cursor: Cursor::default(), closed: 0 }
    }

    /// Looks at the next connections, 1,000 at most. Returns whether there may be more.
    pub fn look(&mut self, accounts: &MemoryAccounts) -> bool {
        let Self { worker, selection, reason, cursor, closed } = self;
        cursor.look(accounts, LOOK, |number, state| {
            let name = ConnectionName { worker: *worker, number };
            let is_selected = match (state.connection.get().and_then(Weak::upgrade), state.client.get()) {
                (Some(open), _) => selection.selects(name, open.address(), open.protocol()),
                (None, Some(client)) => selection.selects_handshake(name, client),
                (None, None) => false,
            };
            if is_selected && state.is_closed_by(*reason) {
                *closed += 1;
                accounts.end(number, state, *reason);
            }
        })
    }
}

/// Connections that are ready for requests, one after the other.
#[derive(Debug)]
pub struct OpenWalk {
    worker: usize,
    selection: Selection,
    cursor: Cursor,
}

impl OpenWalk {
    /// Connections of `worker` that `selection` selects.
    pub fn new(worker: usize, selection: Selection) -> Self {
        Self { worker, selection, cursor: Cursor::default() }
    }

    /// Looks at the next connections, 1,000 at most, and passes those that are selected to `see`. Returns whether there
    /// may be more.
    pub fn look(&mut self, accounts: &MemoryAccounts, mut see: impl FnMut(&dyn OpenConnection)) -> bool {
        let Self { worker, selection, cursor } = self;
        cursor.look(accounts, LOOK, |number, state| {
            let Some(open) = state.connection.get().and_then(Weak::upgrade) else { return };
            if selection.selects(ConnectionName { worker: *worker, number }, open.address(), open.protocol()) {
                see(&*open);
            }
        })
    }
}

impl AccountState {
    /// The bytes a second that the connection sends, measured at `now`.
    fn measure(&self, now: Instant) -> u64 {
        let mut rate = self.rate.get();
        let measured = rate.measure(self.motion.bytes().0, now.saturating_duration_since(self.since));
        self.rate.set(rate);
        measured
    }

    /// The value by which `query` sorts the connection.
    fn key(&self, query: &ListQuery, sent_rate: u64, connection: &dyn OpenConnection, now: Instant) -> u64 {
        use litequic_telemetry::clients::Sort;
        let (sent, received) = self.motion.bytes();
        match query.sort {
            Sort::SentRate => sent_rate,
            Sort::Sent => sent,
            Sort::Received => received,
            Sort::Open => self.requests.get().into(),
            Sort::Since => u64::try_from(now.saturating_duration_since(self.since).as_micros()).unwrap_or(u64::MAX),
            Sort::Rtt | Sort::Loss => connection.transport().key(query.sort),
            Sort::Held => self.held(),
        }
    }

    /// The row of the connection `name`; `None` if it has ended meanwhile.
    fn report(&self, name: ConnectionName, now: Instant) -> Option<ClientReport> {
        let connection = self.connection.get()?.upgrade()?;
        let (sent, received) = self.motion.bytes();
        let open = self.requests.get();
        Some(ClientReport {
            name,
            address: connection.address(),
            protocol: connection.protocol(),
            age: now.saturating_duration_since(self.since),
            idle: (open == 0).then(|| now.saturating_duration_since(self.used.get())),
            open,
            sent,
            sent_rate: self.rate.get().rate.into(),
            received,
            held: self.held(),
            transport: connection.transport(),
            description: connection.describe(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{ConnectionPool, MemoryAccount};
    use futures_util::task::noop_waker_ref;
    use litequic_telemetry::clients::{Description, Sort, TransportReport};
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
        fn address(&self) -> SocketAddr {
            self.address
        }

        fn protocol(&self) -> &'static str {
            if self.address.is_ipv4() { "HTTP/3" } else { "HTTP/2" }
        }

        fn transport(&self) -> TransportReport {
            TransportReport { rtt: Some(Duration::from_millis(self.rtt)), ..TransportReport::default() }
        }

        fn describe(&self) -> Description {
            Description {
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

    /// A registered connection, which is open until this is dropped.
    struct Client {
        account: MemoryAccount,
        _open: Rc<Open>,
    }

    fn open(accounts: &Rc<MemoryAccounts>, address: &str, rtt: u64) -> Client {
        let address = address.parse().unwrap();
        let account = accounts.admit(ConnectionPool::Quic, None, u32::MAX).unwrap();
        let open = Rc::new(Open { address, rtt });
        account.serves(address);
        account.ready();
        let weak = Rc::downgrade(&open);
        account.represents(weak);
        Client { account, _open: open }
    }

    /// The list, and how many looks it took.
    fn list(accounts: &MemoryAccounts, query: ListQuery, now: Instant) -> (WorkerList, u32) {
        let (mut walk, mut looks) = (ListWalk::new(3, query), 1);
        while walk.look(accounts, now) {
            looks += 1;
        }
        (described(walk.rows(accounts, now), now), looks)
    }

    fn described(mut rows: ListRows, now: Instant) -> WorkerList {
        while rows.describe(now) {}
        rows.list()
    }

    fn numbers(list: &WorkerList) -> Vec<u64> {
        list.reports.iter().map(|report| report.name.number).collect()
    }

    fn end(client: &MemoryAccount) -> Option<EvictionReason> {
        match client.poll_end(&Context::from_waker(noop_waker_ref()), &mut None) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_list_has_the_first_rows_by_each_order_and_counts_all() {
        let accounts = Rc::<MemoryAccounts>::default();
        let clients: Vec<Client> =
            (0..5).map(|nth| open(&accounts, &format!("192.0.2.{nth}:1"), [30, 10, 50, 20, 40][nth])).collect();
        let _handshake = accounts.admit(ConnectionPool::Tls, None, u32::MAX).unwrap();
        clients[3].account.motion().sent(100);
        clients[1].account.motion().sent(50);
        clients[4].account.motion().received(70);
        clients[2].account.serving(2);
        clients[0].account.serving(1);
        clients[0].account.holds(|| 5_000_000);
        let now = Instant::now();
        for (sort, expected) in [
            (Sort::Sent, [3, 1, 0]),
            (Sort::Received, [4, 0, 1]),
            (Sort::Open, [2, 0, 1]),
            (Sort::Since, [0, 1, 2]),
            (Sort::Rtt, [2, 4, 0]),
            (Sort::Loss, [0, 1, 2]),
            (Sort::Held, [0, 2, 1]),
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
    fn one_look_goes_through_a_thousand_connections_and_none_is_counted_twice() {
        let accounts = Rc::<MemoryAccounts>::default();
        let mut clients: Vec<Client> = (0..2_500).map(|_| open(&accounts, "192.0.2.1:1", 1)).collect();
        let (all, looks) = list(&accounts, ListQuery::default(), Instant::now());
        assert_eq!((all.connections, all.reports.len(), looks), (2_500, 50, 3));
        let by_rtt = ListQuery { sort: Sort::Rtt, ..ListQuery::default() };
        assert_eq!(list(&accounts, by_rtt, Instant::now()).1, 26, "each connection is asked");
        // Some end between two looks.
        let mut walk = ListWalk::new(0, ListQuery { limit: 10_000, ..ListQuery::default() });
        assert!(walk.look(&accounts, Instant::now()));
        clients.drain(900..1_100);
        assert!(walk.look(&accounts, Instant::now()));
        assert!(!walk.look(&accounts, Instant::now()));
        let list = described(walk.rows(&accounts, Instant::now()), Instant::now());
        assert_eq!((list.connections, list.reports.len()), (2_400, 2_300));
    }

    #[test]
    fn a_rate_is_that_of_the_time_between_two_looks() {
        let accounts = Rc::<MemoryAccounts>::default();
        let client = open(&accounts, "192.0.2.1:1", 1);
        let start = Instant::now();
        let mut last = 0;
        for (at, sent, has_rates, rate) in [
            // Since the connection is open, which is less than the shortest time.
            (0, 1_000, false, 2_000),
            (300, 50_000, false, 2_000),
            (1_000, 101_000, true, 100_000),
            (1_200, 900_000, true, 100_000),
            (2_000, 1_101_000, true, 1_000_000),
            // The last look is too long ago.
            (60_000, 9_101_000, false, 0),
            (61_000, 9_301_000, true, 200_000),
        ] {
            client.account.motion().sent(sent - last);
            last = sent;
            let (list, _) = list(&accounts, ListQuery::default(), start + Duration::from_millis(at));
            let measured = list.reports[0].sent_rate;
            assert!(measured.abs_diff(rate) <= rate / 100, "{at}: {measured}");
            assert_eq!((list.has_rates, list.reports[0].sent), (has_rates, sent), "{at}");
        }
    }

    #[test]
    fn those_that_are_selected_are_closed_once_and_again_at_once() {
        let accounts = Rc::<MemoryAccounts>::default();
        let clients = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "[2001:db8::1]:1"];
        let clients = clients.map(|address| open(&accounts, address, 1));
        let handshake = accounts.admit(ConnectionPool::Tls, None, u32::MAX).unwrap();
        handshake.serves("192.0.2.1:3".parse().unwrap());
        let close = |text: &str, at_once| {
            let selection = Selection { client: Some(text.parse().unwrap()), protocol: None };
            let mut walk = CloseWalk::new(0, selection, at_once);
            while walk.look(&accounts) {}
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
