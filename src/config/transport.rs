//! `[litequic]`: the transport. Every key works by itself, so that what each brings can be measured.

use std::fmt;

/// `[litequic]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteQuic {
    /// Who moves datagrams between sockets and QUIC.
    pub io: Io,
    /// Messages that litequic's own I/O receives at once, at most.
    pub receive_batch: u16,
    /// Whether a message may hold several datagrams on its way out (UDP_SEGMENT).
    pub gso: bool,
    /// Whether a message may hold several datagrams on its way in (UDP_GRO).
    pub gro: bool,
    /// Whether of the acknowledgements that a client sent since the last batch the newest is processed first, and those
    /// that it makes superfluous are not.
    pub ack_merge: bool,
    /// Whether a worker with many downloads in flight takes datagrams at fixed times instead of when each arrives.
    pub receive_moderation: bool,
    /// What clients are asked for that let litequic say how often they acknowledge.
    pub ack_frequency: AckFrequency,
    /// By what the congestion window of each connection that begins is decided, unless its listener says otherwise.
    pub congestion: Congestion,
    /// Packets that such a connection may have in flight before any is acknowledged.
    pub initial_window: u16,
}

impl LiteQuic {
    /// What a busy worker finds waiting, and a call's fixed cost is nothing beside. Each holds 64 KiB with GRO.
    pub const RECEIVE_BATCH: u16 = 128;
    /// What the kernel takes in one call (UIO_MAXIOV in recvmmsg(2)).
    pub const MAX_RECEIVE_BATCH: u16 = 1024;
    /// More than the 10 of RFC 9002 §7.2, less than the 32 of Chromium and quic-go, for reasons in
    /// docs/adr/0027-initial-window.md.
    pub const INITIAL_WINDOW: u16 = 24;
    /// RFC 9002 §7.2. s2n-quic raises less to this once a larger datagram has passed.
    pub const MIN_INITIAL_WINDOW: u16 = 10;
    /// Three times what is in use elsewhere.
    pub const MAX_INITIAL_WINDOW: u16 = 100;
}

impl Default for LiteQuic {
    /// All that saves CPU time.
    fn default() -> Self {
        Self {
            io: Io::Auto,
            receive_batch: Self::RECEIVE_BATCH,
            gso: true,
            gro: true,
            ack_merge: true,
            receive_moderation: true,
            ack_frequency: AckFrequency::Adaptive,
            congestion: Congestion::Cubic,
            initial_window: Self::INITIAL_WINDOW,
        }
    }
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
    pub const NAMES: &[(&str, Self)] =
        &[("auto", Self::Auto), ("epoll", Self::Epoll), ("io-uring", Self::IoUring), ("s2n-quic", Self::S2nQuic)];

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
