mod reordering;

use super::*;
use crate::congestion::published::tests::NoPublisher;
use s2n_quic_core::{
    inet::SocketAddress,
    packet::number::PacketNumberSpace,
    path,
    time::{Clock as _, NoopClock},
};
use std::{sync::Arc, time::Duration};

const DATAGRAM: u32 = 1_200;

/// A random generator for controllers that use no random numbers.
pub(in crate::congestion) struct Zeros;

impl RandomGenerator for Zeros {
    fn public_random_fill(&mut self, dest: &mut [u8]) {
        dest.fill(0);
    }

    fn private_random_fill(&mut self, dest: &mut [u8]) {
        dest.fill(0);
    }
}

/// A path of constant delay whose sender always has data.
#[derive(Clone)]
struct Path {
    controller: Controller,
    rtt: RttEstimator,
    delay: Duration,
    now: Timestamp,
}

impl Path {
    fn new(congestion: Congestion, delay: Duration) -> Self {
        let mut rtt = RttEstimator::new(delay);
        let now = NoopClock.get_time() + Duration::from_secs(1);
        rtt.update_rtt(Duration::ZERO, delay, now, true, PacketNumberSpace::ApplicationData);
        let moderation = Moderation::new(false, Arc::default());
        let address = SocketAddress::default();
        let path = PathInfo::new(&path::Config::default(), &address);
        let controller = Controller::new(congestion, 10, path, moderation, Arc::default());
        Self { controller, rtt, delay, now }
    }

    /// Sends a window's packets at once, and has them acknowledged `group` at a time.
    fn round(&mut self, group: usize) {
        let sent = self.now;
        let mut infos = Vec::new();
        while !self.controller.is_congestion_limited() {
            infos.push(self.controller.on_packet_sent(sent, 1_200, Some(false), &self.rtt, &mut NoPublisher));
        }
        self.now += self.delay;
        for group in infos.chunks(group) {
            self.rtt.update_rtt(Duration::ZERO, self.delay, self.now, true, PacketNumberSpace::ApplicationData);
            self.controller.on_rtt_update(sent, self.now, &self.rtt, &mut NoPublisher);
            let (bytes, newest) = (group.len() * 1_200, *group.last().unwrap());
            self.controller.on_ack(sent, bytes, newest, &self.rtt, &mut Zeros, self.now, &mut NoPublisher);
        }
    }

    /// Whether pacing lets a packet leave.
    fn is_due(&self) -> bool {
        self.controller.pacer.next_send_time().is_none_or(|at| at.has_elapsed(self.now))
    }

    fn may_send(&self) -> bool {
        !self.controller.is_congestion_limited()
            && self.controller.earliest_departure_time().is_none_or(|at| at.has_elapsed(self.now))
    }

    /// A packet is lost, as the first of a round.
    fn lose(&mut self, persistent: bool) {
        let info = self.controller.on_packet_sent(self.now, 1_200, Some(false), &self.rtt, &mut NoPublisher);
        self.now += self.delay;
        self.declare_lost(1, info, persistent);
        self.now += Duration::from_millis(1);
    }

    /// Packet `number` is declared lost.
    fn declare_lost(&mut self, number: u64, info: PacketInfo, persistent: bool) {
        self.controller.on_packet_lost(DATAGRAM, info, persistent, true, &mut Zeros, self.now, &mut NoPublisher);
        self.controller.feedback.report_lost_number(number);
    }

    /// Packets `numbers`, which were declared lost, arrive.
    fn report_arrived(&self, numbers: std::ops::RangeInclusive<u64>) {
        let (low, high) = numbers.into_inner();
        self.controller.feedback.report_arrived(&[NumberRange { low, high }]);
    }

    fn window(&self) -> u32 {
        self.controller.congestion_window()
    }
}

/// RFC 9438 §4.2: the window grows with the acknowledged bytes.
#[test]
fn the_frequency_of_acks_does_not_change_the_window_of_cubic() {
    for delay in [20, 50, 100].map(Duration::from_millis) {
        let after = |group: usize| {
            let mut path = Path::new(Congestion::Cubic, delay);
            while path.window() < 300 * DATAGRAM {
                path.round(1);
            }
            path.lose(false);
            let least = path.window();
            (0..50).for_each(|_| path.round(group));
            assert!(path.window() > least + 20 * DATAGRAM);
            f64::from(path.window())
        };
        let each = after(1);
        for group in [2, 10, 32, usize::MAX] {
            let window = after(group);
            assert!((window / each - 1.0).abs() < 0.05, "{delay:?}, {group} packets an ACK: {window}, not {each}");
        }
    }
}

/// RFC 9438 §4.3: additive increase begins with the reduced window, also after the second of two congestions, when
/// CUBIC leaves room for others (§4.7).
#[test]
fn a_small_window_grows_from_the_first_round_trip_after_each_congestion() {
    for group in [1, 2, 10, usize::MAX] {
        let mut path = Path::new(Congestion::Cubic, Duration::from_millis(10));
        (0..2).for_each(|_| path.round(group));
        for congestion in 1..=6 {
            path.lose(false);
            path.round(group);
            let left = path.window();
            (0..10).for_each(|_| path.round(group));
            let grown = path.window() - left;
            // α packets a round trip, whole ones.
            assert!((7 * DATAGRAM / 2..=7 * DATAGRAM).contains(&grown), "{group}, {congestion}: {grown}");
            if congestion % 2 == 0 {
                (0..3).for_each(|_| path.round(group));
            }
        }
    }
}

/// RFC 9438 §4.3: the window grows by α a round trip, which a full buffer makes longer than the shortest one.
#[test]
fn a_full_buffer_does_not_slow_growth_by_round_trips() {
    let rounds = |delay: u64| {
        let mut path = Path::new(Congestion::Cubic, Duration::from_millis(10));
        (0..2).for_each(|_| path.round(2));
        path.delay = Duration::from_millis(delay);
        path.lose(false);
        (0..4).for_each(|_| path.round(2));
        let before = path.window();
        path.lose(false);
        (0_u32..100).find(|_| {
            path.round(2);
            path.window() >= before
        })
    };
    let (empty, full) = (rounds(10).unwrap(), rounds(20).unwrap());
    assert!(empty.abs_diff(full) <= 1, "{empty} round trips of 10 ms, {full} of 20 ms");
}

/// RFC 9438 §4.2, RFC 9002 §7.8.
#[test]
fn a_window_that_the_application_does_not_use_does_not_grow() {
    let mut path = Path::new(Congestion::Cubic, Duration::from_millis(10));
    (0..2).for_each(|_| path.round(2));
    path.lose(false);
    path.round(2);
    let window = path.window();
    for _ in 0..50 {
        let (sent, now) = (path.now, path.now + path.delay);
        let info = path.controller.on_packet_sent(sent, 1_200, Some(true), &path.rtt, &mut NoPublisher);
        path.controller.on_ack(sent, 1_200, info, &path.rtt, &mut Zeros, now, &mut NoPublisher);
        path.now = now;
    }
    assert_eq!(path.window(), window);
}

#[test]
fn slow_start_doubles_the_window_however_often_a_client_acknowledges() {
    for group in [1, 2, 10, 32, usize::MAX] {
        let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
        let before = path.window();
        (0..4).for_each(|_| path.round(group));
        assert!(path.window() >= 15 * before, "{group}: {}", path.window());
    }
}

#[test]
fn the_published_state_follows_slow_start() {
    let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
    path.round(1);
    assert!(path.controller.published.slow_start);
    path.lose(false);
    assert!(!path.controller.published.slow_start);
    path.lose(true);
    assert!(path.controller.published.slow_start, "persistent congestion");
}

#[test]
fn either_algorithm_begins_with_the_configured_window() {
    let address = SocketAddress::default();
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        for packets in [10, 24, 100] {
            let path = PathInfo::new(&path::Config::default(), &address);
            let datagram = u32::from(path.max_datagram_size);
            let moderation = Moderation::new(false, Arc::default());
            let controller = Controller::new(congestion, packets, path, moderation, Arc::default());
            assert_eq!(controller.congestion_window(), u32::from(packets) * datagram, "{congestion:?}");
            for (app_limited, expected) in [(None, packets), (Some(false), 10), (Some(true), 10)] {
                let (mut controller, now) = (controller.clone(), NoopClock.get_time());
                let rtt = RttEstimator::default();
                controller.on_packet_sent(now, 1_200, app_limited, &rtt, &mut NoPublisher);
                assert_eq!(
                    controller.congestion_window(),
                    u32::from(expected) * datagram,
                    "{congestion:?}, {app_limited:?}"
                );
            }
        }
    }
}

/// Once congestion came with a short queue, fewer packets leave at once; later losses of the same congestion change
/// nothing.
#[test]
fn bursts_are_shorter_behind_a_shallow_buffer() {
    let at_once = |queued: Duration| {
        let mut path = Path::new(Congestion::Cubic, Duration::from_millis(20));
        (0..6).for_each(|_| path.round(2));
        path.lose(false);
        path.delay += queued;
        (0..20).for_each(|_| path.round(2));
        let early = path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher);
        path.lose(false);
        let depth = path.controller.buffer.burst_limit();
        path.delay -= queued;
        let now = path.now;
        path.controller.on_packet_lost(DATAGRAM, early, false, true, &mut Zeros, now, &mut NoPublisher);
        assert_eq!(path.controller.buffer.burst_limit(), depth, "a loss from before");
        // Bursts that were missed meanwhile leave first.
        let mut bursts = Vec::new();
        for _ in 0..60 {
            path.now += Duration::from_micros(100);
            let mut packets = 0;
            while path.is_due() && packets < 1_000 {
                path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher);
                packets += 1;
            }
            bursts.push(packets);
        }
        bursts.split_off(20).into_iter().max().unwrap()
    };
    let [random, shallow, deep] = [0, 2, 40].map(|queued| at_once(Duration::from_millis(queued)));
    assert!(shallow * 2 < random && shallow < deep, "{random}, {shallow}, {deep}");
}

/// RFC 9002 §7.3.2: packets that were sent before the window was reduced show the same congestion.
#[test]
fn a_late_loss_from_before_the_reduction_reduces_nothing() {
    for (sent_before, congestion) in [(true, 1), (false, 2)] {
        let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
        (0..4).for_each(|_| path.round(2));
        let before = path.window();
        let send = |path: &mut Path| {
            path.now += Duration::from_millis(1);
            path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher)
        };
        let lose = |path: &mut Path, info| {
            let now = path.now;
            path.controller.on_packet_lost(DATAGRAM, info, false, true, &mut Zeros, now, &mut NoPublisher);
        };
        let (first, early) = (send(&mut path), send(&mut path));
        path.now += Duration::from_millis(50);
        lose(&mut path, first);
        assert!(path.controller.requires_fast_retransmission());
        lose(&mut path, early);
        assert!(path.controller.requires_fast_retransmission(), "of the same period");
        let late = send(&mut path);
        let (newest, sent) = (send(&mut path), path.now);
        path.now += Duration::from_millis(50);
        path.controller.on_ack(sent, 1_200, newest, &path.rtt, &mut Zeros, path.now, &mut NoPublisher);
        let in_flight = path.controller.bytes_in_flight();
        lose(&mut path, if sent_before { first } else { late });
        assert_eq!(path.controller.bytes_in_flight(), in_flight - DATAGRAM);
        let reduced = f64::from(path.window()) / f64::from(before);
        assert!((reduced - 0.7_f64.powi(congestion)).abs() < 0.02, "{congestion}: {reduced}");
    }
}

#[test]
fn bytes_in_flight_return_to_zero_with_either_algorithm() {
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        for group in [1, 2, 10, 32, usize::MAX] {
            let mut path = Path::new(congestion, Duration::from_millis(50));
            for _ in 0..7 {
                path.round(group);
                assert_eq!(path.controller.bytes_in_flight(), 0, "{congestion:?}, {group}");
            }
            path.lose(false);
            path.round(group);
            assert_eq!(path.controller.bytes_in_flight(), 0);
        }
    }
}

/// A burst of a millisecond, and the next when it is due.
#[test]
fn packets_of_a_window_leave_in_bursts() {
    for (congestion, delay) in [(Congestion::Cubic, 40), (Congestion::Cubic, 200), (Congestion::Bbr, 40)] {
        let mut path = Path::new(congestion, Duration::from_millis(delay));
        (0..6).for_each(|_| path.round(2));
        let (began, window) = (path.now, path.window());
        let mut bursts = Vec::new();
        while !path.controller.is_congestion_limited() {
            let mut packets = 0;
            while path.may_send() {
                path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher);
                packets += 1;
            }
            bursts.extend((packets > 0).then_some(packets));
            path.now += Duration::from_millis(1);
            assert!(path.now < began + Duration::from_millis(delay), "{bursts:?} of {window}");
        }
        assert!(bursts.iter().all(|&packets| packets <= 64), "{bursts:?}");
        assert!(bursts.len() > 3, "{bursts:?}");
    }
}

/// The rest of a window after a response is paced as in congestion avoidance: at twice the rate half of the window
/// would have to fit into the path's buffer. Slow start continues with the first acknowledgement.
#[test]
fn a_window_that_is_left_over_is_paced_without_slow_starts_gain() {
    let mut path = Path::new(Congestion::Cubic, Duration::from_millis(100));
    // Bytes that leave within a fifth of a round trip.
    let sent = |path: &mut Path| {
        let mut sent = 0;
        for _ in 0..200 {
            while path.may_send() {
                path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher);
                sent += DATAGRAM;
            }
            path.now += Duration::from_micros(100);
        }
        f64::from(sent) / f64::from(path.window())
    };
    let first = sent(&mut path.clone());
    assert!(first > 0.95, "ten packets at once, which are all: {first}");
    (0..4).for_each(|_| path.round(2));
    assert!(path.controller.published.slow_start);
    path.now += Duration::from_secs(1);
    let left_over = sent(&mut path);
    assert!((0.2..0.35).contains(&left_over), "1.25 windows a round trip, and ten packets at once: {left_over}");
    let info = path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher);
    path.controller.on_ack(path.now, 1_200, info, &path.rtt, &mut Zeros, path.now, &mut NoPublisher);
    let again = sent(&mut path);
    assert!((0.36..0.5).contains(&again), "two windows a round trip: {again}");
}

/// The smoothed round-trip time shows a pause for a long time after it.
#[test]
fn after_a_pause_packets_are_paced_by_the_current_round_trip() {
    let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
    (0..6).for_each(|_| path.round(2));
    path.delay = Duration::from_secs(5);
    path.round(2);
    path.delay = Duration::from_millis(50);
    path.round(usize::MAX);
    assert!(path.rtt.smoothed_rtt() > Duration::from_secs(4));
    let (began, window) = (path.now, path.window());
    let mut sent = 0;
    while path.now < began + path.delay {
        while path.may_send() {
            path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher);
            sent += DATAGRAM;
        }
        path.now += Duration::from_millis(1);
    }
    assert!(sent + DATAGRAM > window, "{sent} of {window}");
}

/// RFC 9438 §4.9.2: the path reordered packets, and no other one is missing for longer than the late ones.
#[test]
fn a_spurious_reduction_is_undone() {
    // Number of packets declared lost, number that arrive, milliseconds until then, and whether the reduction is
    // undone.
    for (lost, arrive, after, undone) in
        [(1, 1, 5, true), (3, 3, 5, true), (3, 2, 5, true), (3, 2, 60, false), (1, 0, 5, false), (1, 1, 250, false)]
    {
        for congested in [false, true] {
            let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
            (0..4).for_each(|_| path.round(2));
            if congested {
                path.lose(false);
                (0..6).for_each(|_| path.round(2));
            }
            let (before, slow_start) = (path.window(), path.controller.published.slow_start);
            let mut infos = Vec::new();
            while !path.controller.is_congestion_limited() {
                infos.push(path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher));
            }
            let sent = path.now;
            path.now += Duration::from_millis(50);
            for (number, info) in (10..).zip(&infos[..lost]) {
                path.declare_lost(number, *info, false);
            }
            assert!(path.window() < before);
            path.now += Duration::from_millis(after);
            if arrive > 0 {
                path.report_arrived(10..=9 + arrive);
            }
            let bytes = (infos.len() - lost) * 1_200;
            let newest = *infos.last().unwrap();
            path.controller.on_ack(sent, bytes, newest, &path.rtt, &mut Zeros, path.now, &mut NoPublisher);
            assert_eq!(path.controller.bytes_in_flight(), 0);
            assert_eq!(path.window() >= before, undone, "{lost}, {arrive}, {after}, {congested}");
            assert_eq!(path.controller.published.slow_start, undone && slow_start);
            assert_eq!(path.controller.feedback.take_arrived(), []);
            path.round(2);
            assert_eq!(path.controller.bytes_in_flight(), 0);
        }
    }
}

/// Persistent congestion, or congestion that routers report (ECN), is not spurious.
#[test]
fn ecn_and_persistent_congestion_are_not_undone() {
    for persistent in [false, true] {
        let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
        (0..8).for_each(|_| path.round(2));
        path.lose(false);
        path.round(2);
        if persistent {
            path.lose(true);
        } else {
            path.controller.on_explicit_congestion(1, path.now, &mut NoPublisher);
        }
        let window = path.window();
        path.report_arrived(1..=1);
        path.round(2);
        assert!(path.window() <= window * 2, "{persistent}: {window}");
        assert!(path.controller.reduction.is_none());
    }
}

/// A client that acknowledges every lost packet, after the reduction, does not make the window double for ever.
#[test]
fn slow_start_resumes_a_bounded_number_of_times() {
    let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
    let mut rounds = 0;
    while path.controller.published.slow_start {
        let info = path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher);
        path.now += path.delay;
        rounds += 1;
        path.declare_lost(rounds, info, false);
        (0..2).for_each(|_| path.round(2));
        assert!(!path.controller.published.slow_start, "no packet is waited for longer than a round trip");
        path.report_arrived(rounds..=rounds);
        path.round(2);
    }
    assert_eq!(rounds, u64::from(MAX_SLOW_START_RESUMPTIONS) + 1);
}

/// One ACK frame may report congestion by ECN and the arrival of a packet declared lost.
#[test]
fn ecn_congestion_within_recovery_is_not_undone() {
    let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
    (0..4).for_each(|_| path.round(2));
    path.lose(false);
    let window = path.window();
    path.controller.on_explicit_congestion(1, path.now, &mut NoPublisher);
    path.report_arrived(1..=1);
    path.round(2);
    assert!(path.window() < window + window / 4);
}

/// The first flight is paced by a guess, s2n-quic's initial round-trip time of 333 ms: on a short path the next one
/// does not wait for that.
#[test]
fn the_first_measurement_ends_the_pacing_by_a_guess() {
    let moderation = Moderation::new(false, Arc::default());
    let address = SocketAddress::default();
    let path = PathInfo::new(&path::Config::default(), &address);
    let mut controller = Controller::new(Congestion::Cubic, 24, path, moderation, Arc::default());
    let (mut rtt, began) = (RttEstimator::default(), NoopClock.get_time() + Duration::from_secs(1));
    let infos: Vec<PacketInfo> =
        (0..4).map(|_| controller.on_packet_sent(began, 1_200, None, &rtt, &mut NoPublisher)).collect();
    let now = began + Duration::from_millis(1);
    rtt.update_rtt(Duration::ZERO, Duration::from_millis(1), now, true, PacketNumberSpace::Initial);
    controller.on_rtt_update(began, now, &rtt, &mut NoPublisher);
    controller.on_ack(began, 1_200, infos[0], &rtt, &mut Zeros, now, &mut NoPublisher);
    assert_eq!(controller.earliest_departure_time(), None);
}

/// An acknowledgement decides what leaves next: a timer would wake the worker, and nothing could be sent.
#[test]
fn a_full_window_needs_no_timer() {
    let mut path = Path::new(Congestion::Cubic, Duration::from_millis(50));
    (0..3).for_each(|_| path.round(2));
    let sent = path.now;
    let mut last = None;
    while !path.controller.is_congestion_limited() {
        last = Some(path.controller.on_packet_sent(path.now, 1_200, Some(false), &path.rtt, &mut NoPublisher));
    }
    assert_eq!(path.controller.earliest_departure_time(), None);
    path.controller.on_ack(sent, 1_200, last.unwrap(), &path.rtt, &mut Zeros, path.now, &mut NoPublisher);
    assert!(path.controller.earliest_departure_time().is_some());
}
