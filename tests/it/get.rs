//! `litequic get` in front of a real litequic with a real origin: what each option does, how bodies stream both ways,
//! and what it prints when something fails.

use crate::support::{ports::free_udp_port, prelude::*, process::litequic};
use std::{io::Read, net::UdpSocket, time::SystemTime};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The arguments of `litequic get` for a request of `path` to `litequic`.
fn arguments(litequic: &Litequic, path: &str, more: &[&str]) -> Vec<String> {
    let url = format!("https://127.0.0.1:{}{path}", litequic.address.port());
    ["get", "--insecure", &url].into_iter().chain(more.iter().copied()).map(Into::into).collect()
}

/// Runs `litequic get` to its end, beside what the test plays.
async fn get(litequic: &Litequic, path: &str, more: &[&str]) -> Ended {
    let arguments = arguments(litequic, path, more);
    spawn_blocking(move || self::litequic(arguments)).await.unwrap()
}

async fn ended(process: Process) -> Ended {
    spawn_blocking(|| process.end()).await.unwrap()
}

/// Waits until `process` has written `text` to standard output.
async fn await_stdout(process: Process, text: &'static str) -> Process {
    let wait = move || {
        process.await_stdout(text);
        process
    };
    spawn_blocking(wait).await.unwrap()
}

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

#[tokio::test]
async fn each_option_shapes_the_request() {
    let form = ("content-type", "application/x-www-form-urlencoded");
    type Row<'a> = (&'a [&'a str], &'a str, &'a [(&'a str, &'a str)], &'a str);
    let table: [Row<'_>; 8] = [
        (&[], "GET", &[], ""),
        (&["-X", "DELETE"], "DELETE", &[], ""),
        (&["-I"], "HEAD", &[], ""),
        (
            &["-H", "X-One: 1", "--header", "X-One: 2", "-H", "X-Empty;"],
            "GET",
            &[("x-one", "1"), ("x-one", "2"), ("x-empty", "")],
            "",
        ),
        (&["-H", "Host: a.test"], "GET", &[("host", "a.test")], ""),
        (&["-d", "a=b&c"], "POST", &[form, ("content-length", "5")], "a=b&c"),
        (
            &["--data", "{}", "-H", "Content-Type: application/json"],
            "POST",
            &[("content-type", "application/json"), ("content-length", "2")],
            "{}",
        ),
        (&["-X", "PATCH", "-d", ""], "PATCH", &[("content-length", "0")], ""),
    ];
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    for (options, method, fields, body) in table {
        let client = Process::start(arguments(&litequic, "/a?b", options));
        let mut peer = origin.accept().await;
        let head = peer.head().await;
        assert_eq!(head.line(), format!("{method} /a?b HTTP/1.1"), "{options:?}");
        for (name, value) in fields {
            assert!(head.all(name).contains(value), "{options:?}: {name}: {head:?}");
        }
        assert_eq!(peer.exactly(body.len()).await, body.as_bytes(), "{options:?}");
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        assert!(ended(client).await.success().starts_with("HTTP/3 200 OK\n"), "{options:?}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_body_is_seen_before_its_response_has_ended() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    for options in [&["-i"][..], &["-o", "-"]] {
        let client = Process::start(arguments(&litequic, "/events", options));
        let mut peer = origin.accept_request().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: one\n\n").await;
        let client = await_stdout(client, "data: one\n\n").await;
        peer.say("data: two\n\n").await;
        let client = await_stdout(client, "data: two\n\n").await;
        drop(peer);
        let ended = ended(client).await;
        assert_eq!(ended.stdout.starts_with("HTTP/3 200 OK\n"), options == ["-i"], "{ended:?}");
        assert!(ended.success().ends_with("data: one\n\ndata: two\n\n"));
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_reader_that_closes_the_pipe_ends_it_without_a_word() {
    let litequic = Litequic::demo(|_| {}).await;
    let mut command = command(arguments(&litequic, "/bytes/1G", &["-o", "-", "--timeout", "0"]));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = spawn_blocking(move || {
        let mut begin = [0; 1000];
        child.stdout.take().unwrap().read_exact(&mut begin).unwrap();
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(74), ""));
    litequic.stop().await;
}

#[tokio::test]
async fn a_stream_reset_is_reported_and_the_received_body_written() {
    let (origin, litequic) = Script::behind_litequic(|_| {}).await;
    let client = Process::start(arguments(&litequic, "/", &["-o", "-"]));
    let mut peer = origin.accept_request().await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome bytes").await;
    let client = await_stdout(client, "some bytes").await;
    drop(peer);
    let ended = ended(client).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(76), "some bytes"), "{ended:?}");
    assert_eq!(ended.stderr, "litequic: the server reset the stream with H3_INTERNAL_ERROR (0x102)\n");
    litequic.stop().await;
}

#[tokio::test]
async fn an_upload_that_the_server_refuses_ends_with_its_response() {
    let litequic = Litequic::demo(|config| config.limits.max_body_bytes = Some(1000)).await;
    let ended = get(&litequic, "/sink", &["-d", &"a".repeat(100_000)]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.starts_with("HTTP/3 413"), "{ended:?}");
    litequic.stop().await;
}

#[tokio::test]
async fn verbose_prints_the_handshake_and_both_headers() {
    let litequic = Litequic::demo(|_| {}).await;
    let ended = get(&litequic, "/trailers", &["-v", "-H", "X-Asked: yes", "-o", "/dev/null"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    let port = litequic.address.port();
    for line in [
        &*format!("* Trying 127.0.0.1:{port}"),
        &format!("* Connected to 127.0.0.1:{port} from 127.0.0.1:"),
        "* TLS 1.3, TLS_AES_128_GCM_SHA256, X25519MLKEM768, ALPN h3",
        "* Server certificate (not verified: --insecure):",
        "*   names: localhost, a.test, b.test, *.wild.test, 127.0.0.1, ::1",
        "*   valid until: ",
        "* Transport parameters (client, server):",
        "*   max_idle_timeout: 30000 ms, ",
        "*   max_ack_delay: 1 ms, 25 ms",
        "*   initial_max_data: ",
        "> GET /trailers HTTP/3\n",
        &format!("> host: 127.0.0.1:{port}\n"),
        "> x-asked: yes\n>\n",
        "< HTTP/3 200 OK\n",
        "< content-type: ",
    ] {
        assert!(ended.stderr.contains(line), "no {line:?} in {}", ended.stderr);
    }
    litequic.stop().await;
}

#[tokio::test]
async fn include_writes_the_header_into_the_file() {
    let litequic = Litequic::demo(|_| {}).await;
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "response");
    assert_eq!(get(&litequic, "/bytes/3", &["-i", "-o", &file]).await.success(), "");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.starts_with("HTTP/3 200 OK\n") && written.ends_with("\n\n\0\u{1}\u{2}"), "{written:?}");
    assert_eq!(get(&litequic, "/bytes/3", &["-o", "/dev/null", "-w", "%{http_code}\\n"]).await.success(), "200\n");
    let head = get(&litequic, "/bytes/3", &["-I"]).await.success();
    assert!(head.starts_with("HTTP/3 200 OK\n") && head.contains("\ncontent-length: 3\n"), "{head}");
    litequic.stop().await;
}

/// Writes `NAME.crt` and `NAME.key` for localhost, valid from `from` to `until`.
fn certificate(directory: &Path, name: &str, from: SystemTime, until: SystemTime) {
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    (parameters.not_before, parameters.not_after) = (from.into(), until.into());
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(directory.join(format!("{name}.crt")), parameters.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// litequic with the certificate `name`, before nothing.
fn serve(directory: &tempfile::TempDir, name: &str) -> (Process, SocketAddr) {
    let (cert, key) = (path(directory, &format!("{name}.crt")), path(directory, &format!("{name}.key")));
    let process =
        Process::start(["run", "--listen", "127.0.0.1:0", "--origin", "127.0.0.1:9", "--cert", &cert, "--key", &key]);
    let address = process.address();
    (process, address)
}

#[test]
fn an_untrusted_certificate_is_reported_with_reason_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    for (name, from, until) in [
        ("good", now - DAY, now + DAY),
        ("other", now - DAY, now + DAY),
        ("expired", now - 10 * DAY, now - DAY),
        ("early", now + DAY, now + 10 * DAY),
    ] {
        certificate(directory.path(), name, from, until);
    }
    let table = [
        ("good", "other", "localhost", "unknown issuer: "),
        ("good", "good", "other.test", "wrong name: the certificate is for localhost"),
        ("expired", "expired", "localhost", "expired: it was valid until "),
        ("early", "early", "localhost", "not yet valid: it is valid from "),
    ];
    for (served, trusted, host, reason) in table {
        let (_process, address) = serve(&directory, served);
        let port = address.port();
        let (ca, url) = (path(&directory, &format!("{trusted}.crt")), format!("https://{host}:{port}/"));
        let resolve = format!("{host}:{port}:127.0.0.1");
        let ended = litequic(["get", "-v", "--ca", &ca, "--resolve", &resolve, &url]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""), "{reason}: {ended:?}");
        let said = format!("litequic: the certificate of {host} at {address} is not trusted: {reason}");
        assert!(ended.stderr.contains(&said), "{said}: {}", ended.stderr);
        for text in ["--ca FILE ", "--insecure ", "* Server certificate (NOT trusted: ", "*   names: localhost\n"] {
            assert!(ended.stderr.contains(text), "{reason}: no {text:?} in {}", ended.stderr);
        }
        // Nothing answers behind it: a 502.
        let ended = litequic(["get", "--insecure", "--resolve", &resolve, &url]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
    }
}

#[test]
fn a_port_at_which_nothing_listens_is_told_without_any_timeout() {
    let port = free_udp_port();
    let url = format!("https://127.0.0.1:{port}/");
    let ended = litequic(["get", "--timeout", "0", "--connect-timeout", "0", &url, "-k"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""), "{ended:?}");
    let said = format!("litequic: cannot reach 127.0.0.1:{port}: ");
    assert!(
        ended.stderr.starts_with(&said) && ended.stderr.contains(": no server listens there for UDP\n"),
        "{ended:?}"
    );
}

#[test]
fn an_address_that_does_not_answer_is_told_within_the_connect_timeout() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let url = format!("https://{address}/");
    for options in [["--connect-timeout", "300ms", "--timeout", "0"], ["--connect-timeout", "1h", "--timeout", "300ms"]]
    {
        let ended = litequic([&["get", "-v", "-k", &url], &options[..]].concat());
        assert_eq!(ended.code, Some(69), "{ended:?}");
        let said =
            format!("litequic: no answer from {address} within 300ms: no server listens there, or UDP is blocked\n");
        assert!(ended.stderr.ends_with(&said), "{ended:?}");
    }
}

#[test]
fn invalid_options_exit_64_and_missing_files_78() {
    let url = "https://127.0.0.1:9/";
    let table: [(&[&str], i32, &str); 8] = [
        (&["-I", "-d", "a"], 64, "--head"),
        (&["-X", "CONNECT"], 64, "CONNECT"),
        (&["-X", "A B"], 64, "A B"),
        (&["-H", "Connection: close"], 64, "RFC 9114"),
        (&["-H", "no colon"], 64, "NAME: VALUE"),
        (&["-H", "Host: a b"], 64, "a b"),
        (&["-w", "%{time_total}"], 64, "%{http_code} is the only variable"),
        (&["--ca", "/nonexistent/ca"], 78, "/nonexistent/ca"),
    ];
    for (options, code, said) in table {
        let ended = litequic([&["get", url], options].concat());
        assert_eq!(ended.code, Some(code), "{options:?}: {ended:?}");
        assert!(ended.stderr.contains(said), "{options:?}: {}", ended.stderr);
    }
}

#[test]
fn help_of_get_lists_exit_codes() {
    let help = litequic(["get", "--help"]).success();
    assert!(help.contains("Exit codes:") && help.contains("\n  76  "), "{help}");
}
