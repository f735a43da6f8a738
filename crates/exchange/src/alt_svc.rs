//! Formats the value of `Alt-Svc` (RFC 7838 §3) that advertises HTTP/3. Pure.

use std::{num::NonZeroU16, time::Duration};

/// UDP port that `Alt-Svc` advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvertisedPort {
    /// This port.
    Fixed(u16),
    /// The port by which the client reached the host, or this one if that is unknown: TCP and UDP have the same port
    /// here, so that a port mapping in front leads both to litequic.
    OfHost(u16),
}

impl AdvertisedPort {
    /// Returns `configured` (`listen.advertised_port`), or else `port`, which the client's own port replaces if
    /// `is_shared`: both TCP and UDP listen at `port`.
    pub fn choose(configured: Option<NonZeroU16>, port: u16, is_shared: bool) -> Self {
        match configured {
            Some(port) => Self::Fixed(port.get()),
            None if is_shared => Self::OfHost(port),
            None => Self::Fixed(port),
        }
    }

    /// Returns the port for a client whose last request was for the port `host`.
    pub fn port_for_host(self, host: Option<u16>) -> u16 {
        match self {
            Self::Fixed(port) => port,
            Self::OfHost(port) => host.unwrap_or(port),
        }
    }
}

/// Returns the `Alt-Svc` value that advertises HTTP/3 at `port` of the same host for `max_age`, in whole seconds.
pub fn format_alt_svc(port: u16, max_age: Duration) -> String {
    format!("h3=\":{port}\"; ma={}", max_age.as_secs())
}
