//! A client's transport parameters: every offer that is read can be used for a request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_quic::AckFrequencySupport;
use std::time::Duration;

fuzz_target!(|parameters: &[u8]| {
    if let Some(support) = AckFrequencySupport::from_parameters(parameters) {
        assert!(support.min_ack_delay <= support.max_ack_delay);
        assert!(support.max_ack_delay < Duration::from_millis(1 << 14));
    }
});
