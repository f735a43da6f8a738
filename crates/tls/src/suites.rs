//! Lists the cipher suites, groups and protocols that litequic offers in TLS, by version and side.

/// ALPN name of HTTP/3 (RFC 9114 §3.1).
pub(super) const ALPN_H3: &[u8] = b"h3";
/// ALPN names over TCP (RFC 9113 §3.2, RFC 7301 §6). A client that supports both gets HTTP/2.
pub(super) const ALPN_TCP: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Returns [`tls13_provider()`] for clients. The hybrid group comes first, as in browsers, so that quantum computers
/// cannot decrypt recorded traffic later.
pub(super) fn client_provider() -> rustls::crypto::CryptoProvider {
    use rustls::crypto::aws_lc_rs::kx_group;
    rustls::crypto::CryptoProvider {
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
        ..tls13_provider()
    }
}

/// Returns the cipher suites of TLS 1.2, where a configuration permits this version: with ECDHE and an AEAD cipher,
/// which are all that rustls has.
pub(super) fn tls12_suites() -> [rustls::SupportedCipherSuite; 6] {
    use rustls::crypto::aws_lc_rs::cipher_suite;
    [
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ]
}

/// Returns rustls' aws-lc-rs provider with the three cipher suites of TLS 1.3, AES-128-GCM first: in hardware it costs
/// the least, and RFC 9001 §5.2 needs it for Initial packets.
pub(super) fn tls13_provider() -> rustls::crypto::CryptoProvider {
    use rustls::crypto::aws_lc_rs::{self, cipher_suite};
    rustls::crypto::CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    }
}
