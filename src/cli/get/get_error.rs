//! Defines the reasons for which `litequic get` has no response.

use crate::cli::exit::Exit;
use litequic_http3::client::ClientError;
use litequic_quic::ConnectError;
use litequic_tls::{CertificateRejection, TrustError};
use std::{io, net::SocketAddr, time::Duration};

/// Reason for a missing response.
#[derive(Debug, thiserror::Error)]
pub(super) enum GetError {
    #[error("{0:?} is not https://HOST[:PORT][/PATH]")]
    Url(String),
    #[error("{0:?} is not a host")]
    Host(String),
    #[error("cannot resolve {host}: {source}")]
    Lookup { host: String, source: io::Error },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(
        "the certificate of {host} at {address} is not trusted: {reason}\n\
         --ca FILE trusts the certificates in FILE, --insecure accepts any"
    )]
    Certificate { host: String, address: SocketAddr, reason: CertificateRejection },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write {to}: {source}")]
    Output { to: String, source: io::Error },
    #[error("no response within {}", humantime::format_duration(*.0))]
    NoResponse(Duration),
    #[error("incomplete response after {}: {received} bytes of its body were received", humantime::format_duration(*.limit))]
    NotWhole { limit: Duration, received: u64 },
}

impl From<&GetError> for Exit {
    fn from(error: &GetError) -> Self {
        match error {
            GetError::Url(_) | GetError::Host(_) => Self::Usage,
            GetError::Trust(_) => Self::Config,
            GetError::Lookup { .. }
            | GetError::NoAddress(_)
            | GetError::Connect(_)
            | GetError::Certificate { .. }
            | GetError::NoResponse(_)
            | GetError::NotWhole { .. } => Self::Unavailable,
            GetError::Client(_) => Self::Protocol,
            GetError::Output { .. } => Self::Output,
        }
    }
}
