//! Adds SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218 §2.1), which h2 cannot send, to a connection's first frame. Some
//! clients send PRIORITY_UPDATE frames only to a server that sends this setting there.

use litequic_exchange::http2::{FRAME_HEADER_LEN, Http2FrameHeader, kind};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;

/// SETTINGS_NO_RFC7540_PRIORITIES with the value 1.
const NO_RFC7540_PRIORITIES: [u8; 6] = [0, 9, 0, 0, 0, 1];

/// The first frame, written in place of h2's.
#[derive(Debug, Default)]
pub(super) struct FirstSettings {
    /// The frame; empty before h2 writes.
    frame: Vec<u8>,
    written: usize,
    /// Length of h2's frame in bytes.
    length: usize,
}

impl FirstSettings {
    /// Writes the replacement of the frame at the beginning of `slices` to `stream`. Ready with the number of bytes of
    /// `slices` that it replaces, or 0 if these do not begin with a complete SETTINGS frame. Then the work is done.
    pub(super) fn poll_write_frame<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        slices: &[IoSlice<'_>],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.frame.is_empty() {
            let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
            let Some((frame, length)) = add_setting(first) else { return Poll::Ready(Ok(0)) };
            (self.frame, self.length) = (frame, length);
        }
        while let Some(left @ [_, ..]) = self.frame.get(self.written..) {
            let written = ready!(Pin::new(&mut *stream).poll_write(cx, left))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written = self.written.saturating_add(written);
        }
        Poll::Ready(Ok(self.length))
    }
}

/// Returns the SETTINGS frame at the beginning of `bytes` with [`NO_RFC7540_PRIORITIES`], and the length of the
/// original frame. `None` if there is no complete one.
fn add_setting(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (header, rest) = bytes.split_first_chunk()?;
    let header = Http2FrameHeader::parse_frame_header(header);
    // A flag would mean an acknowledgement.
    if (header.kind, header.flags) != (kind::SETTINGS, 0) {
        return None;
    }
    let payload = rest.get(..usize::try_from(header.length).ok()?)?;
    let length = header.length.checked_add(u32::try_from(NO_RFC7540_PRIORITIES.len()).ok()?)?;
    let header = Http2FrameHeader { length, ..header };
    let frame = [&header.header_bytes()[..], payload, &NO_RFC7540_PRIORITIES].concat();
    Some((frame, FRAME_HEADER_LEN + payload.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, task::Waker};
    use tokio::io::{AsyncReadExt, duplex};

    const FRAME: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
    const REPLACED: [u8; 21] = [0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100, 0, 9, 0, 0, 0, 1];

    #[tokio::test]
    async fn the_first_settings_frame_has_one_setting_more() {
        let (mut ours, mut theirs) = duplex(5);
        let both = [&FRAME[..], b"more"].concat();
        let slices = [IoSlice::new(&[]), IoSlice::new(&both)];
        let mut first = FirstSettings::default();
        let mut read = [0; REPLACED.len()];
        let (written, came) =
            tokio::join!(poll_fn(|cx| first.poll_write_frame(&mut ours, &slices, cx)), theirs.read_exact(&mut read));
        assert_eq!((written.unwrap(), came.unwrap(), read), (FRAME.len(), REPLACED.len(), REPLACED));
    }

    #[test]
    fn bytes_other_than_a_whole_settings_frame_are_unchanged() {
        let mut acknowledgement = FRAME;
        acknowledgement[4] = 1;
        for bytes in [&[][..], &FRAME[..14], &acknowledgement, b"HTTP/1.1 400 Bad Request\r\n"] {
            let (mut ours, _theirs) = duplex(100);
            let mut first = FirstSettings::default();
            let written =
                first.poll_write_frame(&mut ours, &[IoSlice::new(bytes)], &mut Context::from_waker(Waker::noop()));
            assert!(matches!(written, Poll::Ready(Ok(0))), "{bytes:?}");
        }
    }
}
