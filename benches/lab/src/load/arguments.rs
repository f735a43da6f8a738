//! The command line of the load generator, and the `Plan` that comes of it: nothing below checks it again.

use clap::{Args, ValueEnum};
use quinn_udp::BATCH_SIZE;
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// What the server is made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// GET large bodies.
    Download,
    /// POST bodies of --bytes.
    Upload,
    /// GET small objects, many.
    Small,
    /// Open connections, close them as soon as they are confirmed.
    Handshakes,
    /// Open --connections, hold them for --seconds.
    Idle,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// HTTP/3 over QUIC.
    H3,
    /// HTTP/1.1 over TLS 1.3 over TCP.
    H1,
}

/// A group of TLS 1.3's key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Group {
    X25519,
    #[value(name = "secp256r1")]
    Secp256r1,
    /// A hybrid with ML-KEM, against computers that there are not yet (draft-ietf-tls-ecdhe-mlkem).
    #[value(name = "x25519mlkem768")]
    X25519Mlkem768,
}

impl Group {
    /// The value on the command line.
    pub(crate) fn argument(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// As far as the kernel can.
    On,
    /// Not at all.
    Off,
}

/// Load one server and report what it did.
///
/// Exits with 0 when the report is valid, with 1 when it is void; the report has the reason.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// What the server is made to do.
    #[arg(value_enum)]
    pub(super) kind: Kind,
    #[arg(long, value_enum, default_value = "h3")]
    pub(super) protocol: Protocol,
    /// Where the server listens.
    #[arg(long, value_name = "IP:PORT")]
    pub(super) address: SocketAddr,
    /// The server's name, for SNI, its certificate and :authority.
    #[arg(long, default_value = "localhost")]
    pub(super) name: String,
    /// Trust the certificates in this PEM file.
    #[arg(long, value_name = "FILE", required_unless_present = "insecure", conflicts_with = "insecure")]
    pub(super) ca: Option<PathBuf>,
    /// Trust any certificate.
    #[arg(long)]
    pub(super) insecure: bool,
    /// The path to request.
    #[arg(long, default_value = "/", value_parser = path)]
    pub(super) path: String,
    /// The length every response must have; the length of every uploaded body.
    #[arg(long, value_name = "N", required_if_eq("kind", "upload"))]
    pub(super) bytes: Option<u64>,
    /// The CRC-32 (ISO-HDLC, as in gzip) every response must have. Without it the first response sets it.
    #[arg(long, value_name = "HEX", value_parser = crc)]
    pub(super) expect_hash: Option<u32>,
    /// Connections, all open at a time.
    #[arg(long, value_name = "C", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) connections: u32,
    /// Requests at a time on each connection; with h1 one.
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) streams: u32,
    /// How many requests (or handshakes) are measured. Without this and --seconds: connections × streams.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,
    /// For how long requests are started. Those in flight are waited for.
    #[arg(long, value_name = "T", value_parser = seconds, required_if_eq("kind", "idle"), conflicts_with = "requests")]
    pub(super) seconds: Option<Duration>,
    /// One request at a time over all connections, each on the one that has waited longest.
    #[arg(long)]
    pub(super) in_turn: bool,
    /// Abandon requests in flight when --seconds are over. Their bytes count, and were not checked.
    #[arg(long, requires = "seconds")]
    pub(super) cut: bool,
    /// Report what is received after so long as well: without handshakes and slow start.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "cut")]
    pub(super) beginning: Option<Duration>,
    /// Create this file when the beginning is over.
    #[arg(long, value_name = "FILE", requires = "beginning")]
    pub(super) mark: Option<PathBuf>,
    /// Start this many requests a second whatever becomes of them: latency then counts from the intended start.
    #[arg(long, value_name = "R/s", value_parser = rate)]
    pub(super) rate: Option<f64>,
    /// Packets an ACK: exact and without the ACK frequency extension, or `auto`, quinn's own (2) with the extension.
    #[arg(long, value_name = "2|10|100|auto", default_value = "auto", value_parser = threshold)]
    pub(super) ack_threshold: AckThreshold,
    /// With an exact threshold: acknowledge at once all the same when a packet number is missing (RFC 9000 §13.2.1).
    #[arg(long)]
    pub(super) ack_gaps: bool,
    /// Lose so many of a million datagrams that come, by --seed, before they are looked at.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..1_000_000))]
    pub(super) lose: u32,
    /// Hold so many of a million back until the next eight have overtaken them.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..1_000_000))]
    pub(super) hold: u32,
    /// Which these are.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Take each datagram so many milliseconds after it has come, as at the end of a long path (h3).
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub(super) delay: u64,
    /// Offer this group of TLS alone; default: all that there are, X25519 first.
    #[arg(long, value_enum)]
    pub(super) group: Option<Group>,
    /// With every request the fields that a browser sends: 800 bytes, 590 as they are encoded (h3).
    #[arg(long)]
    pub(super) browser: bool,
    /// Send this `Priority` field with every measured request (RFC 9218; h3).
    #[arg(long, value_name = "VALUE", value_parser = field_value)]
    pub(super) priority: Option<String>,
    /// On each connection request this path first, and read its body beside the measured requests, which begin 4 seconds
    /// later. A connection on which it ends is lost (h3).
    #[arg(long, value_name = "PATH", value_parser = path)]
    pub(super) bulk: Option<String>,
    /// Let the kernel hand over several datagrams as one.
    #[arg(long, value_enum, default_value = "on")]
    pub(super) gro: Switch,
    /// Request this receive buffer for each UDP socket, as a user's program can (socket(7)): the kernel caps it at
    /// net.core.rmem_max, and doubles it. 0 requests none. Default: 32 MiB, whatever the kernel caps.
    #[arg(long, value_name = "BYTES")]
    pub(super) receive_buffer: Option<usize>,
    /// Take so many messages from the kernel with a call (h3).
    #[arg(long, value_name = "N", default_value_t = BATCH_SIZE, value_parser = messages)]
    pub(super) messages: usize,
    /// Sleep so many milliseconds after each hundred datagrams, as a client that has other work (h3).
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub(super) pause: u64,
    /// Requests (or handshakes) made before those measured, and verified like them.
    #[arg(long, value_name = "N")]
    pub(super) warmup: Option<u64>,
    /// Resume sessions by ticket where the server gives any (handshakes; the warm-up fetches the first tickets).
    #[arg(long)]
    pub(super) resume: bool,
    /// The first packets' UDP payload; path MTU discovery goes up to 1452.
    #[arg(long, value_name = "BYTES", default_value_t = 1200, value_parser = clap::value_parser!(u16).range(1200..=1452))]
    pub(super) initial_mtu: u16,
    /// UDP sockets that HTTP/3 connections share. Default: one each, 256 at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) sockets: Option<u32>,
    /// Give up when the server has not moved for this long.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(super) stall: Duration,
    /// Give up after this long in all, --seconds not counted.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub(super) deadline: Duration,
    /// One JSON object on standard output instead of lines for humans.
    #[arg(long)]
    pub(super) json: bool,
}

/// Packets an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckThreshold {
    /// This many, whatever the server would like: the extension is not announced.
    Exact(u32),
    /// quinn's own: 2, until the server requests another with ACK_FREQUENCY.
    Auto,
}

impl std::fmt::Display for AckThreshold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(packets) => write!(f, "{packets}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

fn threshold(text: &str) -> Result<AckThreshold, String> {
    if text == "auto" {
        return Ok(AckThreshold::Auto);
    }
    let packets = text.parse().map_err(|error| format!("{error}"))?;
    if !(1..=10_000).contains(&packets) {
        return Err("from 1 to 10000, or auto".into());
    }
    Ok(AckThreshold::Exact(packets))
}

fn messages(text: &str) -> Result<usize, String> {
    let messages = text.parse().map_err(|error| format!("{error}"))?;
    if (1..=BATCH_SIZE).contains(&messages) { Ok(messages) } else { Err(format!("from 1 to {BATCH_SIZE}")) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    // A day: no user measures longer, and an Instant can represent it.
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("from 0.001 to 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if !(0.01..=10_000_000.0).contains(&rate) {
        return Err("from 0.01 to 10000000 requests a second".into());
    }
    Ok(rate)
}

fn crc(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|error| format!("{error}: eight hexadecimal digits are wanted"))
}

fn field_value(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    fits.then(|| text.to_owned()).ok_or_else(|| "a field's value is printable ASCII".into())
}

fn path(text: &str) -> Result<String, String> {
    let fits = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.to_owned()).ok_or_else(|| "a path starts with / and is printable ASCII".into())
}
