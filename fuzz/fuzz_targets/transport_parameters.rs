//! A client's transport parameters: every offer that is read can be used for a request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic::quic::Offer;
use std::time::Duration;

fuzz_target!(|parameters: &[u8]| {
    if let Some(offer) = Offer::read(parameters) {
        assert!(offer.min_ack_delay <= offer.max_ack_delay);
        assert!(offer.max_ack_delay < Duration::from_millis(1 << 14));
    }
});
