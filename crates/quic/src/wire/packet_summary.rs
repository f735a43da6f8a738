//! Summarizes a decrypted 1-RTT packet in one iteration over its frames: the number that keep litequic busy, frames
//! about streams, and the place of its acknowledgement. Pure.

use super::{
    frame::{AckRanges, FrameIter, kind},
    violation,
};
use s2n_quic_core::transport;
use std::ops::Range;

/// Summary of one packet, reused for the next because of the memory of `stream_frames`.
#[derive(Debug, Default)]
pub(crate) struct PacketSummary {
    /// Number of frames that move no data. A packet needs one ACK frame: further ones count as well.
    pub(crate) control: u32,
    /// Number of ACK frames.
    pub(crate) acks: u32,
    /// The sender waits for the response to the packet: to a request, a body, a path.
    pub(crate) is_latency_critical: bool,
    /// The packet opens a request.
    pub(crate) opens_request: bool,
    /// Counts of frames by which the client reports that limits block it.
    pub(crate) blocked: BlockedFrames,
    /// Frames about streams, in order.
    pub(crate) stream_frames: Vec<StreamFrame>,
    /// First violation in the packet that s2n-quic does not detect or has no code for. Later frames were not read.
    pub(crate) violation: Option<transport::Error>,
    /// Place of the last ACK frame.
    ack: Range<usize>,
    /// Place of the last ACK frame's body.
    ack_body: Range<usize>,
    /// Every frame was parsed.
    is_complete: bool,
}

/// Counts of frames by which a client reports that a limit blocks it (RFC 9000 §4).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockedFrames {
    /// STREAMS_BLOCKED frames: the client cannot open another request.
    pub(crate) streams: u32,
    /// DATA_BLOCKED frames: the client cannot send more on the connection.
    pub(crate) data: u32,
    /// STREAM_DATA_BLOCKED frames: the client cannot send more on a stream.
    pub(crate) stream_data: u32,
}

/// A client's frame about one of its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamFrame {
    /// The client allows `limit` bytes in all on the stream (MAX_STREAM_DATA).
    MaxStreamData {
        /// ID of the stream.
        stream: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The client wants no more data on the stream with this ID.
    StopSending(u64),
}

impl PacketSummary {
    /// Resets the summary, and reads the frames of `payload`.
    pub(crate) fn summarize_packet(&mut self, payload: &[u8]) {
        (self.control, self.acks, self.blocked) = (0, 0, BlockedFrames::default());
        (self.is_latency_critical, self.opens_request) = (false, false);
        self.stream_frames.clear();
        self.violation = None;
        let mut frames = FrameIter::new(payload);
        for frame in frames.by_ref() {
            if matches!(frame.kind, kind::ACK | kind::ACK_ECN) {
                self.control += u32::from(self.acks > 0);
                self.acks += 1;
                self.ack_body = frame.range.end - frame.body.len()..frame.range.end;
                self.ack = frame.range;
                continue;
            }
            if let Some(violation) = violation::find_violation(&frame) {
                self.violation = Some(violation);
                break;
            }
            self.control += u32::from(frame.is_control());
            self.is_latency_critical |= frame.is_latency_critical();
            self.opens_request |= frame.opens_request();
            match frame.kind {
                kind::STREAMS_BLOCKED => self.blocked.streams += 1,
                kind::DATA_BLOCKED => self.blocked.data += 1,
                kind::STREAM_DATA_BLOCKED => self.blocked.stream_data += 1,
                // s2n-quic reads no frame behind this one.
                kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE => {
                    self.is_complete = true;
                    return;
                }
                _ => {}
            }
            if let Some((stream, limit)) = frame.max_stream_data() {
                self.stream_frames.push(StreamFrame::MaxStreamData { stream, limit });
            } else if let Some(stream) = frame.stop_sending() {
                self.stream_frames.push(StreamFrame::StopSending(stream));
            }
        }
        self.is_complete = frames.is_fully_parsed();
        if !self.is_complete && self.violation.is_none() {
            self.violation = Some(violation::UNREADABLE_FRAME);
        }
    }

    /// Place and ranges of the only ACK frame in `payload`, which was summarized. `None` without one, with several, or
    /// after a frame that was not parsed: then the packet is left to s2n-quic.
    pub(crate) fn sole_ack<'a>(&self, payload: &'a [u8]) -> Option<(Range<usize>, AckRanges<'a>)> {
        if self.acks != 1 || !self.is_complete {
            return None;
        }
        Some((self.ack.clone(), AckRanges::new(payload.get(self.ack_body.clone())?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::NumberRange;

    const ACK: [u8; 5] = [0x02, 9, 0, 0, 2];

    fn read(payload: &[u8]) -> PacketSummary {
        let mut summary = PacketSummary::default();
        // The summary of an earlier packet is forgotten.
        summary.summarize_packet(&[&ACK[..], &ACK, &[0x05, 4, 1, 0xff]].concat());
        summary.summarize_packet(payload);
        summary
    }

    #[test]
    fn a_request_begins_with_the_first_byte_of_a_clients_bidirectional_stream() {
        for (payload, opens) in [
            (&[0x08, 0, 1, 2][..], true),
            (&[0x0a, 0x40, 0x44, 2, 1, 2], true),
            (&[0x0e, 4, 0, 1, 9], true),
            // Data of an upload, a stream of the server, the control stream, and no data at all open none.
            (&[0x0e, 4, 1, 1, 9], false),
            (&[0x0c, 4, 0x44, 0, 9], false),
            (&[0x08, 1, 1], false),
            (&[0x08, 2, 1], false),
            (&[0x05, 4, 1], false),
            (&[0x01], false),
        ] {
            assert_eq!(read(payload).opens_request, opens, "{payload:x?}");
        }
    }

    #[test]
    fn a_packet_needs_one_acknowledgement() {
        let data = [&[0x0a, 0, 20], &[7; 20][..]].concat();
        for (what, payload, control, acks) in [
            ("a download's", ACK.to_vec(), 0, 1),
            ("an upload's", [&ACK[..], &data].concat(), 0, 1),
            ("acknowledged thrice", ACK.repeat(3), 2, 3),
            ("a window raised", [&ACK[..], &[0x11, 0, 9], &data].concat(), 1, 1),
            ("PING and PADDING", vec![1, 0, 0, 1, 0], 2, 0),
            ("full of PING", vec![1; 1200], 1200, 0),
            ("nothing", vec![], 0, 0),
        ] {
            let summary = read(&payload);
            assert_eq!((summary.control, summary.acks), (control, acks), "{what}");
        }
    }

    #[test]
    fn frames_about_streams_are_found_in_their_order() {
        let payload = [&[0x11, 4, 9][..], &ACK, &[0x05, 8, 1, 0x11, 4, 7]].concat();
        let raised = |limit| StreamFrame::MaxStreamData { stream: 4, limit };
        assert_eq!(read(&payload).stream_frames, [raised(9), StreamFrame::StopSending(8), raised(7)]);
    }

    #[test]
    fn the_first_violation_is_found_and_none_behind_a_close() {
        let code = |payload: &[u8]| read(payload).violation.map(|error| error.code.as_u64());
        let on_send_only = [0x04, 3, 0, 0];
        for (what, payload, expected) in [
            ("nothing", vec![], None),
            ("an acknowledgement", ACK.to_vec(), None),
            ("a reset of litequic's own stream", [&ACK[..], &on_send_only].concat(), Some(0x05)),
            ("two breaches", [&on_send_only[..], &[0x31, 0]].concat(), Some(0x05)),
            ("an unknown frame", vec![0x01, 0x21], Some(0x07)),
            ("a frame that is cut", vec![0x01, 0x04, 0], Some(0x07)),
            ("a breach before what is cut", [&on_send_only[..], &[0x04]].concat(), Some(0x05)),
            ("a close and then nonsense", vec![0x1c, 0, 0, 0, 0x21], None),
            ("a close of the application and then a breach", [&[0x1d, 0, 0][..], &on_send_only].concat(), None),
        ] {
            assert_eq!(code(&payload), expected, "{what}");
        }
    }

    #[test]
    fn frames_of_clients_that_a_limit_blocks_are_counted() {
        let blocked = |streams, data, stream_data| BlockedFrames { streams, data, stream_data };
        let payload = [&[0x16, 9][..], &ACK, &[0x14, 9, 0x15, 0, 9, 0x15, 4, 9]].concat();
        assert_eq!(read(&payload).blocked, blocked(1, 1, 2));
        // Unidirectional streams are another limit.
        assert_eq!(read(&[0x17, 9]).blocked, blocked(0, 0, 0));
        assert_eq!(read(&ACK).blocked, blocked(0, 0, 0));
    }

    #[test]
    fn the_only_ack_frame_of_a_parsed_packet_is_found() {
        let found = |payload: &[u8]| {
            let summary = read(payload);
            summary.sole_ack(payload).map(|(range, ranges)| (range, ranges.collect::<Vec<_>>()))
        };
        let expected = |range| Some((range, vec![Ok(NumberRange { low: 7, high: 9 })]));
        assert_eq!(found(&ACK), expected(0..5));
        assert_eq!(found(&[&[0, 1][..], &ACK, &[0, 0]].concat()), expected(2..7));
        assert_eq!(found(&[0x03, 9, 0, 0, 2, 1, 2, 3, 0x05, 4, 1]), expected(0..8));
        for payload in [ACK.repeat(2), [&ACK[..], &[0x20]].concat(), [&ACK[..], &[0x04, 1]].concat(), vec![1], vec![]] {
            assert_eq!(found(&payload), None, "{payload:?}");
        }
    }
}
