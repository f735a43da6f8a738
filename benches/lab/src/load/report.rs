//! What a load comes to: the JSON object between the generator and the bench.

use super::arguments::{Kind, Protocol};
use serde::{Deserialize, Serialize};

/// How far from an exact ACK threshold the counted one may be, as a part of it. Further away, a run says nothing about
/// that threshold.
pub(crate) const TOLERANCE: f64 = 0.05;

/// One load's figures. All but `warmup_requests` are of the measured part alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    /// Why nothing here may be used: a failure, a deadline, a server that went away. `null`: it stands.
    pub(crate) void: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) protocol: Protocol,
    /// Requested connections.
    pub(crate) connections: u32,
    /// Requests at a time on each.
    pub(crate) streams: u32,
    /// Requested packets an ACK: a number, or `auto`. HTTP/1.1 has none.
    pub(crate) ack_threshold: Option<String>,
    /// UDP receive offload; HTTP/1.1 has none.
    pub(crate) gro: Option<bool>,

    /// Requests answered rightly: status, length and hash; handshakes completed; idle connections that lasted.
    pub(crate) requests_ok: u64,
    /// Requests that were not; connections that failed or were lost.
    pub(crate) requests_failed: u64,
    /// What went wrong, the first ten.
    pub(crate) errors: Vec<String>,
    /// Requests made and verified before.
    pub(crate) warmup_requests: u64,
    /// Connections opened in place of such that the server wound up in good order (GOAWAY, `connection: close`).
    pub(crate) reconnects: u64,

    /// Bytes of response bodies, of right and wrong responses.
    pub(crate) body_bytes_received: u64,
    /// Bytes of request bodies handed over for sending.
    pub(crate) body_bytes_sent: u64,
    /// Bytes of response bodies in the right responses.
    pub(crate) body_bytes_verified: u64,
    /// What responses were held against: `given` (--expect-hash), `first` (the first response), or `none`.
    pub(crate) verified_against: String,
    /// The CRC-32 of every right response, eight hexadecimal digits.
    pub(crate) body_crc32: Option<String>,

    /// From the first intended start to the last answer, seconds.
    pub(crate) wall_seconds: f64,
    /// CPU time of this process, user and system, seconds.
    pub(crate) client_cpu_seconds: f64,
    /// Requests answered rightly a second.
    pub(crate) requests_per_second: f64,
    /// Body bytes received and sent, as Mbit/s.
    pub(crate) body_mbit_per_second: f64,
    /// What came after --beginning.
    pub(crate) steady: Option<Steady>,
    /// From a request's start to its last byte; of handshakes, from the first packet to confirmation (h3:
    /// HANDSHAKE_DONE; h1: the TLS handshake's end); of idle connections the same. Right answers only.
    pub(crate) latency: Latency,
    /// With --in-turn: `latency` of the first request of each connection, and of those after it.
    #[serde(default)]
    pub(crate) first: Option<Latency>,
    #[serde(default)]
    pub(crate) later: Option<Latency>,
    /// From a request's start to the first byte of its response's body or end.
    pub(crate) first_byte: Latency,
    /// Time to last byte of the whole load: from the first intended start to the last byte of the last response.
    pub(crate) ttlb_seconds: f64,
    /// Handshakes completed, in the measured part.
    pub(crate) handshakes: u64,
    /// Of them without a certificate: resumed by ticket.
    pub(crate) resumed: u64,
    /// Handshakes completed a second (handshakes only).
    pub(crate) handshakes_per_second: Option<f64>,

    /// HTTP/3 only: packets, ACKs, datagrams.
    pub(crate) quic: Option<Quic>,
}

/// What came or went after the beginning.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Steady {
    /// Bytes of bodies, either way; of uploads those that the transport took, which is as fast as it gets rid of them
    /// once its buffers are full.
    pub(crate) body_bytes: u64,
    /// How long it took, seconds.
    pub(crate) seconds: f64,
}

/// Latencies in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// `intended`: from the moment that --rate gave the request, so that a server which stalls is charged for those who
    /// waited (no coordinated omission). `sent`: closed loop, from the moment that the client was free to send.
    pub(crate) counted_from: String,
    pub(crate) count: u64,
    pub(crate) p50_us: u64,
    pub(crate) p90_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) p99_9_us: u64,
    pub(crate) max_us: u64,
}

/// What the client's QUIC stack counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Quic {
    /// 1-RTT packets received and decrypted.
    pub(crate) packets_received: u64,
    /// Packets sent with an ACK frame in them; quinn puts one in a packet at most.
    pub(crate) ack_packets_sent: u64,
    /// ACK frames sent.
    pub(crate) ack_frames: u64,
    /// `packets_received / ack_packets_sent`: the actual threshold, to compare with the requested one.
    pub(crate) packets_per_ack: f64,
    /// Whether that is within [`TOLERANCE`] of an exact threshold; `null` with `auto`. Only a transfer to the client
    /// that is long, and not limited to fewer packets in flight, can hold one.
    pub(crate) threshold_held: Option<bool>,
    /// ACK_FREQUENCY frames received.
    pub(crate) ack_frequency_frames: u64,
    /// 1-RTT packet numbers of the server that never came: lost on the way, or skipped on purpose.
    pub(crate) packets_missing: u64,
    /// Datagrams that were lost on purpose (--lose): none of these packets was ever acknowledged.
    pub(crate) lost_on_purpose: u64,
    /// Datagrams that others were let overtake (--hold).
    pub(crate) reordered_on_purpose: u64,
    /// The longest of the connections' smoothed round-trip times at the end, in microseconds, as the client sees it: in
    /// a download by its few packets that ask for an acknowledgement.
    pub(crate) rtt_us: u64,
    /// Packets sent.
    pub(crate) packets_sent: u64,
    /// Of them declared lost.
    pub(crate) packets_lost: u64,
    /// UDP datagrams received.
    pub(crate) datagrams_received: u64,
    /// UDP datagrams sent.
    pub(crate) datagrams_sent: u64,
    /// Bytes of UDP payload received.
    #[serde(default)]
    pub(crate) bytes_received: u64,
    /// Bytes of UDP payload sent.
    #[serde(default)]
    pub(crate) bytes_sent: u64,
    /// Messages from the kernel: with GRO one holds several datagrams.
    pub(crate) gro_batches: u64,
    /// recvmmsg calls that brought something.
    pub(crate) receive_calls: u64,
    /// sendmsg calls.
    pub(crate) send_calls: u64,
    /// Sends the kernel had no room for, for longer than the client waits: those packets are lost.
    pub(crate) sends_dropped: u64,
    /// What the kernel granted as receive buffer, bytes a socket.
    pub(crate) receive_buffer: u64,
    /// Largest UDP payload in use at the end, least of all connections.
    pub(crate) mtu: u16,
    /// Connections lost without good order.
    pub(crate) connections_lost: u64,
}
