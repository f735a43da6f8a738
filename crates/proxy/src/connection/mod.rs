//! Connects to an origin: opens the connection, with TLS, sends a request with its body, and reads the response.

mod connect;
mod field_spelling;
mod http2_connection;
#[cfg(test)]
mod oracle_tests;
mod origin_connection;
mod origin_stream;
mod preemption;
mod proxy_header;
mod request_body;
mod socket;
mod tls;

pub(crate) use connect::{ConnectFailure, ConnectOptions, Connector, ProbeTarget, probe_target, reach_server};
pub(crate) use field_spelling::FieldSpelling;
pub(crate) use http2_connection::Http2Connection;
pub(crate) use origin_connection::{OriginConnection, ReceivedHead, ReceivedMessage, SendFailure};
pub(crate) use origin_stream::OriginStream;
pub(crate) use preemption::{
    BodyDirection, ClientTime, PREEMPTION_DELAY, PreemptionReason, WaitingRequest, update_cell,
};
pub(crate) use proxy_header::ProxiedClient;
pub(crate) use request_body::{TrailerRules, Upload, UploadProgress};
pub(crate) use socket::OriginSocket;
pub(crate) use tls::TlsFailure;
pub use tls::TlsToOrigin;
