//! Tests sessions that request a client's certificate.

use super::*;
use crate::{CertificateRequester, ClientAuthorities, PresentedCertificate, client_config_recording};
use litequic_config::{CertificateFiles, ClientCertificates};
use std::{
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
};

/// Certificate request for `localhost`, which a test may change.
#[derive(Clone, Default)]
struct Strict(Arc<AtomicBool>);

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Requests certificates and trusts `made` alone, an authority that is also the client.
fn asking(made: &SelfSigned, policy: impl Fn(Option<&str>) -> CertificateRequest + Send + Sync + 'static) -> ServerTls {
    let ca = file(&made.cert_pem);
    let files = ClientCertificates { ca: Some(ca.path().into()), ..ClientCertificates::default() };
    let store = CertificateStore::new(made.to_loaded_certificate().unwrap(), []);
    let resolver =
        CertificateResolver::new(store.with_authorities(ClientAuthorities::load_authorities(&files).unwrap()));
    let asking = CertificateRequester::new(Arc::clone(&resolver), false, policy).unwrap();
    ServerTls::new(server_config(resolver, false, &tickets::secret(1)).unwrap()).with_certificate_requests(asking)
}

/// Returns a client's configuration with the certificate `made`, which stores tickets.
fn client_as(made: &SelfSigned) -> Arc<ClientConfig> {
    let (cert, key) = (file(&made.cert_pem), file(&made.key_pem));
    let files = CertificateFiles { cert: cert.path().into(), key: key.path().into() };
    Arc::new(client_config_recording(Some(&files), &ServerTrust::Insecure, &PresentedCertificate::default()).unwrap())
}

#[test]
fn a_session_requests_certificates_by_name_and_reports_the_identity() {
    use litequic_config::VerifyMode::{None as Nothing, Optional, Required};
    let leaf = ClientCertificate::new(&made().to_loaded_certificate().unwrap().key.cert).unwrap();
    for piece in [1, 100, usize::MAX] {
        for (request, shown, expected) in [
            (Nothing, false, Ok(Some(None))),
            (Nothing, true, Ok(Some(None))),
            (Optional, false, Ok(Some(None))),
            (Optional, true, Ok(Some(Some(&leaf)))),
            (Required, false, Err(0x174)),
            (Required, true, Ok(Some(Some(&leaf)))),
        ] {
            let mut tls = asking(made(), move |name| {
                assert_eq!(name, Some("localhost"));
                request
            });
            let config = if shown { client_as(made()) } else { client() };
            let shaken = shake(&mut session(&mut tls), connect(&config), piece);
            let identity = shaken.spaces.identity.as_ref();
            let outcome = shaken.outcome.map_err(|error| error.code.as_u64());
            let found = identity.map(|identity| identity.certificate.as_ref());
            assert_eq!(outcome.map(|()| found), expected, "{request:?} {shown} in pieces of {piece}");
            assert!(identity.is_none_or(|identity| identity.certificate_request == request));
            // s2n-quic drops a failed session; this test polls it again.
            let missing = tls.shared_metrics().client_certificates_missing.get() > 0;
            assert_eq!(missing, expected.is_err());
        }
    }
}

#[test]
fn an_invalid_client_certificate_is_rejected_and_counted_even_if_optional() {
    // The stranger's certificate has the authority's name.
    let stranger = make_self_signed(["stranger"]).unwrap();
    for request in [CertificateRequest::Optional, CertificateRequest::Required] {
        let mut tls = asking(made(), move |_| request);
        let shaken = shake(&mut session(&mut tls), connect(&client_as(&stranger)), usize::MAX);
        assert_eq!(shaken.outcome.unwrap_err().code.as_u64(), 0x133, "{request:?}");
        assert!(shaken.spaces.identity.is_none());
        assert_eq!(tls.shared_metrics().client_certificates_invalid.get(), 1);
    }
}

#[test]
fn a_client_with_a_certificate_request_neither_resumes_nor_gets_tickets() {
    for mandatory in [false, true] {
        let strict = Strict::default();
        let policy = strict.clone();
        let mut tls = asking(made(), move |_| match (policy.0.load(Ordering::Relaxed), mandatory) {
            (false, _) => CertificateRequest::None,
            (true, false) => CertificateRequest::Optional,
            (true, true) => CertificateRequest::Required,
        });
        let config = client_as(made());
        let mut kind = |strictly| {
            strict.0.store(strictly, Ordering::Relaxed);
            let shaken = shake(&mut session(&mut tls), connect(&config), usize::MAX);
            shaken.outcome.unwrap();
            assert_eq!(shaken.spaces.identity.is_some_and(|who| who.certificate.is_some()), strictly);
            assert_eq!(shaken.client.tls13_tickets_received(), if strictly { 0 } else { 2 });
            shaken.client.handshake_kind().unwrap()
        };
        assert_eq!(kind(true), HandshakeKind::Full);
        assert_eq!(kind(true), HandshakeKind::Full, "nothing to resume with");
        assert_eq!(kind(false), HandshakeKind::Full, "no ticket for a session without a request");
        assert_eq!(kind(false), HandshakeKind::Resumed);
        assert_eq!(kind(true), HandshakeKind::Full, "its tickets buy nothing where it is asked");
        assert_eq!(kind(false), HandshakeKind::Resumed);
    }
}

#[test]
fn a_ticket_of_another_replica_bypasses_no_certificate_request() {
    let config = client();
    // The other server requests no certificate, and has the same ticket secret.
    let mut there = tls(made());
    let kind = |tls: &mut ServerTls| {
        let shaken = shake(&mut session(tls), connect(&config), usize::MAX);
        (shaken.outcome.map_err(|error| error.code.as_u64()), shaken.client.handshake_kind())
    };
    assert_eq!(kind(&mut there), (Ok(()), Some(HandshakeKind::Full)));
    assert_eq!(kind(&mut there), (Ok(()), Some(HandshakeKind::Resumed)));
    let mut required = asking(made(), |_| CertificateRequest::Required);
    assert_eq!(kind(&mut required), (Err(0x174), Some(HandshakeKind::Full)));
    let mut optional = asking(made(), |_| CertificateRequest::Optional);
    assert_eq!(kind(&mut optional), (Ok(()), Some(HandshakeKind::Full)));
    assert_eq!(kind(&mut there), (Ok(()), Some(HandshakeKind::Resumed)));
}

/// Returns the errors of a session without and with a certificate request, which get data in pieces; the latter reads
/// the ClientHello first.
fn codes(bytes: &[u8], piece: usize) -> [Option<u64>; 2] {
    [tls(made()), asking(made(), |_| CertificateRequest::Optional)].map(|mut tls| {
        let (mut session, mut spaces) = (session(&mut tls), Spaces::default());
        let mut code = None;
        for piece in bytes.chunks(piece) {
            spaces.initial.incoming.extend_from_slice(piece);
            match session.poll(&mut spaces) {
                Poll::Ready(Err(error)) => code = code.or(Some(error.code.as_u64())),
                Poll::Ready(Ok(())) => panic!("a handshake of one flight"),
                Poll::Pending => {}
            }
        }
        assert_eq!(spaces.completed, 0);
        code
    })
}

#[test]
fn a_malformed_hello_gets_the_alert_that_it_gets_without_a_request() {
    let sound = hello();
    assert_eq!(codes(&sound, usize::MAX), [None, None]);
    let longer = |by: u8| [&[1, 0, sound[2], sound[3].wrapping_add(by)], &sound[4..], &[0; 255]].concat();
    for bytes in [
        vec![2, 0, 0, 0],
        vec![1, 0, 0, 0],
        vec![1, 0, 0, 1, 0],
        vec![1, 1, 0, 0],
        vec![20; 60],
        vec![24, 0, 0, 1, 0],
        sound[..sound.len() - 1].to_vec(),
        [&sound[..4], &[9; 2], &sound[6..]].concat(),
        longer(1),
        longer(200),
        // The data is incomplete, and its beginning already breaks a rule: a session ID, or all extensions but one.
        [&[1, 0, 0xc0], &sound[3..38], &[1, 0], &sound[39..]].concat(),
        [&[1, 0, 0xc0], &sound[3..47], &[0, 4, 0, 23, 0, 0]].concat(),
    ] {
        let [plain, looked_at] = codes(&bytes, usize::MAX);
        assert_eq!(plain, looked_at, "{bytes:x?}");
    }
}

proptest::proptest! {
    #[test]
    fn no_client_hello_makes_a_session_panic_that_looks_at_it_first(bytes in hostile_hello(), piece in 1_usize..600) {
        let _ = codes(&bytes, piece);
        let [plain, looked_at] = codes(&bytes, usize::MAX);
        // With another name only the request differs.
        proptest::prop_assert_eq!(plain, looked_at);
    }
}
