//! Restarts s2n-quic's BBR after a pause of the path, as TCP does after a retransmission timeout (RFC 5681 §3.1), and
//! after persistent congestion (RFC 9002 §7.6.2). s2n-quic treats both as ordinary losses. The packets in flight when
//! the path paused are lost for the most part, which only later packets can show; BBR's ProbeRTT, due after five
//! seconds, makes the window smaller than that, and s2n-quic's probe timeout is by then as long as the pause was.

use super::rtt::current_rtt;
use s2n_quic::provider::congestion_controller::{
    CongestionController, Endpoint as _, PathInfo, Publisher, RttEstimator, Timestamp, bbr,
};
use s2n_quic_core::{
    inet::SocketAddress,
    path,
    recovery::{bandwidth, bbr::BbrCongestionController},
};
use std::time::Duration;

/// Shortest silence of a client, with packets in flight, that counts as a pause of the path: the shortest
/// retransmission timeout of RFC 6298 §2.4.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Shortest pause of the path in round trips, if longer than [`MIN_PAUSE`]: fewer may be a burst of losses.
const PAUSE_ROUND_TRIPS: u32 = 4;

/// s2n-quic's BBR, with restarts after pauses and persistent congestion.
#[derive(Debug, Clone)]
pub(super) struct Bbr {
    pub(super) inner: BbrCongestionController,
    /// Number of restarts, which wraps. Packets in flight have at most two different numbers: a packet that is lost
    /// under a later number was sent after all packets of earlier ones.
    restarts: u8,
    /// Time of the last acknowledgement, or of the first packet that left since nothing was in flight.
    last_ack_at: Option<Timestamp>,
    /// Silence that counts as a pause, computed with the last acknowledgement.
    pause_threshold: Duration,
    pub(super) max_datagram: u16,
}

/// State of a packet in flight: s2n-quic's, and the number of restarts at its sending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BbrPacketInfo {
    info: bandwidth::PacketInfo,
    restarts: u8,
}

impl Bbr {
    /// A controller for `path`, with an initial window of `window` bytes, and at least four packets.
    pub(super) fn new(window: u32, path: PathInfo<'_>) -> Self {
        let max_datagram = path.max_datagram_size;
        let bbr = bbr::Builder::default().with_initial_congestion_window(window);
        #[cfg(feature = "laboratory")]
        let bbr = super::laboratory::scaled(bbr);
        let inner = bbr.build().new_congestion_controller(path);
        Self { inner, restarts: 0, last_ack_at: None, pause_threshold: Duration::MAX, max_datagram }
    }

    /// A controller for a path of which only the size of datagrams is known.
    pub(super) fn for_unknown_path(window: u32, max_datagram: u16) -> Self {
        let address = SocketAddress::default();
        let mut path = PathInfo::new(&path::Config::default(), &address);
        path.max_datagram_size = max_datagram;
        Self::new(window, path)
    }

    /// Discards the model of the path, and the bytes in flight.
    #[cold]
    #[inline(never)]
    fn restart_model(&mut self) {
        let Self { inner, restarts, max_datagram, .. } = self;
        *inner = Self::for_unknown_path(0, *max_datagram).inner;
        *restarts = restarts.wrapping_add(1);
    }

    /// Bounds `bytes` by the known bytes in flight.
    pub(super) fn bound_in_flight(&self, bytes: usize) -> usize {
        bytes.min(self.inner.bytes_in_flight() as usize)
    }

    /// A packet of `sent_bytes` leaves. Returns its state.
    pub(super) fn on_packet_sent<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        sent_bytes: usize,
        app_limited: Option<bool>,
        rtt_estimator: &RttEstimator,
        publisher: &mut Pub,
    ) -> BbrPacketInfo {
        if sent_bytes > 0 && self.inner.bytes_in_flight() == 0 {
            self.last_ack_at = Some(time_sent);
        }
        let info = self.inner.on_packet_sent(time_sent, sent_bytes, app_limited, rtt_estimator, publisher);
        BbrPacketInfo { info, restarts: self.restarts }
    }

    /// `acked_bytes` bytes were acknowledged, whose newest packet is `newest`. Returns the bytes and the packet's state
    /// for s2n-quic's BBR, unless the packet was sent before the last restart.
    pub(super) fn admit_ack(
        &mut self,
        acked_bytes: usize,
        newest: BbrPacketInfo,
        rtt_estimator: &RttEstimator,
        now: Timestamp,
    ) -> Option<(usize, bandwidth::PacketInfo)> {
        let last_ack_at = self.last_ack_at.replace(now);
        if last_ack_at.is_some_and(|last| now.saturating_duration_since(last) > self.pause_threshold) {
            self.restart_model();
        }
        self.pause_threshold =
            MIN_PAUSE.max(current_rtt(rtt_estimator.smoothed_rtt(), rtt_estimator.latest_rtt()) * PAUSE_ROUND_TRIPS);
        // Some of the bytes may have been sent before the last restart.
        (newest.restarts == self.restarts).then(|| (self.bound_in_flight(acked_bytes), newest.info))
    }

    /// A packet of `lost_bytes` is lost. Returns the bytes and the packet's state for s2n-quic's BBR, unless the packet
    /// was sent before the last restart, or is the reason for one.
    pub(super) fn admit_loss(
        &mut self,
        lost_bytes: u32,
        packet: BbrPacketInfo,
        persistent_congestion: bool,
    ) -> Option<(u32, bandwidth::PacketInfo)> {
        let bytes = lost_bytes.min(self.inner.bytes_in_flight());
        if packet.restarts != self.restarts || bytes == 0 {
            return None;
        }
        if persistent_congestion {
            self.restart_model();
            return None;
        }
        Some((bytes, packet.info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{controller::tests::Zeros, published::tests::NoPublisher};
    use s2n_quic_core::{
        packet::number::PacketNumberSpace,
        time::{Clock as _, NoopClock},
    };

    const DATAGRAM: usize = 1_200;
    const DELAY: Duration = Duration::from_millis(50);

    struct Path {
        bbr: Bbr,
        rtt: RttEstimator,
        now: Timestamp,
    }

    impl Path {
        fn new() -> Self {
            let address = SocketAddress::default();
            let path = PathInfo::new(&path::Config::default(), &address);
            let now = NoopClock.get_time() + Duration::from_secs(1);
            Self { bbr: Bbr::new(12_000, path), rtt: RttEstimator::new(DELAY), now }
        }

        fn send(&mut self, packets: usize) -> Vec<(Timestamp, BbrPacketInfo)> {
            let Self { bbr, rtt, now } = self;
            (0..packets)
                .map(|_| (*now, bbr.on_packet_sent(*now, DATAGRAM, Some(false), rtt, &mut NoPublisher)))
                .collect()
        }

        fn acknowledge(&mut self, packets: &[(Timestamp, BbrPacketInfo)]) {
            let Self { bbr, rtt, now } = self;
            let &(sent, newest) = packets.last().unwrap();
            rtt.update_rtt(Duration::ZERO, *now - sent, *now, true, PacketNumberSpace::ApplicationData);
            bbr.inner.on_rtt_update(sent, *now, rtt, &mut NoPublisher);
            if let Some((bytes, info)) = bbr.admit_ack(packets.len() * DATAGRAM, newest, rtt, *now) {
                bbr.inner.on_ack(sent, bytes, info, rtt, &mut Zeros, *now, &mut NoPublisher);
            }
        }

        fn lose(&mut self, packets: &[(Timestamp, BbrPacketInfo)], persistent: bool) {
            for (_, info) in packets {
                if let Some((bytes, info)) = self.bbr.admit_loss(1_200, *info, persistent) {
                    self.bbr.inner.on_packet_lost(bytes, info, false, true, &mut Zeros, self.now, &mut NoPublisher);
                }
            }
        }

        /// Sends a window of packets, and acknowledges two at a time.
        fn round(&mut self) {
            let packets = self.send(self.bbr.inner.congestion_window() as usize / DATAGRAM);
            self.now += DELAY;
            packets.chunks(2).for_each(|two| self.acknowledge(two));
        }

        fn window(&self) -> usize {
            self.bbr.inner.congestion_window() as usize / DATAGRAM
        }
    }

    /// Packets that were in flight before the restart arrive, or are lost, and change nothing.
    #[test]
    fn bbr_restarts_after_a_pause_and_after_persistent_congestion() {
        for persistent in [false, true] {
            let mut path = Path::new();
            (0..8).for_each(|_| path.round());
            let before = path.window();
            let packets = path.send(40);
            path.now += if persistent { DELAY } else { Duration::from_secs(5) };
            if persistent {
                path.lose(&packets[..10], true);
            } else {
                path.acknowledge(&packets[..10]);
            }
            assert_eq!((path.bbr.inner.bytes_in_flight(), path.window()), (0, 4), "{persistent}");
            let probes = path.send(4);
            path.acknowledge(&packets[10..20]);
            path.lose(&packets[20..38], true);
            assert_eq!((path.bbr.inner.bytes_in_flight() as usize, path.window()), (4 * DATAGRAM, 4), "{persistent}");
            path.now += DELAY;
            path.acknowledge(&[&packets[38..], &probes[..]].concat());
            assert_eq!(path.bbr.inner.bytes_in_flight(), 0);
            let mut rounds = 0;
            while path.window() < before {
                path.round();
                rounds += 1;
                assert!(rounds <= 12, "{persistent}: {} of {before}", path.window());
            }
        }
    }

    #[test]
    fn a_short_silence_does_not_restart_bbr() {
        // Milliseconds of silence with packets in flight, and without.
        for (with, without) in [(900, 0), (50, 60_000)] {
            let mut path = Path::new();
            (0..8).for_each(|_| path.round());
            path.now += Duration::from_millis(without);
            let packets = path.send(20);
            path.now += Duration::from_millis(with);
            path.acknowledge(&packets);
            assert_eq!(path.bbr.restarts, 0, "{with} ms, {without} ms");
        }
    }
}
