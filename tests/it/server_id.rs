//! Server IDs: connections that follow their client through a load balancer which reads connection IDs, and what an
//! operator sees of it.

use crate::{
    crash::Setup,
    drain::ask,
    support::{
        balancer::{Balancer, Routing},
        ports::{free_tcp_port, free_udp_port},
        prelude::*,
        process::litequic,
        proxy::exempt_all,
    },
};
use litequic_config::ServerId;

const KEY: [u8; 16] = *b"0123456789abcdef";
const KEY_DIGITS: &str = "30313233343536373839616263646566";
const SERVERS: u8 = 3;
const CLIENTS: usize = 4;

/// The server ID of the `n`th server, of `len` bytes: they differ in the last one.
fn id(n: u8, len: usize) -> Vec<u8> {
    [vec![0xa5; len - 1], vec![n]].concat()
}

fn digits(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Litequics that differ in their server ID alone.
async fn servers(certificate: &SelfSigned, ids: impl Fn(u8) -> Option<ServerId>) -> Vec<Litequic> {
    let origin = origin::demo().await;
    let mut servers = Vec::new();
    for n in 0..SERVERS {
        let server = Litequic::showing(std::slice::from_ref(certificate), origin, |config| {
            config.listen.workers = Some(2.try_into().unwrap());
            exempt_all(config);
            config.listen.server_id = ids(n);
        });
        servers.push(server.await);
    }
    servers
}

fn addresses(servers: &[Litequic]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

async fn client(balancer: &Balancer, certificate: &SelfSigned) -> Client {
    let transport = quinn::TransportConfig::default();
    let client = Client::connect(balancer.address, &certificate.cert_pem, transport).await;
    assert_eq!(client.get("/status/204").await.status, 204);
    client
}

/// Packets of no connection that all servers got, by whose server ID they had: own, another's, none.
fn strays(servers: &[Litequic]) -> [u64; 3] {
    let sum = |read: fn(&litequic_quic::QuicMetrics) -> u64| {
        servers.iter().map(|server| server.sum(|worker| read(&worker.quic))).sum()
    };
    [
        sum(|quic| quic.packets_without_connection_own.get()),
        sum(|quic| quic.packets_without_connection_other.get()),
        sum(|quic| quic.packets_without_connection_none.get()),
    ]
}

#[tokio::test]
async fn connections_follow_their_client_through_a_balancer_that_decrypts_server_ids() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    fs::write(&key_file, KEY_DIGITS).unwrap();
    let certificate = make_self_signed(["localhost"]).unwrap();
    // Bytes of server ID and nonce, whether there is a key, and the rotation.
    for (len, nonce, encrypted, rotation) in
        [(8, 7, false, 0), (4, 11, false, 3), (8, 8, true, 0), (1, 8, true, 6), (3, 13, true, 1), (9, 8, true, 2)]
    {
        let configured = |n: u8| {
            let key_file = encrypted.then(|| key_file.clone());
            Some(ServerId::from_digits(&digits(&id(n, len)), nonce, key_file).with_rotation(rotation))
        };
        let servers = servers(&certificate, configured).await;
        let addresses = addresses(&servers);
        let table = addresses.iter().zip(0..).map(|(address, n)| (id(n, len), *address)).collect();
        let key = encrypted.then_some(KEY);
        let routing = Routing { rotation, server_id: len, nonce: nonce.into(), key, servers: table };
        let balancer = Balancer::before(addresses, vec![routing]).await;
        for n in 0..CLIENTS {
            let client = client(&balancer, &certificate).await;
            // By quinn's choice with another connection ID too.
            for _ in 0..3 {
                client.quic.change_port();
                assert_eq!(client.get("/status/204").await.status, 204, "client {n}: {len} + {nonce}, {encrypted}");
            }
        }
        assert!(balancer.routed_by_id() > CLIENTS * 3);
        // After its end a connection may get packets.
        assert_eq!(strays(&servers)[1..], [0, 0], "{len} + {nonce}, {encrypted}");
        for server in servers {
            server.stop().await;
        }
    }
}

/// What the test above is worth: the same clients behind a hash of addresses.
#[tokio::test]
async fn without_server_ids_a_client_whose_address_changes_reaches_another_server() {
    let certificate = make_self_signed(["localhost"]).unwrap();
    let servers = servers(&certificate, |_| None).await;
    let balancer = Balancer::before(addresses(&servers), vec![]).await;
    let (mut lost, mut kept) = (0, 0);
    while lost < CLIENTS || kept == 0 {
        let client = client(&balancer, &certificate).await;
        let source = || SocketAddr::from((Ipv4Addr::LOCALHOST, client.quic.endpoint.local_addr().unwrap().port()));
        let before = balancer.hashed(source());
        client.quic.change_port();
        if balancer.hashed(source()) == before {
            kept += 1;
            assert_eq!(client.get("/status/204").await.status, 204);
            continue;
        }
        lost += 1;
        // The other server does not know the connection.
        let counted = strays(&servers)[2];
        let request = tokio::spawn(async move { client.get("/status/204").await.status });
        until("a packet of no connection", async || strays(&servers)[2] != counted).await;
        request.abort();
    }
    assert_eq!(balancer.routed_by_id(), 0);
    assert_eq!(strays(&servers)[..2], [0, 0]);
}

#[tokio::test]
async fn datagrams_with_another_server_id_reveal_a_wrong_balancer_table() {
    let certificate = make_self_signed(["localhost"]).unwrap();
    let servers = servers(&certificate, |n| Some(ServerId::from_digits(&digits(&id(n, 8)), 7, None))).await;
    let addresses = addresses(&servers);
    let table = |shift: usize| {
        let servers = (0..SERVERS).map(|n| (id(n, 8), addresses[(usize::from(n) + shift) % addresses.len()])).collect();
        vec![Routing { rotation: 0, server_id: 8, nonce: 7, key: None, servers }]
    };
    let balancer = Balancer::before(addresses.clone(), table(0)).await;
    let client = client(&balancer, &certificate).await;
    balancer.configure(table(1));
    let request = tokio::spawn(async move { client.get("/status/204").await.status });
    until("another server's packet", async || strays(&servers)[1] != 0).await;
    request.abort();
    assert_eq!(strays(&servers)[2], 0);
}

/// Everything that an operator sees of it: `check`, the log, `/status`, and the answer to a reload.
#[tokio::test]
async fn a_reload_shows_the_server_id_and_when_former_ids_end() {
    let setup = Setup::new();
    let admin = free_tcp_port();
    let configure = |server_id: &str| format!("listen.workers = 1\nadmin.listen = \"127.0.0.1:{admin}\"\n{server_id}");
    let server_id = |rotation: u8| configure(&format!("listen.server_id.id = \"AQIDBAUGBwg= rotation={rotation}\""));
    let origin = origin::demo().await;
    setup.configure(origin, &server_id(0));
    let checked = litequic(["check", "--config", &setup.path("litequic.toml")]).success();
    let layout = "16 bytes: rotation 0, server ID 8, nonce 7, no key";
    assert!(checked.contains(&format!("connection IDs: 0x0102030405060708, {layout}")), "{checked}");

    let process = setup.start(origin, &server_id(0)).await;
    process.await_stderr(layout);
    let client = setup.client().await;
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, admin));
    let status = async || {
        let (_, text) = ask(admin, "GET /status").await;
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["server_id"].clone()
    };
    let shown = status().await;
    assert_eq!((shown["id"].as_str(), shown["layout"].as_str()), (Some("0x0102030405060708"), Some(layout)));
    assert!(shown["former_until"].is_null());

    setup.configure(origin, &server_id(1));
    let (code, answer) = ask(admin, "POST /reload").await;
    assert_eq!(code, 200, "{answer}");
    let change = "listen.server_id.id: 0x0102030405060708 → 0x0102030405060708 rotation=1; connection IDs issued before expire by 20";
    assert!(answer.contains(change), "{answer}");
    let shown = status().await;
    assert_eq!(shown["layout"], "16 bytes: rotation 1, server ID 8, nonce 7, no key");
    assert!(shown["former_until"].as_u64().is_some(), "{shown}");
    // The connection of before goes on, and new ones begin.
    assert_eq!(client.get("/status/204").await.status, 204);
    setup.client().await;

    // One ID under one rotation has two meanings.
    setup.configure(origin, &configure("listen.server_id.id = \"0x0102030405060709 rotation=1\""));
    let (_, answer) = ask(admin, "POST /reload").await;
    assert!(
        answer.contains("listen.server_id.id: 0x0102030405060708 rotation=1 → 0x0102030405060709 rotation=1"),
        "{answer}"
    );
    process.await_stderr("change rotation in listen.server_id.id too");

    // Lengths need a restart.
    setup.configure(origin, &configure("listen.server_id.id = \"0x01\""));
    let (_, answer) = ask(admin, "POST /reload").await;
    assert!(answer.contains("listen.server_id: 0x0102030405060709 in 16 bytes"), "{answer}");
    assert!(answer.contains("(needs a restart)"), "{answer}");
    assert_eq!(status().await["id"], "0x0102030405060709");
    process.end_by("TERM").success();
}

#[test]
fn a_key_that_cannot_be_used_is_named_with_its_place() {
    let setup = Setup::new();
    let origin = (Ipv4Addr::LOCALHOST, 80).into();
    setup.configure(origin, "listen.server_id = { id = \"0x01\", key_file = \"quic-lb.key\" }");
    let cases = [
        (None, "listen.server_id.key_file = \"quic-lb.key\": cannot read "),
        (
            Some(&KEY_DIGITS[1..]),
            "has 31 digits; expected 32 hexadecimal digits, such as `openssl rand -hex 16` prints",
        ),
    ];
    for (content, problem) in cases {
        if let Some(content) = content {
            setup.write("quic-lb.key", content);
        }
        for command in ["check", "run"] {
            let ended = litequic([command, "--config", &setup.path("litequic.toml")]);
            assert_eq!(ended.code, Some(78), "{ended:?}");
            assert!(ended.stderr.contains(problem), "{}", ended.stderr);
        }
    }
    setup.write("quic-lb.key", KEY_DIGITS);
    litequic(["check", "--config", &setup.path("litequic.toml")]).success();
}

/// Envoy beside the Python that has it (tests/it/requirements.txt), or in `PATH`.
fn envoy() -> Option<PathBuf> {
    let beside = env::var_os("LITEQUIC_PYTHON").map(|python| PathBuf::from(python).with_file_name("envoy"));
    beside.filter(|envoy| envoy.is_file()).or_else(|| needs::program("envoy"))
}

/// Envoy issues IDs by code that shares nothing with litequic's or with the balancer's. It appends a byte of its own.
#[tokio::test]
async fn the_balancer_of_these_tests_routes_server_ids_that_envoy_issues() {
    let Some(envoy) = envoy() else { return };
    let certificate = make_self_signed(["localhost"]).unwrap();
    for (len, nonce, encrypted, rotation) in [(3, 13, true, 1), (3, 4, true, 0), (8, 9, true, 2), (8, 7, false, 0)] {
        let mut servers = Vec::new();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("tls.crt"), &certificate.cert_pem).unwrap();
        fs::write(path("tls.key"), &certificate.key_pem).unwrap();
        let mut processes = Vec::new();
        for n in 0..2 {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
            let issuer = Issuer { id: id(n, len), nonce, encrypted, rotation };
            let config = path(&format!("{n}.json"));
            fs::write(&config, issuer.envoy(address, &path("tls.crt"), &path("tls.key"))).unwrap();
            let mut command = Command::new(&envoy);
            command.args([
                "--config-path",
                &config,
                "--disable-hot-restart",
                "--concurrency",
                "1",
                "--log-level",
                "info",
            ]);
            let process = Process::spawn(command);
            process.await_stderr("starting main dispatch loop");
            processes.push(process);
            servers.push((id(n, len), address));
        }
        let all = servers.iter().map(|(_, address)| *address).collect();
        let key = encrypted.then_some(KEY);
        let balancer = Balancer::before(all, vec![Routing { rotation, server_id: len, nonce, key, servers }]).await;
        for n in 0..CLIENTS {
            let quic = Quic::connect(balancer.address, "localhost", &certificate.cert_pem, Default::default()).await;
            let client = Client::over(quic, "localhost").await;
            let server = client.get("/").await.text().to_owned();
            let before = balancer.routed_by_id();
            // Once: Envoy issues no more connection IDs at a time.
            client.quic.change_port();
            assert_eq!(client.get("/").await.text(), server, "client {n}: {len} + {nonce}, {encrypted}");
            assert!(balancer.routed_by_id() > before);
        }
    }
}

/// An Envoy that issues IDs and answers with its own.
struct Issuer {
    id: Vec<u8>,
    nonce: usize,
    encrypted: bool,
    rotation: u8,
}

impl Issuer {
    fn envoy(&self, address: SocketAddr, cert: &str, key: &str) -> String {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let bytes = |bytes: &[u8]| serde_json::json!({ "inline_bytes": STANDARD.encode(bytes) });
        let extension = |name: &str, kind: &str, mut rest: serde_json::Value| {
            rest["@type"] = format!("type.googleapis.com/envoy.extensions.{kind}").into();
            serde_json::json!({ "name": name, "typed_config": rest })
        };
        let socket = serde_json::json!({ "socket_address":
            { "protocol": "UDP", "address": address.ip().to_string(), "port_value": address.port() } });
        let generator = extension(
            "envoy.quic.connection_id_generator.quic_lb",
            "quic.connection_id_generator.quic_lb.v3.Config",
            serde_json::json!({
                "unencrypted_mode": !self.encrypted,
                "server_id_base64_encoded": true,
                "server_id": { "inline_string": STANDARD.encode(&self.id) },
                "nonce_length_bytes": self.nonce,
                "encryption_parameters": { "name": "quic_lb" },
            }),
        );
        let tls = extension(
            "envoy.transport_sockets.quic",
            "transport_sockets.quic.v3.QuicDownstreamTransport",
            serde_json::json!({ "downstream_tls_context": { "common_tls_context": {
                "tls_certificates": [{ "certificate_chain": { "filename": cert }, "private_key": { "filename": key } }],
                "alpn_protocols": ["h3"],
            } } }),
        );
        let router = extension("envoy.filters.http.router", "filters.http.router.v3.Router", serde_json::json!({}));
        let answer = serde_json::json!({ "status": 200, "body": { "inline_string": digits(&self.id) } });
        let http = extension(
            "envoy.filters.network.http_connection_manager",
            "filters.network.http_connection_manager.v3.HttpConnectionManager",
            serde_json::json!({
                "codec_type": "HTTP3",
                "stat_prefix": "h3",
                "http3_protocol_options": {},
                "route_config": { "virtual_hosts": [{
                    "name": "all", "domains": ["*"],
                    "routes": [{ "match": { "prefix": "/" }, "direct_response": answer }],
                }] },
                "http_filters": [router],
            }),
        );
        let secrets = serde_json::json!([{ "name": "quic_lb", "generic_secret": { "secrets": {
            "encryption_key": bytes(&KEY), "configuration_version": bytes(&[self.rotation]),
        } } }]);
        serde_json::json!({ "static_resources": {
            "secrets": secrets,
            "listeners": [{
                "name": "udp",
                "address": socket,
                "udp_listener_config": { "quic_options": { "connection_id_generator_config": generator } },
                "filter_chains": [{ "transport_socket": tls, "filters": [http] }],
            }],
        } })
        .to_string()
    }
}
