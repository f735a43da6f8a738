//! Origins that read several spellings of a name as one: nginx' variables and Python's WSGI, as they are.

use super::{PROTOCOLS, Request};
use crate::support::{nginx::Nginx, prelude::*};
use litequic_config::{AmbiguousFields, Template};
use std::{
    io::{BufRead, BufReader},
    process::Child,
};

/// Answers with what the application reads as `HTTP_X_INTERNAL_USER`, as the server of Python's own library has it.
const WSGI: &str = r#"
from wsgiref.simple_server import WSGIRequestHandler, make_server

class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass

def application(environ, start_response):
    user = environ.get("HTTP_X_INTERNAL_USER", "guest").encode()
    start_response("200 OK", [("Content-Length", str(len(user)))])
    return [user]

server = make_server("127.0.0.1", 0, application, handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
"#;

struct Wsgi {
    child: Child,
    address: SocketAddr,
}

impl Wsgi {
    fn start() -> Option<Self> {
        let mut command = Command::new(needs::program("python3")?);
        let mut child = command.args(["-c", WSGI]).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Some(Self { child, address: (Ipv4Addr::LOCALHOST, port.trim().parse().unwrap()).into() })
    }
}

impl Drop for Wsgi {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn policy(config: &mut Config, policy: AmbiguousFields) {
    config.origins.get_mut(Config::ORIGIN_NAME).unwrap().ambiguous_fields = policy;
}

fn name() -> http::HeaderName {
    http::HeaderName::from_static("x-internal-user")
}

fn rule(config: &mut Config, what: &str) {
    let value = || Template::parse_variables("litequic", &[]).unwrap();
    let rules = &mut config.routes[0].request_headers;
    match what {
        "removes" => rules.remove.push(name()),
        "sets" => rules.set.push((name(), value())),
        _ => {}
    }
}

/// The spellings that WSGI and nginx both take for one.
const SPELLINGS: [&str; 4] = ["x-internal-user", "x_internal_user", "x-internal_user", "x_internal-user"];

/// What the origin at `address`, which answers with the user that it trusts, gets by each protocol and spelling.
async fn believes(address: SocketAddr) {
    use AmbiguousFields::{Drop, Pass};
    for (ambiguous, what, expected) in [
        // That it is an origin of that kind shows where nothing is done.
        (Pass, "nothing", ["root"; 4]),
        (Pass, "removes", ["guest"; 4]),
        (Pass, "sets", ["litequic"; 4]),
        (Drop, "nothing", ["root", "guest", "guest", "guest"]),
        (Drop, "removes", ["guest"; 4]),
        (Drop, "sets", ["litequic"; 4]),
    ] {
        let litequic = Litequic::start(address, |config| {
            policy(config, ambiguous);
            rule(config, what);
        })
        .await;
        for protocol in PROTOCOLS {
            for (spelling, expected) in SPELLINGS.into_iter().zip(expected) {
                let request = Request::get("/", &[("accept", "*/*"), (spelling, "root")]);
                let answer = request.ask(&litequic, protocol).await;
                let what = format!("{ambiguous:?}, a rule {what}, {protocol:?}, {spelling}");
                assert_eq!(answer, Some((200, expected.to_owned())), "{what}");
            }
        }
        let dropped = litequic.sum(|worker| worker.proxy.ambiguous_fields_dropped.get());
        assert_eq!(dropped, if ambiguous == Drop { 9 } else { 0 });
        litequic.stop().await;
    }
}

#[tokio::test]
async fn a_wsgi_application_gets_no_forged_spelling_of_a_ruled_field() {
    let Some(wsgi) = Wsgi::start() else { return };
    believes(wsgi.address).await;
}

#[tokio::test]
async fn an_nginx_variable_gets_no_forged_spelling_of_a_ruled_field() {
    let server = "underscores_in_headers on;\nif ($http_x_internal_user) { return 200 $http_x_internal_user; }\n\
        location / { return 200 guest; }";
    let Some(nginx) = Nginx::start(server) else { return };
    believes(nginx.address).await;
}

/// The others that servers fold are covered as well: lighttpd takes `x.internal.user` for the same.
#[tokio::test]
async fn ambiguous_fields_are_dropped_rejected_or_passed() {
    use AmbiguousFields::{Drop, Pass, Reject};
    for (ambiguous, status, lines) in
        [(Drop, 200, vec!["x-plain: 1"]), (Reject, 400, vec![]), (Pass, 200, vec!["x-plain: 1", "x_a: 1", "x.a: 1"])]
    {
        let (origin, litequic) = Script::behind_litequic(|config| policy(config, ambiguous)).await;
        for protocol in PROTOCOLS {
            let fields =
                [("x-plain", "1"), ("x_a", "1"), ("x.a", "1"), ("x_forwarded_for", "6.6.6.6"), ("client.cert", ":a:")];
            let request = Request::get("/", &fields);
            let asked = request.ask(&litequic, protocol);
            if status == 400 {
                assert_eq!(asked.await.map(|(status, _)| status), Some(400), "{protocol:?}");
                origin.saw_no_connection();
                continue;
            }
            let answered = async {
                let mut peer = origin.accept().await;
                let head = peer.head().await;
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
                head
            };
            let (answer, head) = tokio::join!(asked, answered);
            assert_eq!(answer.map(|(status, _)| status), Some(status), "{protocol:?}");
            let mut found: Vec<_> =
                head.0.lines().map(str::to_ascii_lowercase).filter(|line| line.ends_with(": 1")).collect();
            found.sort();
            let mut lines = lines.clone();
            lines.sort_unstable();
            assert_eq!(found, lines, "{protocol:?}, {ambiguous:?}");
            assert!(!head.0.contains("6.6.6.6") && !head.0.contains(":a:"), "{}", head.0);
        }
        assert_eq!(
            litequic.sum(|worker| worker.proxy.ambiguous_fields_rejected.get()),
            if ambiguous == Reject { 3 } else { 0 }
        );
        assert_eq!(
            litequic.sum(|worker| worker.proxy.ambiguous_fields_dropped.get()),
            if ambiguous == Drop { 12 } else { 0 }
        );
        litequic.stop().await;
    }
}
