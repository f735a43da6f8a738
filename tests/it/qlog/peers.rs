//! Logs of connections with other implementations of QUIC: aioquic, with its own log beside litequic's, curl, Chromium.

use super::*;
use crate::support::prelude::*;
use std::collections::BTreeMap;

/// The packets of a log by their kinds and numbers, each with its frames in a form that both have.
type Packets = BTreeMap<(String, u64), Vec<String>>;

/// A frame of litequic's log, or of aioquic's; `None` for PADDING, which aioquic leaves out where it sends it.
fn frame(frame: &Json) -> Option<String> {
    let kind = frame["frame_type"].as_str().unwrap();
    let length = || frame["raw"].get("payload_length").unwrap_or(&frame["length"]);
    let members: Vec<&Json> = match kind {
        "padding" => return None,
        "ack" => {
            let mut ranges: Vec<(u64, u64)> = frame["acked_ranges"].as_array().unwrap().iter().map(range).collect();
            ranges.sort_unstable();
            return Some(format!("ack {ranges:?}"));
        }
        "stream" => vec![&frame["stream_id"], &frame["offset"], length(), &frame["fin"]],
        "crypto" => vec![&frame["offset"], length()],
        "new_connection_id" => vec![&frame["sequence_number"], &frame["retire_prior_to"], &frame["connection_id"]],
        "retire_connection_id" => vec![&frame["sequence_number"]],
        "max_data" => vec![&frame["maximum"]],
        "max_stream_data" => vec![&frame["stream_id"], &frame["maximum"]],
        "max_streams" => vec![&frame["stream_type"], &frame["maximum"]],
        "data_blocked" => vec![&frame["limit"]],
        "stream_data_blocked" => vec![&frame["stream_id"], &frame["limit"]],
        "streams_blocked" => vec![&frame["stream_type"], &frame["limit"]],
        "reset_stream" => vec![&frame["stream_id"], &frame["error_code"], &frame["final_size"]],
        "stop_sending" => vec![&frame["stream_id"], &frame["error_code"]],
        "connection_close" => vec![&frame["error_space"]],
        _ => Vec::new(),
    };
    Some(format!("{kind} {members:?}"))
}

/// A range of packet numbers; one alone has no second.
fn range(range: &Json) -> (u64, u64) {
    let numbers: Vec<u64> = range.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect();
    (numbers[0], *numbers.last().unwrap())
}

/// Packets of events, each with its data.
fn packets<'a>(events: impl IntoIterator<Item = &'a Json>) -> Packets {
    let packets = events.into_iter().filter(|data| !data["header"]["packet_number"].is_null());
    packets
        .map(|data| {
            let header = &data["header"];
            let key = (header["packet_type"].as_str().unwrap().to_owned(), header["packet_number"].as_u64().unwrap());
            (key, data["frames"].as_array().into_iter().flatten().filter_map(frame).collect())
        })
        .collect()
}

/// Data of the events of aioquic's log with this name, from the Retry on: litequic keeps nothing of what was before.
fn of_aioquic<'a>(trace: &'a Json, name: &'a str) -> impl Iterator<Item = &'a Json> {
    let events = trace["events"].as_array().unwrap().iter();
    let events = events.skip_while(|event| event["data"]["header"]["packet_type"] != "retry");
    events.filter(move |event| event["name"] == name).map(|event| &event["data"])
}

/// All of a connection, from a Retry on: handshake, downloads, uploads. No bytes that let their reader do something are
/// in litequic's log: the token of the Retry, and the stateless reset tokens that the client has received.
#[tokio::test]
async fn litequics_qlog_agrees_with_aioquics_and_has_no_secret() {
    let Some(python) = needs::python_module("aioquic.h3.connection") else { return };
    let litequic = Litequic::demo(|config| {
        edit(config);
        config.limits.retry_handshakes = 0;
    })
    .await;
    let recording = Recording::of_next(&litequic, &["--seconds", "60"]).await;
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("own.json");
    let mut command = Command::new(python);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/aioquic.py");
    command.arg(script).arg(litequic.address.port().to_string()).arg(&own);
    end_of(Process::spawn(command)).await.unwrap().success();
    let log = recording.log().await;
    let own: Json = serde_json::from_slice(&fs::read(own).unwrap()).unwrap();
    let trace = &own["trace"];
    assert!(log.all("litequic:events_omitted").is_empty());

    for (name, of_peer) in
        [("quic:packet_received", "transport:packet_sent"), ("quic:packet_sent", "transport:packet_received")]
    {
        let (ours, theirs) = (packets(log.all(name)), packets(of_aioquic(trace, of_peer)));
        assert!(theirs.len() > 200 && theirs.keys().any(|(kind, _)| kind == "initial"), "{of_peer}: {}", theirs.len());
        // What comes before litequic has a key, or when it has it no longer, is unread, and the last may come too late.
        let (mut read, mut unread) = (BTreeSet::new(), 0);
        for (packet, frames) in &theirs {
            if let Some(logged) = ours.get(packet) {
                assert_eq!(logged, frames, "{name} {packet:?}");
                read.insert(packet.0.as_str());
            } else {
                assert_eq!(name, "quic:packet_received", "{packet:?}");
                unread += usize::from(packet.0 == "1RTT");
            }
        }
        assert_eq!(read, ["1RTT", "handshake", "initial"].into(), "{name}");
        assert!(unread <= 5, "{unread} packets");
        // Of those that aioquic has not, litequic knows, but for the last: its socket may be full.
        let lost = packets(log.all("quic:packet_lost"));
        let missing = ours.keys().filter(|packet| !theirs.contains_key(packet));
        let missing: Vec<_> = missing.filter(|packet| !lost.contains_key(packet)).collect();
        assert!(missing.len() <= 5, "{name}: aioquic has no {missing:?}");
    }

    let token = own["token"].as_str().unwrap();
    let parameters = of_aioquic(trace, "transport:parameters_set").find(|set| set["owner"] == "remote").unwrap();
    // Its tag: before it stands the client's first connection ID, which is a transport parameter too.
    let mut secrets = vec![&token[token.len() - 64..]];
    // s2n-quic names none there, but with each further connection ID.
    secrets.extend(parameters["stateless_reset_token"].as_str());
    let received = of_aioquic(trace, "transport:packet_received");
    let frames = received.flat_map(|data| data["frames"].as_array().into_iter().flatten());
    secrets.extend(frames.filter_map(|frame| frame["reset_token"].as_str()));
    assert!(secrets.len() > 2, "{secrets:?}");
    for secret in secrets {
        assert!(secret.len() >= 32, "{secret}");
        let bytes: Vec<u8> =
            (0..secret.len()).step_by(2).map(|at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap()).collect();
        // Of any eight bytes in a row, in each form that bytes may have in JSON.
        for part in bytes.windows(8) {
            let hex: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
            let list: Vec<String> = part.iter().map(u8::to_string).collect();
            let base64 = base64::Engine::encode(&base64::prelude::BASE64_STANDARD_NO_PAD, &part[..6]);
            let lower = log.text.to_ascii_lowercase();
            assert!(!lower.contains(&hex) && !log.text.contains(&list.join(",")), "{hex}");
            assert!(!log.text.contains(&base64), "{base64}");
        }
    }
    litequic.stop().await;
}

/// A curl with HTTP/3, which Debian does not have: `LITEQUIC_CURL` names it.
#[tokio::test]
async fn a_log_of_curl_has_its_packets() {
    let Some(curl) = env::var_os("LITEQUIC_CURL").map(PathBuf::from) else {
        return needs::skip_everywhere("LITEQUIC_CURL names no curl with HTTP/3");
    };
    let litequic = start().await;
    let recording = Recording::of_next(&litequic, &[]).await;
    let mut command = Command::new(curl);
    command.args(["--http3-only", "--insecure", "--silent", "--show-error", "--output", "/dev/null"]);
    command.args(["--resolve", &format!("localhost:{}:127.0.0.1", litequic.address.port())]);
    command.arg(format!("https://localhost:{}/bytes/2000000", litequic.address.port()));
    end_of(Process::spawn(command)).await.unwrap().success();
    let log = recording.log().await;
    assert_eq!(log.reason(), "connection");
    assert!(log.numbers("quic:packet_sent").len() > 1_000, "{:?}", log.numbers("quic:packet_sent"));
    assert!(log.kinds("quic:packet_received").is_superset(&["ack", "crypto", "stream"].into()));
    litequic.stop().await;
}

#[tokio::test]
async fn a_log_of_chromium_has_its_packets() {
    let Some(chromium) = needs::program("chromium") else { return };
    let certificate = make_self_signed(["localhost"]).unwrap();
    let spki = certificate.spki_sha256.clone();
    let litequic = Litequic::showing(&[certificate], origin::demo().await, edit).await;
    let recording = Recording::of_next(&litequic, &["--seconds", "20"]).await;
    let port = litequic.address.port();
    let see = move || crate::browser::see_the_page(Command::new(chromium), port, &spki, &[]);
    spawn_blocking(see).await.unwrap();
    let log = recording.log().await;
    assert!(log.numbers("quic:packet_sent").len() > 20, "{:?}", log.numbers("quic:packet_sent"));
    assert!(log.kinds("quic:packet_received").is_superset(&["ack", "crypto", "stream"].into()));
    let parameters = log.all("quic:parameters_set");
    assert_eq!(parameters.len(), 2, "{parameters:?}");
    litequic.stop().await;
}
