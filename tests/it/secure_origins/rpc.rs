//! gRPC-Web and Connect, each with a server of its own: clients come over HTTP/3, the origin has HTTP/1.1 over TLS.
//! The program, client and servers, is built of `rpc/` by `.ci/run`.

use super::{Folder, before, https, peers::port, server};
use crate::{client_certificates::person::Authority, support::prelude::*};

const PROGRAM: &str = "litequic-test-rpc";

async fn calls(protocol: &str, trailer: &str) {
    let Some(program) = needs::program(PROGRAM) else { return };
    let (folder, authority) = (Folder::new(), Authority::new("root"));
    let ca = folder.put("ca.pem", &authority.pem());
    let (cert, key) = folder.put_pair("server", &server(&authority, |_| {}));
    let mut command = Command::new(&program);
    command.arg(protocol).args([&cert, &key]);
    let serving = Process::spawn(command);
    let litequic = before(https(port(&serving), ca)).await;
    let trusted = folder.put("litequic.pem", &litequic.cert_pem);
    let mut command = Command::new(&program);
    command.args(["call", protocol]).arg(trusted).arg(format!("https://localhost:{}", litequic.address.port()));
    let called = spawn_blocking(move || Process::spawn(command).end().success()).await.unwrap();
    let expected =
        format!("upper true\nupper true\nfail not_found: no such word\ncount one\ncount two\ncount three\n{trailer}\n");
    assert_eq!(called, expected);
    // All of it by HTTP/3 to litequic and by HTTP/1.1 to the origin.
    assert_eq!(litequic.sum(|worker| worker.http3.requests.get()), 4);
    // The last, of which its client has the answer already.
    serving.await_stdout("/test.Words/Count");
    let seen = serving.stdout();
    assert_eq!(seen.matches("HTTP/1.1 /test.Words/").count(), 4, "{seen}");
    assert!(litequic.sum(|worker| worker.proxy.origin_tls_full.get()) > 0);
    litequic.stop().await;
}

#[tokio::test]
async fn connect_calls_and_streams_pass_from_http3_to_http1() {
    calls("connect", "trailer 3").await;
}

#[tokio::test]
async fn grpc_web_calls_and_streams_pass_from_http3_to_http1() {
    calls("grpc-web", "trailer 3").await;
}
