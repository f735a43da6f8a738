//! gRPC-Web and Connect, each with a server of its own: clients come over HTTP/3, the origin has HTTP/1.1 over TLS. gRPC
//! from clients over HTTP/2 and HTTP/3 to servers that speak HTTP/2 alone. The program, clients and servers, is built of
//! `rpc/` by `.ci/run`.

use super::{Folder, before, https, peers::port, server};
use crate::{client_certificates::person::Authority, support::prelude::*};
use litequic_config::{HealthCheck, OriginProtocol};
use litequic_proxy::ServerName;

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

/// Starts the program's server `arguments`. Returns it with its address.
fn serve_grpc(program: &Path, arguments: &[&str]) -> (Process, OriginAddress) {
    let mut command = Command::new(program);
    command.args(arguments);
    let serving = Process::spawn(command);
    let address = OriginAddress::Tcp { host: "127.0.0.1".into(), port: port(&serving) };
    (serving, address)
}

fn grpc_origin(address: OriginAddress) -> OriginConfig {
    OriginConfig { protocol: OriginProtocol::Http2, ..OriginConfig::new(address) }
}

/// Runs the program's client with `arguments`. Returns what it prints.
async fn call_grpc(program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    spawn_blocking(move || Process::spawn(command).end().success()).await.unwrap()
}

#[tokio::test]
async fn grpc_of_every_kind_passes_to_servers_of_http2() {
    let Some(program) = needs::program(PROGRAM) else { return };
    let folder = Folder::new();
    for (kind, services) in [
        (
            "grpc",
            "[grpc.health.v1.Health grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection test.Words]",
        ),
        ("h2c", "[]"),
    ] {
        let (serving, address) = serve_grpc(&program, &[kind]);
        let litequic = before(grpc_origin(address)).await;
        let trusted = folder.put("litequic.pem", &litequic.cert_pem);
        let port = |address: SocketAddr| format!("localhost:{}", address.port());
        for (client, address, names) in [
            ("grpc-go", port(litequic.tcp[0]), ["NotFound", "Unimplemented", "DeadlineExceeded", "Canceled"]),
            ("connect-go", port(litequic.address), ["not_found", "unimplemented", "deadline_exceeded", "canceled"]),
        ] {
            let called = call_grpc(&program, &["grpc-call", client, trusted.to_str().unwrap(), &address]).await;
            let [not_found, unimplemented, deadline, cancelled] = names;
            let services = if client == "grpc-go" { format!("services {services}\n") } else { String::new() };
            let expected = format!(
                "{services}upper true\nupper true\nfail {not_found}: no such word\nnone {unimplemented}\n\
                 count [one two three] 3 <nil>\nchat first\nend true\ndeadline {deadline}\ncancel {cancelled}\n"
            );
            assert_eq!(called, expected, "{client} to {kind}");
        }
        // The server has seen the end of both calls.
        for is_short in [true, false] {
            serving.await_stdout(&format!("waited, short deadline: {is_short}\n"));
        }
        litequic.stop().await;
    }
}

#[tokio::test]
async fn no_call_fails_while_two_servers_restart_in_turn() {
    let Some(program) = needs::program(PROGRAM) else { return };
    let folder = Folder::new();
    let (_first, address) = serve_grpc(&program, &["grpc", "2s"]);
    let (_second, other) = serve_grpc(&program, &["grpc", "3s"]);
    let mut origin = grpc_origin(address);
    origin.servers.push(other.into());
    let litequic = before(origin).await;
    let trusted = folder.put("litequic.pem", &litequic.cert_pem);
    let address = format!("localhost:{}", litequic.tcp[0].port());
    let called = call_grpc(&program, &["load", trusted.to_str().unwrap(), &address, "5s"]).await;
    assert_eq!(called, "many true\nfailures 0\n");
    assert!(litequic.sum(|worker| worker.proxy.origin_goaways.get()) > 4);
    litequic.stop().await;
}

#[tokio::test]
async fn health_checks_call_the_health_service_of_grpc_go() {
    let Some(program) = needs::program(PROGRAM) else { return };
    let (_serving, address) = serve_grpc(&program, &["grpc"]);
    let (_without, other) = serve_grpc(&program, &["h2c"]);
    for (address, service, is_healthy) in
        [(&address, "", true), (&address, "shop.v1.Orders", false), (&other, "", false)]
    {
        let mut origin = grpc_origin(address.clone());
        let health = HealthCheck { grpc: Some(service.into()), unhealthy: 1, healthy: 1, ..HealthCheck::default() };
        origin.health = Some(health);
        let litequic = before(origin).await;
        let name = ServerName::new(Config::ORIGIN_NAME, &address.to_string());
        let checks = litequic.metrics.checks.counters_for(&name);
        until("a check", async || checks.passed.get() + checks.failed.get() > 0).await;
        assert_eq!((checks.up.get(), checks.passed.get() > 0), (is_healthy.into(), is_healthy), "{address} {service}");
        litequic.stop().await;
    }
}
