//! A client that does not support ACK_FREQUENCY (draft-ietf-quic-ack-frequency): quinn, which always does, with that
//! transport parameter removed.

use super::{prelude::*, raw::varint};
use quinn::{
    ConnectError, Side,
    crypto::{ClientConfig, Session, rustls::QuicClientConfig},
};
use quinn_proto::transport_parameters::TransportParameters;

const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// quinn's configuration for one, which trusts `cert_pem` alone.
pub(crate) fn config(cert_pem: &str, transport: quinn::TransportConfig) -> quinn::ClientConfig {
    let tls = QuicClientConfig::try_from(client::tls_config(cert_pem)).unwrap();
    let mut config = quinn::ClientConfig::new(Arc::new(Unasked(Arc::new(tls))));
    config.transport_config(Arc::new(transport));
    config
}

/// `params` as they are sent, with `offer` in the place of quinn's.
pub(crate) fn with_offer(params: &TransportParameters, offer: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    let id = varint(MIN_ACK_DELAY);
    // The value follows its length, which is a single byte.
    let at = bytes.windows(id.len()).position(|window| window == id).expect("quinn offers it");
    let length = usize::from(bytes[at + id.len()]);
    bytes.splice(at..at + id.len() + 1 + length, offer);
    bytes
}

struct Unasked(Arc<QuicClientConfig>);

impl ClientConfig for Unasked {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let bytes = with_offer(params, []);
        let params = TransportParameters::read(Side::Server, &mut bytes.as_slice()).unwrap();
        Arc::clone(&self.0).start_session(version, server_name, &params)
    }
}
