//! Determines a key's signature algorithms, and which of several keys costs the least in a handshake. Done once, when
//! the certificate is loaded, because rustls' `choose_scheme` allocates.

use rustls::{SignatureAlgorithm, SignatureScheme, sign::SigningKey};
use std::fmt;

/// Schemes of TLS 1.3's CertificateVerify (RFC 8446 §4.2.3) with which rustls can sign. RSA with PKCS #1 padding is
/// only for signatures in certificates.
const SIGNATURE_SCHEMES: [SignatureScheme; 10] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::ML_DSA_44,
    SignatureScheme::ML_DSA_65,
    SignatureScheme::ML_DSA_87,
];

/// Kinds of keys, in ascending order of the cost of a handshake. With aws-lc-rs, ECDSA with P-256 signs ten times as
/// fast as RSA with 2048 bits, and its certificates are smaller. ML-DSA's signatures and public keys have 3.7 KB or
/// more, which exceeds the bytes that a QUIC server may send before it has validated the client's address (RFC 9000
/// §8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyKind {
    Ed25519,
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Rsa,
    MlDsa,
    Other,
}

impl KeyKind {
    fn from_schemes(key: &dyn SigningKey, schemes: &[SignatureScheme]) -> Self {
        match (key.algorithm(), schemes.first()) {
            (SignatureAlgorithm::RSA, _) => Self::Rsa,
            (_, Some(&SignatureScheme::ECDSA_NISTP256_SHA256)) => Self::EcdsaP256,
            (_, Some(&SignatureScheme::ECDSA_NISTP384_SHA384)) => Self::EcdsaP384,
            (_, Some(&SignatureScheme::ECDSA_NISTP521_SHA512)) => Self::EcdsaP521,
            (_, Some(&SignatureScheme::ED25519)) => Self::Ed25519,
            (_, Some(&(SignatureScheme::ML_DSA_44 | SignatureScheme::ML_DSA_65 | SignatureScheme::ML_DSA_87))) => {
                Self::MlDsa
            }
            _ => Self::Other,
        }
    }
}

/// Signature algorithm of a certificate's key.
#[derive(Debug, Clone)]
pub struct KeyAlgorithm {
    kind: KeyKind,
    /// Bits of the key, if it is an RSA key.
    rsa_bits: Option<usize>,
    /// Schemes with which the key can sign, in the order of [`SIGNATURE_SCHEMES`].
    schemes: Box<[SignatureScheme]>,
}

impl KeyAlgorithm {
    /// Determines the algorithm of `key`; `rsa_bits` if it is an RSA key.
    pub(super) fn from_signing_key(key: &dyn SigningKey, rsa_bits: Option<usize>) -> Self {
        let schemes: Box<[_]> =
            SIGNATURE_SCHEMES.into_iter().filter(|scheme| key.choose_scheme(&[*scheme]).is_some()).collect();
        Self { kind: KeyKind::from_schemes(key, &schemes), rsa_bits, schemes }
    }

    /// Returns the schemes of TLS 1.3 with which the key can sign.
    pub(super) fn signature_schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    /// Whether the key can sign with one of `offered`, the client's signature_algorithms.
    pub(super) fn signs_one_of(&self, offered: &[SignatureScheme]) -> bool {
        self.schemes.iter().any(|scheme| offered.contains(scheme))
    }

    /// Sort key for keys: the cheapest handshake first. Keys of one kind are equal, and the order of the configuration
    /// decides between them.
    pub(super) fn handshake_cost(&self) -> impl Ord + use<> {
        self.kind
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            KeyKind::EcdsaP256 => "ECDSA P-256",
            KeyKind::EcdsaP384 => "ECDSA P-384",
            KeyKind::EcdsaP521 => "ECDSA P-521",
            KeyKind::Ed25519 => "Ed25519",
            KeyKind::Rsa => return write!(f, "RSA {}", self.rsa_bits.unwrap_or_default()),
            KeyKind::MlDsa => "ML-DSA",
            KeyKind::Other => "unknown",
        };
        f.write_str(name)
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
            let algorithm = certificate.key_algorithm();
            assert_eq!(algorithm.signature_schemes(), schemes, "{name}");
            assert_eq!(algorithm.to_string(), name);
            // The table is ordered by the cost of a signature.
            assert!(before.is_none_or(|before| before < algorithm.handshake_cost()), "{name}");
            before = Some(algorithm.handshake_cost());
        }
    }
}
