//! What a load needs of a protocol's client, so that HTTP/3 and HTTP/1.1 are loaded by the same rules.

use super::{check::Answer, report::Quic};
use std::{io, time::Instant};

/// A client with a fixed number of connection slots, each with `streams` requests at a time. A request is known by
/// its token, whose slot is `token / streams`.
pub(super) trait Wire {
    /// Begins a connection in an empty slot: `Connected` or `Lost` follows.
    fn connect(&mut self, slot: usize, now: Instant) -> io::Result<()>;

    /// Sends the plan's request on an open connection: `Answered` follows, unless the slot's `Lost` does.
    fn request(&mut self, token: usize, now: Instant);

    /// Closes a slot's connection in good order; nothing follows. What it counted is kept.
    fn close(&mut self, slot: usize, now: Instant);

    /// Sends, then waits until `until` at most, then receives and appends what happened.
    fn turn(&mut self, until: Instant, happened: &mut Vec<Happening>) -> io::Result<()>;

    /// Grows whenever the peer gave a sign of life.
    fn progress(&self) -> u64;

    /// All that was counted since the start.
    fn counts(&self) -> Counts;
}

/// What happened on a wire.
pub(super) enum Happening {
    /// The handshake was complete at `at`.
    Connected { slot: usize, at: Instant },
    /// A response came, or what went wrong instead.
    Answered { token: usize, result: Result<Answer, String> },
    /// The server refused the request untouched, in good order: it may be made again elsewhere.
    Refused { token: usize },
    /// The server accepts no more requests here; those in flight continue.
    Draining { slot: usize },
    /// The connection is gone with all requests in flight on it.
    Lost { slot: usize, reason: String },
}

/// Counters of a client, growing since its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) body_received: u64,
    pub(super) body_sent: u64,
    pub(super) handshakes: u64,
    /// Of them those in which no certificate was shown.
    pub(super) resumed: u64,
    pub(super) quic: Option<Quic>,
}

impl Counts {
    /// Of bodies, either way.
    pub(super) const fn body_bytes(&self) -> u64 {
        self.body_received + self.body_sent
    }
}
