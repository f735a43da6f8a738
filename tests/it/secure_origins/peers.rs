//! Servers of other TLS libraries: OpenSSL's `s_server`, Python's `ssl`, Go's `net/http` and Java's JSSE.

use super::{Folder, before, https, server, tls};
use crate::{
    client_certificates::person::Authority,
    support::{prelude::*, tunnel::switch},
};
use litequic_config::TlsVersion;
use std::io::{PipeWriter, Write as _, pipe};

/// What every one of them gets, and a folder for what it needs.
struct Bench {
    folder: Folder,
    authority: Authority,
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

fn bench() -> Bench {
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    let (cert, key) = folder.put_pair("server", &server(&authority, |_| {}));
    Bench { folder, authority, ca, cert, key }
}

fn source(name: &str) -> String {
    format!("{}/tests/it/secure_origins/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The port that a server reports.
pub(super) fn port(process: &Process) -> u16 {
    process.await_stdout("listening\n");
    let line = process.stdout();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Bodies of both kinds, an upload, and a protocol that the server switches to, over each HTTP version.
async fn serves(litequic: &Litequic, truncates: bool) {
    let client = Client::to(litequic).await;
    let known = client.get("/length").await;
    assert_eq!((known.status.as_u16(), known.body.len()), (200, 100_000));
    let sent = client.post("/upload", vec![1; 300_000]).await;
    assert_eq!(sent.text(), "300000");
    let stream = client.open(client.request(Method::GET, "/close")).await;
    let (mut stream, mut received) = (stream, 0);
    stream.finish().await.unwrap();
    let is_whole = match within("a header", stream.recv_response()).await {
        // It failed before anything was passed on.
        Ok(response) if response.status() == 502 => false,
        Ok(_) => loop {
            match within("a piece", stream.recv_data()).await {
                Ok(Some(piece)) => received += bytes::Buf::remaining(&piece),
                Ok(None) => break true,
                Err(_) => break false,
            }
        },
        Err(_) => false,
    };
    assert_eq!(is_whole, !truncates, "{received} bytes of a body that ends with the connection");
    for over in [HttpVersion::Http1, HttpVersion::Http2, HttpVersion::Http3] {
        let (mut stream, _kept) = switch(litequic, over, "/socket", "other", &[]).await.tunnel();
        stream.write_all(b"hello").await.unwrap();
        let mut echoed = [0; 5];
        within("an echo", stream.read_exact(&mut echoed)).await.unwrap();
        assert_eq!(&echoed, b"hello", "{over:?}");
        // Half-closed, it answers once more.
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        within("the end", stream.read_to_end(&mut rest)).await.unwrap();
        assert_eq!(rest, b"bye", "{over:?}");
    }
}

#[tokio::test]
async fn python_serves_and_a_body_that_it_does_not_unwrap_is_truncated() {
    let Some(python) = needs::program("python3") else { return };
    let Bench { ca, cert, key, folder: _folder, .. } = bench();
    let mut command = Command::new(python);
    command.arg(source("server.py")).args([&cert, &key]);
    let process = Process::spawn(command);
    let litequic = before(https(port(&process), ca)).await;
    serves(&litequic, true).await;
    litequic.stop().await;
}

#[tokio::test]
async fn go_serves_clients_that_have_a_certificate_and_refuses_others() {
    let Some(go) = needs::program("go") else { return };
    let Bench { folder, authority, ca, cert, key } = bench();
    let program = folder.path("server");
    let mut build = Command::new(go);
    build
        .args(["build", "-o"])
        .arg(&program)
        .arg(source("server.go"))
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off");
    build.env("GOCACHE", folder.path("cache"));
    let built = spawn_blocking(move || build.status().unwrap().success()).await.unwrap();
    assert!(built, "go build");
    let mut command = Command::new(program);
    command.args([&cert, &key, &ca]);
    let process = Process::spawn(command);
    let port = port(&process);
    let without = before(https(port, ca.clone())).await;
    let answer = Client::to(&without).await.get("/length").await;
    assert_eq!(answer.status, 502);
    assert!(answer.field("proxy-status").unwrap().contains("error=tls_alert_received;"), "{answer:?}");
    without.stop().await;
    let (own, own_key) = folder.put_pair("client", &authority.client());
    let mut origin = https(port, ca);
    (tls(&mut origin).cert, tls(&mut origin).key) = (Some(own), Some(own_key));
    let litequic = before(origin).await;
    serves(&litequic, false).await;
    litequic.stop().await;
}

#[tokio::test]
async fn java_serves() {
    let (Some(java), Some(openssl)) = (needs::program("java"), needs::program("openssl")) else { return };
    let Bench { folder, ca, cert, key, .. } = bench();
    let store = folder.path("server.p12");
    let made = Command::new(openssl)
        .args(["pkcs12", "-export", "-passout", "pass:secret", "-in"])
        .arg(&cert)
        .arg("-inkey")
        .arg(&key)
        .arg("-out")
        .arg(&store)
        .status();
    assert!(made.unwrap().success());
    let mut command = Command::new(java);
    command.arg(source("Server.java")).arg(&store);
    let process = Process::spawn(command);
    let port = spawn_blocking(move || (port(&process), process)).await.unwrap();
    let litequic = before(https(port.0, ca)).await;
    serves(&litequic, false).await;
    litequic.stop().await;
}

/// `openssl s_server`, which shows requests on its output and takes answers and commands from its input.
struct Openssl {
    process: Arc<Process>,
    input: PipeWriter,
    port: u16,
}

impl Openssl {
    fn start(bench: &Bench, more: &[&str]) -> Option<Self> {
        let program = needs::program("openssl")?;
        let port = free_tcp_port();
        let (reader, input) = pipe().unwrap();
        let mut command = Command::new(program);
        command.args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-cert"]);
        command.arg(&bench.cert).arg("-key").arg(&bench.key).args(more);
        let process = Process::spawn_with(command, reader);
        process.await_stdout("ACCEPT");
        Some(Self { process: Arc::new(process), input, port })
    }

    /// Waits until it has written `text`, while this runtime goes on.
    async fn await_stdout(&self, text: &str) {
        let (process, text) = (Arc::clone(&self.process), text.to_owned());
        spawn_blocking(move || process.await_stdout(&text)).await.unwrap();
    }

    fn say(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }
}

async fn answered(litequic: &Litequic, server: &mut Openssl, path: &str) {
    let client = Client::to(litequic).await;
    let stream = client.open(client.request(Method::GET, path)).await;
    let mut stream = stream;
    stream.finish().await.unwrap();
    server.await_stdout(&format!("GET {path} ")).await;
    server.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let answer = client::answer(&mut stream).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "ok"));
}

#[tokio::test]
async fn openssl_sends_tickets_and_updates_keys_on_a_connection_that_stays() {
    for more in [&["-num_tickets", "7"][..], &["-no_ticket"], &["-num_tickets", "0"]] {
        let bench = bench();
        let Some(mut server) = Openssl::start(&bench, &[&["-msg"], more].concat()) else { return };
        let litequic = before(https(server.port, bench.ca.clone())).await;
        answered(&litequic, &mut server, "/first").await;
        // A key update that wants one back, and one that does not (RFC 8446 §4.6.3).
        for (command, path) in [("K\n", "/second"), ("k\n", "/third")] {
            server.say(command);
            server.await_stdout("KeyUpdate").await;
            answered(&litequic, &mut server, path).await;
        }
        let full = litequic.sum(|worker| worker.proxy.origin_tls_full.get());
        assert_eq!(full, 1, "{more:?}");
        // Both of the server's, and litequic's to the first.
        let shown = server.process.stdout();
        let updates = |direction: &str| {
            shown.lines().filter(|line| line.starts_with(direction) && line.contains("KeyUpdate")).count()
        };
        assert_eq!((updates(">>>"), updates("<<<")), (2, 1), "{more:?}: {shown}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn openssl_without_what_litequic_needs_is_refused_with_a_reason() {
    let bench = bench();
    let old = |origin: &mut OriginConfig| tls(origin).min = TlsVersion::Tls12;
    let same = |_: &mut OriginConfig| {};
    type Edit<'a> = &'a dyn Fn(&mut OriginConfig);
    let table: [(&[&str], Edit<'_>, &str); 4] = [
        (&["-alpn", "h2"], &same, "tls_alert_received"),
        (&["-tls1_2"], &same, "tls_alert_received"),
        // Without ECDHE, and without an AEAD cipher.
        (&["-tls1_2", "-cipher", "AES128-GCM-SHA256"], &old, "tls_alert_received"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"], &old, "tls_alert_received"),
    ];
    for (more, edit, error) in table {
        let Some(server) = Openssl::start(&bench, more) else { return };
        let mut origin = https(server.port, bench.ca.clone());
        edit(&mut origin);
        let litequic = before(origin).await;
        let answer = Client::to(&litequic).await.get("/").await;
        let proxy_status = answer.field("proxy-status").unwrap();
        assert!(proxy_status.contains(&format!("error={error};")), "{more:?}: {proxy_status}");
        litequic.stop().await;
    }
}
