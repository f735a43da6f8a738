//! `[litequic]`: the transport. Every key works by itself, so that what each brings can be measured.

use super::{
    section::Section,
    table::{Table as _, keys},
    values::{Given, Kind, boolean, number, one_of, one_of_also},
};
use serde_json::json;
use std::{fmt, ops::RangeInclusive};

const RECEIVE_BATCH: RangeInclusive<u64> = 1..=LiteQuic::MAX_RECEIVE_BATCH as u64;
const INITIAL_WINDOW: RangeInclusive<u64> = LiteQuic::MIN_INITIAL_WINDOW as u64..=LiteQuic::MAX_INITIAL_WINDOW as u64;

keys! {
    /// How datagrams are received and sent. The defaults are all that saves CPU time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LiteQuic {
        /// The system calls that move datagrams. `auto` is `epoll`. `io-uring` costs the same, and is `epoll` where the kernel refuses
        /// it.
        io: Io = Io::Auto, one_of_also(Io::NAMES, Io::TO_COMPARE), restart;

        // What a busy worker finds waiting, and a call's fixed cost is nothing beside. Each holds 64 KiB with GRO.
        /// Messages received at once, at most. Each has a buffer of 64 KiB, or of 2 KiB without `gro`, for each listen address and
        /// worker; with `io-uring` two.
        receive_batch: u16 = 128, number(RECEIVE_BATCH), restart;

        /// Whether a message may hold several datagrams on its way out (UDP_SEGMENT): 64 or 65,507 bytes.
        gso: bool = true, boolean(), restart;

        /// Whether a message may hold several datagrams on its way in (UDP_GRO).
        gro: bool = true, boolean(), restart;

        /// Whether the newest of the acknowledgements that a client sent since the last batch is processed first, and those that it
        /// makes superfluous are not.
        ack_merge: bool = true, boolean(), restart;

        /// Whether a worker with many downloads in flight takes datagrams every 1 or 2 ms, an eighth of a round trip at most, instead of
        /// when each arrives: acknowledgements then form batches.
        receive_moderation: bool = true, boolean(), restart;

        /// How many packets clients acknowledge at once, of those that let themselves be asked (draft-ietf-quic-ack-frequency: Firefox,
        /// quinn, Chromium with `AFIA`). `adaptive` asks for more, up to 32, while a worker is busy. A number is asked for at the
        /// beginning of each connection, however little there is to do; more than fits into a client's congestion window slows it down.
        ack_frequency: AckFrequency = AckFrequency::Adaptive, ack_frequency(), restart;

        /// What decides how much may be in flight, of connections that begin: `cubic` (RFC 9438) shares a bottleneck with TCP as TCP
        /// does, `bbr` (version 2) goes by what the path delivers, and takes random loss for no congestion.
        congestion: Congestion = Congestion::Cubic, one_of(Congestion::NAMES);

        // More than the 10 of RFC 9002 §7.2, less than the 32 of Chromium and quic-go, for reasons in
        // docs/adr/0027-initial-window.md.
        /// Packets that a connection that begins may have in flight before any is acknowledged (RFC 9002 §7.2). The first 10 leave at
        /// once, more within the first round trip.
        initial_window: u16 = 24, number(INITIAL_WINDOW);
    }
}

impl LiteQuic {
    /// What the kernel takes in one call (UIO_MAXIOV in recvmmsg(2)).
    pub const MAX_RECEIVE_BATCH: u16 = 1024;
    /// RFC 9002 §7.2. s2n-quic raises less to this once a larger datagram has passed.
    pub const MIN_INITIAL_WINDOW: u16 = 10;
    /// Three times what is in use elsewhere.
    pub const MAX_INITIAL_WINDOW: u16 = 100;
}

/// Reads `[litequic]`.
pub(super) fn read(section: &mut Section<'_>) -> LiteQuic {
    let mut litequic = LiteQuic::read(section);
    if litequic.io == Io::S2nQuic && litequic.ack_frequency == AckFrequency::Adaptive {
        if section.is_right(&["ack_frequency"]) {
            let problem = "needs the batches of litequic's own I/O, which io = \"s2n-quic\" does not have";
            section.fault("ack_frequency", problem, Some("\"off\", a number, or another io"), None);
        }
        litequic.ack_frequency = AckFrequency::Off;
    }
    litequic
}

/// `io`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// The best that the kernel has: [`Io::Epoll`].
    Auto,
    /// litequic's own, over epoll.
    Epoll,
    /// litequic's own, over io_uring; over epoll where the kernel refuses that.
    IoUring,
    /// That of the QUIC library: what litequic's own is measured by.
    S2nQuic,
}

impl Io {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] = &[("auto", Self::Auto), ("epoll", Self::Epoll), ("io-uring", Self::IoUring)];
    /// The file may say that too. It is in no document for operators: the laboratory and the demo compare litequic's own with it.
    pub const TO_COMPARE: &[(&str, Self)] = &[("s2n-quic", Self::S2nQuic)];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::IoUring => "io-uring",
            Self::S2nQuic => "s2n-quic",
        }
    }
}

/// `congestion`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR version 2 (draft-cardwell-iccrg-bbr-congestion-control-02).
    Bbr,
}

impl Congestion {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] = &[("cubic", Self::Cubic), ("bbr", Self::Bbr)];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

/// `ack_frequency`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckFrequency {
    /// To acknowledge less often while the worker is busy. Takes batches: with [`Io::S2nQuic`] it asks for nothing.
    Adaptive,
    /// For nothing.
    Off,
    /// For one acknowledgement of so many packets, once, and however little there is to do.
    Fixed(u16),
}

impl AckFrequency {
    /// What RFC 9000 §13.2.2 recommends to clients anyway.
    pub const LEAST: u16 = 2;
    /// Beyond lies what no window of packets holds on most paths, and nobody has measured a gain.
    pub const MOST: u16 = 512;
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

/// `"adaptive"`, `"off"`, or packets an acknowledgement.
fn ack_frequency() -> Kind<AckFrequency> {
    let packets = number::<u16>(AckFrequency::LEAST.into()..=AckFrequency::MOST.into());
    Kind {
        expected: format!("\"adaptive\", \"off\" or {}", packets.expected),
        schema: json!({ "anyOf": [{ "type": "string", "enum": ["adaptive", "off"] }, packets.schema] }),
        read: Box::new(move |given| match given {
            Given::Text(text) => match &*text {
                "adaptive" => Ok(AckFrequency::Adaptive),
                "off" => Ok(AckFrequency::Off),
                _ => Err("unknown value".into()),
            },
            given => (packets.read)(given).map(AckFrequency::Fixed),
        }),
        show: Box::new(|frequency| match frequency {
            AckFrequency::Fixed(packets) => json!(packets),
            word => json!(word.to_string()),
        }),
    }
}
