//! The identity of a client by its certificate, as an origin gets it (RFC 9440).

use base64::{Engine, prelude::BASE64_STANDARD};

/// Whether a handshake asks its client for a certificate (RFC 8446 §4.3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CertificateRequest {
    /// No certificate is requested.
    #[default]
    None,
    /// A certificate is requested. The handshake continues without one, and ends for an invalid one.
    Optional,
    /// A certificate is requested. The handshake ends without one.
    Required,
}

/// The result of a handshake about its client.
#[derive(Debug, Clone, Default)]
pub struct TlsIdentity {
    /// Whether it requested a certificate.
    pub certificate_request: CertificateRequest,
    /// The certificate that it verified.
    pub certificate: Option<ClientCertificate>,
    /// The version of TLS.
    pub tls: ClientTls,
    /// The number of the key exchange group (RFC 8446 §4.2.7), if one was negotiated.
    pub group: Option<u16>,
    /// Whether the handshake resumed a session.
    pub resumed: bool,
}

impl TlsIdentity {
    /// The name of the key exchange group.
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

/// The version of TLS of a client's connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientTls {
    /// RFC 8446, which QUIC has alone.
    #[default]
    Tls13,
    /// RFC 5246.
    Tls12,
    /// A connection to `listen.redirect`.
    Plain,
}

impl ClientTls {
    /// The version as the configuration writes it.
    pub const fn tls_version_name(self) -> &'static str {
        match self {
            Self::Tls13 => "1.3",
            Self::Tls12 => "1.2",
            Self::Plain => "none",
        }
    }

    /// Whether one of the cipher suites that a ClientHello offers is of TLS 1.3 (RFC 8446 §B.4).
    pub fn offers_tls13(suites: impl IntoIterator<Item = u16>) -> bool {
        // TLS_AES_128_GCM_SHA256 to TLS_AES_128_CCM_8_SHA256.
        suites.into_iter().any(|suite| (0x1301..=0x1305).contains(&suite))
    }
}

/// A verified certificate as two header fields carry it: encoded once a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// `Client-Cert` (RFC 9440 §2.2): the client's own.
    pub leaf: String,
    /// `Client-Cert-Chain` (§2.3): those that came with it, in their order, if any did.
    pub chain: Option<String>,
}

impl ClientCertificate {
    /// Encodes what a client sent, DER, its own first; `None` where there is none.
    pub fn new<C: AsRef<[u8]>>(chain: &[C]) -> Option<Self> {
        let (leaf, issuers) = chain.split_first()?;
        let list: Vec<String> = issuers.iter().map(|issuer| format_byte_sequence(issuer.as_ref())).collect();
        let chain = if list.is_empty() { None } else { Some(list.join(", ")) };
        Some(Self { leaf: format_byte_sequence(leaf.as_ref()), chain })
    }
}

/// RFC 9651 §3.3.5. Base64 and colons fit into every field.
fn format_byte_sequence(bytes: &[u8]) -> String {
    format!(":{}:", BASE64_STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_a_byte_sequence_and_its_chain_a_list_without_it() {
        type Fields = (&'static str, Option<&'static str>);
        let table: [(&[&str], Option<Fields>); 4] = [
            (&[], None),
            (&["leaf"], Some((":bGVhZg==:", None))),
            (&["leaf", "one"], Some((":bGVhZg==:", Some(":b25l:")))),
            (&["leaf", "one", "two"], Some((":bGVhZg==:", Some(":b25l:, :dHdv:")))),
        ];
        for (chain, expected) in table {
            let expected = expected
                .map(|(leaf, chain)| ClientCertificate { leaf: leaf.to_owned(), chain: chain.map(str::to_owned) });
            assert_eq!(ClientCertificate::new(chain), expected, "{chain:?}");
        }
    }
}
