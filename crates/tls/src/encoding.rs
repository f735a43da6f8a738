//! Recognizes files that are not PEM (RFC 7468), for errors that name the actual encoding. Parsers of PEM skip unknown
//! lines, and would find nothing in most of these files. Pure.

use super::certificate_error::CertificateError;
use rustls::pki_types::{
    CertificateDer,
    pem::{self, PemObject},
};
use std::{fs, path::Path};

/// Reads a file of certificates, keys or revocation lists.
pub(super) fn read_file(file: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(file).map_err(|error| CertificateError::new(file, |file| format!("cannot read {file}: {error}")))
}

/// Parses every item of type `T` in `pem`, the content of `file`.
pub(super) fn parse_items<T: PemObject>(pem: &[u8], file: &Path) -> Result<Vec<T>, CertificateError> {
    check_encoding(pem, file)?;
    let items: Result<_, _> = T::pem_slice_iter(pem).collect();
    items.map_err(|error| invalid_pem(file, &error))
}

/// Parses the certificates in `pem`, at least one.
pub(super) fn parse_certificates(pem: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let certificates: Vec<_> = parse_items(pem, file)?;
    if certificates.is_empty() {
        return Err(CertificateError::new(file, |file| format!("{file} contains no certificate")));
    }
    Ok(certificates)
}

/// Creates the error of a `file` with broken PEM.
pub(super) fn invalid_pem(file: &Path, error: &pem::Error) -> CertificateError {
    CertificateError::new(file, |file| format!("{file} is not valid PEM: {error}"))
}

/// Fails if `bytes`, the content of `file`, are in an encoding other than PEM in ASCII or UTF-8.
///
/// # Errors
///
/// The actual encoding, with the command that converts the file.
pub(super) fn check_encoding(bytes: &[u8], file: &Path) -> Result<(), CertificateError> {
    let found = match bytes {
        [0xef, 0xbb, 0xbf, ..] => "begins with a byte order mark (BOM), which PEM does not have; save it without one",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "is UTF-16, and PEM is ASCII; save it as ASCII or UTF-8",
        // Certificates, keys, CRLs and PKCS #12 begin with a SEQUENCE whose length has one to four bytes (X.690
        // §8.1.3).
        [0x30, 0x81..=0x84, ..] => "is DER or PKCS #12, not PEM; convert it with openssl x509, pkey, crl or pkcs12",
        _ => return Ok(()),
    };
    Err(CertificateError::new(file, |file| format!("{file} {found}")))
}

/// Whether `pem` has an encrypted private key: in PKCS #8 (RFC 7468 §11), or with `Proc-Type` (RFC 1421 §4.6.1.1) as
/// older versions of OpenSSL wrote it.
pub(super) fn has_encrypted_key(pem: &[u8]) -> bool {
    pem.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii).any(|line| {
        line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || line
                .strip_prefix(b"Proc-Type:")
                .is_some_and(|kind| kind.split(|byte| *byte == b',').any(|part| part.trim_ascii() == b"ENCRYPTED"))
    })
}

#[cfg(test)]
mod tests {
    use crate::{LoadedCertificate, make_self_signed};
    use litequic_config::CertificateFiles;
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    const PROC_TYPE: &str = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,2B7E151628AED2A6ABF7158809CF4F3C\n\n";

    #[test]
    fn a_file_that_is_not_pem_is_named() {
        let good = make_self_signed(["localhost"]).unwrap();
        let der = CertificateDer::from_pem_slice(good.cert_pem.as_bytes()).unwrap();
        let utf16: Vec<u8> =
            "\u{feff}".chars().chain(good.cert_pem.chars()).flat_map(|c| (c as u16).to_le_bytes()).collect();
        let table: [(&[u8], &str); 5] = [
            (&[b"\xef\xbb\xbf", good.cert_pem.as_bytes()].concat(), "tls.crt begins with a byte order mark (BOM)"),
            (
                &[b"\xef\xbb\xbf", good.cert_pem.repeat(2).as_bytes()].concat(),
                "tls.crt begins with a byte order mark (BOM)",
            ),
            (&utf16, "tls.crt is UTF-16"),
            (&der, "tls.crt is DER or PKCS #12, not PEM"),
            (b"0", "tls.crt contains no certificate"),
        ];
        let files = CertificateFiles { cert: "tls.crt".into(), key: "tls.key".into() };
        for (cert, expected) in table {
            let error = LoadedCertificate::from_pem(cert, good.key_pem.as_bytes(), &files).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn an_encrypted_key_is_named_as_one() {
        let good = make_self_signed(["localhost"]).unwrap();
        let files = CertificateFiles { cert: "tls.crt".into(), key: "tls.key".into() };
        let (begin, end) = ("-----BEGIN RSA PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----\n");
        let pkcs8 = good.key_pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let old = format!("{begin}{PROC_TYPE}AAAA\n{end}");
        for key in [pkcs8.clone(), pkcs8.replace('\n', "\r\n"), old.clone(), old.replace('\n', "\r\n")] {
            let error =
                LoadedCertificate::from_pem(good.cert_pem.as_bytes(), key.as_bytes(), &files).unwrap_err().to_string();
            assert!(error.starts_with("the private key in tls.key is encrypted"), "{error}");
        }
        // An unencrypted key in the same file is used.
        let both = format!("{pkcs8}{}", good.key_pem);
        assert!(LoadedCertificate::from_pem(good.cert_pem.as_bytes(), both.as_bytes(), &files).is_ok());
    }
}
