//! Keeps an origin's addresses: resolved again every `dns_interval`, all of them used in turn, failed ones last. A
//! failed lookup keeps the last answer.

use super::address_order::{AddressEjections, AddressFailures, Blame, PROCESS_FAILURES, order_addresses};
use super::lookup::{Lookup, Lookups, PROCESS_LOOKUPS, clone_shared_error};
use crate::balance::{EjectionCause, EjectionRule};
use litequic_base::timers::timeout;
use std::{
    cell::{Cell, RefCell},
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

/// Delay between two lookups of a name without an answer, or whose addresses fail: a burst of requests must not become
/// a burst of lookups.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait of a request for a lookup, below the time to connect, so that the last answer can still be used. The
/// lookup itself goes on, and the next request that needs the name waits for the same one.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// One worker's view of an origin's name and its addresses.
#[derive(Debug)]
pub(crate) struct Resolver {
    host: String,
    port: u16,
    /// Whether the host is an address already.
    literal: bool,
    interval: Duration,
    answer: RefCell<Resolution>,
    /// Number of connections so far: each starts with another address.
    turn: Cell<usize>,
    /// Locked by the request that waits for a lookup: one at a time.
    lookup: Mutex<()>,
    lookups: Lookups,
    /// The lookup whose result was not read yet, because the request that waited for it gave up.
    pending: RefCell<Option<Lookup>>,
    /// Addresses to which no connection could be opened, by any worker.
    pub(crate) failures: AddressFailures,
    /// Addresses whose connections broke, by this worker's requests.
    ejections: RefCell<AddressEjections>,
}

/// Result of the last lookups. Pure.
#[derive(Debug, Default)]
struct Resolution {
    addresses: Vec<SocketAddr>,
    next_lookup: Option<Instant>,
}

impl Resolution {
    fn is_fresh(&self, now: Instant) -> bool {
        self.next_lookup.is_some_and(|next| now < next)
    }

    /// Makes the addresses stale, unless they are less than [`RETRY_INTERVAL`] old.
    fn expire_addresses(&mut self, now: Instant, interval: Duration) {
        let youngest = now + interval.saturating_sub(RETRY_INTERVAL);
        self.next_lookup = self.next_lookup.filter(|next| *next > youngest);
    }

    fn record_lookup(&mut self, result: Option<Vec<SocketAddr>>, now: Instant, interval: Duration) {
        match result.filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => {
                self.addresses = addresses;
                self.next_lookup = Some(now + interval);
            }
            None if self.addresses.is_empty() => self.next_lookup = Some(now + RETRY_INTERVAL.min(interval)),
            None => self.next_lookup = Some(now + interval),
        }
    }
}

impl Resolver {
    /// A resolver for `host`, a name or an IP address without brackets.
    pub(crate) fn new(host: &str, port: u16, interval: Duration) -> Self {
        let mut answer = Resolution::default();
        let literal = host.parse::<IpAddr>().ok();
        answer.addresses.extend(literal.map(|address| SocketAddr::new(address, port)));
        Self {
            host: host.to_owned(),
            port,
            literal: literal.is_some(),
            interval,
            answer: RefCell::new(answer),
            turn: Cell::new(0),
            lookup: Mutex::new(()),
            lookups: PROCESS_LOOKUPS.clone(),
            pending: RefCell::default(),
            failures: PROCESS_FAILURES.clone(),
            ejections: RefCell::default(),
        }
    }

    /// Returns all addresses in the order in which to try them, starting with another one at each call.
    ///
    /// # Errors
    ///
    /// The name was never resolved.
    ///
    /// # Cancel safety
    ///
    /// A lookup in progress goes on, and the next call gets its result.
    pub(crate) async fn ordered_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.refresh_addresses().await;
        let answer = self.answer.borrow();
        match &*answer.addresses {
            [] => Err(io::Error::new(io::ErrorKind::NotFound, "the origin's name has no address")),
            [only] => Ok(vec![*only]),
            addresses => {
                let turn = self.turn.get();
                self.turn.set(turn.wrapping_add(1));
                let now = Instant::now();
                Ok(order_addresses(addresses, turn, |address| self.is_tried_last(address, now)))
            }
        }
    }

    /// Whether the name has several addresses.
    pub(crate) fn address_count(&self) -> usize {
        self.answer.borrow().addresses.len()
    }

    /// Whether `address` is tried last.
    fn is_tried_last(&self, address: SocketAddr, now: Instant) -> bool {
        self.failures.is_failed(address, now) || self.ejections.borrow().is_address_ejected(address, now)
    }

    /// Returns addresses of the name that `tried` does not have, after all of these have failed: the name is resolved
    /// at once, but not more often than once a second. `None` if there are none.
    ///
    /// # Cancel safety
    ///
    /// The lookup goes on, and the next call gets its result.
    pub(crate) async fn addresses_beside(&self, tried: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
        self.expire_answer();
        if !self.literal && !self.answer.borrow().is_fresh(Instant::now()) {
            let turn = self.lookup.lock().await;
            self.run_lookup(turn).await;
        }
        let answer = self.answer.borrow();
        let others: Vec<_> = answer.addresses.iter().copied().filter(|address| !tried.contains(address)).collect();
        Some(others).filter(|others| !others.is_empty())
    }

    /// Makes a lookup due, because an address has failed: the name may have moved.
    pub(crate) fn expire_answer(&self) {
        self.answer.borrow_mut().expire_addresses(Instant::now(), self.interval);
    }

    /// Notes that no connection to `address` could be opened, by `error`: the address is tried last until the name is
    /// resolved again.
    pub(crate) fn on_unreachable(&self, address: SocketAddr, error: &io::Error) {
        self.expire_answer();
        if self.failures.mark_failed(address, self.interval, Instant::now()) {
            tracing::warn!(host = self.host, %address, %error, "cannot connect to an address of an origin; litequic \
                                                                tries this address last from now on");
        }
    }

    /// Notes that a request over a connection to `address` succeeded.
    pub(crate) fn on_address_success(&self, address: SocketAddr) {
        self.ejections.borrow_mut().record_address_success(address, Instant::now());
    }

    /// Notes that a request failed by `cause`, because its connection to `address` broke. `rule` decides whether that
    /// ejects the address.
    pub(crate) fn on_address_broken(&self, address: SocketAddr, rule: EjectionRule, cause: EjectionCause) -> Blame {
        let now = Instant::now();
        let answer = self.answer.borrow();
        let is_left = |other: &SocketAddr| *other != address && !self.is_tried_last(*other, now);
        if !answer.addresses.contains(&address) || !answer.addresses.iter().any(is_left) {
            return Blame::Server;
        }
        Blame::Address(self.ejections.borrow_mut().record_address_failure(address, now, rule, cause))
    }

    /// Whether a lookup is due while the last answer can be used.
    pub(crate) fn needs_lookup(&self) -> bool {
        if self.literal {
            return false;
        }
        let answer = self.answer.borrow();
        !answer.addresses.is_empty() && !answer.is_fresh(Instant::now()) && self.lookup.try_lock().is_ok()
    }

    /// Resolves the name again, if a lookup is due.
    ///
    /// # Cancel safety
    ///
    /// The lookup goes on, and the next call gets its result.
    pub(crate) async fn refresh_addresses(&self) {
        if self.literal || self.answer.borrow().is_fresh(Instant::now()) {
            return;
        }
        // With an earlier answer no request waits for another request's lookup.
        let is_known = !self.answer.borrow().addresses.is_empty();
        let turn = if is_known { self.lookup.try_lock().ok() } else { Some(self.lookup.lock().await) };
        if let Some(turn) = turn {
            self.run_lookup(turn).await;
        }
    }

    /// Whether the last answer has `address`.
    pub(crate) fn has_address(&self, address: SocketAddr) -> bool {
        self.literal || self.answer.borrow().addresses.contains(&address)
    }

    /// Looks the name up, one lookup at a time: in its `turn`.
    async fn run_lookup(&self, _turn: MutexGuard<'_, ()>) {
        // The lock's last owner may have resolved the name meanwhile.
        if self.answer.borrow().is_fresh(Instant::now()) {
            return;
        }
        let known = !self.answer.borrow().addresses.is_empty();
        // A second lookup may be needed: the result of one that was given up may be too old by now.
        for _ in 0..2 {
            let given_up = self.pending.borrow().is_some();
            let result = timeout(LOOKUP_TIMEOUT, self.take_lookup_result()).await;
            let late = result.is_err();
            let (found, at) = result.unwrap_or_else(|_| {
                let problem = format!("no result within {LOOKUP_TIMEOUT:?}; the lookup continues");
                (Err(io::Error::new(io::ErrorKind::TimedOut, problem)), Instant::now())
            });
            if let Err(error) = &found {
                tracing::warn!(host = self.host, %error, kept = known, "cannot resolve an origin's name");
            }
            self.answer.borrow_mut().record_lookup(found.ok(), at, self.interval);
            self.ejections.borrow_mut().retain_addresses(&self.answer.borrow().addresses);
            if late || !given_up || self.answer.borrow().is_fresh(Instant::now()) {
                return;
            }
        }
    }

    /// Returns the result and the end of the lookup that an earlier call gave up, or of a new one.
    async fn take_lookup_result(&self) -> (io::Result<Vec<SocketAddr>>, Instant) {
        let pending = self.pending.borrow().clone();
        let lookup = match pending.map_or_else(|| self.lookups.join_or_start(&self.host), Ok) {
            Ok(lookup) => lookup,
            Err(error) => return (Err(error), Instant::now()),
        };
        let mut waiting = lookup.clone();
        *self.pending.borrow_mut() = Some(lookup);
        let answer = waiting.await_answer().await;
        *self.pending.borrow_mut() = None;
        match answer {
            Ok(answer) => {
                let addresses = answer.addresses.map_err(clone_shared_error);
                let at_port = |address| SocketAddr::new(address, self.port);
                (addresses.map(|addresses| addresses.into_iter().map(at_port).collect()), answer.ended_at)
            }
            Err(error) => (Err(error), Instant::now()),
        }
    }
}

#[cfg(test)]
impl Resolver {
    /// A resolver for `host` by `lookups`.
    fn with_lookups(lookups: &Lookups, host: &str, interval: Duration) -> Self {
        Self { lookups: lookups.clone(), ..Self::new(host, 80, interval) }
    }

    /// From now on the name has these `addresses`.
    pub(crate) fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.answer.borrow_mut().record_lookup(Some(addresses), Instant::now(), self.interval);
    }

    /// A resolver of a name with these `addresses`.
    pub(crate) fn with_addresses(addresses: Vec<SocketAddr>) -> Self {
        let this =
            Self { failures: AddressFailures::default(), ..Self::new("origin.test", 80, Duration::from_secs(3600)) };
        this.answer.borrow_mut().record_lookup(Some(addresses), Instant::now(), this.interval);
        this
    }
}

#[cfg(test)]
mod tests {
    use super::{super::lookup::tests::LookupNames, *};
    use std::sync::atomic::Ordering::Relaxed;

    fn list(addresses: &[&str]) -> Option<Vec<SocketAddr>> {
        Some(addresses.iter().map(|address| address.parse().unwrap()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_lookup_keeps_the_last_answer() {
        let interval = Duration::from_secs(30);
        let now = Instant::now();
        let mut answer = Resolution::default();
        assert!(!answer.is_fresh(now));
        answer.record_lookup(list(&["192.0.2.1:80"]), now, interval);
        assert!(answer.is_fresh(now + Duration::from_secs(29)));
        let later = now + interval;
        assert!(!answer.is_fresh(later));
        answer.record_lookup(None, later, interval);
        assert_eq!(Some(answer.addresses.clone()), list(&["192.0.2.1:80"]));
        answer.record_lookup(Some(Vec::new()), later, interval);
        assert_eq!(Some(answer.addresses.clone()), list(&["192.0.2.1:80"]));
        answer.record_lookup(list(&["192.0.2.2:80"]), later, interval);
        assert_eq!(Some(answer.addresses), list(&["192.0.2.2:80"]));
    }

    #[tokio::test]
    async fn all_addresses_are_used_in_turn() {
        let resolver = Resolver::with_addresses(list(&["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"]).unwrap());
        let mut first = Vec::new();
        for _ in 0..4 {
            first.push(resolver.ordered_addresses().await.unwrap()[0].to_string());
        }
        assert_eq!(first, ["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80", "192.0.2.1:80"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_goes_stale_and_a_new_one_leads_elsewhere() {
        let [old, new] = ["192.0.2.1:80", "192.0.2.2:80"].map(|address| address.parse().unwrap());
        let resolver = Resolver::with_addresses(vec![old]);
        assert!(resolver.has_address(old) && !resolver.has_address(new) && !resolver.needs_lookup());
        tokio::time::advance(resolver.interval).await;
        assert!(resolver.needs_lookup() && resolver.has_address(old), "until there is another answer");
        resolver.answer.borrow_mut().record_lookup(Some(vec![new]), Instant::now(), resolver.interval);
        assert!(resolver.has_address(new) && !resolver.has_address(old) && !resolver.needs_lookup());
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup() {
        let resolver = Resolver::new("::1", 80, Duration::ZERO);
        assert_eq!(resolver.ordered_addresses().await.unwrap(), list(&["[::1]:80"]).unwrap());
        assert!(!resolver.needs_lookup());
    }

    #[tokio::test]
    async fn the_late_result_of_a_hanging_lookup_is_used() {
        static NAMES: LookupNames = LookupNames::new();
        let lookups = Lookups::with_resolve(|name| NAMES.resolve_name(name));
        // These are the resolvers of two workers.
        let [one, other] = [(); 2].map(|()| Resolver::with_lookups(&lookups, "hang", Duration::from_secs(3600)));
        for _ in 0..2 {
            let began = Instant::now();
            assert!(one.ordered_addresses().await.is_err());
            assert!(began.elapsed() < 2 * LOOKUP_TIMEOUT);
            assert!(one.ordered_addresses().await.is_err(), "at once: not again within the retry interval");
            one.answer.borrow_mut().next_lookup = None;
            assert!(Resolver::with_lookups(&lookups, "other", Duration::ZERO).ordered_addresses().await.is_ok());
        }
        assert!(timeout(RETRY_INTERVAL, other.ordered_addresses()).await.is_err(), "a request that goes away");
        assert_eq!((lookups.running_count(), NAMES.asked.load(Relaxed)), (1, 1));
        NAMES.release_names();
        for resolver in [&one, &other] {
            assert_eq!(Some(resolver.ordered_addresses().await.unwrap()), list(&["192.0.2.1:80"]));
            assert!(resolver.pending.borrow().is_none());
        }
        assert_eq!(NAMES.asked.load(Relaxed), 1, "the result of the one lookup");
    }

    #[tokio::test]
    async fn a_lookup_result_older_than_the_interval_is_looked_up_again() {
        static NAMES: LookupNames = LookupNames::new();
        let lookups = Lookups::with_resolve(|name| NAMES.resolve_name(name));
        let resolver = Resolver::with_lookups(&lookups, "hang", Duration::from_millis(1));
        assert!(timeout(RETRY_INTERVAL, resolver.ordered_addresses()).await.is_err());
        NAMES.release_names();
        let pending = resolver.pending.borrow().clone();
        pending.unwrap().await_answer().await.unwrap();
        tokio::time::sleep(resolver.interval * 2).await;
        assert!(resolver.ordered_addresses().await.is_ok());
        assert_eq!(NAMES.asked.load(Relaxed), 2);
    }
}
