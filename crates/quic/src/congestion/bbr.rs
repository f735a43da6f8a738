//! Restarts s2n-quic's BBR after a pause of the path, as TCP does after a retransmission timeout (RFC 5681 §3.1), and
//! after persistent congestion (RFC 9002 §7.6.2). s2n-quic treats both as ordinary losses. The packets in flight when
//! the path paused are lost for the most part, which only later packets can show; BBR's ProbeRTT, due after five
//! seconds, makes the window smaller than that, and s2n-quic's probe timeout is by then as long as the pause was.

use super::rtt::current_rtt;
use s2n_quic::provider::congestion_controller::{
    CongestionController, Endpoint as _, PathInfo, Publisher, RandomGenerator, RttEstimator, Timestamp, bbr,
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
    inner: BbrCongestionController,
    /// Number of restarts, which wraps. Packets in flight have at most two different numbers: a packet that is lost
    /// under a later number was sent after all packets of earlier ones.
    restarts: u8,
    /// Time of the last acknowledgement, or of the first packet that left since nothing was in flight.
    last_ack_at: Option<Timestamp>,
    /// Silence that counts as a pause, computed with the last acknowledgement.
    pause_threshold: Duration,
    max_datagram: u16,
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
    fn bound_in_flight(&self, bytes: usize) -> usize {
        bytes.min(self.inner.bytes_in_flight() as usize)
    }
}

impl CongestionController for Bbr {
    type PacketInfo = BbrPacketInfo;

    fn congestion_window(&self) -> u32 {
        self.inner.congestion_window()
    }

    fn bytes_in_flight(&self) -> u32 {
        self.inner.bytes_in_flight()
    }

    fn is_congestion_limited(&self) -> bool {
        self.inner.is_congestion_limited()
    }

    fn requires_fast_retransmission(&self) -> bool {
        self.inner.requires_fast_retransmission()
    }

    fn on_packet_sent<Pub: Publisher>(
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

    fn on_rtt_update<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        now: Timestamp,
        rtt_estimator: &RttEstimator,
        publisher: &mut Pub,
    ) {
        self.inner.on_rtt_update(time_sent, now, rtt_estimator, publisher);
    }

    fn on_ack<Pub: Publisher>(
        &mut self,
        newest_acked_time_sent: Timestamp,
        bytes_acknowledged: usize,
        newest_acked_packet_info: BbrPacketInfo,
        rtt_estimator: &RttEstimator,
        random_generator: &mut dyn RandomGenerator,
        ack_receive_time: Timestamp,
        publisher: &mut Pub,
    ) {
        let (sent, now) = (newest_acked_time_sent, ack_receive_time);
        if self
            .last_ack_at
            .replace(now)
            .is_some_and(|last_ack_at| now.saturating_duration_since(last_ack_at) > self.pause_threshold)
        {
            self.restart_model();
        }
        self.pause_threshold =
            MIN_PAUSE.max(current_rtt(rtt_estimator.smoothed_rtt(), rtt_estimator.latest_rtt()) * PAUSE_ROUND_TRIPS);
        let BbrPacketInfo { info, restarts } = newest_acked_packet_info;
        if restarts == self.restarts {
            // Some of the bytes may have been sent before the last restart.
            let bytes = self.bound_in_flight(bytes_acknowledged);
            self.inner.on_ack(sent, bytes, info, rtt_estimator, random_generator, now, publisher);
        }
    }

    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet_info: BbrPacketInfo,
        persistent_congestion: bool,
        new_loss_burst: bool,
        random_generator: &mut dyn RandomGenerator,
        timestamp: Timestamp,
        publisher: &mut Pub,
    ) {
        let BbrPacketInfo { info, restarts } = packet_info;
        let bytes = lost_bytes.min(self.inner.bytes_in_flight());
        if restarts != self.restarts || bytes == 0 {
            return;
        }
        if persistent_congestion {
            self.restart_model();
        } else {
            self.inner.on_packet_lost(bytes, info, false, new_loss_burst, random_generator, timestamp, publisher);
        }
    }

    fn on_explicit_congestion<Pub: Publisher>(&mut self, ce_count: u64, event_time: Timestamp, publisher: &mut Pub) {
        self.inner.on_explicit_congestion(ce_count, event_time, publisher);
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, publisher: &mut Pub) {
        self.max_datagram = max_data_size;
        self.inner.on_mtu_update(max_data_size, publisher);
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, publisher: &mut Pub) {
        self.inner.on_packet_discarded(self.bound_in_flight(bytes_sent), publisher);
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        self.inner.earliest_departure_time()
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
            bbr.on_rtt_update(sent, *now, rtt, &mut NoPublisher);
            bbr.on_ack(sent, packets.len() * DATAGRAM, newest, rtt, &mut Zeros, *now, &mut NoPublisher);
        }

        fn lose(&mut self, packets: &[(Timestamp, BbrPacketInfo)], persistent: bool) {
            for (_, info) in packets {
                let (bytes, now) = (1_200, self.now);
                self.bbr.on_packet_lost(bytes, *info, persistent, true, &mut Zeros, now, &mut NoPublisher);
            }
        }

        /// Sends a window of packets, and acknowledges two at a time.
        fn round(&mut self) {
            let packets = self.send(self.bbr.congestion_window() as usize / DATAGRAM);
            self.now += DELAY;
            packets.chunks(2).for_each(|two| self.acknowledge(two));
        }

        fn window(&self) -> usize {
            self.bbr.congestion_window() as usize / DATAGRAM
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
            assert_eq!((path.bbr.bytes_in_flight(), path.window()), (0, 4), "{persistent}");
            let probes = path.send(4);
            path.acknowledge(&packets[10..20]);
            path.lose(&packets[20..38], true);
            assert_eq!((path.bbr.bytes_in_flight() as usize, path.window()), (4 * DATAGRAM, 4), "{persistent}");
            path.now += DELAY;
            path.acknowledge(&[&packets[38..], &probes[..]].concat());
            assert_eq!(path.bbr.bytes_in_flight(), 0);
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
