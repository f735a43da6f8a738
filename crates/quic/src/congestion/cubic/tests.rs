//! Compares CUBIC with a naive implementation of RFC 9438 that processes one packet at a time.

use super::*;
use proptest::{collection::vec, prelude::*};
use s2n_quic::provider::congestion_controller::RttEstimator;
use s2n_quic_core::{
    packet::number::PacketNumberSpace,
    time::{Clock as _, NoopClock},
};

const DATAGRAM: u16 = 1_200;
const INITIAL: u32 = 10 * DATAGRAM as u32;

/// Events on a path.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Whole windows are sent and acknowledged, `group` packets an ACK frame.
    Rounds { rounds: u32, group: usize },
    /// A round in which one packet is lost, at `place` / 256 of the window.
    Loss { place: u8, group: usize },
    /// A round in which a router reports congestion with the first ACK frame.
    Congestion { group: usize },
    /// The application has data for `packets` packets only.
    Limited { packets: u32 },
    /// The path is idle for some milliseconds.
    Idle(u64),
    /// Persistent congestion of `packets` packets, and the slow start that follows.
    Persistent { packets: u8 },
    /// The path's datagrams have another size.
    Mtu(u16),
    /// The round trip takes some milliseconds.
    Delay(u64),
}

/// A window to drive by events.
trait Driven {
    fn send(&mut self, now: Timestamp, bytes: u32, app_limited: bool);
    fn measure(&mut self, sent: Timestamp, now: Timestamp, rtt: &RttEstimator);
    fn ack(&mut self, newest_sent: Timestamp, bytes: u32, now: Timestamp, rtt: &RttEstimator);
    fn lose(&mut self, sent: Timestamp, bytes: u32, now: Timestamp, persistent: bool);
    fn congest(&mut self, now: Timestamp);
    fn set_mtu(&mut self, bytes: u16);
    fn bytes(&self) -> u32;
    fn flying(&self) -> u32;
}

impl Driven for Cubic {
    fn send(&mut self, now: Timestamp, bytes: u32, app_limited: bool) {
        self.on_packet_sent(now, bytes, Some(app_limited));
    }

    fn measure(&mut self, sent: Timestamp, now: Timestamp, rtt: &RttEstimator) {
        self.on_rtt_update(sent, now, rtt.latest_rtt());
    }

    fn ack(&mut self, sent: Timestamp, bytes: u32, now: Timestamp, rtt: &RttEstimator) {
        self.on_ack(sent, bytes, rtt.smoothed_rtt(), now);
    }

    fn lose(&mut self, sent: Timestamp, bytes: u32, now: Timestamp, persistent: bool) {
        self.on_packet_lost(bytes, sent, persistent, now);
    }

    fn congest(&mut self, now: Timestamp) {
        self.on_congestion(now);
    }

    fn set_mtu(&mut self, bytes: u16) {
        self.on_mtu_update(bytes);
    }

    fn bytes(&self) -> u32 {
        self.window_bytes()
    }

    fn flying(&self) -> u32 {
        self.in_flight
    }
}

/// RFC 9438 to the letter, a packet at a time, with W_est in whole packets.
#[derive(Debug)]
struct Naive {
    window: f64,
    threshold: f64,
    in_flight: f64,
    datagram: f64,
    slow_start: bool,
    recovers: bool,
    reduced: Option<Timestamp>,
    persistent: bool,
    epoch: Option<Timestamp>,
    /// Last time at which the window could grow, and the end of the time since then for which the application limited
    /// sending.
    grown: Option<Timestamp>,
    limited: Option<Timestamp>,
    w_max: f64,
    last_w_max: f64,
    cwnd_epoch: f64,
    /// Bytes of a packet in the equations.
    packet: f64,
    /// W_est in packets, and bytes acknowledged towards the next.
    w_est: (f64, f64),
    /// cwnd_prior in packets.
    prior: f64,
    most: f64,
    app_limited: bool,
    last_sent: Option<Timestamp>,
    delays: Vec<(Timestamp, Vec<Duration>)>,
}

impl Naive {
    fn new() -> Self {
        Self {
            window: INITIAL.into(),
            threshold: f64::INFINITY,
            in_flight: 0.0,
            datagram: DATAGRAM.into(),
            slow_start: true,
            recovers: false,
            reduced: None,
            persistent: false,
            epoch: None,
            grown: None,
            limited: None,
            w_max: 0.0,
            last_w_max: 0.0,
            cwnd_epoch: 0.0,
            packet: 0.0,
            w_est: (0.0, 0.0),
            prior: 0.0,
            most: 0.0,
            app_limited: true,
            last_sent: None,
            delays: Vec::new(),
        }
    }

    fn w_cubic(&self, t: f64) -> f64 {
        let k = ((self.w_max - self.cwnd_epoch).max(0.0) / self.packet / 0.4).cbrt();
        0.4 * (t - k).powi(3) * self.packet + self.w_max
    }

    fn end_slow_start(&mut self, now: Timestamp) {
        if self.slow_start && self.window >= self.threshold {
            self.slow_start = false;
            (self.w_max, self.cwnd_epoch, self.packet) = (self.window, self.window, self.datagram);
            self.prior = (self.window.floor() / self.datagram).floor();
            self.w_est = (self.prior.max(2.0), 0.0);
            (self.epoch, self.grown, self.limited) = (Some(now), Some(now), None);
        }
    }
}

impl Driven for Naive {
    fn send(&mut self, now: Timestamp, bytes: u32, app_limited: bool) {
        let (idle, was_limited) = (self.in_flight == 0.0, self.app_limited);
        self.in_flight += f64::from(bytes);
        let room = self.window.floor() - self.in_flight;
        let half = self.slow_start && self.in_flight >= (self.window / 2.0).floor();
        self.app_limited = app_limited && room > 3.0 * self.datagram && !half;
        self.last_sent = Some(now);
        let resumes = was_limited && !self.app_limited && self.limited.is_some();
        if !self.slow_start && !self.recovers && (idle || resumes) {
            self.limited = Some(now);
        }
    }

    fn measure(&mut self, sent: Timestamp, now: Timestamp, rtt: &RttEstimator) {
        if !self.slow_start {
            return;
        }
        let last_sent = self.last_sent.unwrap_or(sent);
        if self.delays.last().is_none_or(|(end, _)| sent >= *end) {
            self.delays.push((last_sent, Vec::new()));
        }
        let (_, samples) = self.delays.last_mut().unwrap();
        samples.push(rtt.latest_rtt());
        if samples.len() == 8
            && let [.., (_, before), (_, this)] = &self.delays[..]
        {
            let least = |samples: &[Duration]| *samples.iter().take(8).min().unwrap();
            let (before, this) = (least(before), least(this));
            let rises = this >= before + (before / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
            if rises && self.window >= 16.0 * self.datagram {
                self.threshold = self.threshold.min(self.window);
            }
        }
        self.end_slow_start(now);
    }

    fn ack(&mut self, sent: Timestamp, bytes: u32, now: Timestamp, rtt: &RttEstimator) {
        self.most = self.most.max(self.in_flight);
        self.in_flight -= f64::from(bytes);
        if self.recovers && self.reduced.is_some_and(|reduced| sent > reduced) {
            self.recovers = false;
            (self.epoch, self.grown, self.limited) = (Some(now), Some(now), None);
        }
        if self.app_limited {
            self.limited = Some(now);
            return;
        }
        let most = (self.most * if self.slow_start { 2.0 } else { 1.5 }).max(2.0 * self.datagram);
        if self.recovers || self.window >= most {
            return;
        }
        if self.slow_start {
            self.window = (self.window + f64::from(bytes)).min(most);
            self.end_slow_start(now);
            return;
        }
        if let (Some(limited), Some(grown)) = (self.limited.take(), self.grown) {
            self.epoch = self.epoch.map(|epoch| epoch + limited.saturating_duration_since(grown));
        }
        self.grown = Some(now);
        let t = now.saturating_duration_since(self.epoch.unwrap()).as_secs_f64();
        let srtt = rtt.smoothed_rtt().as_secs_f64();
        let (mut w_est, mut acked) = self.w_est;
        acked += f64::from(bytes);
        let a_packet = w_est * self.packet * if w_est < self.prior { 17.0 / 9.0 } else { 1.0 };
        if acked >= a_packet {
            (w_est, acked) = (w_est + 1.0, (acked - a_packet).min(a_packet));
        }
        self.w_est = (w_est, acked);
        let mut left = f64::from(bytes);
        while left > 0.0 {
            let packet = left.min(self.datagram);
            left -= packet;
            if self.w_cubic(t) >= w_est * self.packet {
                let target = self.w_cubic(t + srtt).clamp(self.window, 1.5 * self.window);
                self.window += (target - self.window) / self.window * packet;
            }
        }
        self.window = self.window.min(most).max(w_est * self.packet);
    }

    fn lose(&mut self, sent: Timestamp, bytes: u32, now: Timestamp, persistent: bool) {
        self.in_flight -= f64::from(bytes);
        let new = self.reduced.is_none_or(|reduced| sent > reduced);
        if new {
            self.congest(now);
        }
        if persistent && (new || !self.persistent) {
            (self.reduced, self.most, self.recovers, self.persistent) = (Some(now), 0.0, false, true);
            (self.window, self.slow_start, self.last_w_max) = (2.0 * self.datagram, true, 0.0);
            self.delays.clear();
        }
    }

    fn congest(&mut self, now: Timestamp) {
        if self.recovers {
            return;
        }
        let window = self.window;
        self.w_max = if window < self.last_w_max { window * 1.7 / 2.0 } else { window };
        (self.last_w_max, self.packet) = (window, self.datagram);
        self.cwnd_epoch = (window * 0.7).max(2.0 * self.datagram);
        self.prior = (window.floor() / self.datagram).floor();
        self.w_est = ((self.prior * 7.0 / 10.0).floor().max(2.0), 0.0);
        self.window = self.cwnd_epoch;
        self.threshold = self.window.max(16.0 * self.datagram);
        (self.slow_start, self.recovers, self.reduced, self.most) = (false, true, Some(now), 0.0);
        self.persistent = false;
    }

    fn set_mtu(&mut self, bytes: u16) {
        let packets = self.window / self.datagram;
        self.datagram = bytes.into();
        if self.threshold.is_infinite() {
            self.window = packets * self.datagram;
        }
        self.window = self.window.max(2.0 * self.datagram);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a window")]
    fn bytes(&self) -> u32 {
        self.window as u32
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes in flight")]
    fn flying(&self) -> u32 {
        self.in_flight as u32
    }
}

/// A path whose sender is `driven`.
struct Path<D> {
    driven: D,
    rtt: RttEstimator,
    delay: Duration,
    datagram: u32,
    now: Timestamp,
}

impl<D: Driven> Path<D> {
    fn new(driven: D) -> Self {
        let (delay, now) = (Duration::from_millis(50), NoopClock.get_time() + Duration::from_secs(1));
        let mut rtt = RttEstimator::new(delay);
        rtt.update_rtt(Duration::ZERO, delay, now, true, PacketNumberSpace::ApplicationData);
        Self { driven, rtt, delay, datagram: DATAGRAM.into(), now }
    }

    /// Sends up to `most` packets of the window, of which the one at `lost` / 256 is lost.
    fn round(&mut self, most: u32, group: usize, lost: Option<u8>, congestion: bool) {
        let Self { driven, rtt, delay, datagram, now } = self;
        let sent = *now;
        let at = |index: usize| sent + Duration::from_micros(index as u64);
        let mut packets = 0;
        while packets < most as usize && driven.flying() + *datagram <= driven.bytes() {
            driven.send(at(packets), *datagram, packets + 1 == most as usize);
            packets += 1;
        }
        let lost = lost.map(|place| usize::from(place) * packets / 256);
        *now += *delay;
        if congestion {
            driven.congest(*now);
        }
        let mut pending = lost.filter(|lost| *lost < packets);
        for first in (0..packets).step_by(group) {
            let group = group.min(packets - first);
            *now += Duration::from_micros(100);
            let arrived = group - usize::from(lost.is_some_and(|lost| (first..first + group).contains(&lost)));
            let newest = first + group - 1;
            if arrived == 0 {
                continue;
            }
            rtt.update_rtt(Duration::ZERO, *delay, *now, true, PacketNumberSpace::ApplicationData);
            driven.measure(at(newest), *now, rtt);
            if let Some(lost) = pending.filter(|lost| newest >= lost + 3) {
                driven.lose(at(lost), *datagram, *now, false);
                pending = None;
            }
            let bytes = u32::try_from(arrived).unwrap() * *datagram;
            driven.ack(at(newest), bytes, *now, rtt);
        }
        if let Some(lost) = pending {
            driven.lose(at(lost), *datagram, *now, false);
        }
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Rounds { rounds, group } => (0..rounds).for_each(|_| self.round(u32::MAX, group, None, false)),
            Event::Loss { place, group } => self.round(u32::MAX, group, Some(place), false),
            Event::Congestion { group } => self.round(u32::MAX, group, None, true),
            Event::Limited { packets } => self.round(packets, 2, None, false),
            Event::Idle(millis) => self.now += Duration::from_millis(millis),
            Event::Persistent { packets } => {
                let sent = self.now;
                (0..packets).for_each(|_| self.driven.send(sent, self.datagram, false));
                self.now += 8 * self.delay;
                (0..packets).for_each(|_| self.driven.lose(sent, self.datagram, self.now, true));
                self.now += Duration::from_millis(1);
                // Slow start continues to its end, which an ACK frame of many packets would overshoot.
                (0..12).for_each(|_| self.round(u32::MAX, 1, None, false));
            }
            Event::Mtu(bytes) => {
                self.driven.set_mtu(bytes);
                self.datagram = bytes.into();
            }
            Event::Delay(millis) => self.delay = Duration::from_millis(millis),
        }
        self.now += Duration::from_millis(1);
    }

    /// The windows after each event.
    fn windows(mut self, script: &[Event]) -> Vec<u32> {
        let windows = script.iter().map(|event| {
            self.run(*event);
            assert_eq!(self.driven.flying(), 0, "{event:?}");
            self.driven.bytes()
        });
        windows.collect()
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let group = || prop_oneof![Just(1_usize), Just(2), Just(10), Just(32), Just(usize::MAX)];
    let event = prop_oneof![
        8 => (1..12_u32, group()).prop_map(|(rounds, group)| Event::Rounds { rounds, group }),
        4 => (any::<u8>(), group()).prop_map(|(place, group)| Event::Loss { place, group }),
        1 => group().prop_map(|group| Event::Congestion { group }),
        1 => (1..40_u32).prop_map(|packets| Event::Limited { packets }),
        1 => (0..3_000_u64).prop_map(Event::Idle),
        1 => (1..20_u8).prop_map(|packets| Event::Persistent { packets }),
        1 => (DATAGRAM..1_453).prop_map(Event::Mtu),
        1 => (10..100_u64).prop_map(Event::Delay),
    ];
    // A loss comes first: slow start alone would have millions of packets in flight.
    vec(event, 1..14).prop_map(|mut events| {
        events.insert(0, Event::Rounds { rounds: 4, group: 2 });
        events.insert(1, Event::Loss { place: 9, group: 2 });
        events
    })
}

fn own() -> Path<Cubic> {
    Path::new(Cubic::new(INITIAL, DATAGRAM))
}

proptest! {
    #[test]
    fn windows_are_those_of_the_rfcs_equations_packet_by_packet(script in events()) {
        for ((own, naive), event) in
            own().windows(&script).iter().zip(Path::new(Naive::new()).windows(&script)).zip(&script)
        {
            // A rounding error may decide whether W_cubic or W_est counts where they are equal.
            prop_assert!(own.abs_diff(naive) <= u32::from(DATAGRAM), "{own}, not {naive}, after {event:?}");
        }
    }
}

/// Windows in bytes after each of `events`, which follow a loss.
fn after_a_loss(events: &[Event]) -> Vec<u32> {
    let begin = [Event::Rounds { rounds: 4, group: 2 }, Event::Loss { place: 9, group: 2 }];
    let script = [&begin[..], &[Event::Rounds { rounds: 6, group: 2 }], events].concat();
    own().windows(&script).split_off(2)
}

/// RFC 9438 §5.8.
#[test]
fn time_in_which_a_path_is_idle_makes_no_window_grow() {
    let round = Event::Rounds { rounds: 1, group: 2 };
    for limited in [&[][..], &[Event::Limited { packets: 4 }], &[Event::Limited { packets: 4 }; 9]] {
        let script = |idle| after_a_loss(&[limited, &[Event::Idle(idle), round, round]].concat());
        let (short, long) = (script(0), script(60_000));
        let grown = long.last().unwrap().abs_diff(*short.last().unwrap());
        assert!(grown < u32::from(DATAGRAM) / 2, "{limited:?}: {short:?}, {long:?}");
    }
}

/// RFC 9002 §7.3.2.
#[test]
fn recovery_ends_though_the_application_has_little_to_send() {
    let loss = Event::Loss { place: 9, group: 2 };
    let windows = after_a_loss(&[loss, Event::Limited { packets: 6 }, loss]);
    let [_, once, limited, twice] = windows[..] else { panic!("{windows:?}") };
    assert_eq!(once, limited);
    assert!(twice.abs_diff(limited * 7 / 10) < u32::from(DATAGRAM) / 8, "{windows:?}");
}

/// RFC 8899 §3, RFC 9002 §7.2.
#[test]
fn larger_datagrams_do_not_enlarge_a_window_that_knows_congestion() {
    let windows = after_a_loss(&[Event::Mtu(1_452), Event::Mtu(1_200)]);
    assert!(windows.iter().all(|window| *window == windows[0]), "{windows:?}");
    assert_eq!(own().windows(&[Event::Mtu(1_452)]), [14_520], "the initial window");
}

/// RFC 9002 §7.6.2: s2n-quic declares each packet of the period. Slow start ends at β times the window before.
#[test]
fn persistent_congestion_of_many_packets_is_one() {
    let windows = |packets| after_a_loss(&[Event::Rounds { rounds: 90, group: 2 }, Event::Persistent { packets }]);
    let (one, many) = (windows(1), windows(12));
    assert_eq!(one, many);
    let [_, before, after] = one[..] else { panic!("{one:?}") };
    assert!(before > 40 * u32::from(DATAGRAM) && after >= before * 7 / 10, "{one:?}");
}
