//! A CA that fails in the middle of an order, by a proxy in front of Pebble: each failure has its line in the log, and
//! the order is continued where the CA has it.

use super::{HTTP_01, LOOK_AGAIN, OBTAINED, Pebble, pebble::long_lived, pebble_and_site};
use crate::support::prelude::*;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::collections::VecDeque;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// For the failures of all hosts, one of which takes half a minute.
const PATIENCE: Duration = Duration::from_secs(120);
/// More than a day: Retry-After of Let's Encrypt's limit for one set of names has 34 hours.
const RETRY_AFTER: u64 = 34 * 3600;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// 503 with HTML, as a load balancer in front of the CA answers.
    Html,
    /// 429 with Retry-After.
    Limited,
    /// A body without an end.
    Endless,
    /// The CA has handled the request; half of its answer arrives.
    Cut,
    /// No answer.
    Silent,
    /// A directory whose `newNonce` is no URL.
    NoUrl,
    /// A certificate whose key is another one.
    OtherKey,
    /// Retry-After of more seconds than there can be, with what is otherwise Pebble's answer.
    Forever,
    /// Pebble's answer without Retry-After.
    NoRetryAfter,
}

/// Requests that fail, in this order: the host whose order each belongs to, its path at Pebble, how it fails, and
/// litequic's words.
const FAULTS: [(&str, &str, Fault, &str); 10] = [
    ("account.test", "/sign-me-up", Fault::Html, "HTTP status 503 Service Unavailable, without a reason"),
    ("limited.test", "/order-plz", Fault::Limited, "too many certificates (rateLimited)"),
    ("nonce.test", "/nonce-plz", Fault::Silent, "localhost did not answer within 30s"),
    ("authorization.test", "/authZ/", Fault::Endless, "ended early or is longer than 1 MiB"),
    ("challenge.test", "/chalZ/", Fault::Cut, "ended early or is longer than 1 MiB"),
    ("poll.test", "/my-order/", Fault::Html, "HTTP status 503 Service Unavailable, without a reason"),
    ("finalize.test", "/finalize-order/", Fault::Cut, "ended early or is longer than 1 MiB"),
    ("download.test", "/certZ/", Fault::Endless, "ended early or is longer than 1 MiB"),
    ("key.test", "/certZ/", Fault::OtherKey, "the CA's certificate: "),
    ("directory.test", "/dir", Fault::NoUrl, "newNonce is not an https URL: \\\"local host\\\""),
];

/// Requests for renewal information that are answered strangely, once all have a certificate.
const STRANGE: [Fault; 2] = [Fault::Forever, Fault::NoRetryAfter];
const RENEWAL_INFO: &str = "/draft-ietf-acme-ari-03/renewalInfo/";

/// What the tasks of connections share.
struct Interposed {
    pebble_port: u16,
    pebble_pem: String,
    left: Mutex<VecDeque<(&'static str, &'static str, Fault)>>,
}

impl Interposed {
    /// Listens before `pebble` with a certificate of `cert_pem`; returns its port. Ends with the test's runtime.
    async fn start(pebble: &Pebble, cert_pem: &str, key_pem: &str) -> u16 {
        let certificate = CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(vec![certificate], key_pem)));
        let faults = FAULTS.iter().map(|(host, path, fault, _)| (*host, *path, *fault));
        let left = faults.chain(STRANGE.map(|fault| ("", RENEWAL_INFO, fault))).collect();
        let (pebble_port, pebble_pem) = (pebble.port, pebble.cert_pem.clone());
        let shared = Arc::new(Self { pebble_port, pebble_pem, left: Mutex::new(left) });
        let server = Server::start(move |stream| {
            let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                shared.answer(stream).await;
            }
        });
        server.await.detach().port()
    }

    async fn answer(&self, mut client: TlsStream<TcpStream>) {
        let Some(request) = request(&mut client).await else { return };
        let path = request.split(' ').nth(1).unwrap();
        let fault = {
            let mut left = self.left.lock().unwrap();
            let is_next = left.front().is_some_and(|(_, prefix, _)| path.starts_with(prefix));
            if is_next { left.pop_front() } else { None }
        };
        // The client may have given up.
        let _ = match fault {
            None => client.write_all(&self.forward(&request).await).await,
            Some((_, _, Fault::Html)) => {
                let answer =
                    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
                client.write_all(answer.as_bytes()).await
            }
            Some((_, _, Fault::Limited)) => {
                let body = r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many certificates", "status": 429}"#;
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\n\
                     Retry-After: {RETRY_AFTER}\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                client.write_all(answer.as_bytes()).await
            }
            Some((_, _, Fault::Endless)) => {
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n").await;
                let chunk = vec![b'x'; 64 * 1024];
                while client.write_all(&chunk).await.is_ok() {}
                Ok(())
            }
            Some((_, _, Fault::Cut)) => {
                let answer = self.forward(&request).await;
                client.write_all(&answer[..answer.len() - 9]).await
            }
            Some((_, _, Fault::Silent)) => {
                // Until the client closes the connection.
                let _ = client.read_u8().await;
                Ok(())
            }
            Some((_, _, Fault::NoUrl)) => {
                let answer = String::from_utf8(self.forward(&request).await).unwrap();
                let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                let (before, after) = body.split_once("\"newNonce\": \"").unwrap();
                let body = format!("{before}\"newNonce\": \"local host{}", &after[after.find('"').unwrap()..]);
                let length = body.len();
                client.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes()).await
            }
            Some((_, _, fault @ (Fault::Forever | Fault::NoRetryAfter))) => {
                let answer = String::from_utf8(self.forward(&request).await).unwrap();
                let (before, after) = answer.split_once("Retry-After: ").unwrap();
                let (_, after) = after.split_once("\r\n").unwrap();
                let field =
                    if fault == Fault::Forever { format!("Retry-After: {}\r\n", u64::MAX) } else { String::new() };
                client.write_all(format!("{before}{field}{after}").as_bytes()).await
            }
            Some((host, _, Fault::OtherKey)) => {
                let body = make_self_signed([host]).unwrap().cert_pem;
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/pem-certificate-chain\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                client.write_all(answer.as_bytes()).await
            }
        };
        let _ = client.shutdown().await;
    }

    /// Pebble's whole answer.
    async fn forward(&self, request: &str) -> Vec<u8> {
        let config = tls::config(&self.pebble_pem, &["http/1.1"]);
        let address = (Ipv4Addr::LOCALHOST, self.pebble_port).into();
        let mut pebble = Tls::connect(address, "localhost", config).await.unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        pebble.say(format!("{head}\r\nConnection: close\r\n\r\n{body}")).await;
        let mut answer = Vec::new();
        // Go closes without close_notify now and then.
        let _ = timeout(PATIENCE, pebble.stream.read_to_end(&mut answer)).await.unwrap();
        answer
    }
}

/// A request with its body; `None` if the client closes before.
async fn request(client: &mut TlsStream<TcpStream>) -> Option<String> {
    let mut request = Vec::new();
    loop {
        if client.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if body.len() >= length.map_or(0, |(_, length)| length.parse().unwrap()) {
            return Some(text.into_owned());
        }
    }
}

#[tokio::test]
async fn a_failure_of_the_ca_is_reported_and_the_order_continued() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    let (cert_pem, key_pem) = long_lived();
    let port = Interposed::start(&pebble, &cert_pem, &key_pem).await;
    fs::write(site.file("interposed.pem"), cert_pem).unwrap();
    let hosts: Vec<_> = FAULTS.iter().map(|(host, ..)| format!("{host:?}")).collect();
    site.write_for(&format!("https://localhost:{port}/dir"), &site.file("interposed.pem"), &hosts.join(", "), HTTP_01);
    let mut litequic = site.start();
    let count = |litequic: &Process, text: &str| litequic.stderr().matches(text).count();
    let wait = async |litequic: &Process, text: &str| {
        let deadline = Instant::now() + PATIENCE;
        while count(litequic, text) < FAULTS.len() {
            assert!(Instant::now() < deadline, "{text}: {}\n{}", litequic.stderr(), pebble.log());
            sleep(LOOK_AGAIN).await;
        }
    };
    wait(&litequic, "cannot obtain a certificate").await;
    assert_eq!(count(&litequic, OBTAINED), 0, "{}", litequic.stderr());
    let log = litequic.stderr();
    let line =
        |host: &str| log.lines().find(|line| line.contains(&format!("\"host\":\"{host}\",\"problem\""))).unwrap();
    for (host, _, _, words) in FAULTS {
        let line = line(host);
        println!("{line}");
        assert!(line.contains(words), "{host}: {line}");
    }
    assert!(line("key.test").contains("does not match"), "{}", line("key.test"));
    // Not before Retry-After.
    let next = line("limited.test").split_once("\"next\":\"").unwrap().1.split_once("h\"").unwrap().0;
    assert!(["1 d 9 ", "1 d 10 "].contains(&next), "{next}");

    for (host, ..) in FAULTS {
        site.ctl(&["certificates", "renew", host]).success();
    }
    wait(&litequic, OBTAINED).await;
    let root = pebble.root().await;
    for (host, ..) in FAULTS {
        site.await_served(host, &root).await;
    }
    // All have the CA's window, those that were told nothing about the next request, too.
    let deadline = Instant::now() + PATIENCE;
    for (host, ..) in FAULTS {
        while !site.plan(host)["renewal"]["window"].is_object() {
            assert!(Instant::now() < deadline, "{host}: {}\n{}", site.plan(host), litequic.stderr());
            sleep(LOOK_AGAIN).await;
        }
    }
    assert_eq!(pebble.orders(), FAULTS.len(), "{}", litequic.stderr());
    assert_eq!(count(&litequic, "cannot obtain a certificate"), FAULTS.len(), "{}", litequic.stderr());
    assert!(litequic.is_running());
}
