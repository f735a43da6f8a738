//! A decrypted packet's frames: one after the other, nothing but PADDING between them, and the same as s2n-quic reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use litequic_quic::frame::FrameIter;
use s2n_codec::DecoderBufferMut;
use s2n_quic_core::frame::FrameMut;

fuzz_target!(|payload: &[u8]| {
    let mut end = 0;
    for frame in FrameIter::new(payload) {
        assert!(frame.range.start >= end && frame.range.end > frame.range.start);
        assert!(payload[end..frame.range.start].iter().all(|&byte| byte == 0));
        assert!(payload[frame.range.clone()].ends_with(frame.body));
        let _ = (frame.stream_type(), frame.leading_integers::<3>());
        end = frame.range.end;
    }
    assert!(end <= payload.len());

    let mut copy = payload.to_vec();
    let mut frames = FrameIter::new(payload);
    let mut rest = DecoderBufferMut::new(&mut copy);
    while let Ok((oracle, next)) = rest.decode::<FrameMut>() {
        rest = next;
        match oracle {
            FrameMut::Padding(_) => continue,
            // litequic's s2n-quic closes the connection at these.
            FrameMut::DcStatelessResetTokens(_) => return,
            _ => {}
        }
        let found = frames.next().expect("a frame that s2n-quic reads");
        assert_eq!(found.range.end, payload.len() - rest.len());
        if let FrameMut::MaxStreamData(frame) = oracle {
            let expected = (frame.stream_id.as_u64(), frame.maximum_stream_data.as_u64());
            assert_eq!(found.max_stream_data(), Some(expected));
        }
        if let FrameMut::StopSending(frame) = oracle {
            assert_eq!(found.stop_sending(), Some(frame.stream_id.as_u64()));
        }
        if let FrameMut::Stream(frame) = oracle {
            assert_eq!(found.is_control(), frame.data.len() < 16);
        }
    }
});
