//! Renews a client's knowledge of HTTP/3 (RFC 7838 §3.1). The first response of an HTTP/3 connection has `Alt-Svc`, and
//! so has the first after each half of its `ma`. Without the field a client that returns daily begins with HTTP/2 again
//! once `ma` is over. And Chromium expects priorities only of a server whose `Alt-Svc` it knows, which it does not if
//! it found HTTP/3 by an HTTPS record (RFC 9460).

use litequic_config::Listen;
use litequic_exchange::{AdvertisedPort, format_alt_svc};
use std::{cell::Cell, time::Duration};
use tokio::time::Instant;

/// Schedules `Alt-Svc` in the responses of one connection.
#[derive(Debug)]
pub(super) struct AltSvcRenewal {
    port: AdvertisedPort,
    /// Time from which on the next response has the field; `None` for never.
    due: Cell<Option<Instant>>,
}

impl AltSvcRenewal {
    /// Creates the state of a connection to the UDP port `local`. Where litequic does not serve TCP, another server
    /// advertises HTTP/3, perhaps at another port, so that no response has the field.
    pub(super) fn new(listen: &Listen, local: u16, now: Instant) -> Self {
        let is_shared = listen.tcp.iter().any(|tcp| tcp.port() == local);
        let port = AdvertisedPort::choose(listen.advertised_port, local, is_shared);
        Self { port, due: Cell::new((!listen.tcp.is_empty()).then_some(now)) }
    }

    /// Whether a response at `now` gets the field.
    pub(super) fn is_renewal_due(&self, now: impl FnOnce() -> Instant) -> bool {
        self.due.get().is_some_and(|due| due <= now())
    }

    /// Returns the field's value for a response at `now`, which advertises HTTP/3 for `max_age` to a client whose last
    /// request was for the port `host`.
    pub(super) fn renew_value(&self, host: Option<u16>, max_age: Duration, now: Instant) -> String {
        self.due.set(now.checked_add(max_age / 2));
        format_alt_svc(self.port.port_for_host(host), max_age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;

    #[test]
    fn alt_svc_is_in_the_first_response_and_after_half_its_age() {
        let (now, age) = (Instant::now(), Duration::from_secs(60));
        let alt_svc = AltSvcRenewal::new(&Listen::default(), 8443, now);
        assert!(alt_svc.is_renewal_due(|| now));
        assert_eq!(alt_svc.renew_value(None, age, now), "h3=\":8443\"; ma=60");
        assert!(!alt_svc.is_renewal_due(|| now + age / 3));
        assert!(alt_svc.is_renewal_due(|| now + age / 2));
    }

    #[test]
    fn alt_svc_names_the_advertised_port_and_needs_tcp() {
        let now = Instant::now();
        let listen = Listen { advertised_port: NonZeroU16::new(443), ..Listen::default() };
        assert_eq!(
            AltSvcRenewal::new(&listen, 8443, now).renew_value(Some(8443), Duration::from_secs(1), now),
            "h3=\":443\"; ma=1"
        );
        let listen = Listen { tcp: Vec::new(), ..Listen::default() };
        assert!(!AltSvcRenewal::new(&listen, 8443, now).is_renewal_due(|| now));
    }
}
