//! Determines a key's signature algorithms, and which of several keys costs the least in a handshake. Done once, when
//! the certificate is loaded, because rustls' `choose_scheme` allocates.

use rustls::{SignatureScheme, sign::SigningKey};
use std::fmt;

/// Name of keys that sign with RSA.
const RSA: &str = "RSA";

/// Schemes of TLS 1.3's CertificateVerify (RFC 8446 §4.2.3) with which rustls can sign, with the kinds of their
/// keys, in ascending order of the cost of a handshake. RSA with PKCS #1 padding is only for signatures in
/// certificates. With aws-lc-rs, ECDSA with P-256 signs ten times as fast as RSA with 2048 bits, and its
/// certificates are smaller. ML-DSA's signatures and public keys have 3.7 KB or more, which exceeds the bytes that
/// a QUIC server may send before it has validated the client's address (RFC 9000 §8.1).
const SIGNATURE_SCHEMES: [(SignatureScheme, &str); 10] = [
    (SignatureScheme::ED25519, "Ed25519"),
    (SignatureScheme::ECDSA_NISTP256_SHA256, "ECDSA P-256"),
    (SignatureScheme::ECDSA_NISTP384_SHA384, "ECDSA P-384"),
    (SignatureScheme::ECDSA_NISTP521_SHA512, "ECDSA P-521"),
    (SignatureScheme::RSA_PSS_SHA256, RSA),
    (SignatureScheme::RSA_PSS_SHA384, RSA),
    (SignatureScheme::RSA_PSS_SHA512, RSA),
    (SignatureScheme::ML_DSA_44, "ML-DSA"),
    (SignatureScheme::ML_DSA_65, "ML-DSA"),
    (SignatureScheme::ML_DSA_87, "ML-DSA"),
];

/// Signature algorithm of a certificate's key.
#[derive(Debug, Clone)]
pub struct KeyAlgorithm {
    /// Kind of the key.
    name: &'static str,
    /// Bits of the key, if it is an RSA key.
    rsa_bits: Option<usize>,
    /// Schemes of TLS 1.3 with which the key can sign, in the order of [`SIGNATURE_SCHEMES`].
    pub(super) schemes: Box<[SignatureScheme]>,
}

impl KeyAlgorithm {
    /// Determines the algorithm of `key`; `rsa_bits` if it is an RSA key.
    pub(super) fn from_signing_key(key: &dyn SigningKey, rsa_bits: Option<usize>) -> Self {
        let (schemes, names): (Vec<_>, Vec<_>) =
            SIGNATURE_SCHEMES.into_iter().filter(|(scheme, _)| key.choose_scheme(&[*scheme]).is_some()).unzip();
        Self { name: names.first().copied().unwrap_or("unknown"), rsa_bits, schemes: schemes.into() }
    }

    /// Whether the key can sign with one of `offered`, the client's signature_algorithms.
    pub(super) fn signs_one_of(&self, offered: &[SignatureScheme]) -> bool {
        self.schemes.iter().any(|scheme| offered.contains(scheme))
    }

    /// Sort key for keys: the cheapest handshake first. Keys of one kind are equal, and the order of the configuration
    /// decides between them.
    pub(super) fn handshake_cost(&self) -> impl Ord + use<> {
        SIGNATURE_SCHEMES.iter().position(|(_, name)| *name == self.name).unwrap_or(SIGNATURE_SCHEMES.len())
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.name == RSA { write!(f, " {}", self.rsa_bits.unwrap_or_default()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::make_self_signed_with;
    use rcgen::{
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_ED25519, PKCS_RSA_SHA256,
    };
    use rustls::SignatureScheme;

    #[test]
    fn a_key_knows_which_schemes_of_tls_1_3_it_signs_with() {
        let pss = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PSS_SHA384, SignatureScheme::RSA_PSS_SHA512];
        let table: [(_, &[SignatureScheme], _); 5] = [
            (&PKCS_ED25519, &[SignatureScheme::ED25519], "Ed25519"),
            (&PKCS_ECDSA_P256_SHA256, &[SignatureScheme::ECDSA_NISTP256_SHA256], "ECDSA P-256"),
            (&PKCS_ECDSA_P384_SHA384, &[SignatureScheme::ECDSA_NISTP384_SHA384], "ECDSA P-384"),
            (&PKCS_ECDSA_P521_SHA512, &[SignatureScheme::ECDSA_NISTP521_SHA512], "ECDSA P-521"),
            (&PKCS_RSA_SHA256, &pss, "RSA 2048"),
        ];
        let mut before = None;
        for (key, schemes, name) in table {
            let made = make_self_signed_with(["localhost"], &KeyPair::generate_for(key).unwrap()).unwrap();
            let certificate = made.to_loaded_certificate().unwrap();
            let algorithm = certificate.algorithm;
            assert_eq!(&*algorithm.schemes, schemes, "{name}");
            assert_eq!(algorithm.to_string(), name);
            // The table is ordered by the cost of a signature.
            assert!(before.is_none_or(|before| before < algorithm.handshake_cost()), "{name}");
            before = Some(algorithm.handshake_cost());
        }
    }
}
