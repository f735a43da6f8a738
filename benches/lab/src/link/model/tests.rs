use super::*;
use proptest::prelude::*;

const MILLISECOND: Duration = Duration::from_millis(1);

fn parameters() -> Parameters {
    Parameters {
        loss: LossParameters::NONE,
        bottleneck: None,
        delay: DelayParameters { delay: Duration::ZERO, jitter: Duration::ZERO, reorder: 0.0, hold: Duration::ZERO },
        duplicate: 0.0,
        faults_above: 0,
        mark_above: None,
    }
}

fn bottleneck(rate: u64, limit: u64) -> Parameters {
    Parameters { bottleneck: Some((Rate::constant(rate).unwrap(), limit)), ..parameters() }
}

/// Arrivals: the time since the one before, a length.
fn arrivals() -> impl Strategy<Value = Vec<(Duration, u32)>> {
    prop::collection::vec((0_u64..2_000_000, 40_u32..1501), 1..300)
        .prop_map(|packets| packets.into_iter().map(|(gap, length)| (Duration::from_nanos(gap), length)).collect())
}

fn faults() -> impl Strategy<Value = Parameters> {
    let loss = (0.0..0.5_f64, 1.0..20.0_f64, 0.5..=1.0_f64);
    let rate = (1_000..1_000_000_000_u64, 1_500..200_000_u64);
    let delay = (0_u64..100, 0_u64..20, 0.0..0.5_f64, 0_u64..20);
    (loss, proptest::option::of(rate), delay, 0.0..0.5_f64, 0..100_000_u64).prop_map(
        |((mean, burst, in_bad), rate, (delay, jitter, reorder, hold), duplicate, mark)| Parameters {
            loss: LossParameters { mean, burst, in_bad },
            bottleneck: rate.map(|(rate, limit)| (Rate::constant(rate).unwrap(), limit)),
            delay: DelayParameters {
                delay: MILLISECOND * u32::try_from(delay).unwrap(),
                jitter: MILLISECOND * u32::try_from(jitter).unwrap(),
                reorder,
                hold: MILLISECOND * u32::try_from(hold).unwrap(),
            },
            duplicate,
            faults_above: 0,
            mark_above: Some(mark),
        },
    )
}

fn fates(parameters: &Parameters, seed: u64, arrivals: &[(Duration, u32)]) -> Vec<Fate> {
    let (mut direction, mut now) = (Direction::new(parameters, seed), Duration::ZERO);
    arrivals
        .iter()
        .map(|(gap, length)| {
            now += *gap;
            direction.arrive(now, *length)
        })
        .collect()
}

fn delivered(fates: &[Fate]) -> Vec<Delivery> {
    fates.iter().filter_map(|fate| if let Fate::Delivered(delivery) = fate { Some(*delivery) } else { None }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_seed_gives_the_same_fates(parameters in faults(), seed: u64, arrivals in arrivals()) {
        prop_assert_eq!(fates(&parameters, seed, &arrivals), fates(&parameters, seed, &arrivals));
    }

    #[test]
    fn the_order_is_kept_where_nothing_reorders(parameters in faults(), seed: u64, arrivals in arrivals()) {
        let delay = DelayParameters { reorder: 0.0, ..parameters.delay };
        let delivered = delivered(&fates(&Parameters { delay, ..parameters }, seed, &arrivals));
        prop_assert!(delivered.is_sorted_by_key(|delivery| delivery.at));
        prop_assert!(delivered.iter().all(|delivery| !delivery.held));
    }

    #[test]
    fn nothing_arrives_before_the_delay_is_over(parameters in faults(), seed: u64, arrivals in arrivals()) {
        let mut now = Duration::ZERO;
        for (fate, (gap, _)) in fates(&parameters, seed, &arrivals).into_iter().zip(&arrivals) {
            now += *gap;
            if let Fate::Delivered(delivery) = fate {
                prop_assert!(delivery.at >= now + parameters.delay.delay);
            }
        }
    }

    /// The packet that arrives is sent after all that are queued before it. Of the first of them some bits may be sent
    /// already: it, at most, makes the wait shorter.
    #[test]
    fn queueing_delay_is_queued_bytes_by_the_rate(
        rate in 1_000_u64..1_000_000_000, limit in 1_500_u64..200_000, arrivals in arrivals()
    ) {
        let parameters = bottleneck(rate, limit);
        let (mut direction, mut now) = (Direction::new(&parameters, 1), Duration::ZERO);
        let time = |bytes: u64| bytes as f64 * 8.0 / rate as f64;
        for (number, (gap, length)) in arrivals.iter().enumerate() {
            now += *gap;
            let queued = direction.queued(now);
            match direction.arrive(now, *length) {
                Fate::Dropped => prop_assert!(queued + u64::from(*length) > limit),
                Fate::Lost => prop_assert!(false, "nothing loses here"),
                Fate::Delivered(delivery) => {
                    prop_assert!(queued + u64::from(*length) <= limit);
                    let (took, rounding) = ((delivery.at - now).as_secs_f64(), (number + 1) as f64 * 1e-9 + 1e-12);
                    let most = time(queued + u64::from(*length));
                    let head = if queued == 0 { 0.0 } else { time(1_500) };
                    prop_assert!(took <= most + rounding && took >= most - head - rounding, "{took} {most}");
                }
            }
        }
    }

    #[test]
    fn a_saturated_link_sends_at_its_rate(rate in 1_000_u64..1_000_000_000, lengths in prop::collection::vec(40_u32..1501, 1..300)) {
        let arrivals: Vec<_> = lengths.iter().map(|length| (Duration::ZERO, *length)).collect();
        let last = delivered(&fates(&bottleneck(rate, u64::MAX), 1, &arrivals)).last().unwrap().at;
        let bits = lengths.iter().map(|length| f64::from(*length) * 8.0).sum::<f64>();
        let rounding = lengths.len() as f64 * 1e-9 + 1e-9;
        prop_assert!((last.as_secs_f64() - bits / rate as f64).abs() <= rounding);
    }

    /// Of a binomial distribution, five standard deviations: one run of three million lies outside.
    #[test]
    fn loss_lies_within_its_binomial_interval(mean in 0.001_f64..0.5, seed: u64) {
        const PACKETS: u32 = 10_000;
        let mut loss = Loss::new(LossParameters { mean, ..LossParameters::NONE }, Random::new(seed));
        let lost = (0..PACKETS).filter(|_| loss.draw()).count() as f64;
        let packets = f64::from(PACKETS);
        let deviation = (packets * mean * (1.0 - mean)).sqrt();
        prop_assert!((lost - packets * mean).abs() <= 5.0 * deviation, "{lost} of {packets} at {mean}");
    }

    #[test]
    fn bursty_loss_has_its_mean_and_its_length(mean in 0.01_f64..0.3, burst in 2.0_f64..10.0, seed: u64) {
        const PACKETS: u32 = 50_000;
        let mut loss = Loss::new(LossParameters { mean, burst, in_bad: 1.0 }, Random::new(seed));
        let lost: Vec<bool> = (0..PACKETS).map(|_| loss.draw()).collect();
        let (mut count, mut bursts, mut before) = (0.0, 0.0, false);
        for lost in lost {
            count += f64::from(u8::from(lost));
            bursts += f64::from(u8::from(lost && !before));
            before = lost;
        }
        // Draws are not independent here: the deviation is that of so many bursts.
        let tolerance = 7.0 / f64::sqrt(bursts);
        prop_assert!((count / f64::from(PACKETS) / mean - 1.0).abs() < tolerance, "{count}");
        prop_assert!((count / bursts / burst - 1.0).abs() < tolerance, "{}", count / bursts);
    }

    #[test]
    fn one_faults_rate_changes_nothing_of_anothers_choice(seed: u64, duplicate in 0.0..1.0_f64) {
        let arrivals = vec![(MILLISECOND, 1000); 300];
        let lossy = Parameters { loss: LossParameters { mean: 0.3, ..LossParameters::NONE }, ..parameters() };
        let both = Parameters { duplicate, ..lossy.clone() };
        let lost = |parameters| fates(parameters, seed, &arrivals).into_iter().map(|fate| fate == Fate::Lost).collect::<Vec<_>>();
        prop_assert_eq!(lost(&lossy), lost(&both));
    }
}

#[test]
fn a_burst_leaves_what_the_queue_holds() {
    let fates = fates(&bottleneck(20_000_000, 50_000), 1, &[(Duration::ZERO, 1228); 52]);
    assert_eq!(delivered(&fates).len(), 40, "40 × 1228 is 49,120; 41 are more than 50,000");
    assert_eq!(delivered(&fates)[0].at, Duration::from_nanos(491_200));
}

#[test]
fn a_trace_changes_the_rate_and_begins_anew() {
    let step = |rate, lasts| Step { rate, lasts: MILLISECOND * lasts };
    let rate = Rate::steps(vec![step(8_000_000, 10), step(0, 5), step(800_000, 10)]).unwrap();
    // 1000 bytes are 1 ms at the first rate.
    assert_eq!(rate.sent(Duration::ZERO, 1000), MILLISECOND);
    assert_eq!(rate.sent(MILLISECOND * 9, 1000), MILLISECOND * 10);
    assert_eq!(rate.sent(MILLISECOND * 10, 100), MILLISECOND * 16, "after the cut");
    // Half of it before the cut, half after it at a tenth of the rate.
    assert_eq!(rate.sent(Duration::from_micros(9_500), 1000), MILLISECOND * 20);
    assert_eq!(rate.sent(MILLISECOND * 25, 1000), MILLISECOND * 26, "the first step again");
    assert_eq!((rate.first(), rate.highest()), (8_000_000, 8_000_000));
}

#[test]
fn draws_and_traces_begin_anew_together() {
    let steps = vec![Step { rate: 8_000_000, lasts: MILLISECOND * 10 }, Step { rate: 80_000, lasts: Duration::MAX }];
    let loss = LossParameters { mean: 0.3, burst: 3.0, in_bad: 0.9 };
    let parameters = Parameters { loss, bottleneck: Some((Rate::steps(steps).unwrap(), 1_000_000)), ..parameters() };
    let mut direction = Direction::new(&parameters, 5);
    let mut at = |from: Duration| -> Vec<Fate> {
        direction.begin_anew(from, &parameters, 5);
        (0..100).map(|number| direction.arrive(from + MILLISECOND / 50 * number, 100)).collect()
    };
    let (first, second) = (at(MILLISECOND), at(Duration::from_secs(1000)));
    let since = |fates: &[Fate], from: Duration| -> Vec<Duration> {
        delivered(fates).iter().map(|delivery| delivery.at - from).collect()
    };
    assert_eq!(since(&first, MILLISECOND), since(&second, Duration::from_secs(1000)));
    assert!(first.contains(&Fate::Lost));
}

#[test]
fn a_step_can_last_for_ever() {
    let steps = vec![Step { rate: 50_000_000, lasts: MILLISECOND }, Step { rate: 2_000_000, lasts: Duration::MAX }];
    let rate = Rate::steps(steps).unwrap();
    assert_eq!(rate.sent(Duration::from_secs(1000), 250), Duration::from_secs(1000) + MILLISECOND);
}

#[test]
fn a_rate_that_never_sends_again_is_none() {
    assert_eq!(Rate::constant(0), None);
    assert_eq!(Rate::steps(vec![]), None);
    assert_eq!(Rate::steps(vec![Step { rate: 5, lasts: Duration::ZERO }]), None);
    assert_eq!(Rate::steps(vec![Step { rate: 0, lasts: MILLISECOND }]), None);
    let then_cut = vec![Step { rate: 5, lasts: MILLISECOND }, Step { rate: 0, lasts: Duration::MAX }];
    assert_eq!(Rate::steps(then_cut), None);
}

#[test]
fn later_packets_overtake_one_that_is_held_back() {
    let delay = DelayParameters { delay: MILLISECOND, jitter: Duration::ZERO, reorder: 0.2, hold: MILLISECOND * 5 };
    let fates = fates(&Parameters { delay, ..parameters() }, 3, &[(MILLISECOND, 100); 100]);
    let delivered = delivered(&fates);
    let held = delivered.iter().filter(|delivery| delivery.held).count();
    assert!((10..30).contains(&held), "{held}");
    assert!(!delivered.is_sorted_by_key(|delivery| delivery.at));
    for (number, delivery) in delivered.iter().enumerate() {
        let arrived = MILLISECOND * u32::try_from(number + 1).unwrap();
        assert_eq!(delivery.at - arrived, if delivery.held { MILLISECOND * 6 } else { MILLISECOND });
    }
}

#[test]
fn packets_that_find_a_long_queue_are_marked() {
    let parameters = Parameters { mark_above: Some(3_000), ..bottleneck(1_000_000, 10_000) };
    let fates = fates(&parameters, 1, &[(Duration::ZERO, 1_000); 10]);
    let marked: Vec<bool> = delivered(&fates).iter().map(|delivery| delivery.congested).collect();
    assert_eq!(marked, [false, false, false, false, true, true, true, true, true, true]);
}

#[test]
fn so_many_come_twice() {
    let fates = fates(&Parameters { duplicate: 0.1, ..parameters() }, 9, &[(MILLISECOND, 100); 1_000]);
    let twice = delivered(&fates).iter().filter(|delivery| delivery.twice).count();
    assert!((70..130).contains(&twice), "{twice}");
}

/// Large packets are late and no smaller one is, as on paths of some mobile carriers.
#[test]
fn faults_meet_packets_above_their_size_alone() {
    let delay = DelayParameters { delay: MILLISECOND, jitter: Duration::ZERO, reorder: 0.5, hold: MILLISECOND * 5 };
    let loss = LossParameters { mean: 0.3, ..LossParameters::NONE };
    let parameters = Parameters { delay, loss, duplicate: 0.5, faults_above: 1_440, ..parameters() };
    for (length, faults) in [(1_440, false), (1_441, true)] {
        let fates = fates(&parameters, 4, &[(MILLISECOND, length); 100]);
        let delivered = delivered(&fates);
        assert_eq!(fates.contains(&Fate::Lost), faults);
        assert_eq!(delivered.iter().any(|delivery| delivery.held), faults);
        assert_eq!(delivered.iter().any(|delivery| delivery.twice), faults);
    }
}
