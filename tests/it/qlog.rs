//! `litequic ctl qlog`: what a connection over QUIC does, packet by packet, as it was on the wire.

mod bounds;
mod peers;

use crate::{
    clients::edit,
    drain::ask,
    support::{link::Which, prelude::*},
};
use serde_json::Value as Json;
use std::{collections::BTreeSet, os::unix::fs::PermissionsExt};
use tokio::{task::JoinHandle, time::Instant};

/// For a log, whose connection may take long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const RECORD_SEPARATOR: char = '\u{1e}';
/// The environment variable for the program that checks logs; without it they are not checked by schemas.
const CHECK: &str = "LITEQUIC_QLOG_CHECK";
/// QUIC's type of ACK_FREQUENCY.
const ACK_FREQUENCY: u64 = 0xaf;

async fn start() -> Litequic {
    Litequic::demo(edit).await
}

/// `litequic ctl qlog` with `more`, of the litequic whose admin address is `admin`.
fn begin(admin: SocketAddr, more: &[&str]) -> Process {
    let admin = admin.to_string();
    let mut command = command([&["ctl", "qlog"], more, &["--admin", &admin]].concat());
    command.env_remove("LITEQUIC_ADMIN_TOKEN").env_remove("LITEQUIC_ADMIN_TOKEN_FILE");
    Process::spawn(command)
}

/// The end of `process`.
fn end_of(process: Process) -> JoinHandle<Ended> {
    spawn_blocking(|| process.end_within(PATIENCE))
}

/// The end of `litequic ctl qlog` with `more`.
fn ctl(litequic: &Litequic, more: &[&str]) -> JoinHandle<Ended> {
    end_of(begin(litequic.admin.unwrap(), more))
}

/// A log that is being written to a file.
pub(crate) struct Recording {
    directory: tempfile::TempDir,
    process: Process,
}

impl Recording {
    /// Logs the connections of `client` with `more`.
    fn of(litequic: &Litequic, client: &str, more: &[&str]) -> Self {
        Self::by(litequic.admin.unwrap(), client, more)
    }

    /// The same, of the litequic whose admin address is `admin`.
    pub(crate) fn by(admin: SocketAddr, client: &str, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sqlog");
        let arguments = [&["--client", client, "--out", path.to_str().unwrap()], more].concat();
        Self { process: begin(admin, &arguments), directory }
    }

    /// Logs the next connection of 127.0.0.1, which may begin once this returns.
    async fn of_next(litequic: &Litequic, more: &[&str]) -> Self {
        let recording = Self::of(litequic, "127.0.0.1", &[&["--next"], more].concat());
        recording.is_in_force("the next connection").await;
        recording
    }

    /// Waits until litequic has the order, for connections that are `which`.
    pub(crate) async fn is_in_force(&self, which: &str) {
        let deadline = Instant::now() + PATIENCE;
        let line = format!("logging {which} of ");
        while !self.process.stderr().contains(&line) {
            assert!(Instant::now() < deadline, "{}", self.process.stderr());
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until open connections are logged.
    async fn began(&self) {
        self.is_in_force("open connections").await;
    }

    /// The log, once it has ended.
    pub(crate) async fn log(self) -> Log {
        let ended = end_of(self.process).await.unwrap();
        let printed = ended.success();
        let log = Log::read(&self.directory.path().join("a.sqlog"));
        assert!(printed.contains("a.sqlog: "), "{printed}");
        log
    }
}

/// A log that was read.
pub(crate) struct Log {
    text: String,
    header: Json,
    events: Vec<Json>,
}

impl Log {
    fn read(path: &Path) -> Self {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(path).unwrap();
        let mut records = text.split_inclusive('\n').map(|record| {
            let record = record.strip_prefix(RECORD_SEPARATOR).unwrap_or_else(|| panic!("{record:?}"));
            serde_json::from_str::<Json>(record).unwrap_or_else(|error| panic!("{error}: {record}"))
        });
        let header = records.next().unwrap();
        let events: Vec<Json> = records.collect();
        let times: Vec<f64> = events.iter().map(|event| event["time"].as_f64().unwrap()).collect();
        assert!(times.is_sorted() && times[0] < 1_000.0, "{times:?}");
        assert_eq!(events.last().unwrap()["name"], "litequic:log_ended");
        // Of tests/qlog: by the drafts' schemas, and by another reader.
        if let Some(check) = env::var_os(CHECK) {
            let checked = Command::new(check).arg(path).output().unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
        Self { text, header, events }
    }

    /// The data of all events of this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&Json> {
        self.events.iter().filter(|event| event["name"] == name).map(|event| &event["data"]).collect()
    }

    /// Numbers of packets of the application, sent or received.
    pub(crate) fn numbers(&self, name: &str) -> Vec<u64> {
        let packets = self.all(name).into_iter().map(|data| &data["header"]);
        packets
            .filter(|header| header["packet_type"] == "1RTT")
            .map(|header| header["packet_number"].as_u64().unwrap())
            .collect()
    }

    /// The frames of all packets, sent or received.
    fn frames(&self, name: &str) -> Vec<&Json> {
        self.all(name).into_iter().flat_map(|data| data["frames"].as_array().unwrap()).collect()
    }

    fn kinds(&self, name: &str) -> BTreeSet<&str> {
        self.frames(name).into_iter().map(|frame| frame["frame_type"].as_str().unwrap()).collect()
    }

    pub(crate) fn reason(&self) -> &str {
        self.events.last().unwrap()["data"]["reason"].as_str().unwrap()
    }
}

fn address(client: &Client) -> SocketAddr {
    client.quic.endpoint.local_addr().unwrap()
}

fn close(client: &Client) {
    client.quic.connection.close(0x100_u32.into(), b"");
}

#[tokio::test]
async fn a_qlog_has_all_packets_and_frames_of_its_connection() {
    let litequic = start().await;
    let client = Client::to(&litequic).await;
    client.get("/bytes/1").await;
    let recording = Recording::of(&litequic, &address(&client).to_string(), &[]);
    recording.began().await;
    let sent_before = client.quic.connection.stats().udp_rx.datagrams;
    assert_eq!(client.get("/bytes/300000").await.body.len(), 300_000);
    let received = client.quic.connection.stats().udp_rx.datagrams - sent_before;
    close(&client);
    let log = recording.log().await;
    assert_eq!(log.reason(), "connection");
    assert_eq!(log.header["file_schema"], "urn:ietf:params:qlog:file:sequential");
    assert_eq!(log.header["serialization_format"], "application/qlog+json-seq");
    assert_eq!(log.header["trace"]["vantage_point"]["type"], "server");
    assert_eq!(log.header["trace"]["event_schemas"][0], "urn:ietf:params:qlog:events:quic-12");
    let remote = &log.all("quic:tuple_assigned")[0]["tuple_remote"];
    assert_eq!((&remote["ip_v4"], &remote["port_v4"]), (&"127.0.0.1".into(), &address(&client).port().into()));

    let (sent, got) = (log.numbers("quic:packet_sent"), log.numbers("quic:packet_received"));
    assert!(sent.is_sorted_by(|one, next| one < next), "{sent:?}");
    assert!(sent.len() as u64 >= received, "{} of {received}", sent.len());
    assert!(got.len() > 3, "{got:?}");
    let bytes: u64 = log
        .frames("quic:packet_sent")
        .iter()
        .filter(|frame| frame["frame_type"] == "stream" && frame["stream_id"].as_u64().unwrap() % 4 == 0)
        .map(|frame| frame["raw"]["payload_length"].as_u64().unwrap())
        .sum();
    assert!(bytes >= 300_000, "{bytes}");
    let kinds = log.kinds("quic:packet_received");
    assert!(kinds.is_superset(&["ack", "stream", "connection_close"].into()), "{kinds:?}");
    assert!(!log.all("quic:recovery_metrics_updated").is_empty());
    assert_eq!(log.all("quic:connection_closed")[0]["initiator"], "remote");
    assert!(log.all("litequic:events_omitted").is_empty());
    litequic.stop().await;
}

/// From the first packet on, with both ends' transport parameters; and nothing that lets its reader do anything.
#[tokio::test]
async fn a_qlog_of_the_next_handshake_is_complete_without_secrets() {
    let litequic = start().await;
    let recording = Recording::of_next(&litequic, &[]).await;
    let client = Client::to(&litequic).await;
    client.get("/bytes/1000").await;
    close(&client);
    let log = recording.log().await;
    assert_eq!(log.events[0]["name"], "quic:connection_started");
    assert_eq!(log.events[0]["data"]["remote"]["ip_v4"], "127.0.0.1");
    let parameters = log.all("quic:parameters_set");
    let initiators: Vec<&Json> = parameters.iter().map(|set| &set["initiator"]).collect();
    assert_eq!(initiators, ["local", "remote"]);
    assert!(parameters.iter().all(|set| set["initial_max_data"].as_u64().is_some()), "{parameters:?}");
    // Its default of 25 ms holds.
    assert!(parameters[0].get("max_ack_delay").is_none(), "{parameters:?}");
    for name in ["quic:packet_sent", "quic:packet_received"] {
        let types: BTreeSet<&str> =
            log.all(name).iter().map(|data| data["header"]["packet_type"].as_str().unwrap()).collect();
        assert_eq!(types, ["1RTT", "handshake", "initial"].into(), "{name}");
        assert!(log.kinds(name).contains("crypto"), "{name}");
    }
    // A client's first packets may come before litequic has the keys.
    assert_eq!(log.numbers("quic:packet_sent").first(), Some(&0));
    assert!(log.kinds("quic:packet_sent").contains("handshake_done"));
    // Connection IDs are the only bytes in it, of 20 at most: a token, or a stateless reset token, is a part of none.
    let issued: Vec<&Json> =
        log.frames("quic:packet_sent").into_iter().filter(|frame| frame["frame_type"] == "new_connection_id").collect();
    assert!(!issued.is_empty());
    let members = ["stateless_reset_token\":", "\"data\":\"", "\"value\":"];
    assert!(!members.iter().any(|member| log.text.contains(member)), "{}", log.text);
    for word in log.text.split('"').filter(|word| word.len() > 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        assert!(word.len() <= 40, "{word}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_qlog_has_merged_acks_and_ack_frequency_frames() {
    let litequic = Litequic::demo(|config| {
        edit(config);
        config.litequic.io = litequic_config::Io::Epoll;
        config.litequic.ack_merge = true;
        config.litequic.ack_frequency = litequic_config::AckFrequency::Fixed(10);
    })
    .await;
    let up = Way { spare: 20, hold: Which::Chance(0.2), hold_for: 3, ..Way::default() };
    let down = Way { lose: Which::Chance(0.02), spare: 20, rate: Some(4_000_000), ..Way::default() };
    let link = Link::between(litequic.address, Faults { up, down, ..Faults::default() });
    let recording = Recording::of_next(&litequic, &["--seconds", "60"]).await;
    let transport = quinn::TransportConfig::default();
    let client = Client::connect(link.address, &litequic.cert_pem, transport).await;
    assert_eq!(client.get("/bytes/1500000").await.body.len(), 1_500_000);
    close(&client);
    let log = recording.log().await;
    let events = log.all("litequic:ack_merged");
    assert!(!events.is_empty());
    for event in events {
        // The frame stands in the log as it came.
        let packet = log.all("quic:packet_received").into_iter().find(|data| {
            data["header"]["packet_number"] == event["packet_number"] && data["header"]["packet_type"] == "1RTT"
        });
        let frames = packet.unwrap()["frames"].as_array().unwrap();
        assert!(frames.iter().any(|frame| frame["frame_type"] == "ack"), "{frames:?}");
    }
    let requested = log.all("litequic:ack_frequency_requested");
    assert!(!requested.is_empty());
    let frames = log.frames("quic:packet_sent");
    let of_type = |frame: &&&Json| frame["frame_type_bytes"] == ACK_FREQUENCY;
    assert_eq!(frames.iter().filter(of_type).count(), requested.len());
    assert!(!log.kinds("quic:packet_sent").contains("datagram"));
    assert!(!log.all("quic:packet_lost").is_empty());
    assert!(!log.all("litequic:pacing_train").is_empty());
    litequic.stop().await;
}

#[tokio::test]
async fn a_migrated_client_stays_logged_and_anonymous_logs_have_no_address() {
    let litequic = start().await;
    let client = Client::to(&litequic).await;
    client.get("/bytes/1").await;
    let port = address(&client).port();
    let named = Recording::of(&litequic, "127.0.0.1", &[]);
    named.began().await;
    client.quic.change_port();
    assert_eq!(client.get("/bytes/10000").await.body.len(), 10_000);
    let moved = address(&client).port();
    close(&client);
    let log = named.log().await;
    let ports: Vec<&Json> =
        log.all("quic:tuple_assigned").into_iter().map(|tuple| &tuple["tuple_remote"]["port_v4"]).collect();
    assert_eq!(ports, [&Json::from(port), &Json::from(moved)]);
    assert!(log.kinds("quic:packet_sent").contains("path_challenge"));

    let client = Client::to(&litequic).await;
    let anonymous = Recording::of(&litequic, "127.0.0.1", &["--anonymous"]);
    anonymous.began().await;
    client.get("/bytes/10000").await;
    let port = address(&client).port();
    close(&client);
    let log = anonymous.log().await;
    let tuple = log.all("quic:tuple_assigned")[0];
    assert_eq!(tuple["tuple_remote"], serde_json::json!({}));
    // As a port: a window or a time may have the same digits.
    let forms = [format!("_v4\":{port}"), format!("127.0.0.1:{port}")];
    assert!(!forms.iter().any(|form| log.text.contains(form)), "{}", log.text);
    litequic.stop().await;
}

#[tokio::test]
async fn each_traced_connection_has_a_qlog_file() {
    let litequic = start().await;
    let clients = [Client::to(&litequic).await, Client::to(&litequic).await, Client::to(&litequic).await];
    for client in &clients {
        client.get("/bytes/1").await;
    }
    let recording = Recording::of(&litequic, "127.0.0.1", &[]);
    recording.began().await;
    for client in &clients {
        client.get("/bytes/1000").await;
        close(client);
    }
    let directory = recording.directory.path().to_owned();
    let ended = within("the end", end_of(recording.process)).await.unwrap().success();
    assert_eq!(ended.lines().count(), 3, "{ended}");
    let mut ports = BTreeSet::new();
    for name in ["a.sqlog", "a-2.sqlog", "a-3.sqlog"] {
        let log = Log::read(&directory.join(name));
        ports.insert(log.all("quic:tuple_assigned")[0]["tuple_remote"]["port_v4"].as_u64().unwrap());
        assert!(!log.numbers("quic:packet_sent").is_empty(), "{name}");
    }
    assert_eq!(ports, clients.iter().map(|client| address(client).port().into()).collect());

    let clients = [Client::to(&litequic).await, Client::to(&litequic).await];
    let to_stdout = ctl(&litequic, &["--client", "127.0.0.1", "--seconds", "1"]);
    let printed = within("the end", to_stdout).await.unwrap().success();
    assert_eq!(printed.matches("\"file_schema\"").count(), 1);
    assert!(printed.ends_with("\"data\":{\"reason\":\"time\"}}\n"), "{printed}");
    drop(clients);
    litequic.stop().await;
}

#[tokio::test]
async fn what_cannot_be_logged_is_said() {
    let litequic = start().await;
    let none = ctl(&litequic, &["--client", "127.0.0.1"]).await.unwrap();
    assert_eq!(none.code, Some(1));
    assert!(none.stderr.contains("no connection of 127.0.0.1 is open; --next logs its next one"), "{}", none.stderr);
    let _over_tcp = Tls::http1(&litequic).await;
    litequic.wait_until("TCP", |worker| worker.tcp.tcp_connections_h1.get(), |open| open == 1).await;
    let tcp = ctl(&litequic, &["--client", "127.0.0.1"]).await.unwrap();
    assert!(tcp.stderr.contains("127.0.0.1 has 1 connection over TCP and none over QUIC"), "{}", tcp.stderr);
    for wrong in [&["--client", "127.0.0.0/8"][..], &["--client", "x"], &["--client", "127.0.0.1", "--seconds", "301"]]
    {
        assert_eq!(ctl(&litequic, wrong).await.unwrap().code, Some(64), "{wrong:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sqlog");
    fs::write(&path, "mine").unwrap();
    let exists = ctl(&litequic, &["--client", "127.0.0.1", "--out", path.to_str().unwrap()]).await.unwrap();
    assert!(exists.stderr.contains("exists already"), "{}", exists.stderr);

    // Four orders at a time; one that is given up makes room.
    let mut orders = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(litequic.admin.unwrap()).await.unwrap();
        stream
            .write_all(b"POST /qlog?client=192.0.2.1&next=on&seconds=300 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            .await
            .unwrap();
        let mut head = [0; 12];
        within("an answer", stream.read_exact(&mut head)).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        orders.push(stream);
    }
    let fifth = "POST /qlog?client=192.0.2.1&next=on&seconds=1";
    assert_eq!(ask(litequic.admin.unwrap(), fifth).await.0, 422);
    orders.pop();
    let deadline = Instant::now() + Duration::from_secs(30);
    while ask(litequic.admin.unwrap(), fifth).await.0 != 200 {
        assert!(Instant::now() < deadline);
        sleep(LOOK_AGAIN).await;
    }
    litequic.stop().await;
}
