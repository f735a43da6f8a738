//! Decides about a request's trace: whether it continues the client's trace, and whether it is sampled. Pure.

use litequic_config::Fraction;
use litequic_exchange::{RequestTrace, SpanId, TraceFlags, TraceId, Traceparent};

/// Number of a trace ID's last bits that decide: the bits that `random` promises (Trace Context, level 2, §3.2.2.5.2).
const RANDOM_BITS: u32 = 56;

/// Samples a share of the traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampler {
    /// Smallest value of the last 56 bits of sampled traces, as in OpenTelemetry's consistent sampling.
    threshold: u64,
}

impl Sampler {
    pub(super) fn new(ratio: Fraction) -> Self {
        let all = 1_u128 << RANDOM_BITS;
        let rejected = all - all * u128::from(ratio.0.min(Fraction::ALL.0)) / u128::from(Fraction::ALL.0);
        Self { threshold: u64::try_from(rejected).unwrap_or(u64::MAX) }
    }

    pub(super) fn samples_trace(self, trace_id: TraceId) -> bool {
        let last = trace_id.bytes().last_chunk::<8>().map_or(0, |last| u64::from_be_bytes(*last));
        (last & ((1 << RANDOM_BITS) - 1)) >= self.threshold
    }
}

/// Decides about the trace of a request whose `request_id` litequic or a trusted proxy has made; if that has not the
/// form of a trace ID, a new trace has the ID `own`. With `counts`, the client's `traceparent` is continued; otherwise
/// a new trace links to it.
pub(super) fn decide_trace(
    traceparent: Option<Traceparent>,
    counts: bool,
    request_id: &[u8],
    own: TraceId,
    sampler: Sampler,
) -> RequestTrace {
    let span_id = SpanId::random();
    let attempts = Vec::new();
    match traceparent {
        Some(Traceparent { trace_id, parent_id, flags }) if counts => {
            RequestTrace { trace_id, span_id, parent_id: Some(parent_id), flags, link: None, attempts }
        }
        link => {
            // The log, the error page and the trace have the same ID.
            let given = if own.digits() == *request_id { None } else { TraceId::parse(request_id) };
            let trace_id = given.unwrap_or(own);
            let flags = TraceFlags::new(sampler.samples_trace(trace_id), true);
            RequestTrace { trace_id, span_id, parent_id: None, flags, link, attempts }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn trace_id(last: u64) -> TraceId {
        let mut bytes = [0xff; 16];
        bytes[8..].copy_from_slice(&last.to_be_bytes());
        TraceId::new(bytes).unwrap()
    }

    #[test]
    fn the_last_56_bits_decide() {
        let half = Sampler::new(Fraction(500_000));
        for (last, taken) in [
            (0, false),
            (0xff00_0000_0000_0000, false),
            (0x007f_ffff_ffff_ffff, false),
            (0x0080_0000_0000_0000, true),
            (0x00ff_ffff_ffff_ffff, true),
        ] {
            assert_eq!(half.samples_trace(trace_id(last)), taken, "{last:x}");
            assert!(Sampler::new(Fraction::ALL).samples_trace(trace_id(last)));
            assert!(!Sampler::new(Fraction(0)).samples_trace(trace_id(last)));
        }
    }

    #[test]
    fn a_traceparent_is_continued_or_linked() {
        let parent = format!("00-{ID}-00f067aa0ba902b7-01");
        let parent = Traceparent::parse_traceparent(parent.as_bytes()).unwrap();
        let none = Sampler::new(Fraction(0));
        let own = TraceId::random();
        let id = own.to_string();

        let followed = decide_trace(Some(parent), true, id.as_bytes(), own, none);
        assert_eq!((followed.trace_id, followed.parent_id), (parent.trace_id, Some(parent.parent_id)));
        assert!(followed.flags.is_sampled() && followed.is_continued() && followed.link.is_none());
        assert_ne!(followed.span_id, parent.parent_id);

        let linked = decide_trace(Some(parent), false, id.as_bytes(), own, none);
        assert_eq!((linked.trace_id, linked.parent_id, linked.link), (own, None, Some(parent)));
        assert!(!linked.flags.is_sampled() && linked.flags.is_random() && !linked.is_continued());
    }

    #[test]
    fn a_new_trace_takes_a_request_id_in_trace_format() {
        let (all, own) = (Sampler::new(Fraction::ALL), TraceId::random());
        for id in ["", "abc", "00000000000000000000000000000000", "4BF92F3577B34DA6A3CE929D0E0E4736"] {
            assert_eq!(decide_trace(None, true, id.as_bytes(), own, all).trace_id, own, "{id}");
        }
        assert_eq!(decide_trace(None, true, ID.as_bytes(), own, all).trace_id.to_string(), ID);
    }

    proptest! {
        /// Compared with the bits as a fraction.
        #[test]
        fn a_ratio_takes_its_share(ratio in 0u32..=1_000_000, last: u64) {
            let part = (last & ((1 << RANDOM_BITS) - 1)) as f64 / (1_u64 << RANDOM_BITS) as f64;
            let wanted = 1.0 - f64::from(ratio) / 1e6;
            // A double has three bits fewer.
            if (part - wanted).abs() > 1e-12 {
                prop_assert_eq!(Sampler::new(Fraction(ratio)).samples_trace(trace_id(last)), part > wanted);
            }
        }
    }
}
