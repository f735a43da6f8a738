//! CAs that are none, or are in trouble: each is reported in words, and none ends litequic.

use super::{HTTP_01, LOOK_AGAIN};
use crate::support::prelude::*;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// For all of them, one after the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// The answer to a request for each directory, and the words of litequic's line.
fn cases() -> Vec<(&'static str, String, &'static str)> {
    let ok = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    vec![
        (
            "html",
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>".into(),
            "HTTP status 503 Service Unavailable",
        ),
        (
            "busy",
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 36000\r\nContent-Length: 0\r\n\r\n".into(),
            "HTTP status 429 Too Many Requests",
        ),
        ("page", ok("<html>"), "the answer is not JSON"),
        ("nonce", ok("{\"newNonce\": \"local host\"}"), "newNonce is not an https URL: \\\"local host\\\""),
        ("plain", ok("{\"newNonce\": \"http://ca.test/\"}"), "newNonce is not an https URL"),
        ("nothing", ok("{}"), "missing field"),
        ("cut", "HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n{".into(), "ended early or is longer than 1 MiB"),
        ("endless", "HTTP/1.1 200 OK\r\n\r\n".into(), "ended early or is longer than 1 MiB"),
        ("closed", String::new(), "did not answer"),
        ("garbage", "220 mail.test ESMTP\r\n\r\n".into(), "did not answer"),
    ]
}

/// Answers requests for `/NAME` as [`cases`] says. Ends with the test's runtime.
async fn serve(cert_pem: &str, key_pem: &str) -> u16 {
    let certificate = CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(vec![certificate], key_pem)));
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let name = head.strip_prefix("GET /").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let Some((_, answer, _)) = cases().into_iter().find(|(case, ..)| *case == name) else { return };
            let _ = stream.write_all(answer.as_bytes()).await;
            let chunk = vec![b'x'; 64 * 1024];
            while name == "endless" && stream.write_all(&chunk).await.is_ok() {}
            let _ = stream.shutdown().await;
        }
    });
    server.await.detach().port()
}

#[tokio::test]
async fn whatever_a_ca_answers_is_reported_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (made, other) = (make_self_signed(["localhost"]).unwrap(), make_self_signed(["localhost"]).unwrap());
    let port = serve(&made.cert_pem, &made.key_pem).await;
    fs::write(folder.path().join("ca.pem"), &made.cert_pem).unwrap();
    fs::write(folder.path().join("other.pem"), &other.cert_pem).unwrap();
    let (udp, redirect, closed) = (free_udp_port(), free_tcp_port(), free_tcp_port());
    let mut config = format!(
        "{}\n[listen]\nudp = \"127.0.0.1:{udp}\"\nredirect = \"127.0.0.1:{redirect}\"\nworkers = 1\n[admin]\nsocket = \"\"\n\
         [log]\nformat = \"json\"\n[origin]\nurl = \"http://127.0.0.1:9\"\n",
        io_key()
    );
    let mut table = |host: &str, directory: &str, ca: &str| {
        config += &format!(
            "[[acme]]\nhosts = \"{host}.test\"\nfolder = \"state\"\nterms_agreed = true\ndirectory = \"{directory}\"\nca = \"{ca}.pem\"\n{HTTP_01}\n"
        );
    };
    for (name, ..) in cases() {
        table(name, &format!("https://localhost:{port}/{name}"), "ca");
    }
    table("distrusted", &format!("https://localhost:{port}/html"), "other");
    table("unreachable", &format!("https://localhost:{closed}/"), "ca");
    table("unknown", "https://name.invalid/", "ca");
    let expected = cases().into_iter().map(|(name, _, words)| (name, words));
    let more = [
        ("distrusted", "the TLS handshake with localhost failed: invalid peer certificate"),
        ("unreachable", "cannot connect to localhost: Connection refused"),
        ("unknown", "cannot resolve name.invalid: "),
    ];
    let expected: Vec<_> = expected.chain(more).collect();
    fs::write(folder.path().join("litequic.toml"), config).unwrap();
    let mut litequic = Process::start(["run".as_ref(), folder.path().join("litequic.toml").as_os_str()]);
    let deadline = Instant::now() + PATIENCE;
    while litequic.stderr().matches("cannot obtain a certificate").count() < expected.len() {
        assert!(Instant::now() < deadline, "{}", litequic.stderr());
        sleep(LOOK_AGAIN).await;
    }
    let log = litequic.stderr();
    for (name, words) in expected {
        let line = log.lines().find(|line| line.contains(&format!("\"host\":\"{name}.test\"")));
        let line = line.unwrap_or_else(|| panic!("{name}: {log}"));
        assert!(line.contains(words), "{name}: {line}");
    }
    // Not before Retry-After.
    let busy = log.lines().find(|line| line.contains("\"host\":\"busy.test\"")).unwrap();
    assert!(busy.contains("\"next\":\"9 h 59 min\"") || busy.contains("\"next\":\"10 h 0 min\""), "{busy}");
    assert!(litequic.is_running());
}
