//! An origin's addresses: looked up again every `dns_interval`, all of them used in turn. A lookup that fails keeps
//! the last answer.

use std::{
    cell::{Cell, RefCell},
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// After a failed lookup without an earlier answer nobody asks again for that long: a burst of requests must not
/// become a burst of lookups.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// One origin's name and what is known of it. Belongs to one worker.
#[derive(Debug)]
pub(super) struct Resolver {
    host: String,
    port: u16,
    interval: Duration,
    answer: RefCell<Answer>,
    /// Where the next connection starts in the list.
    turn: Cell<usize>,
    /// One lookup at a time.
    lookup: Mutex<()>,
}

/// What the last lookups said. Pure.
#[derive(Debug, Default)]
struct Answer {
    addresses: Vec<SocketAddr>,
    next_lookup: Option<Instant>,
}

impl Answer {
    fn is_fresh(&self, now: Instant) -> bool {
        self.next_lookup.is_some_and(|next| now < next)
    }

    fn record(&mut self, result: Option<Vec<SocketAddr>>, now: Instant, interval: Duration) {
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
    /// For `host`, a name or an IP address without brackets.
    pub(super) fn new(host: &str, port: u16, interval: Duration) -> Self {
        let mut answer = Answer::default();
        if let Ok(address) = host.parse::<IpAddr>() {
            answer.addresses.push(SocketAddr::new(address, port));
        }
        Self {
            host: host.to_owned(),
            port,
            interval,
            answer: RefCell::new(answer),
            turn: Cell::new(0),
            lookup: Mutex::new(()),
        }
    }

    /// Every address, starting with another one at each call.
    ///
    /// # Errors
    ///
    /// The name could not be looked up, now and ever before.
    ///
    /// # Cancel safety
    ///
    /// A lookup that was under way is lost.
    pub(super) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.parse::<IpAddr>().is_err() && !self.answer.borrow().is_fresh(Instant::now()) {
            let _one_at_a_time = self.lookup.lock().await;
            // Whoever held the lock may have asked for us.
            if !self.answer.borrow().is_fresh(Instant::now()) {
                let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
                if let Err(error) = &found {
                    tracing::warn!(host = self.host, %error, "looking up an origin's name failed");
                }
                self.answer.borrow_mut().record(found.ok().map(Iterator::collect), Instant::now(), self.interval);
            }
        }
        let mut addresses = self.answer.borrow().addresses.clone();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the origin's name has no address"));
        }
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let first = turn % addresses.len();
        addresses.rotate_left(first);
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(addresses: &[&str]) -> Option<Vec<SocketAddr>> {
        Some(addresses.iter().map(|address| address.parse().unwrap()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_lookup_keeps_the_last_answer() {
        let interval = Duration::from_secs(30);
        let now = Instant::now();
        let mut answer = Answer::default();
        assert!(!answer.is_fresh(now));
        answer.record(list(&["192.0.2.1:80"]), now, interval);
        assert!(answer.is_fresh(now + Duration::from_secs(29)));
        let later = now + interval;
        assert!(!answer.is_fresh(later));
        answer.record(None, later, interval);
        assert_eq!(Some(answer.addresses.clone()), list(&["192.0.2.1:80"]));
        answer.record(Some(Vec::new()), later, interval);
        assert_eq!(Some(answer.addresses.clone()), list(&["192.0.2.1:80"]));
        answer.record(list(&["192.0.2.2:80"]), later, interval);
        assert_eq!(Some(answer.addresses), list(&["192.0.2.2:80"]));
    }

    #[tokio::test]
    async fn all_addresses_are_used_in_turn() {
        let resolver = Resolver::new("origin.test", 80, Duration::from_secs(30));
        let addresses = list(&["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"]);
        resolver.answer.borrow_mut().record(addresses, Instant::now(), Duration::from_secs(30));
        let mut first = Vec::new();
        for _ in 0..4 {
            first.push(resolver.addresses().await.unwrap()[0].to_string());
        }
        assert_eq!(first, ["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80", "192.0.2.1:80"]);
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup() {
        let resolver = Resolver::new("::1", 80, Duration::ZERO);
        assert_eq!(resolver.addresses().await.unwrap(), list(&["[::1]:80"]).unwrap());
    }
}
