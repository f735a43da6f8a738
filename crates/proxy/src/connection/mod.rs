//! A connection to an origin: opening it, TLS, its socket, and a request with its body and a response on it.

mod connect;
mod giving_way;
#[cfg(test)]
mod oracle;
mod origin_connection;
mod proxied;
mod records;
mod request_body;
mod socket;
mod tls;

pub(crate) use connect::{CheckedServer, Connector, Opening, Unopened, probe, reach};
pub(crate) use giving_way::{ClientTime, Direction, PATIENCE, PreemptionReason, Taker, update};
pub(crate) use origin_connection::{OriginConnection, Received, ReceivedHead, SendFailure};
pub(crate) use proxied::Proxied;
pub(crate) use request_body::{Progress, TrailerRules, Upload};
pub(crate) use tls::TlsFailure;
pub use tls::TlsToOrigin;
