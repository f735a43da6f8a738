//! Repeats a PATH_CHALLENGE that gets no answer. s2n-quic sends it twice, in consecutive packets, and, if no answer has
//! come after some three seconds, sends to the client's previous address (RFC 9000 §9.3.2). The answer is sent once
//! (§8.2.2), so that one lost datagram slows a download down for three seconds, to a datagram for each that comes (§8),
//! and then ends it, unless the client has an acknowledgement left to send: it is not reached any more, and sends
//! nothing. quinn answers only the newest of several challenges, which may be the one that went to its old address
//! (§9.3.3).
//!
//! A repeated one replaces empty DATAGRAM frames, as an ACK_FREQUENCY frame does, in packets that are full of a
//! download's data: such a datagram has the size that §8.2.1 requires, and a client that uploads validates its path by
//! that.

use super::by_id::ByConnectionId;
use crate::quic::{
    metrics::Metrics,
    wire::{
        frame::{FrameIter, kind},
        placeholder,
    },
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Time between two challenges: an Initial packet is repeated as often before a round-trip time is known (RFC 9000
/// §8.2.1, RFC 9002 §6.2.2).
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that a PATH_RESPONSE has to repeat (RFC 9000 §19.17).
const DATA: usize = 8;

/// PATH_CHALLENGE frames of an endpoint's connections that were not answered.
#[derive(Debug, Clone)]
pub(in crate::quic) struct PathChallenges(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Some challenge has no answer yet. Read for each packet that is built.
    unanswered: AtomicBool,
    /// The packet that is being built holds a challenge or is to hold one. Read for each packet that leaves.
    has_frame: AtomicBool,
    table: Mutex<ChallengeTable>,
    metrics: Arc<Metrics>,
}

/// Unanswered challenges, and the packet at hand; connections by s2n-quic's IDs. Behind a lock, because s2n-quic wants
/// its providers `Send`; one thread alone takes it.
#[derive(Debug, Default)]
struct ChallengeTable {
    /// The connection whose datagram sender is being created, from s2n-quic's event on.
    new_connection: Option<u64>,
    unanswered: ByConnectionId<Challenge>,
    /// The connection and number of the packet into which s2n-quic has put a challenge.
    challenge_packet: Option<(u64, u64)>,
    /// The connection in whose packet a placeholder stands.
    slot_connection: Option<u64>,
}

/// A challenge without an answer, sent on the path on which its connection sends.
#[derive(Debug)]
struct Challenge {
    data: [u8; DATA],
    sent: Instant,
}

impl PathChallenges {
    pub(in crate::quic) fn new(metrics: Arc<Metrics>) -> Self {
        let (unanswered, has_frame, table) = Default::default();
        Self(Arc::new(Shared { unanswered, has_frame, table, metrics }))
    }

    /// Sets the connection whose datagram sender is about to be created.
    pub(in crate::quic) fn set_new_connection(&self, connection: u64) {
        self.lock().new_connection = Some(connection);
    }

    /// Takes the connection whose datagram sender is being created.
    pub(in crate::quic) fn new_connection(&self) -> Option<u64> {
        self.lock().new_connection.take()
    }

    /// s2n-quic has put a challenge into packet number `packet` of `connection`, on the path on which it sends.
    pub(in crate::quic) fn on_sent(&self, connection: u64, packet: u64) {
        self.lock().challenge_packet = Some((connection, packet));
        self.0.has_frame.store(true, Relaxed);
    }

    /// Forgets the challenge of `connection`, if there is one.
    pub(in crate::quic) fn forget(&self, connection: u64) {
        if self.0.unanswered.load(Relaxed) {
            self.forget_in(&mut self.lock(), connection);
        }
    }

    /// Whether `connection` is to send its challenge again.
    pub(in crate::quic) fn is_due(&self, connection: u64, now: impl FnOnce() -> Instant) -> bool {
        self.0.unanswered.load(Relaxed)
            && self.lock().unanswered.get(&connection).is_some_and(|challenge| challenge.is_due(now()))
    }

    /// Notes that a placeholder is about to stand in the packet of `connection` that is being built.
    pub(in crate::quic) fn reserve_slot(&self, connection: u64) {
        self.lock().slot_connection = Some(connection);
        self.0.has_frame.store(true, Relaxed);
    }

    /// Packet number `packet` of `connection` was built: a challenge in its unencrypted payload is remembered; if a
    /// placeholder stands there, the challenge replaces it. No placeholder is left, even on failure.
    #[inline]
    pub(in crate::quic) fn transmit(
        &self,
        connection: u64,
        packet: u64,
        payload: &mut [u8],
        now: impl FnOnce() -> Instant,
    ) {
        if self.0.has_frame.load(Relaxed) {
            self.replace_placeholder(connection, packet, payload, now);
        }
    }

    #[cold]
    fn replace_placeholder(&self, connection: u64, packet: u64, payload: &mut [u8], now: impl FnOnce() -> Instant) {
        self.0.has_frame.store(false, Relaxed);
        let mut table = self.lock();
        let (challenge_packet, place) = (table.challenge_packet.take(), table.slot_connection.take());
        let data = challenge_packet.filter(|&of| of == (connection, packet)).and_then(|_| data(payload));
        if let Some(data) = data {
            table.unanswered.insert(connection, Challenge { data, sent: now() });
            self.0.unanswered.store(true, Relaxed);
            if place.is_some() {
                // One a packet is enough.
                placeholder::replace(payload, None);
            }
        } else if let Some(place) = place {
            let challenge = table.unanswered.get_mut(&connection).filter(|_| place == connection);
            let frame = challenge.map(|challenge| {
                challenge.sent = now();
                challenge.encode()
            });
            if placeholder::replace(payload, frame) {
                self.0.metrics.path_challenges_repeated.increment();
            } else {
                // Not to be tried again: what went wrong once goes wrong each time.
                self.forget_in(&mut table, place);
                tracing::error!(packet, "the placeholder of a PATH_CHALLENGE frame was not found in its packet");
            }
        }
    }

    fn forget_in(&self, table: &mut ChallengeTable, connection: u64) {
        if table.unanswered.remove(&connection).is_some() {
            self.0.unanswered.store(!table.unanswered.is_empty(), Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChallengeTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Challenge {
    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.sent) >= INTERVAL
    }

    /// The frame, filled up with PADDING.
    fn encode(&self) -> [u8; placeholder::LEN] {
        let mut frame = [0; placeholder::LEN];
        let bytes = [KIND].into_iter().chain(self.data);
        frame.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        frame
    }
}

/// The type of a PATH_CHALLENGE, an integer of one byte.
const KIND: u8 = {
    assert!(kind::PATH_CHALLENGE < 0x40);
    let [.., byte] = kind::PATH_CHALLENGE.to_be_bytes();
    byte
};

/// The data of the first challenge in a payload.
fn data(payload: &[u8]) -> Option<[u8; DATA]> {
    let challenge = FrameIter::new(payload).find(|frame| frame.kind == kind::PATH_CHALLENGE)?;
    challenge.body.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::wire::placeholder::PLACE;

    const CHALLENGE: [u8; 9] = [KIND, 1, 2, 3, 4, 5, 6, 7, 8];
    const AGAIN: [u8; placeholder::LEN] = [KIND, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0];
    /// A PING, and what data looks like a placeholder.
    const DATA: [u8; 5] = [0x01, 0x08, 0, 0x31, 0];

    fn challenges() -> PathChallenges {
        PathChallenges::new(Arc::default())
    }

    /// s2n-quic puts the challenge into packet `packet` of `connection`.
    fn write(challenges: &PathChallenges, (connection, packet): (u64, u64), now: Instant) {
        challenges.lock().challenge_packet = Some((connection, packet));
        challenges.0.has_frame.store(true, Relaxed);
        let mut payload = [&[0x01][..], &CHALLENGE, &DATA].concat();
        let before = payload.clone();
        challenges.transmit(connection, packet, &mut payload, || now);
        assert_eq!(payload, before);
    }

    /// The frame that replaces a placeholder.
    fn place(challenges: &PathChallenges, connection: u64, now: Instant) -> Vec<u8> {
        challenges.reserve_slot(connection);
        let mut payload = [&[0x01][..], &PLACE, &DATA].concat();
        challenges.transmit(connection, 9, &mut payload, || now);
        assert!(payload.starts_with(&[1]) && payload.ends_with(&DATA));
        payload[1..=placeholder::LEN].to_vec()
    }

    #[test]
    fn a_challenge_is_sent_again_each_second_until_it_is_answered() {
        let (challenges, start) = (challenges(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        let is_due = |connection, millis| challenges.is_due(connection, || after(millis));
        assert!(!is_due(7, 9_000));
        write(&challenges, (7, 3), start);
        write(&challenges, (7, 4), after(100));
        assert!(!is_due(7, 1_099) && is_due(7, 1_100) && !is_due(8, 1_100));
        assert_eq!(place(&challenges, 7, after(1_200)), AGAIN);
        assert!(!is_due(7, 2_199) && is_due(7, 2_200));
        challenges.forget(7);
        assert!(!is_due(7, 9_000) && !challenges.0.unanswered.load(Relaxed));
        assert_eq!(challenges.0.metrics.path_challenges_repeated.get(), 1);
    }

    #[test]
    fn no_placeholder_is_left_whatever_is_known() {
        let (challenges, start) = (challenges(), Instant::now());
        assert_eq!(place(&challenges, 7, start), [0; placeholder::LEN], "of nothing");
        write(&challenges, (7, 3), start);
        challenges.lock().challenge_packet = Some((7, 9));
        assert_eq!(place(&challenges, 8, start), [0; placeholder::LEN], "of another connection");
        let mut payload = [&PLACE[..], &CHALLENGE].concat();
        challenges.reserve_slot(7);
        challenges.lock().challenge_packet = Some((7, 10));
        challenges.transmit(7, 10, &mut payload, || start);
        assert_eq!(payload, [&[0; placeholder::LEN][..], &CHALLENGE].concat(), "beside s2n-quic's own");
        assert!(challenges.is_due(7, || start + INTERVAL));
    }

    #[test]
    fn a_challenge_in_a_packet_that_was_not_announced_is_not_remembered() {
        let (challenges, start) = (challenges(), Instant::now());
        for (connection, packet) in [(7, 4), (8, 3)] {
            challenges.lock().challenge_packet = Some((7, 3));
            challenges.0.has_frame.store(true, Relaxed);
            challenges.transmit(connection, packet, &mut CHALLENGE.clone(), || start);
            assert!(!challenges.0.unanswered.load(Relaxed));
        }
        challenges.transmit(7, 3, &mut CHALLENGE.clone(), || start);
        assert!(!challenges.0.unanswered.load(Relaxed));
    }
}
