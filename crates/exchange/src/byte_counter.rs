//! Counts the bytes of bodies and tunnels, for clients of all protocols.

use litequic_base::relaxed_cell::RelaxedCell;
use std::sync::Arc;

/// A count of bytes. Clones share one number: one worker adds to it, and any thread may read it.
#[derive(Debug, Clone, Default)]
pub struct ByteCounter(pub Arc<RelaxedCell>);

impl ByteCounter {
    /// Adds `bytes` to the count.
    pub(super) fn add_bytes(&self, bytes: usize) {
        self.0.add_saturating(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Tunnel, TunnelExpiry};
    use http_body_util::BodyExt;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn the_bytes_of_a_body_are_counted_as_they_are_taken() {
        let counter = ByteCounter::default();
        let bodies = ["five!", "three"].map(|text| Body::from(text).with_byte_counter(&counter));
        assert_eq!(counter.0.get(), 0);
        let [one, other] = bodies;
        assert_eq!(one.collect().await.unwrap().to_bytes(), "five!");
        assert_eq!(counter.0.get(), 5);
        drop(other);
        assert_eq!(counter.0.get(), 5, "of one that was not taken nothing");
    }

    #[tokio::test]
    async fn the_bytes_of_a_tunnel_are_counted_both_ways() {
        let (received, sent) = (ByteCounter::default(), ByteCounter::default());
        let (end, mut origin) = duplex(64);
        let tunnel =
            Tunnel::new("other".into(), end, TunnelExpiry::new(Duration::from_secs(60), Duration::from_secs(60)));
        let mut tunnel = tunnel.with_byte_counters(&received, &sent);
        tunnel.write_all(b"question").await.unwrap();
        origin.write_all(b"yes").await.unwrap();
        tunnel.read_exact(&mut [0; 3]).await.unwrap();
        assert_eq!((received.0.get(), sent.0.get()), (8, 3));
    }
}
