//! Repeats a PATH_CHALLENGE that gets no response. s2n-quic sends it twice, in consecutive packets, and, if no response
//! has come after some three seconds, sends to the client's previous address (RFC 9000 §9.3.2). The response is sent
//! once (§8.2.2), so that one lost datagram slows a download down for three seconds, to a datagram for each received
//! one (§8), and then ends it, unless the client has an acknowledgement left to send: litequic's packets do not reach
//! the client any more, and the client sends nothing. quinn responds only to the newest of several challenges, which
//! may be the one that went to its old address (§9.3.3).
//!
//! A repeated challenge replaces empty DATAGRAM frames, as an ACK_FREQUENCY frame does, in packets that are full of a
//! download's data: such a datagram has the size that §8.2.1 requires, and a client that uploads validates its path by
//! that. Pure.

use crate::wire::{
    frame::{FrameIter, kind},
    placeholder,
};
use std::time::{Duration, Instant};

/// Time between two challenges: the interval of repeated Initial packets before a round-trip time is known (RFC 9000
/// §8.2.1, RFC 9002 §6.2.2).
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of data in a PATH_CHALLENGE, which a PATH_RESPONSE has to repeat (RFC 9000 §19.17).
const CHALLENGE_DATA_LEN: usize = 8;

/// A PATH_CHALLENGE without a response.
#[derive(Debug)]
pub(crate) struct UnansweredChallenge {
    data: [u8; CHALLENGE_DATA_LEN],
    sent: Instant,
    /// Path that the challenge probes, on which the connection does not send yet.
    probes: Option<u64>,
}

impl UnansweredChallenge {
    /// Reads the first challenge in a packet's unencrypted `payload`, sent `now`; `probes` is the probed path, if any.
    pub(crate) fn from_payload(payload: &[u8], now: Instant, probes: Option<u64>) -> Option<Self> {
        let challenge = FrameIter::new(payload).find(|frame| frame.kind == kind::PATH_CHALLENGE)?;
        Some(Self { data: challenge.body.try_into().ok()?, sent: now, probes })
    }

    /// The connection sends on `path` from now on: returns the challenge without `probes`, or `None` if it probed
    /// another path.
    pub(crate) fn on_activated(self, path: u64) -> Option<Self> {
        (self.probes == Some(path)).then_some(Self { probes: None, ..self })
    }

    /// Whether the challenge probes a path on which the connection does not send.
    pub(crate) fn is_probe(&self) -> bool {
        self.probes.is_some()
    }

    /// Whether the challenge was sent on `path`, which is the connection's active path if `is_active`.
    pub(crate) fn is_of_path(&self, path: u64, is_active: bool) -> bool {
        self.probes.map_or(is_active, |probed| probed == path)
    }

    /// Whether the challenge should be sent again `now`.
    pub(crate) fn is_repeat_due(&self, now: Instant) -> bool {
        !self.is_probe() && now.saturating_duration_since(self.sent) >= CHALLENGE_INTERVAL
    }

    /// Returns the frame to send again `now`, filled up with PADDING.
    pub(crate) fn repeat_frame(&mut self, now: Instant) -> [u8; placeholder::PLACEHOLDER_LEN] {
        self.sent = now;
        let mut frame = [0; placeholder::PLACEHOLDER_LEN];
        let bytes = [CHALLENGE_TYPE].into_iter().chain(self.data);
        frame.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        frame
    }
}

/// Moves a PATH_CHALLENGE in a packet's unencrypted `payload` before a PATH_RESPONSE. Chromium ignores a challenge
/// behind a response in the same packet, on a path that it has probed with success and on which it does not send yet
/// (`QuicConnection::SendPathResponse` of quiche). The path would never be validated.
pub(crate) fn move_before_response(payload: &mut [u8]) {
    let (mut response, mut challenge) = (None, None);
    for frame in FrameIter::new(payload) {
        match frame.kind {
            kind::PATH_RESPONSE if response.is_none() => response = Some(frame.range),
            kind::PATH_CHALLENGE if challenge.is_none() => challenge = Some(frame.range),
            _ => {}
        }
    }
    let (Some(response), Some(challenge)) = (response, challenge) else { return };
    if response.end <= challenge.start
        && let Some(frames) = payload.get_mut(response.start..challenge.end)
    {
        frames.rotate_right(challenge.len());
    }
}

/// Frame type of a PATH_CHALLENGE, an integer of one byte.
const CHALLENGE_TYPE: u8 = {
    assert!(kind::PATH_CHALLENGE < 0x40);
    let [.., byte] = kind::PATH_CHALLENGE.to_be_bytes();
    byte
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_repeated_unchanged_each_second() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        // The challenge is behind a PING and before data.
        let payload = [0x01, CHALLENGE_TYPE, 1, 2, 3, 4, 5, 6, 7, 8, 0x08, 0, 0x31, 0];
        let mut challenge = UnansweredChallenge::from_payload(&payload, start, None).unwrap();
        assert!(!challenge.is_repeat_due(after(999)) && challenge.is_repeat_due(after(1_000)));
        assert_eq!(challenge.repeat_frame(after(1_200)), [CHALLENGE_TYPE, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0]);
        assert!(!challenge.is_repeat_due(after(2_199)) && challenge.is_repeat_due(after(2_200)));
        assert!(UnansweredChallenge::from_payload(&[0x01, 0x08, 0, CHALLENGE_TYPE], start, None).is_none());
    }

    #[test]
    fn only_the_probe_of_the_active_path_is_repeated() {
        let start = Instant::now();
        let read =
            || UnansweredChallenge::from_payload(&[CHALLENGE_TYPE, 1, 2, 3, 4, 5, 6, 7, 8], start, Some(2)).unwrap();
        assert!(read().is_probe() && !read().is_repeat_due(start + 9 * CHALLENGE_INTERVAL));
        assert!(read().on_activated(1).is_none());
        assert!(read().on_activated(2).unwrap().is_repeat_due(start + CHALLENGE_INTERVAL));
    }

    #[test]
    fn a_challenge_stands_before_a_response() {
        const RESPONSE: [u8; 9] = [0x1b, 1, 2, 3, 4, 5, 6, 7, 8];
        const CHALLENGE: [u8; 9] = [CHALLENGE_TYPE, 8, 7, 6, 5, 4, 3, 2, 1];
        for (payload, expected) in [
            (
                [&[0x01][..], &RESPONSE, &CHALLENGE, &[0, 0]].concat(),
                [&[0x01][..], &CHALLENGE, &RESPONSE, &[0, 0]].concat(),
            ),
            ([&RESPONSE[..], &[0x01], &CHALLENGE].concat(), [&CHALLENGE[..], &RESPONSE, &[0x01]].concat()),
        ] {
            for payload in [payload, expected.clone()] {
                let mut ordered = payload;
                move_before_response(&mut ordered);
                assert_eq!(ordered, expected);
            }
        }
        for payload in [&RESPONSE[..], &CHALLENGE, &[0x01]] {
            let mut ordered = payload.to_vec();
            move_before_response(&mut ordered);
            assert_eq!(ordered, payload);
        }
    }
}
