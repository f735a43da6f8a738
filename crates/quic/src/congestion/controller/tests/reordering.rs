//! A download over a model of a path that reorders: 300 Mbit/s, 20 ms, with s2n-quic's loss detection (RFC 9002 §6.1).

use super::*;
use crate::congestion::reordering_window::MAX_MISSING;
use std::collections::{BTreeMap, BTreeSet};

/// Time in which a packet leaves the bottleneck: 300 Mbit/s.
const PACKET_TIME: Duration = Duration::from_micros(32);
const DELAY: Duration = Duration::from_millis(20);
const HOLD: Duration = Duration::from_millis(5);
/// Time between two ACK frames, if packets arrive.
const STEP: Duration = Duration::from_micros(100);

/// What happens to a packet behind the bottleneck.
enum Fate {
    InOrder,
    Held,
    Lost,
}

struct Model {
    path: Path,
    next: u64,
    /// Time at which the bottleneck has sent its queue.
    free: Timestamp,
    in_flight: BTreeMap<u64, (Timestamp, PacketInfo)>,
    /// Packets on the path, by the time of arrival and number.
    travelling: BTreeSet<(Timestamp, u64)>,
    largest: u64,
    declared_lost: u64,
    /// Packets that the bottleneck's queue holds.
    queue: u32,
    /// Packets that arrived.
    delivered: u64,
    /// Times at which the window became smaller.
    reductions: Vec<Timestamp>,
}

impl Model {
    fn new() -> Self {
        let path = Path::new(Congestion::Cubic, DELAY);
        let free = path.now;
        Self {
            path,
            next: 1,
            free,
            in_flight: BTreeMap::new(),
            travelling: BTreeSet::new(),
            largest: 0,
            declared_lost: 0,
            queue: u32::MAX,
            delivered: 0,
            reductions: Vec::new(),
        }
    }

    /// A download of `milliseconds`, whose packets have `fate`. Returns the number of packets sent.
    fn run(&mut self, milliseconds: u64, fate: impl Fn(u64) -> Fate) -> u64 {
        let (first, end) = (self.next, self.path.now + Duration::from_millis(milliseconds));
        while self.path.now < end {
            while self.path.may_send() {
                self.send(&fate);
            }
            self.path.now += STEP;
            let before = self.path.window();
            self.acknowledge();
            if self.path.window() < before {
                self.reductions.push(self.path.now);
            }
        }
        self.next - first
    }

    fn send(&mut self, fate: impl Fn(u64) -> Fate) {
        let (now, number) = (self.path.now, self.next);
        self.next += 1;
        let info = self.path.controller.on_packet_sent(now, 1_200, Some(false), &self.path.rtt, &mut NoPublisher);
        self.in_flight.insert(number, (now, info));
        if self.free.saturating_duration_since(now) >= PACKET_TIME.saturating_mul(self.queue) {
            return;
        }
        self.free = self.free.max(now) + PACKET_TIME;
        match fate(number) {
            Fate::InOrder => self.travelling.insert((self.free + DELAY, number)),
            Fate::Held => self.travelling.insert((self.free + DELAY + HOLD, number)),
            Fate::Lost => false,
        };
    }

    /// One ACK frame for the packets that arrived since the last one.
    fn acknowledge(&mut self) {
        let Self { path, in_flight, travelling, largest, declared_lost, delivered, .. } = self;
        let (now, mut bytes, mut newest) = (path.now, 0, None);
        while let Some(&(at, number)) = travelling.first().filter(|packet| packet.0 <= now) {
            travelling.remove(&(at, number));
            *delivered += 1;
            match in_flight.remove(&number) {
                Some(packet) => {
                    bytes += 1_200;
                    newest = newest.max(Some((number, packet.0)));
                    if number > *largest {
                        *largest = number;
                        let rtt = now.saturating_duration_since(packet.0);
                        path.rtt.update_rtt(Duration::ZERO, rtt, now, true, PacketNumberSpace::ApplicationData);
                        path.controller.on_rtt_update(packet.0, now, &path.rtt, &mut NoPublisher);
                    }
                }
                None => path.report_arrived(number..=number),
            }
        }
        let Some((_, sent)) = newest else { return };
        let threshold = path.rtt.loss_time_threshold();
        let is_lost = |(number, (sent, _)): (&u64, &(Timestamp, PacketInfo))| {
            let is_old = now.saturating_duration_since(*sent) >= threshold;
            (*largest >= number + 3 || (number < largest && is_old)).then_some(*number)
        };
        let lost: Vec<u64> = in_flight.iter().map_while(is_lost).collect();
        for number in lost {
            let (_, info) = in_flight.remove(&number).unwrap();
            *declared_lost += 1;
            path.declare_lost(number, info, false);
        }
        let info = PacketInfo::Cubic { sent };
        path.controller.on_ack(sent, bytes, info, &path.rtt, &mut Zeros, now, &mut NoPublisher);
    }
}

fn reorders(number: u64) -> Fate {
    if number.is_multiple_of(33) { Fate::Held } else { Fate::InOrder }
}

#[test]
fn reordering_of_three_per_cent_does_not_reduce_the_window() {
    let mut model = Model::new();
    // The first late packets reduce the window, as nothing is known of the path: for 5 ms.
    model.run(100, reorders);
    assert!(model.reductions.len() <= 2, "{:?}", model.reductions);
    let (window, reductions, lost) = (model.path.window(), model.reductions.len(), model.declared_lost);
    let sent = model.run(1_000, reorders);
    assert_eq!(model.reductions.len(), reductions);
    assert!(model.path.window() >= window);
    assert!(sent > 30_000, "{sent} packets: less than the bottleneck's rate");
    let lost = model.declared_lost - lost;
    assert!(lost * 100 > sent * 2, "{lost} of {sent} packets were declared lost");
    assert_eq!(model.path.controller.buffer.burst_limit(), None, "nothing was learned from late packets");
}

#[test]
fn losses_on_a_path_that_reorders_reduce_once_a_round_trip() {
    let mut model = Model::new();
    model.run(200, reorders);
    let (window, reductions, began) = (model.path.window(), model.reductions.len(), model.path.now);
    model.run(400, |number| if number % 50 == 7 { Fate::Lost } else { reorders(number) });
    let mut last = began;
    for now in &model.reductions[reductions..] {
        assert!(now.saturating_duration_since(last) >= DELAY);
        last = *now;
    }
    let reduced = model.reductions.len() - reductions;
    assert!(reduced >= 5, "{reduced} reductions");
    assert!(model.path.window() * 4 < window, "{} of {window}", model.path.window());
}

#[test]
fn a_path_that_keeps_the_order_never_waits_with_a_reduction() {
    let mut model = Model::new();
    model.run(1_000, |number| if number.is_multiple_of(5_000) { Fate::Lost } else { Fate::InOrder });
    assert!(model.declared_lost > 0 && model.reductions.len() as u64 == model.declared_lost);
}

/// Slow start overflows the queue, by more packets than are remembered. Late packets must not undo that reduction.
#[test]
fn late_packets_do_not_hide_an_overflow_of_the_queue() {
    let mut model = Model { queue: 625, ..Model::new() };
    model.run(1_500, reorders);
    assert!(model.declared_lost > MAX_MISSING as u64 + 1_500 / 33, "{}", model.declared_lost);
    let (delivered, lost) = (model.delivered, model.declared_lost);
    let sent = model.run(1_000, reorders);
    let (delivered, lost) = (model.delivered - delivered, model.declared_lost - lost);
    assert!(delivered > 31_250 * 97 / 100, "{delivered} packets in a second of 31,250");
    assert!(lost * 100 < sent * 4, "{lost} of {sent} packets were declared lost, where 3 % are late");
}

/// What the bottleneck delivers in two seconds of `flows` downloads that share it and its queue, in packets, once they
/// have begun.
fn delivered_of(flows: usize, late_part: u64) -> u64 {
    let mut models: Vec<_> = (0..flows).map(|_| Model { queue: 625, ..Model::new() }).collect();
    let (mut free, mut sent) = (models[0].path.now, 0);
    let mut run = |milliseconds: u64| {
        let before: u64 = models.iter().map(|model| model.delivered).sum();
        for step in 0..usize::try_from(milliseconds * 10).unwrap() {
            for flow in 0..flows {
                // None is always the first.
                let model = &mut models[(flow + step) % flows];
                model.free = free;
                while model.path.may_send() {
                    sent += 1;
                    model.send(|_| if sent % 100 < late_part { Fate::Held } else { Fate::InOrder });
                }
                free = model.free;
            }
            for model in &mut models {
                model.path.now += STEP;
                model.acknowledge();
            }
        }
        models.iter().map(|model| model.delivered).sum::<u64>() - before
    };
    run(1_000);
    run(2_000)
}

#[test]
fn downloads_that_share_a_path_that_reorders_fill_it() {
    for flows in [1, 5, 20] {
        for late_part in [0, 3] {
            let delivered = delivered_of(flows, late_part);
            assert!(delivered >= 62_000, "{delivered} of 62,500, {flows} downloads, {late_part} % late");
        }
    }
}
