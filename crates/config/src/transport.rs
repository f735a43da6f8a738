//! Defines `[litequic]`: the transport. Every key works by itself, so that its gain can be measured.

use crate::reading::{
    section::ConfigSection,
    table::{KeyTable as _, keys},
    value_kinds::{ValueKind, boolean_kind, number_kind, one_of, one_of_with_hidden, or_named},
};
use litequic_base::named_enum;
use std::{fmt, ops::RangeInclusive};

const RECEIVE_BATCH_RANGE: RangeInclusive<u64> = 1..=LiteQuic::MAX_RECEIVE_BATCH as u64;
const INITIAL_WINDOW_RANGE: RangeInclusive<u64> =
    LiteQuic::MIN_INITIAL_WINDOW as u64..=LiteQuic::MAX_INITIAL_WINDOW as u64;

keys! {
    /// Receiving and sending of datagrams. The defaults are those with the lowest CPU cost.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LiteQuic {
        /// The system calls for datagrams. `auto` is `epoll`. `io-uring` costs the same, and falls back to `epoll` if
        /// io_uring is unavailable.
        io: Io = Io::Auto, one_of_with_hidden(Io::NAMES, Io::HIDDEN_NAMES), restart;

        // A busy worker finds as many queued, so that a call's fixed cost is small. Each holds 64 KiB with GRO.
        /// Maximum number of messages that one system call receives. Each has a buffer of 64 KiB, or of 2 KiB without
        /// `gro`, for each listen address and worker; with `io-uring` two.
        receive_batch: u16 = 128, number_kind(RECEIVE_BATCH_RANGE), restart;

        /// Whether litequic sends several datagrams in one message (UDP_SEGMENT), at most 64 or 65,507 bytes.
        gso: bool = true, boolean_kind(), restart;

        /// Whether litequic receives several datagrams in one message (UDP_GRO).
        gro: bool = true, boolean_kind(), restart;

        /// ACK merging: whether litequic processes the newest of the ACK frames that a client sent since the last batch
        /// first, and skips those that it makes redundant.
        ack_merge: bool = true, boolean_kind(), restart;

        /// Whether a worker with many downloads in flight reads datagrams every 1 or 2 ms (at most an eighth of a round
        /// trip) instead of when each one arrives, so that acknowledgements form batches.
        receive_moderation: bool = true, boolean_kind(), restart;

        /// Packets that clients acknowledge with one ACK, if they support ACK_FREQUENCY (draft-ietf-quic-ack-frequency:
        /// Firefox, quinn, Chromium with `AFIA`). `adaptive` requests more, up to 32, while a worker is busy. A number
        /// is requested at the beginning of each connection, even if the worker is idle; a number that exceeds a
        /// client's congestion window slows the client down.
        ack_frequency: AckFrequency = AckFrequency::Adaptive, ack_frequency_kind(), restart;

        /// Congestion control of new connections: `cubic` (RFC 9438) shares a bottleneck with TCP as TCP does, `bbr`
        /// (version 2) follows the path's delivery rate, and does not treat random loss as congestion.
        congestion: Congestion = Congestion::Cubic, one_of(Congestion::NAMES);

        // More than the 10 of RFC 9002 §7.2, and less than the 32 of Chromium and quic-go, as
        // docs/adr/0027-initial-window.md explains.
        /// Packets that a new connection may have in flight before the first acknowledgement (RFC 9002 §7.2). The first
        /// 10 are sent at once, more within the first round trip.
        initial_window: u16 = 24, number_kind(INITIAL_WINDOW_RANGE);

        // Ethernet's. A lower one costs every client: 4 % more packets with 1440 bytes.
        /// Largest IP packet in bytes, in both directions, on paths that begin: litequic probes for no larger one, and
        /// clients are asked to send none (`max_udp_payload_size`, RFC 9000 §18.2). For tunnels, and for paths that
        /// delay or drop large packets.
        max_mtu: u16 = LiteQuic::MAX_MTU, number_kind(LiteQuic::MIN_MAX_MTU.into()..=LiteQuic::MAX_MTU.into());

        /// Whether the responses of a connection that begins are sent in the order of their priorities (RFC 9218): the
        /// `Priority` field of requests and of the origin's responses, and PRIORITY_UPDATE frames.
        priorities: bool = true, boolean_kind();
    }
}

impl LiteQuic {
    /// Number of messages that the kernel accepts in one call (UIO_MAXIOV in recvmmsg(2)).
    pub const MAX_RECEIVE_BATCH: u16 = 1024;
    /// Packets of RFC 9002 §7.2. s2n-quic raises smaller windows to this once a larger datagram has passed.
    pub const MIN_INITIAL_WINDOW: u16 = 10;
    /// Three times the largest initial window in use elsewhere.
    pub const MAX_INITIAL_WINDOW: u16 = 100;
    /// Bytes of an IP packet that every IPv6 path carries (RFC 8200 §5), and with them a QUIC datagram of 1200 bytes.
    pub const MIN_MAX_MTU: u16 = 1280;
    /// Largest IP packet in bytes: that of Ethernet. With loopback's 65,536 measurements would be misleading.
    pub const MAX_MTU: u16 = 1500;
}

/// Reads `[litequic]`.
pub(super) fn read_transport(section: &mut ConfigSection<'_>) -> LiteQuic {
    let mut litequic = LiteQuic::read_table(section);
    if litequic.io == Io::S2nQuic && litequic.ack_frequency == AckFrequency::Adaptive {
        if section.has_valid_keys(&["ack_frequency"]) {
            let problem = "needs batches of datagrams, which io = \"s2n-quic\" does not have";
            section.note_fault_expecting("ack_frequency", problem, "\"off\", a number, or another io");
        }
        litequic.ack_frequency = AckFrequency::Off;
    }
    litequic
}

/// System calls for datagrams: `litequic.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// The default: [`Io::Epoll`].
    Auto,
    /// I/O of litequic over epoll.
    Epoll,
    /// I/O of litequic over io_uring; falls back to epoll if io_uring is unavailable.
    IoUring,
    /// I/O of s2n-quic, as a reference for measurements.
    S2nQuic,
}

impl Io {
    /// Values by their names in the configuration.
    pub const NAMES: &[(&str, Self)] = &[("auto", Self::Auto), ("epoll", Self::Epoll), ("io-uring", Self::IoUring)];
    /// Values that are not documented for operators: the laboratory and the demo compare them with litequic's I/O.
    pub const HIDDEN_NAMES: &[(&str, Self)] = &[("s2n-quic", Self::S2nQuic)];
}

named_enum! {
    /// Congestion control: `litequic.congestion`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Congestion {
        /// CUBIC (RFC 9438).
        Cubic = "cubic",
        /// BBR version 2 (draft-cardwell-iccrg-bbr-congestion-control-02).
        Bbr = "bbr",
    }
    /// Name of the value in the configuration.
    fn controller_name;
}

/// Requested frequency of acknowledgements: `litequic.ack_frequency`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckFrequency {
    /// Fewer acknowledgements while the worker is busy. Needs batches, so with [`Io::S2nQuic`] nothing is requested.
    Adaptive,
    /// No request.
    Off,
    /// One acknowledgement per this number of packets, requested once, even if the worker is idle.
    Fixed(u16),
}

impl AckFrequency {
    /// Packets per acknowledgement at least: the recommendation of RFC 9000 §13.2.2 for clients.
    pub const MIN_PACKETS: u16 = 2;
    /// Packets per acknowledgement at most: most paths have no larger window, and no gain was measured.
    pub const MAX_PACKETS: u16 = 512;
}

impl fmt::Display for AckFrequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Off => f.write_str("off"),
            Self::Fixed(packets) => packets.fmt(f),
        }
    }
}

/// A frequency of acknowledgements: packets per acknowledgement, `"adaptive"` or `"off"`.
fn ack_frequency_kind() -> ValueKind<AckFrequency> {
    let packets = |frequency: &AckFrequency| match frequency {
        AckFrequency::Fixed(packets) => *packets,
        AckFrequency::Adaptive | AckFrequency::Off => 0,
    };
    let range = AckFrequency::MIN_PACKETS.into()..=AckFrequency::MAX_PACKETS.into();
    let fixed = number_kind(range).map(|packets| Ok(AckFrequency::Fixed(packets)), packets);
    or_named(&[("adaptive", AckFrequency::Adaptive), ("off", AckFrequency::Off)], fixed)
}
