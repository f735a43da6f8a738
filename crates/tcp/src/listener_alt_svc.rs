//! Advertises HTTP/3 in the responses of a TCP listener (RFC 7838 §3), or has clients forget HTTP/3 while it is off.
//! Each response over TLS has the field until the drain (`request_answer`, `finish_response`), none over plain TCP. The
//! port is `advertised_port` of `app::start`: `listen.advertised_port`, that of the client's requests, or that of UDP.
//! `proxy::message::response` removes the field of an origin.

use http::HeaderValue;
use litequic_config::Listen;
use litequic_exchange::{AdvertisedPort, format_alt_svc};
use std::{cell::RefCell, time::Duration};

/// The `Alt-Svc` of one listener.
#[derive(Debug)]
pub(super) struct ListenerAltSvc {
    port: AdvertisedPort,
    /// Port and `listen.alt_svc_max_age`, and the field value made for them.
    cached: RefCell<Option<(u16, Duration, HeaderValue)>>,
}

impl ListenerAltSvc {
    pub(super) fn new(port: AdvertisedPort) -> Self {
        Self { port, cached: RefCell::default() }
    }

    /// Returns the field's value by the configuration in force, for a client whose last request was for the port
    /// `host`.
    pub(super) fn alt_svc_value(&self, listen: &Listen, host: Option<u16>) -> HeaderValue {
        if !listen.http3 {
            return HeaderValue::from_static("clear");
        }
        let (port, age) = (self.port.port_for_host(host), listen.alt_svc_max_age);
        let mut made = self.cached.borrow_mut();
        match &*made {
            Some((same, since, value)) if (*same, *since) == (port, age) => value.clone(),
            _ => {
                // Two numbers and quotation marks are a valid value.
                let value = HeaderValue::try_from(format_alt_svc(port, age))
                    .unwrap_or_else(|_| HeaderValue::from_static("clear"));
                *made = Some((port, age, value.clone()));
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_follows_the_configuration() {
        let alt_svc = ListenerAltSvc::new(AdvertisedPort::Fixed(443));
        let at = |http3, seconds| Listen { http3, alt_svc_max_age: Duration::from_secs(seconds), ..Listen::default() };
        for (listen, expected) in [
            (at(true, 86_400), "h3=\":443\"; ma=86400"),
            (at(true, 86_400), "h3=\":443\"; ma=86400"),
            (at(true, 60), "h3=\":443\"; ma=60"),
            (at(false, 60), "clear"),
            (at(true, 60), "h3=\":443\"; ma=60"),
        ] {
            assert_eq!(alt_svc.alt_svc_value(&listen, Some(8443)), expected);
        }
        let mapped = ListenerAltSvc::new(AdvertisedPort::OfHost(8443));
        for (host, expected) in [(Some(443), "h3=\":443\"; ma=60"), (None, "h3=\":8443\"; ma=60")] {
            assert_eq!(mapped.alt_svc_value(&at(true, 60), host), expected);
        }
    }
}
