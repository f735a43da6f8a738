use super::*;
use proptest::{collection::vec, prelude::*};
use s2n_quic_core::time::{Clock as _, NoopClock};

const RTT: Duration = Duration::from_millis(40);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn at(milliseconds: u64) -> Timestamp {
    NoopClock.get_time() + ms(1_000 + milliseconds)
}

/// Packet `number` is declared lost at `milliseconds`, a round trip after it was sent. Returns whether the reduction
/// waits.
fn declare_lost(window: &mut ReorderingWindow, number: u64, milliseconds: u64) -> bool {
    let declared_lost = at(milliseconds);
    let lost = window.on_declared_lost(LostPacket { sent: declared_lost - RTT, declared_lost });
    window.set_number(NonZeroU64::new(number).unwrap());
    lost.is_none()
}

fn arrive(window: &mut ReorderingWindow, number: u64, milliseconds: u64) -> bool {
    window.on_arrived(&[NumberRange { low: number, high: number }], at(milliseconds), RTT)
}

/// A window on a path where packet 1 was late by `lateness` milliseconds, at 0 ms.
fn reordered(lateness: u64) -> ReorderingWindow {
    let mut window = ReorderingWindow::default();
    window.on_declared_lost(LostPacket { sent: at(0) - RTT, declared_lost: at(0) - ms(lateness) });
    window.set_number(NonZeroU64::MIN);
    assert!(arrive(&mut window, 1, 0));
    window
}

fn wait(window: &ReorderingWindow) -> Duration {
    window.wait(RTT, RTT)
}

#[test]
fn the_wait_is_the_longest_lateness_and_a_quarter_within_bounds() {
    for (lateness, min_rtt, smoothed_rtt, expected) in [
        (8_000, 20, 40, 10_000),
        (0, 20, 40, 5_000),
        (1_000, 20, 40, 5_000),
        (31_999, 20, 40, 39_998),
        (33_000, 20, 40, 40_000),
        (8_000, 200, 40, 40_000),
    ] {
        let window =
            ReorderingWindow { lateness: Some(Duration::from_micros(lateness)), ..ReorderingWindow::default() };
        assert_eq!(window.wait(ms(min_rtt), ms(smoothed_rtt)).as_micros(), expected, "{lateness} µs");
    }
    assert_eq!(wait(&ReorderingWindow::default()), Duration::ZERO, "the path keeps the order");
}

#[test]
fn the_first_late_packet_makes_later_reductions_wait() {
    let mut window = ReorderingWindow::default();
    assert!(!declare_lost(&mut window, 1, 0) && !declare_lost(&mut window, 2, 5));
    assert!(window.next_overdue(Duration::ZERO, at(90)).is_none(), "the window was reduced at once");
    assert!(!arrive(&mut window, 3, 10) && arrive(&mut window, 1, 12) && !arrive(&mut window, 1, 13));
    assert_eq!(wait(&window), ms(15));
    assert!(declare_lost(&mut window, 4, 14));
    for (since, now, overdue) in [(0, 19, false), (0, 20, true), (5, 20, true), (6, 28, false), (6, 29, true)] {
        assert_eq!(window.is_overdue(at(since), wait(&window), at(now)), overdue, "{since}, {now}");
    }
    assert!(window.next_overdue(wait(&window), at(28)).is_none());
    assert_eq!(window.next_overdue(wait(&window), at(29)).unwrap().declared_lost, at(14));
    assert!(arrive(&mut window, 4, 54), "later than its wait");
    assert_eq!(wait(&window), RTT);
}

#[test]
fn missing_packets_count_again_when_a_reduction_is_undone() {
    let mut window = ReorderingWindow::default();
    (1..=3).for_each(|number| assert!(!declare_lost(&mut window, number, number)));
    assert!(arrive(&mut window, 2, 10));
    window.on_undone(at(0));
    let overdue: Vec<_> = (0..30).filter(|now| window.next_overdue(wait(&window), at(*now)).is_some()).collect();
    assert_eq!(overdue, [11, 13]);
    window.on_undone(at(3));
    assert!(
        window.next_overdue(wait(&window), at(30)).is_some() && window.next_overdue(wait(&window), at(30)).is_none()
    );
}

#[test]
fn a_reduction_settles_all_missing_packets() {
    let mut window = reordered(8);
    assert!(declare_lost(&mut window, 2, 1) && declare_lost(&mut window, 3, 2));
    assert!(window.next_overdue(wait(&window), at(40)).is_some());
    window.on_reduced();
    assert!(window.next_overdue(wait(&window), at(40)).is_none());
}

/// RFC 8985 §6.2, step 4.
#[test]
fn sixteen_reductions_without_a_late_packet_end_the_wait() {
    for late_after in [None, Some(15)] {
        let mut window = reordered(8);
        for reduction in 1..=16 {
            assert!(!wait(&window).is_zero(), "{reduction}");
            declare_lost(&mut window, reduction, 0);
            if late_after == Some(reduction) {
                assert!(arrive(&mut window, reduction, 3));
            }
            window.on_reduced();
        }
        assert_eq!(wait(&window).is_zero(), late_after.is_none());
        assert_eq!(declare_lost(&mut window, 100, 0), late_after.is_some());
    }
}

#[test]
fn a_packet_beyond_four_round_trips_stays_lost() {
    for (now, late) in [(185, true), (186, false)] {
        let mut window = ReorderingWindow::default();
        declare_lost(&mut window, 1, 0);
        assert_eq!(arrive(&mut window, 1, now), late);
        assert!(!window.has_missing());
    }
}

/// The oldest one counts as lost, and no packet that arrives makes its reduction spurious.
#[test]
fn more_missing_packets_than_the_bound_are_no_reordering() {
    let mut window = reordered(8);
    let bound = MAX_MISSING as u64;
    assert!((2..2 + bound).all(|number| declare_lost(&mut window, number, 1)));
    let since = at(1);
    assert!(!window.is_overdue(since, wait(&window), at(2)));
    let newest = LostPacket { sent: at(1), declared_lost: at(2) };
    assert_eq!(window.on_declared_lost(newest).map(|lost| lost.declared_lost), Some(since));
    window.on_reduced();
    assert!(arrive(&mut window, 1 + bound, 3));
    assert!(window.is_overdue(since, wait(&window), at(3)) && !window.is_overdue(at(2), wait(&window), at(3)));
    assert!(declare_lost(&mut window, 2 * bound, 3), "the others are settled");
    assert!(window.missing.len() <= MAX_MISSING);
    assert!(window.next_overdue(wait(&window), at(100)).is_some());
    assert!(window.next_overdue(wait(&window), at(100)).is_none());
}

#[test]
fn a_packet_whose_number_is_unknown_does_not_arrive() {
    let mut window = reordered(8);
    window.on_declared_lost(LostPacket { sent: at(0), declared_lost: at(0) });
    assert!(!window.on_arrived(&[NumberRange { low: 0, high: u64::MAX }], at(1), RTT));
    assert!(window.next_overdue(wait(&window), at(10)).is_some());
}

proptest! {
    /// Each missing packet is overdue once, at the first acknowledgement after its wait, and none that arrives before.
    #[test]
    fn packets_are_overdue_once_after_the_wait(
        packets in vec((0u64..30, proptest::option::of(0u64..40)), 1..60),
        step in 1u64..6,
    ) {
        let mut window = reordered(16);
        // Number, time of the declaration, time of the arrival.
        let mut declared: Vec<(u64, u64, Option<u64>)> = Vec::new();
        let mut time = 0;
        for (number, (pause, lateness)) in (2..).zip(packets) {
            time += pause;
            declared.push((number, time, lateness.map(|lateness| time + lateness)));
        }
        let mut reported = Vec::new();
        let (mut longest, mut next) = (16, 0);
        for now in (0..time + 100).step_by(usize::try_from(step).unwrap()) {
            // Losses of this time are declared before what arrives now is acknowledged.
            while declared.get(next).is_some_and(|packet| packet.1 <= now) {
                let (number, declared_at, arrives) = declared[next];
                prop_assert!(declare_lost(&mut window, number, now));
                declared[next] = (number, now, arrives.map(|arrives| arrives.max(declared_at)));
                next += 1;
            }
            let arrived: Vec<_> = declared[..next]
                .iter_mut()
                .filter(|packet| packet.2.is_some_and(|arrives| arrives <= now))
                .map(|packet| {
                    packet.2 = None;
                    longest = longest.max(now - packet.1);
                    NumberRange { low: packet.0, high: packet.0 }
                })
                .collect();
            prop_assert_eq!(window.on_arrived(&arrived, at(now), RTT), !arrived.is_empty());
            let wait = wait(&window);
            prop_assert_eq!(wait, (ms(longest) * 5 / 4).min(RTT));
            while let Some(packet) = window.next_overdue(wait, at(now)) {
                prop_assert!(at(now) - packet.declared_lost >= wait);
                reported.push(packet.declared_lost);
            }
            let early = window.missing.iter().skip(window.settled);
            prop_assert!(early.clone().all(|missing| missing.age(at(now)) < wait));
            prop_assert!(window.settled <= window.missing.len());
        }
        prop_assert!(reported.is_sorted() && window.missing.len() == window.settled);
        prop_assert!(reported.len() <= declared.len());
    }
}
