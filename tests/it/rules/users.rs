//! `users`: names and passwords of a route.

use super::configured_in;
use crate::{
    fields::{PROTOCOLS, Protocol, Request},
    reload::{Setup, saying},
    support::{client::Answer, origin::Head, prelude::*, process::litequic, tunnel::switch},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use litequic_config::AmbiguousFields;
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};
use std::{
    fs::File,
    io::{Read, Write},
    sync::mpsc::channel,
    thread,
    time::Instant,
};

/// For anything that a program is to do on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(30);

const ROUTES: &str = r#"
routes = [
    { path_prefix = "/staff", origin = "origin", users = "users", name = "staff" },
    { path_prefix = "/denied", origin = "origin", users = "users", deny = "127.0.0.1" },
    { path_prefix = "/limited", origin = "origin", users = "users", rate_limit = "1/h" },
    { path_prefix = "/fixed", respond = { body = "fixed" }, users = "users" },
    { path_prefix = "/page", origin = "origin", users = "users", error_pages = { 401 = "who.html" } },
]
"#;

/// A whole site behind passwords.
const ROUTE: &str = "routes = [{ origin = \"origin\", users = \"users\" }]";

pub(super) fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}")))
}

/// Users as `htpasswd -B` would have them, with the least cost.
fn users(all: &[(&str, &str)]) -> String {
    all.iter().map(|(name, password)| format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())).collect()
}

async fn started(folder: &Path, origin: SocketAddr) -> Litequic {
    fs::write(folder.join("users"), users(&[("alice", "open sesame"), ("bob", "bob's")])).unwrap();
    fs::write(folder.join("who.html"), "<p>who?").unwrap();
    let mut config = configured_in(folder, origin, ROUTES);
    config.origins.get_mut("origin").unwrap().ambiguous_fields = AmbiguousFields::Pass;
    Litequic::with_config(&config).await
}

async fn asked(client: &Client, path: &str, authorization: &str) -> Answer {
    client.fetch(client.request(Method::GET, path).header("authorization", authorization), "").await
}

#[tokio::test]
async fn a_right_password_opens_the_route_over_every_protocol() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Always::new(Always::EMPTY_200).await);
    let litequic = started(folder.path(), origin.address).await;
    let right = basic("alice", "open sesame");
    for protocol in PROTOCOLS {
        let before = origin.seen().len();
        let fields = [("authorization", &*right), ("remote_user", "root"), ("remote.user", "root")];
        let mut fields = fields.to_vec();
        if protocol != Protocol::Http1 {
            fields.push(("remote-user", "root"));
        }
        assert_eq!(Request::get("/staff", &fields).ask(&litequic, protocol).await.unwrap().0, 200, "{protocol:?}");
        let head = Head(origin.seen().split_off(before));
        assert_eq!(head.field("remote-user"), Some("alice"), "{protocol:?}");
        for absent in ["authorization", "remote_user", "remote.user"] {
            assert_eq!(head.field(absent), None, "{protocol:?} {head:?}");
        }
        for (field, path) in
            [(None, "/staff"), (Some(basic("alice", "wrong")), "/staff"), (Some(basic("eve", "x")), "/staff/a")]
        {
            let fields: Vec<_> = field.iter().map(|field| ("authorization", field.as_str())).collect();
            let (status, body) = Request::get(path, &fields).ask(&litequic, protocol).await.unwrap();
            assert_eq!(status, 401, "{protocol:?}");
            assert!(body.starts_with("401 Unauthorized: a name and a password are required\nrequest "), "{body}");
        }
    }
    for over in HttpVersion::ALL {
        assert_eq!(switch(&litequic, over, "/staff", "websocket", &[]).await.status, 401, "{over:?}");
    }
    assert_eq!(origin.seen().matches("HTTP/1.1\r\n").count(), 3);
    let client = Client::to(&litequic).await;
    let challenge = client.get("/staff").await;
    assert_eq!(challenge.field("www-authenticate"), Some("Basic realm=\"staff\", charset=\"UTF-8\""));
    assert!(challenge.field("proxy-status").unwrap().contains("error=http_request_denied"));
    let page = client.get("/page").await;
    assert_eq!((page.status.as_u16(), page.text()), (401, "<p>who?"));
    assert_eq!(page.field("www-authenticate"), Some("Basic realm=\"restricted\", charset=\"UTF-8\""));
    for (path, statuses) in [("/denied", [403, 403]), ("/limited", [200, 429]), ("/fixed", [200, 200])] {
        for status in statuses {
            assert_eq!(asked(&client, path, &right).await.status, status, "{path}");
        }
    }
    assert_eq!(client.get("/limited").await.status, 401, "the password comes before the rate limit");
    let text = litequic.metrics.registry().render_metrics();
    for line in [
        "litequic_password_checks_total{result=\"right\"} 1\n",
        "litequic_password_checks_total{result=\"wrong\"} 6\n",
        "litequic_route_denied_total{route=\"staff\",by=\"password\"} 13\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn who_guesses_is_told_to_wait_and_another_route_is_not_affected() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), Always::new(Always::EMPTY_200).await);
    let litequic = started(folder.path(), origin.address).await;
    let client = Client::to(&litequic).await;
    assert_eq!(asked(&client, "/staff", &basic("bob", "bob's")).await.status, 200);
    let mut statuses = Vec::new();
    for n in 0..40 {
        let answer = asked(&client, "/staff", &basic("alice", &n.to_string())).await;
        statuses.push(answer.status.as_u16());
        if answer.status == 429 {
            assert!(answer.field("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
            break;
        }
    }
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), statuses.len() - 1, "{statuses:?}");
    assert!(statuses.len() > 10 && statuses.last() == Some(&429), "{statuses:?}");
    assert_eq!(asked(&client, "/staff", &basic("bob", "bob's")).await.status, 200, "remembered");
    assert_eq!(client.get("/").await.status, 200);
    litequic.stop().await;
}

#[test]
fn litequic_password_prints_a_line_that_check_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let asked = |name: &str, input: &str| {
        let mut command = command(["password", name]);
        command.stdin(Stdio::piped());
        let file = folder.path().join("input");
        fs::write(&file, input).unwrap();
        Process::spawn_with(command, File::open(file).unwrap()).end()
    };
    // A pipe has the password once.
    let line = asked("alice", "open sesame\n").success();
    assert!(line.starts_with("alice:$argon2id$v=19$m=19456,t=4,p=1$") && line.ends_with('\n'), "{line}");
    for (name, input, code) in [("a:b", "a\n", 64), ("alice", "\n", 64), ("alice", "", 66)] {
        assert_eq!(asked(name, input).code, Some(code), "{name} {input:?}");
    }
    let made = make_self_signed(["localhost"]).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("tls.crt", &made.cert_pem);
    write("tls.key", &made.key_pem);
    write(
        "a.toml",
        "[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n[[routes]]\nrespond = {}\nusers = \"users\"\n",
    );
    let check = || litequic(["check", folder.path().join("a.toml").to_str().unwrap()]);
    write("users", &line);
    assert_eq!(check().code, Some(0), "{}", check().stderr);
    write("users", "alice:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let refused = check();
    let said = refused.stdout + &refused.stderr;
    assert!(said.contains("a.toml:6:9: routes[0].users = \"users\": the file of users"), "{said}");
    assert!(said.contains("neither bcrypt (htpasswd -B) nor Argon2id (litequic password) in line 1"), "{said}");
    assert_eq!(refused.code, Some(78));
}

/// Runs `litequic password alice` in a terminal, where each of `typed` is typed after the question for it: what the
/// terminal shows, the line that it prints, and its exit code.
fn typed_in_a_terminal(typed: &[&str]) -> (String, String, Option<i32>) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    let modes = || tcgetattr(&terminal).unwrap().local_modes & (LocalModes::ECHO | LocalModes::ISIG);
    let before = modes();
    assert_eq!(before, LocalModes::ECHO | LocalModes::ISIG);
    let mut command = command(["password", "alice"]);
    // A line of standard output is for a file.
    let mut child = command.stdin(open()).stderr(open()).stdout(Stdio::piped()).spawn().unwrap();
    // It has copies of the terminal's files, which it closes when it ends.
    drop(command);
    let mut reader = File::from(terminal.try_clone().unwrap());
    let (sender, pieces) = channel();
    let reading = thread::spawn(move || {
        let mut piece = [0; 1024];
        // The terminal has an error (EIO) once no process has it open.
        while let Ok(length @ 1..) = reader.read(&mut piece) {
            let _ = sender.send(String::from_utf8_lossy(&piece[..length]).into_owned());
        }
    });
    let (mut shown, deadline) = (String::new(), Instant::now() + PATIENCE);
    for (question, answer) in ["Password for alice: ", "Repeat the password: "].iter().zip(typed) {
        while !shown.ends_with(question) {
            let piece = pieces.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            shown += &piece.unwrap_or_else(|_| panic!("no {question:?} in {shown:?}"));
        }
        assert_eq!(modes(), LocalModes::empty(), "what is typed would be shown");
        (&File::from(terminal.try_clone().unwrap())).write_all(answer.as_bytes()).unwrap();
    }
    let mut line = String::new();
    child.stdout.take().unwrap().read_to_string(&mut line).unwrap();
    let code = child.wait().unwrap().code();
    reading.join().unwrap();
    shown.extend(pieces.try_iter());
    assert_eq!(modes(), before, "the terminal is as it was");
    (shown, line, code)
}

#[test]
fn litequic_password_does_not_echo_in_a_terminal() {
    let questions = "Password for alice: \r\nRepeat the password: \r\n";
    let (shown, line, code) = typed_in_a_terminal(&["open sesame\n", "open sesame\n"]);
    assert_eq!((shown.as_str(), code), (questions, Some(0)));
    assert!(line.starts_with("alice:$argon2id$"), "{line}");
    let (shown, line, code) = typed_in_a_terminal(&["open sesame\n", "open sesami\n"]);
    assert_eq!(shown, format!("{questions}litequic: the two passwords differ\r\n"));
    assert_eq!((line.as_str(), code), ("", Some(64)));
    // Ctrl-C, after a part of the password.
    for typed in [&["open\x03"][..], &["open sesame\n", "open\x03"]] {
        let (shown, line, code) = typed_in_a_terminal(typed);
        assert!(!shown.contains("open") && shown.contains("cannot read the password"), "{shown:?}");
        assert_eq!((line.as_str(), code), ("", Some(66)));
    }
}

#[tokio::test]
async fn a_file_of_apaches_htpasswd_is_accepted_as_it_is() {
    let Some(htpasswd) = needs::program("htpasswd") else { return };
    let (folder, origin) = (tempfile::tempdir().unwrap(), Always::new(Always::EMPTY_200).await);
    let file = folder.path().join("users");
    // With the least cost, with the default one, with another; bcrypt reads 72 bytes, as htpasswd does.
    let long = "x".repeat(72);
    let all = [("alice", "open sesame", "-bcBC4"), ("bob", "pässwörd", "-bB"), ("carol", &*long, "-bBC10")];
    for (name, password, options) in all {
        let mut command = Command::new(&htpasswd);
        let status = command.arg(options).arg(&file).args([name, password]).stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "{options} {name}");
    }
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("alice:$2y$04$") && text.contains("\ncarol:$2y$10$"), "{text}");
    let litequic = Litequic::with_config(&configured_in(folder.path(), origin.address, ROUTE)).await;
    let client = Client::to(&litequic).await;
    for (name, password, _) in all {
        assert_eq!(asked(&client, "/", &basic(name, password)).await.status, 200, "{name}");
        assert_eq!(asked(&client, "/", &basic(name, "wrong")).await.status, 401, "{name}");
    }
    litequic.stop().await;
    assert_eq!(origin.seen().matches("\r\nremote-user: ").count(), all.len());
}

#[tokio::test]
async fn a_changed_file_is_reloaded_and_an_invalid_one_keeps_the_old() {
    let (setup, origin) = (Setup::new(), saying("the origin").await);
    fs::write(setup.path("users"), users(&[("alice", "first")])).unwrap();
    let process = setup.start(origin.address).await;
    let text = "routes = [{ path_prefix = \"/staff\", origin = \"origin\", users = \"users\" }]";
    let (status, told) = setup.change(origin.address, text).await;
    assert_eq!(status, 200, "{told}");
    let client = setup.client().await;
    let (first, second) = (basic("alice", "first"), basic("alice", "second"));
    assert_eq!(asked(&client, "/staff", &first).await.status, 200);

    // Without a request for a reload: the file is watched. What was remembered of the old password is worth nothing.
    fs::write(setup.path("users"), users(&[("alice", "second")])).unwrap();
    process.await_stderr("users renewed");
    assert_eq!(asked(&client, "/staff", &first).await.status, 401);
    assert_eq!(asked(&client, "/staff", &second).await.status, 200);

    for bad in ["alice:second\n", ""] {
        fs::write(setup.path("users"), bad).unwrap();
        let (status, told) = setup.reload().await;
        assert_eq!(status, 422, "{told}");
        assert!(told.contains("the file of users"), "{told}");
        assert_eq!(asked(&client, "/staff", &second).await.status, 200);
        assert_eq!(asked(&client, "/staff", &first).await.status, 401);
    }
    drop(process);
}
