//! Describes a client by its TLS certificate, and encodes the certificate in fields for an origin (RFC 9440).

use base64::{Engine, prelude::BASE64_STANDARD};
use litequic_base::named_enum;

/// Whether a TLS handshake requests the client's certificate (RFC 8446 §4.3.2).
pub type CertificateRequest = litequic_config::VerifyMode;

/// Identity and parameters of a client's TLS session.
#[derive(Debug, Clone, Default)]
pub struct TlsIdentity {
    /// The certificate request of the handshake.
    pub certificate_request: CertificateRequest,
    /// The client's certificate, if the handshake verified one.
    pub certificate: Option<ClientCertificate>,
    /// TLS version of the session.
    pub tls: ClientTls,
    /// Number of the key exchange group (RFC 8446 §4.2.7), if one was negotiated.
    pub group: Option<u16>,
    /// Whether the handshake resumed a session.
    pub resumed: bool,
}

impl TlsIdentity {
    /// Returns the name of the key exchange group, if it is one that litequic offers.
    pub const fn group_name(&self) -> Option<&'static str> {
        match self.group {
            Some(0x11ec) => Some("X25519MLKEM768"),
            Some(0x001d) => Some("x25519"),
            Some(0x0017) => Some("secp256r1"),
            Some(0x0018) => Some("secp384r1"),
            Some(_) | None => None,
        }
    }
}

named_enum! {
    /// TLS version of a client's connection.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum ClientTls {
        /// TLS 1.3 (RFC 8446), the only version of QUIC.
        #[default]
        Tls13 = "1.3",
        /// TLS 1.2 (RFC 5246).
        Tls12 = "1.2",
        /// No TLS: a connection to `listen.redirect`.
        Plain = "none",
    }
    /// Returns the version as the configuration writes it.
    fn tls_version_name;
}

impl ClientTls {
    /// Whether one of the cipher suites that a ClientHello offers belongs to TLS 1.3 (RFC 8446 §B.4).
    pub fn offers_tls13(suites: impl IntoIterator<Item = u16>) -> bool {
        // TLS_AES_128_GCM_SHA256 to TLS_AES_128_CCM_8_SHA256.
        suites.into_iter().any(|suite| (0x1301..=0x1305).contains(&suite))
    }
}

/// A verified certificate, encoded once a connection for the field that carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Value of `Client-Cert` (RFC 9440 §2.2): the client's own certificate.
    pub leaf: String,
}

impl ClientCertificate {
    /// Encodes the first of the DER certificates of `chain`, the client's own, as a byte sequence (RFC 9651 §3.3.5):
    /// Base64 and colons are valid in any field. Returns `None` if the chain is empty.
    pub fn new<C: AsRef<[u8]>>(chain: &[C]) -> Option<Self> {
        let leaf = chain.first()?;
        Some(Self { leaf: format!(":{}:", BASE64_STANDARD.encode(leaf)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_a_byte_sequence_without_its_issuers() {
        let table: [(&[&str], Option<&str>); 3] =
            [(&[], None), (&["leaf"], Some(":bGVhZg==:")), (&["leaf", "one"], Some(":bGVhZg==:"))];
        for (chain, expected) in table {
            let expected = expected.map(|leaf| ClientCertificate { leaf: leaf.to_owned() });
            assert_eq!(ClientCertificate::new(chain), expected, "{chain:?}");
        }
    }
}
