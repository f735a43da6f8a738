//! One connection whose client supports ACK_FREQUENCY frames: the requested values, and whether it has them. The events
//! of s2n-quic's providers for the connection are joined here.

use super::{
    delivery::Delivery,
    epoch::{Epochs, Totals},
    parameters::Offer,
    request::Request,
    rule::{self, Path, Rule},
};
use crate::{
    config::AckFrequency,
    quic::{
        congestion::Buffer,
        io::{Moderation, Tally},
        metrics::Metrics,
        wire::{
            frame::{AckRanges, Numbers},
            placeholder,
        },
    },
    telemetry::Gauge,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// The longest delay that is requested: RFC 9000's default (§18.2), which s2n-quic's probe timeout expects of most
/// clients. No less, because a busy worker needs few acknowledgements, however slow its packets; that a full window is
/// acknowledged in time is up to the threshold.
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// Bytes of a full packet, to compute how many a window holds.
const FULL_PACKET: u32 = 1452;

/// Atomics and a lock, because s2n-quic wants its providers `Send`; one thread alone uses them.
#[derive(Debug)]
pub(in crate::quic) struct Peer {
    offer: Offer,
    /// A frame is to be sent. Read for each packet that leaves.
    wanted: AtomicBool,
    slow_start: AtomicBool,
    state: Mutex<State>,
    /// Reports whether the worker gets too little CPU time.
    moderation: Moderation,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct State {
    switch: AckFrequency,
    delivery: Delivery,
    rule: Rule,
    /// The largest packet number that the client has acknowledged.
    largest: u64,
    epochs: Epochs,
    round_trip: Duration,
    /// Bytes.
    congestion_window: u32,
    /// The path's number, its buffer, and whether data were lost since the window was reduced last.
    path: u64,
    buffer: Buffer,
    lost_data: bool,
    /// Packets an ACK that were requested last; the default before.
    asked: u32,
}

impl Peer {
    /// Nothing is requested yet.
    pub(super) fn new(offer: Offer, switch: AckFrequency, metrics: Arc<Metrics>, moderation: Moderation) -> Self {
        let (delivery, rule, epochs, buffer) = Default::default();
        let (largest, round_trip, congestion_window, path, lost_data) = Default::default();
        metrics.ack_frequency_offered.increment();
        gauge(&metrics, rule::LEAST).increment();
        Self {
            offer,
            wanted: AtomicBool::new(false),
            slow_start: AtomicBool::new(false),
            state: Mutex::new(State {
                switch,
                delivery,
                rule,
                largest,
                epochs,
                round_trip,
                congestion_window,
                path,
                buffer,
                lost_data,
                asked: rule::LEAST,
            }),
            moderation,
            metrics,
        }
    }

    /// The handshake is complete: the client's offer is authentic (RFC 9000 §7.4).
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        if let AckFrequency::Fixed(threshold) = state.switch {
            self.ask(&mut state, threshold.into());
        }
    }

    /// Whether a frame is to be sent.
    pub(in crate::quic) fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Puts the frame into packet number `packet`, in whose unencrypted `payload` a placeholder stands. No placeholder
    /// is left, even on failure.
    pub(super) fn fill(&self, packet: u64, payload: &mut [u8]) {
        let mut state = self.lock();
        let frame =
            state.delivery.send(packet).and_then(|(sequence, request)| request.encode(self.offer.draft, sequence));
        self.wanted.store(false, Relaxed);
        if placeholder::replace(payload, frame) {
            self.metrics.ack_frequency_sent.increment();
        } else {
            // Not to be tried again: what went wrong once goes wrong each time.
            state.delivery.acknowledged();
            state.switch = AckFrequency::Off;
            self.metrics.ack_frequency_misplaced.increment();
            tracing::error!(packet, "the placeholder of an ACK_FREQUENCY frame was not found in its packet");
        }
    }

    /// s2n-quic declares packet number `packet` lost, which carried data or probed for a larger MTU.
    pub(super) fn lost(&self, packet: u64, data: bool) {
        let mut state = self.lock();
        state.lost_data |= data;
        if state.delivery.lost(packet) {
            self.wanted.store(state.delivery.is_wanted(), Relaxed);
            self.metrics.ack_frequency_lost.increment();
        }
    }

    /// s2n-quic's state of path number `path`.
    pub(super) fn measured(&self, path: u64, round_trip: Duration, min_rtt: Duration, congestion_window: u32) {
        let mut state = self.lock();
        if state.path != path {
            state.path = path;
            state.buffer = Buffer::default();
        } else if congestion_window < state.congestion_window && std::mem::take(&mut state.lost_data) {
            state.buffer.overflowed();
        }
        state.round_trip = round_trip;
        state.congestion_window = congestion_window;
        state.buffer.measured(round_trip, min_rtt);
        if state.switch == AckFrequency::Adaptive && state.asked > rule::LEAST {
            let path = self.path(&state);
            if let Some(threshold) = state.rule.collapsed(path) {
                self.ask(&mut state, threshold);
            }
        }
    }

    fn path(&self, state: &State) -> Path {
        let window = state.congestion_window / FULL_PACKET;
        let bearable = state.buffer.share().map_or(window, |share| share_of(window, share, state.round_trip));
        let (slow_start, starved) = (self.slow_start.load(Relaxed), self.moderation.is_starved());
        Path { window, bearable, slow_start, starved }
    }

    /// Whether the congestion window grows as fast as in slow start.
    pub(super) fn grows(&self, slow_start: bool) {
        self.slow_start.store(slow_start, Relaxed);
    }

    /// A packet has come with ACK frames at `now`: `tally` counts them already, and they are the `first` of their batch
    /// or not; `ranges` are the numbers that the only one acknowledges. Several are not examined: they repeat
    /// themselves.
    pub(in crate::quic) fn received(&self, now: Duration, tally: Tally, first: bool, ranges: Option<&AckRanges<'_>>) {
        let mut state = self.lock();
        if let (Some(awaited), Some(ranges)) = (state.delivery.in_flight(), ranges) {
            let holds = |range: Numbers| (range.low..=range.high).contains(&awaited);
            // For an invalid frame s2n-quic closes the connection.
            if ranges.clone().any(|range| range.is_ok_and(holds)) {
                state.delivery.acknowledged();
                // Acknowledgements from before count for nothing: they came at the old threshold.
                state.epochs.restart();
                self.metrics.ack_frequency_acknowledged.increment();
            }
        }
        // Until the client has the request, its behaviour does not count.
        state.largest = state.largest.max(ranges.map_or(0, AckRanges::largest));
        if state.switch != AckFrequency::Adaptive || !first || !state.delivery.is_settled() {
            return;
        }
        let rtt = state.round_trip;
        let totals = Totals { acks: tally.acks, batches: tally.ack_batches, largest: state.largest };
        let Some(epoch) = state.epochs.over(now, rtt, totals) else { return };
        let path = self.path(&state);
        if let Some(threshold) = state.rule.epoch_ended(&epoch, path) {
            self.ask(&mut state, threshold);
        }
    }

    fn ask(&self, state: &mut State, threshold: u32) {
        let Offer { min_ack_delay, max_ack_delay, .. } = self.offer;
        // The minimum is not above the maximum.
        let max_ack_delay = MAX_ACK_DELAY.min(max_ack_delay).max(min_ack_delay);
        state.delivery.ask(Request { threshold, max_ack_delay });
        self.wanted.store(true, Relaxed);
        gauge(&self.metrics, std::mem::replace(&mut state.asked, threshold)).decrement();
        gauge(&self.metrics, threshold).increment();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        gauge(&self.metrics, self.lock().asked).decrement();
    }
}

/// What leaves within `share` of `window` packets that a round-trip time takes.
fn share_of(window: u32, share: Duration, rtt: Duration) -> u32 {
    let packets = u128::from(window) * share.as_micros() / rtt.as_micros().max(1);
    u32::try_from(packets).unwrap_or(u32::MAX)
}

/// Connections with about the same threshold.
fn gauge(metrics: &Metrics, threshold: u32) -> &Gauge {
    match threshold {
        0..4 => &metrics.ack_threshold_2,
        4..8 => &metrics.ack_threshold_4,
        8..16 => &metrics.ack_threshold_8,
        16..32 => &metrics.ack_threshold_16,
        _ => &metrics.ack_threshold_32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::{connection::ack_frequency::parameters::Draft, wire::placeholder::PLACE};
    use s2n_codec::EncoderValue;
    use s2n_quic_core::varint::VarInt;
    use std::{cell::Cell, ops::Deref};

    /// A connection, and what was counted of it.
    struct Counted(Peer, Cell<Tally>);

    impl Deref for Counted {
        type Target = Peer;

        fn deref(&self) -> &Peer {
            &self.0
        }
    }

    fn peer(switch: AckFrequency) -> Counted {
        let ms = Duration::from_millis;
        let offer = Offer { draft: Draft::AckFrequency12, min_ack_delay: ms(1), max_ack_delay: ms(25) };
        let peer = Peer::new(offer, switch, Arc::default(), Moderation::new(false, Arc::default()));
        Counted(peer, Cell::default())
    }

    fn in_flight(peer: &Peer) -> Option<u64> {
        peer.lock().delivery.in_flight()
    }

    /// A batch with so many ACK frames, of which the last acknowledges all up to `largest`, and nothing below `lowest`.
    fn batch(peer: &Counted, now: Duration, batch: u64, acks: u32, (lowest, largest): (u64, u64)) {
        let body =
            [largest, 0, 0, largest - lowest].map(|number| VarInt::new(number).unwrap().encode_to_vec()).concat();
        let mut tally = peer.1.get();
        for left in (0..acks).rev() {
            let first = tally.count(1, batch);
            peer.received(now, tally, first, AckRanges::new(&body).filter(|_| left == 0).as_ref());
        }
        peer.1.set(tally);
    }

    /// The threshold in a payload's ACK_FREQUENCY frame, one less than what is asked for.
    fn sent(peer: &Peer, packet: u64) -> u8 {
        let mut payload = PLACE;
        peer.fill(packet, &mut payload);
        assert!(payload.starts_with(&[0x40, 0xaf]), "{payload:x?}");
        payload[3]
    }

    fn in_force(peer: &Peer) -> [u64; 5] {
        let Metrics { ack_threshold_2, ack_threshold_4, ack_threshold_8, .. } = &*peer.metrics;
        let Metrics { ack_threshold_16, ack_threshold_32, .. } = &*peer.metrics;
        [ack_threshold_2, ack_threshold_4, ack_threshold_8, ack_threshold_16, ack_threshold_32].map(Gauge::get)
    }

    #[test]
    fn a_fixed_threshold_is_asked_for_once_and_again_if_it_was_lost() {
        let peer = peer(AckFrequency::Fixed(10));
        assert!(!peer.is_wanted());
        peer.begin();
        assert!(peer.is_wanted());
        assert_eq!((sent(&peer, 7), peer.is_wanted(), in_flight(&peer)), (9, false, Some(7)));
        peer.lost(6, true);
        assert!(!peer.is_wanted());
        peer.lost(7, true);
        assert!(peer.is_wanted());
        assert_eq!(sent(&peer, 9), 9);
        batch(&peer, Duration::ZERO, 1, 1, (9, 9));
        peer.lost(9, true);
        // However busy the worker is.
        (1..100).for_each(|n| batch(&peer, Duration::from_secs(n), n, 20, (40 * n, 40 * n)));
        assert_eq!((peer.is_wanted(), in_flight(&peer)), (false, None));
        assert_eq!(in_force(&peer), [0, 0, 1, 0, 0]);
        let Metrics { ack_frequency_sent, ack_frequency_acknowledged, ack_frequency_lost, .. } = &*peer.metrics;
        assert_eq!([ack_frequency_sent, ack_frequency_acknowledged, ack_frequency_lost].map(|n| n.get()), [2, 1, 1]);
    }

    #[test]
    fn a_busy_worker_asks_for_more_once_and_waits_for_the_answer() {
        let peer = peer(AckFrequency::Adaptive);
        peer.begin();
        assert!(!peer.is_wanted());
        peer.measured(0, Duration::from_millis(100), Duration::from_millis(100), 1000 * FULL_PACKET);
        let busy = |n: u64| batch(&peer, Duration::from_millis(5 * n), n, 6, (12 * n, 12 * n));
        (1..=21).for_each(busy);
        assert_eq!(sent(&peer, 1), 11);
        (22..50).for_each(busy);
        assert!(!peer.is_wanted(), "the client may not have it yet");
        // With the last of the old threshold's.
        batch(&peer, Duration::from_millis(248), 50, 6, (1, 600));
        (51..71).for_each(busy);
        assert!(!peer.is_wanted(), "an epoch is a round trip");
        busy(71);
        assert_eq!((peer.is_wanted(), sent(&peer, 200)), (true, 31));
        assert_eq!(in_force(&peer), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_path_proves_shallow_by_lost_data_and_a_reduced_window_and_another_path_by_its_own() {
        let peer = peer(AckFrequency::Adaptive);
        let ms = Duration::from_millis;
        let share = || peer.lock().buffer.share();
        let measured = |path, window| peer.measured(path, ms(22), ms(20), window);
        measured(1, 100_000);
        // An MTU probe is lost; BBR's window goes up and down by itself; packets are lost.
        peer.lost(3, false);
        measured(1, 70_000);
        assert_eq!(share(), None);
        peer.lost(4, true);
        measured(1, 90_000);
        assert_eq!(share(), None);
        measured(1, 60_000);
        assert_eq!(share(), Some(Duration::from_micros(250)));
        measured(2, 60_000);
        assert_eq!(share(), None);
    }

    #[test]
    fn the_acknowledgement_of_a_frame_is_found_in_any_range() {
        let table: &[(&str, &[u8], bool)] = &[
            ("the largest", &[20, 0, 0, 0], true),
            ("one of the first range", &[30, 0, 0, 10], true),
            ("below it", &[30, 0, 0, 9], false),
            ("in the gap", &[30, 0, 1, 8, 1, 2], false),
            ("in the second range", &[30, 0, 1, 5, 1, 3], true),
            ("larger", &[19, 0, 0, 19], false),
            ("below zero", &[30, 0, 0, 40], false),
        ];
        for (what, body, arrived) in table {
            let peer = peer(AckFrequency::Fixed(10));
            peer.begin();
            sent(&peer, 20);
            peer.received(Duration::ZERO, Tally::default(), true, AckRanges::new(body).as_ref());
            assert_eq!(in_flight(&peer).is_none(), *arrived, "{what}");
        }
    }

    #[test]
    fn what_is_asked_for_lies_between_the_clients_own_bounds() {
        for (min, max, expected) in [(1, 25, 25), (1, 20, 20), (1, 400, 25), (100, 400, 100), (20, 20, 20)] {
            let ms = Duration::from_millis;
            let offer = Offer { draft: Draft::AckFrequency00, min_ack_delay: ms(min), max_ack_delay: ms(max) };
            let peer =
                Peer::new(offer, AckFrequency::Fixed(10), Arc::default(), Moderation::new(false, Arc::default()));
            peer.begin();
            let asked = peer.lock().delivery.send(0).unwrap().1;
            assert_eq!(asked.max_ack_delay, ms(expected), "{min} to {max} ms");
        }
    }

    #[test]
    fn a_place_that_is_not_found_is_counted_and_ends_it() {
        let peer = peer(AckFrequency::Fixed(10));
        peer.begin();
        let mut payload = [0x1e, 0x31, 0, 0x31, 0];
        peer.fill(1, &mut payload);
        assert_eq!(payload, [0x1e, 0, 0, 0, 0]);
        peer.lost(1, true);
        assert_eq!((peer.is_wanted(), peer.metrics.ack_frequency_misplaced.get()), (false, 1));
        assert_eq!(peer.metrics.ack_frequency_sent.get(), 0);
    }

    #[test]
    fn a_connection_that_ends_is_not_counted_any_more() {
        let peer = peer(AckFrequency::Fixed(10));
        let metrics = Arc::clone(&peer.metrics);
        peer.begin();
        drop(peer);
        assert_eq!(metrics.ack_threshold_8.get() + metrics.ack_threshold_2.get(), 0);
        assert_eq!(metrics.ack_frequency_offered.get(), 1);
    }
}
