//! Advertises HTTP/3 in the responses of a TCP listener (RFC 7838 §3), or has clients forget HTTP/3 while it is off.
//! Each response over TLS has the field until the drain (`request_answer`, `finish_response`), none over plain TCP. The
//! port is `http3_port` of `app::start`: `listen.advertised_port`, or that of UDP. `proxy::message::response` removes
//! the field of an origin.

use http::HeaderValue;
use litequic_config::Listen;
use litequic_exchange::format_alt_svc;
use std::{cell::RefCell, time::Duration};

/// The `Alt-Svc` of one listener.
#[derive(Debug)]
pub(super) struct ListenerAltSvc {
    /// UDP port at which clients reach HTTP/3.
    port: u16,
    /// `listen.alt_svc_max_age`, and the field value made for that age.
    cached: RefCell<Option<(Duration, HeaderValue)>>,
}

impl ListenerAltSvc {
    pub(super) fn new(port: u16) -> Self {
        Self { port, cached: RefCell::default() }
    }

    /// Returns the field's value by the configuration in force.
    pub(super) fn alt_svc_value(&self, listen: &Listen) -> HeaderValue {
        if !listen.http3 {
            return HeaderValue::from_static("clear");
        }
        let age = listen.alt_svc_max_age;
        let mut made = self.cached.borrow_mut();
        match &*made {
            Some((same, value)) if *same == age => value.clone(),
            _ => {
                // Two numbers and quotation marks are a valid value.
                let value = HeaderValue::try_from(format_alt_svc(self.port, age))
                    .unwrap_or_else(|_| HeaderValue::from_static("clear"));
                *made = Some((age, value.clone()));
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
        let alt_svc = ListenerAltSvc::new(443);
        let at = |http3, seconds| Listen { http3, alt_svc_max_age: Duration::from_secs(seconds), ..Listen::default() };
        for (listen, expected) in [
            (at(true, 86_400), "h3=\":443\"; ma=86400"),
            (at(true, 86_400), "h3=\":443\"; ma=86400"),
            (at(true, 60), "h3=\":443\"; ma=60"),
            (at(false, 60), "clear"),
            (at(true, 60), "h3=\":443\"; ma=60"),
        ] {
            assert_eq!(alt_svc.alt_svc_value(&listen), expected);
        }
    }
}
