//! What real origins serve: requested directly, to find which spellings they take for a protected path, and behind
//! litequic.

use super::{Way, spellings};
use crate::support::{nginx::Nginx, prelude::*};
use litequic_config::{HeaderRules, Template, TemplatePart};
use std::{
    io::{BufRead, BufReader},
    process::Child,
};

/// `/`, which is lax, and the protected ones; the origin gets the one that a request came by.
fn routes() -> Vec<RouteConfig> {
    let route = |path_prefix: &str, kind: &str| {
        let name = http::HeaderName::from_static("x-route");
        let request_headers = HeaderRules {
            set: vec![(name, Template(vec![TemplatePart::Text(kind.into())]))],
            ..HeaderRules::default()
        };
        RouteConfig { path_prefix: path_prefix.into(), request_headers, ..RouteConfig::catch_all(Config::ORIGIN_NAME) }
    };
    vec![route("/", "lax"), route("/admin", "strict"), route("/v1/login", "strict")]
}

/// What `origin` makes of each spelling by itself, then behind litequic. It serves at least `served` of them as
/// protected.
async fn held_against(origin: SocketAddr, served: usize) {
    let litequic = Litequic::start(origin, |config| config.routes = routes()).await;
    for (path, expected) in [("/", "open lax"), ("/admin", "protected strict"), ("/v1/login/x", "protected strict")] {
        for way in Way::ALL {
            assert_eq!(way.ask(&litequic, "localhost", path).await.body, expected, "{way:?} {path}");
        }
    }
    let mut taken = Vec::new();
    for spelling in ["/admin", "/v1/login"].into_iter().flat_map(spellings) {
        let protected = directly(origin, &spelling).await.ends_with("protected none");
        for way in Way::ALL {
            let answer = way.ask(&litequic, "localhost", &spelling).await;
            assert_ne!(answer.body, "protected lax", "{way:?} {spelling}");
            assert!(answer.status == 400 || !protected, "{way:?} {spelling}: {answer:?}");
        }
        taken.extend(protected.then_some(spelling));
    }
    assert!(taken.len() >= served, "{taken:#?}");
    litequic.stop().await;
}

async fn directly(origin: SocketAddr, path: &str) -> String {
    let mut stream = within("a connection", TcpStream::connect(origin)).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    within("the origin's answer", stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn nginx_serves_no_protected_path_by_a_laxer_route() {
    let places = ["/admin", "/v1/login"].map(|path| {
        format!(
            "location = {path} {{ return 200 'protected $route'; }}\n\
             location {path}/ {{ return 200 'protected $route'; }}\n"
        )
    });
    let server = format!(
        "set $route $http_x_route;\nif ($route = '') {{ set $route none; }}\n{}\n\
         location / {{ return 200 'open $route'; }}",
        places.concat()
    );
    let Some(nginx) = Nginx::start(&server) else { return };
    held_against(nginx.address, 15).await;
}

/// Python's, killed with the test.
struct Wsgi(Child);

impl Drop for Wsgi {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_wsgi_server_serves_no_protected_path_by_a_laxer_route() {
    let Some(python) = needs::python_module("wsgiref.simple_server") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/spellings/wsgi.py");
    let mut child = Command::new(python).arg(script).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _wsgi = Wsgi(child);
    held_against((Ipv4Addr::LOCALHOST, line.trim().parse().unwrap()).into(), 8).await;
}
