//! Counts a worker's handshakes and connections from begin to end, by a guard in s2n-quic's per-connection context,
//! which holds the connection's slots in the worker's pools. HTTP/3 counts its own connections: those whose handshake
//! is complete.

use super::admission::SourceSlots;
use crate::metrics::QuicMetrics;
use litequic_telemetry::Counter;
use rustls::AlertDescription;
use s2n_quic_core::{connection::Error, endpoint::Location};
use std::{net::SocketAddr, ops::RangeInclusive, sync::Arc};

/// H3_NO_ERROR (RFC 9114 §8.1).
const H3_NO_ERROR: u64 = 0x100;
/// Error codes of HTTP/3 and QPACK (RFC 9114 §8.1, RFC 9204 §8.3), with room for extensions.
const H3_ERROR_CODES: RangeInclusive<u64> = 0x101..=0x2ff;
/// Error codes of TLS alerts, CRYPTO_ERROR (RFC 9001 §4.8).
const ALERT_CODES: RangeInclusive<u64> = 0x100..=0x1ff;

/// Guard that counts one connection until dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    metrics: Arc<QuicMetrics>,
    handshaking: bool,
    /// Slots of the client; `None` before the connection has begun.
    slots: Option<SourceSlots>,
    /// The client's first address.
    client: Option<SocketAddr>,
    /// Server name of the handshake (SNI), if it may be logged.
    name: Option<Box<str>>,
}

impl ConnectionSlot {
    /// Counts a connection whose handshake begins.
    pub(super) fn open_slot(metrics: &Arc<QuicMetrics>) -> Self {
        metrics.connections_held.increment();
        metrics.handshakes_open.increment();
        Self { metrics: Arc::clone(metrics), handshaking: true, slots: None, client: None, name: None }
    }

    /// Holds `slots` for the connection of `client`.
    pub(super) fn attach_slots(&mut self, slots: SourceSlots, client: SocketAddr) {
        (self.slots, self.client) = (Some(slots), Some(client));
    }

    /// Sets the server name that the client has requested, which may be logged.
    pub(super) fn set_server_name(&mut self, name: &str) {
        self.name = Some(name.into());
    }

    /// The handshake is complete.
    pub(super) fn on_handshake_done(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.end_handshake();
        }
        if std::mem::take(&mut self.handshaking) {
            self.metrics.handshakes_open.decrement();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.metrics.connections_held.decrement();
        if self.handshaking {
            self.metrics.handshakes_open.decrement();
        }
    }
}

impl ConnectionSlot {
    /// Counts and logs the end of the connection by `error`.
    pub(super) fn count_close(&self, error: &Error) {
        match *error {
            Error::MaxHandshakeDurationExceeded { .. } => self.metrics.timeout_handshake.increment(),
            // A client that vanishes within the handshake reaches the handshake timeout.
            Error::IdleTimerExpired { .. } if self.handshaking => self.metrics.timeout_handshake.increment(),
            Error::IdleTimerExpired { .. } => self.metrics.timeout_idle.increment(),
            _ => {}
        }
        if self.handshaking
            && let Error::Transport { initiator: Location::Remote, code, .. } = *error
            && ALERT_CODES.contains(&code.as_u64())
        {
            // The last byte of the code is the alert.
            let alert = AlertDescription::from(code.as_u64().to_le_bytes()[0]);
            let (client, name) = (self.client.map(tracing::field::display), self.name.as_deref());
            tracing::debug!(client, name, ?alert, "the client ended the handshake");
        }
        close_counter(&self.metrics, error, self.handshaking).increment();
    }
}

/// Counter of connections that end by `error`, during the handshake if `handshaking`.
fn close_counter<'a>(metrics: &'a QuicMetrics, error: &Error, handshaking: bool) -> &'a Counter {
    use Location::{Local, Remote};
    let is_alert = |code: u64| ALERT_CODES.contains(&code);
    match *error {
        Error::IdleTimerExpired { .. } | Error::MaxHandshakeDurationExceeded { .. } if handshaking => {
            &metrics.handshakes_failed_timeout
        }
        Error::Transport { initiator: Local, code, .. } if handshaking && is_alert(code.as_u64()) => {
            &metrics.handshakes_failed_tls
        }
        Error::Transport { initiator: Remote, code, .. } if handshaking && is_alert(code.as_u64()) => {
            &metrics.handshakes_failed_alert
        }
        Error::Closed { initiator: Remote, .. }
        | Error::Transport { initiator: Remote, .. }
        | Error::Application { initiator: Remote, .. }
            if handshaking =>
        {
            &metrics.handshakes_failed_closed
        }
        _ if handshaking => &metrics.handshakes_failed_other,
        Error::IdleTimerExpired { .. } => &metrics.closed_idle,
        Error::Closed { initiator: Remote, .. } => &metrics.closed_client,
        Error::Application { initiator: Remote, error, .. } => match *error {
            H3_NO_ERROR => &metrics.closed_client,
            code if H3_ERROR_CODES.contains(&code) => &metrics.closed_client_h3,
            _ => &metrics.closed_client_application,
        },
        Error::Transport { initiator: Remote, .. } => &metrics.closed_client_transport,
        Error::StatelessReset { .. } => &metrics.closed_client_reset,
        Error::Closed { initiator: Local, .. } | Error::EndpointClosing { .. } => &metrics.closed_litequic,
        Error::Application { initiator: Local, error, .. } if *error == H3_NO_ERROR => &metrics.closed_litequic,
        Error::Application { initiator: Local, .. } => &metrics.closed_litequic_h3,
        Error::Transport { initiator: Local, .. } => &metrics.closed_litequic_transport,
        _ => &metrics.closed_other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_dropped_with_or_without_handshake() {
        let metrics = Arc::<QuicMetrics>::default();
        let gauges = || (metrics.handshakes_open.get(), metrics.connections_held.get());
        let given_up = ConnectionSlot::open_slot(&metrics);
        let mut served = ConnectionSlot::open_slot(&metrics);
        assert_eq!(gauges(), (2, 2));
        served.on_handshake_done();
        served.on_handshake_done();
        assert_eq!(gauges(), (1, 2));
        drop(given_up);
        assert_eq!(gauges(), (0, 1));
        drop(served);
        assert_eq!(gauges(), (0, 0));
    }
}
