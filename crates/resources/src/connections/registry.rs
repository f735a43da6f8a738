//! Registry of a worker's connections over all protocols: finds the connections that end when memory is short or
//! another client needs the slot (admission.rs). Pure.

use super::connection_pools::ConnectionPools;
use super::registered_connection::{ConnectionPool, EvictionReason, RegisteredConnection, TrafficCounter};
use super::sent_rate::ScanTimes;
use crate::fairness::{ClientSource, EvictionOrder, PoolSlot};
use litequic_telemetry::clients::OpenConnection;
use std::{
    cell::{Cell, OnceCell, RefCell},
    cmp::Reverse,
    collections::BTreeMap,
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    rc::{Rc, Weak},
    task::{Context, Poll},
    time::Instant,
};

/// One call closes a sixteenth of the connections without a request, so that several calls free the memory that is
/// needed.
const IDLE_CLOSE_DIVISOR: usize = 16;
/// Maximum number of connections that one call closes for their memory.
const MAX_HEAVIEST_CLOSED: usize = 64;

/// Connections of one worker.
#[derive(Debug, Default)]
pub struct ConnectionRegistry {
    pub(super) open: RefCell<BTreeMap<u64, Rc<RegisteredConnection>>>,
    next_id: Cell<u64>,
    /// Number of the worker's period, with which [`TrafficCounter`] marks traffic.
    pub(super) period: Rc<Cell<u32>>,
    pub(super) pools: ConnectionPools,
    /// Times at which the connections were scanned for a list.
    pub(super) scan_times: Cell<Option<ScanTimes>>,
}

/// Entry of one connection, removed from the registry when dropped.
#[derive(Debug)]
pub struct ConnectionEntry {
    pub(super) registry: Rc<ConnectionRegistry>,
    /// Number of the connection, which no other open connection of the worker has.
    pub id: u64,
    pub(super) state: Rc<RegisteredConnection>,
}

const _: () = assert!(size_of::<ConnectionEntry>() <= 24);

impl ConnectionRegistry {
    /// Begins a period of the worker: half a second, or less while memory is short.
    pub fn begin_period(&self) {
        self.period.set(self.period.get().wrapping_add(1));
    }

    /// Registers the connection `id` of `source`, which holds `slot` in `pool`.
    pub(super) fn register_connection(
        self: &Rc<Self>,
        pool: ConnectionPool,
        id: u64,
        source: ClientSource,
        slot: PoolSlot,
    ) -> ConnectionEntry {
        let motion = TrafficCounter { period: Rc::clone(&self.period), cells: Rc::default() };
        motion.mark_active();
        let since = Instant::now();
        let state = Rc::new(RegisteredConnection {
            pool,
            source: Cell::new(source),
            slot: Cell::new(Some(slot)),
            handshake: Cell::new(None),
            handshake_place: Cell::new(None),
            ready: Cell::new(false),
            client: Cell::new(None),
            connection: OnceCell::new(),
            opened_at: since,
            rate: Cell::default(),
            memory_counters: RefCell::default(),
            requests: Cell::new(0),
            last_used: Cell::new(since),
            traffic: motion,
            eviction: Cell::new(None),
            waker: RefCell::new(None),
        });
        self.open.borrow_mut().insert(id, Rc::clone(&state));
        ConnectionEntry { registry: Rc::clone(self), id, state }
    }

    /// Client of the oldest open connection, and the time at which that connection began.
    pub fn oldest_client(&self) -> Option<(SocketAddr, Instant)> {
        let open = self.open.borrow();
        let mut clients = open.values().filter(|state| state.ready.get());
        clients.find_map(|state| Some((state.client.get()?, state.opened_at)))
    }

    pub(super) fn take_connection_number(&self) -> u64 {
        self.next_id.replace(self.next_id.get().wrapping_add(1))
    }

    /// Closes a share of the connections without a request, each time one of the source that has most connections by
    /// then: the connection whose last request ended the longest ago, at least a second. Returns the number of closed
    /// connections.
    pub fn end_idle_connections(&self, now: Instant) -> usize {
        let open = self.open.borrow();
        let mut victims = EvictionOrder::default();
        let mut idle = Vec::new();
        for (id, state) in &*open {
            match state.idle_for(now) {
                Some(since) if state.eviction.get().is_none() => idle.push((Reverse(since), *id, state)),
                _ => victims.add_fixed_amount(&state.source.get(), 1),
            }
        }
        idle.sort_unstable_by_key(|(since, id, _)| (*since, *id));
        let share = idle.len().div_ceil(IDLE_CLOSE_DIVISOR);
        idle.into_iter().for_each(|(_, id, state)| victims.add_claim(&state.source.get(), 1, (id, state)));
        victims.take(share).map(|(id, state)| self.evict_connection(id, state, EvictionReason::Idle)).count()
    }

    /// Closes connections until their memory adds up to `bytes`: each time the connection that holds most, of the
    /// source whose connections hold most by then. Closes at least one, if any is open, and at most 64. Returns their
    /// number and their memory in bytes.
    pub fn end_heaviest_connections(&self, bytes: u64) -> (u64, u64) {
        let open = self.open.borrow();
        let held = open.iter().filter(|(_, state)| !state.eviction.get().is_some_and(EvictionReason::is_at_once));
        let mut heaviest: Vec<(u64, u64, &Rc<RegisteredConnection>)> =
            held.map(|(id, state)| (state.memory_bytes(), *id, state)).collect();
        heaviest.sort_by_key(|(bytes, ..)| Reverse(*bytes));
        let mut victims = EvictionOrder::default();
        for (bytes, id, state) in heaviest {
            victims.add_claim(&state.source.get(), bytes, (bytes, id, state));
        }
        let (mut ended, mut freed) = (0, 0_u64);
        for (bytes_held, id, state) in victims.take(MAX_HEAVIEST_CLOSED) {
            if ended > 0 && freed >= bytes {
                break;
            }
            self.evict_connection(id, state, EvictionReason::Heaviest);
            (ended, freed) = (ended + 1, freed.saturating_add(bytes_held));
        }
        (ended, freed)
    }

    /// Has the connection `id` end, and releases its slots.
    pub(super) fn evict_connection(&self, id: u64, state: &RegisteredConnection, end: EvictionReason) {
        self.pools.release_slots(id, state, !end.is_at_once());
        // A connection that is to end at once does not end gracefully instead.
        if !state.eviction.get().is_some_and(EvictionReason::is_at_once) {
            state.eviction.set(Some(end));
            state.wake_task();
        }
    }
}

impl ConnectionEntry {
    /// Source of the client.
    pub fn client_source(&self) -> ClientSource {
        self.state.source.get()
    }

    /// Sets the client's network, which was not known when the connection was accepted.
    pub fn set_client_network(&self, network: Option<(IpAddr, u8)>) {
        let source = ClientSource::new(network, self.id);
        self.state.source.set(source);
        self.registry.pools.move_to_source(&self.state, source);
    }

    /// Waits until a TLS handshake may begin, of which `most` may run at once. If all slots are in use, the oldest
    /// handshake of the source that has most ends, if that source has at least two more than this client's.
    ///
    /// # Cancel safety
    ///
    /// The connection keeps its place in the queue until it ends.
    pub async fn wait_for_handshake_slot(&self, most: u32) {
        poll_fn(|cx| self.poll_handshake_slot(cx, most)).await;
    }

    /// Ready once a TLS handshake may begin, as [`Self::wait_for_handshake_slot`]. The last task that polls is woken.
    pub(super) fn poll_handshake_slot(&self, cx: &Context<'_>, most: u32) -> Poll<()> {
        let RegisteredConnection { handshake, handshake_place: waits, waker, .. } = &*self.state;
        waker.replace(Some(cx.waker().clone()));
        if handshake.get().is_none() && waits.get().is_none() {
            self.registry.take_handshake_slot(&self.state, most);
        }
        if handshake.get().is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Marks the connection as ready for requests, once the handshake is over.
    pub fn mark_ready(&self) {
        self.registry.pools.release_handshake_slot(&self.state);
        self.state.ready.set(true);
        self.state.last_used.set(Instant::now());
    }

    /// Adds a function that counts some of the connection's memory, in bytes.
    pub fn add_memory_counter(&self, held: impl Fn() -> u64 + 'static) {
        self.state.memory_counters.borrow_mut().push(Box::new(held));
    }

    /// Sets the client's address.
    pub fn set_client_address(&self, address: SocketAddr) {
        self.state.client.set(Some(address));
    }

    /// Sets the connection that reports describe. To be called once.
    pub fn set_open_connection(&self, connection: Weak<dyn OpenConnection>) {
        // A second call changes nothing.
        let _ = self.state.connection.set(connection);
    }

    /// Sets the number of open requests.
    pub fn set_open_requests(&self, requests: usize) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        let before = self.state.requests.replace(requests);
        if before > 0 && requests == 0 {
            self.state.last_used.set(Instant::now());
        }
        if before != requests {
            self.state.traffic.mark_active();
        }
    }

    /// Counter of the connection's traffic, for its streams.
    pub fn traffic_counter(&self) -> TrafficCounter {
        self.state.traffic.clone()
    }

    /// Waits until the connection is to be closed for the first time. Cancel safe.
    pub async fn wait_for_eviction(&self) -> EvictionReason {
        let mut told = None;
        poll_fn(|cx| self.poll_eviction(cx, &mut told)).await
    }

    /// Ready when the connection is to be closed, once for each reason, of which `told` keeps the last. The last task
    /// that polls is woken. Cancel safe.
    pub fn poll_eviction(&self, cx: &Context<'_>, told: &mut Option<EvictionReason>) -> Poll<EvictionReason> {
        let end = self.state.eviction.get();
        if end != *told
            && let Some(end) = end
        {
            *told = Some(end);
            return Poll::Ready(end);
        }
        self.state.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.registry.pools.release_slots(self.id, &self.state, false);
        self.registry.open.borrow_mut().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{
        registered_connection::{CONNECTION_OVERHEAD_BYTES, MIN_IDLE_TIME, REQUEST_OVERHEAD_BYTES, TrafficCells},
        sent_rate::SentRate,
    };
    use futures_util::task::noop_waker_ref;
    use std::net::Ipv4Addr;

    /// Memory that a list of connections needs of each (docs/adr/0054-clients.md), and the whole entry.
    #[test]
    fn a_list_adds_64_bytes_to_a_connection_at_most() {
        let in_account = size_of::<OnceCell<Weak<dyn OpenConnection>>>() + size_of::<Cell<SentRate>>();
        // Without the counts, the traffic was one number, alone in an allocation of whole words, as this one is.
        let of_counts = size_of::<TrafficCells>() - size_of::<Cell<u32>>().next_multiple_of(size_of::<usize>());
        // The fields are lost packets, or a descriptor; and the key exchange group and whether the session was resumed.
        let of_transport = size_of::<u64>().max(size_of::<Cell<Option<std::os::fd::RawFd>>>());
        let of_identity = size_of::<(Option<u16>, bool)>().next_multiple_of(size_of::<usize>());
        assert_eq!((in_account, of_counts, of_transport, of_identity), (32, 16, 8, 8));
        assert_eq!((size_of::<RegisteredConnection>(), size_of::<TrafficCells>()), (264, 24));
    }

    /// Connection that is a source of its own, ready for requests.
    fn begin(all: &Rc<ConnectionRegistry>) -> ConnectionEntry {
        let holder = all.admit_connection(ConnectionPool::Tls, None, u32::MAX).unwrap();
        holder.mark_ready();
        holder
    }

    /// Connection that holds `bytes` bytes.
    fn holding(all: &Rc<ConnectionRegistry>, bytes: u64) -> ConnectionEntry {
        let holder = begin(all);
        holder.add_memory_counter(move || bytes);
        holder
    }

    fn end(holder: &ConnectionEntry) -> Option<EvictionReason> {
        match holder.poll_eviction(&Context::from_waker(noop_waker_ref()), &mut None) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_oldest_client_is_the_first_whose_connection_is_open() {
        let all = Rc::<ConnectionRegistry>::default();
        assert_eq!(all.oldest_client(), None);
        let _handshake = begin(&all);
        let clients: Vec<SocketAddr> = ["192.0.2.1:1", "192.0.2.2:2"].map(|client| client.parse().unwrap()).into();
        let holders = [begin(&all), begin(&all)];
        holders.iter().zip(&clients).for_each(|(holder, client)| holder.set_client_address(*client));
        let begun = all.admit_connection(ConnectionPool::Tls, None, u32::MAX).unwrap();
        begun.set_client_address(clients[0]);
        let [first, second] = holders;
        assert_eq!(all.oldest_client().unwrap().0, clients[0]);
        drop(first);
        assert_eq!(all.oldest_client().unwrap().0, clients[1]);
        drop(second);
        assert_eq!(all.oldest_client(), None);
    }

    #[test]
    fn connections_without_a_request_end_the_longest_unused_first() {
        let all = Rc::<ConnectionRegistry>::default();
        let holders: Vec<ConnectionEntry> = (0..20).map(|_| begin(&all)).collect();
        assert_eq!(all.end_idle_connections(Instant::now()), 0, "they have just begun");
        holders[0].set_open_requests(1);
        holders[1].set_open_requests(2);
        holders[1].set_open_requests(0);
        let later = Instant::now() + MIN_IDLE_TIME;
        assert_eq!(all.end_idle_connections(later), 2);
        let ended: Vec<usize> = (0..20).filter(|&nth| end(&holders[nth]).is_some()).collect();
        assert_eq!(ended, [2, 3]);
        let mut looks = 0;
        while all.end_idle_connections(later) > 0 {
            looks += 1;
        }
        assert!(looks > 5, "{looks}");
        assert_eq!(holders.iter().filter(|holder| end(holder) == Some(EvictionReason::Idle)).count(), 19);
        assert_eq!(end(&holders[0]), None);
        drop(holders);
        assert!(all.open.borrow().is_empty());
    }

    #[test]
    fn the_connection_with_most_requests_and_counted_memory_ends_first() {
        let all = Rc::<ConnectionRegistry>::default();
        assert_eq!(all.end_heaviest_connections(1), (0, 0));
        let (one, other, requests, light) = (holding(&all, 60_000), holding(&all, 50_000), begin(&all), begin(&all));
        other.add_memory_counter(|| 20_000);
        requests.set_open_requests(3);
        for (holder, bytes) in [(&requests, 3 * REQUEST_OVERHEAD_BYTES), (&other, 70_000), (&one, 60_000), (&light, 0)]
        {
            assert_eq!(end(holder), None);
            assert_eq!(all.end_heaviest_connections(0), (1, CONNECTION_OVERHEAD_BYTES + bytes));
            assert_eq!(end(holder), Some(EvictionReason::Heaviest));
        }
        assert_eq!(all.end_heaviest_connections(0), (0, 0));
        let many: Vec<ConnectionEntry> = (0..100).map(|_| holding(&all, 12 * 1024)).collect();
        assert_eq!(all.end_heaviest_connections(100 * 1024), (3, 120 * 1024));
        assert_eq!(all.end_heaviest_connections(u64::MAX).0, MAX_HEAVIEST_CLOSED as u64);
        drop(many);
    }

    fn of(last: u8) -> Option<(IpAddr, u8)> {
        Some((Ipv4Addr::new(192, 0, 2, last).into(), 32))
    }

    #[test]
    fn the_largest_source_loses_idle_or_heaviest_connections_first() {
        let all = Rc::<ConnectionRegistry>::default();
        let admit = |network| all.admit_connection(ConnectionPool::Quic, network, u32::MAX).unwrap();
        // The only connection of its source is the longest unused.
        let single = admit(of(1));
        single.mark_ready();
        single.add_memory_counter(|| 1_000_000);
        let many: Vec<ConnectionEntry> = (0..15).map(|_| admit(of(2))).collect();
        many.iter().for_each(ConnectionEntry::mark_ready);
        many.iter().for_each(|holder| holder.add_memory_counter(|| 300_000));
        let later = Instant::now() + MIN_IDLE_TIME;
        for _ in 0..14 {
            assert_eq!(all.end_idle_connections(later), 1);
        }
        assert_eq!(end(&single), None);
        assert_eq!(many.iter().filter(|holder| end(holder) == Some(EvictionReason::Idle)).count(), 14);
        // Fifteen connections of 300,000 bytes end, until 1,000,000 bytes are left.
        for _ in 0..12 {
            assert_eq!(all.end_heaviest_connections(0).0, 1);
            assert_eq!(end(&single), None);
        }
        assert_eq!(all.end_heaviest_connections(0), (1, CONNECTION_OVERHEAD_BYTES + 1_000_000));
        assert_eq!(end(&single), Some(EvictionReason::Heaviest));
    }

    #[test]
    fn each_eviction_reason_is_reported_once() {
        let all = Rc::<ConnectionRegistry>::default();
        let (holder, mut told) = (holding(&all, 100_000), None);
        let cx = Context::from_waker(noop_waker_ref());
        assert_eq!(all.end_idle_connections(Instant::now() + MIN_IDLE_TIME), 1);
        assert_eq!(holder.poll_eviction(&cx, &mut told), Poll::Ready(EvictionReason::Idle));
        assert_eq!(holder.poll_eviction(&cx, &mut told), Poll::Pending);
        assert_eq!(all.end_heaviest_connections(1), (1, CONNECTION_OVERHEAD_BYTES + 100_000));
        assert_eq!(holder.poll_eviction(&cx, &mut told), Poll::Ready(EvictionReason::Heaviest));
        assert_eq!(holder.poll_eviction(&cx, &mut told), Poll::Pending);
    }
}
