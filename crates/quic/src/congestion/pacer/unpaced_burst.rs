//! Bounds the packets between two acknowledgements on a path that is not paced, because its round trips are too short
//! for timers: a burst of a whole window overflows a browser's socket.

use s2n_quic_core::time::Timestamp;

/// Packets that may leave between two acknowledgements, in addition to the acknowledged ones.
const UNPACED_BURST_PACKETS: u32 = 64;

/// Burst of one path that is not paced.
#[derive(Debug, Clone, Default)]
pub(super) struct UnpacedBurst {
    /// Bytes that may leave before the next acknowledgement.
    left: u32,
    /// Time of the last acknowledgement.
    acknowledged: Option<Timestamp>,
}

impl UnpacedBurst {
    /// `bytes` bytes were sent.
    pub(super) fn spend_burst_bytes(&mut self, bytes: u32) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// An acknowledgement of `bytes` bytes arrived. Several at the same time begin one burst.
    pub(super) fn renew_burst(&mut self, now: Timestamp, bytes: u32, max_datagram: u32) {
        if self.acknowledged.replace(now) != Some(now) {
            self.left = UNPACED_BURST_PACKETS * max_datagram;
        }
        self.left = self.left.saturating_add(bytes);
    }

    /// Whether the next packet has to wait for an acknowledgement, with `in_flight` bytes in flight.
    pub(super) fn is_burst_spent(&self, in_flight: u32, max_datagram: u32) -> bool {
        self.left < max_datagram && in_flight >= UNPACED_BURST_PACKETS * max_datagram
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Pacer,
        tests::{DATAGRAM, send, start},
    };
    use super::*;
    use std::time::Duration;

    #[test]
    fn unpaced_bursts_end_without_an_acknowledgement() {
        let mut pacer = Pacer::default();
        let (now, rtt) = (start(), Duration::from_micros(300));
        assert_eq!(send(&mut pacer, now, rtt, 100, 0, 500), 500);
        assert!(pacer.is_burst_over(500 * DATAGRAM, DATAGRAM));
        assert!(!pacer.is_burst_over(10 * DATAGRAM, DATAGRAM), "who is never acknowledged is never let go");
        pacer.on_ack(now, 100 * DATAGRAM, DATAGRAM, true);
        pacer.on_ack(now, 100 * DATAGRAM, DATAGRAM, true);
        let mut packets = 0;
        while !pacer.is_burst_over(500 * DATAGRAM, DATAGRAM) {
            packets += send(&mut pacer, now, rtt, 100, 500 * DATAGRAM, 1);
        }
        assert_eq!(packets, 200 + UNPACED_BURST_PACKETS);
    }
}
