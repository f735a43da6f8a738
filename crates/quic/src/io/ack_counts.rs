//! Counts the ACK frames of a connection that arrive at once, which shows how busy its worker is. Pure.

/// Counts of a connection's ACK frames and of batches with ACK frames. Both only grow: the quotient of their growth is
/// the number of frames a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AckCounts {
    /// ACK frames in 1-RTT packets.
    pub(crate) acks: u64,
    /// Batches that carried ACK frames, including the current one, which may bring more.
    pub(crate) ack_batches: u64,
    /// Number of the last batch with ACK frames.
    last_batch: u64,
}

impl AckCounts {
    /// Counts a packet's ACK frames, at least one. True if they are the first of their batch: the counts before are
    /// complete then.
    pub(crate) fn count_frames(&mut self, acks: u32, batch: u64) -> bool {
        self.acks += u64::from(acks);
        let first = std::mem::replace(&mut self.last_batch, batch) != batch;
        self.ack_batches += u64::from(first);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_batch_count_as_one_batch() {
        let mut counts = AckCounts::default();
        let mut firsts = Vec::new();
        for (batch, acks) in (1..).zip([&[1, 1, 2][..], &[], &[1], &[3, 1]]) {
            firsts.extend(acks.iter().map(|&acks| counts.count_frames(acks, batch)));
        }
        assert_eq!((counts.acks, counts.ack_batches), (9, 3));
        assert_eq!(firsts, [true, false, false, true, true, false]);
    }

    #[test]
    fn io_without_batches_has_none() {
        let mut counts = AckCounts::default();
        assert!(!counts.count_frames(1, 0));
        assert_eq!((counts.acks, counts.ack_batches), (1, 0));
    }
}
