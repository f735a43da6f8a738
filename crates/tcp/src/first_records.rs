//! Limits the length of a connection's first TLS records. Pure.
//!
//! A client reads nothing of a record before the whole record has arrived (RFC 8446 §5.2). A record of 16 KiB is longer
//! than TCP's first congestion window of ten segments (RFC 6928 §2), so that the first byte of a longer response would
//! come a round trip later.

use std::io::IoSlice;

/// Number of bytes at a connection's beginning in short records. Then the congestion window has grown to twice the
/// longest record.
const SHORT_RECORDS_BYTES: usize = 32 * 1024;
/// Length of a short record in bytes: three TCP segments.
const SHORT_RECORD_LEN: usize = 4 * 1024;
/// Largest number of slices that are limited. h2 writes a frame's header and data, hyper a header and pieces of a body.
const MAX_LIMITED_SLICES: usize = 8;

/// The limit of the next records of one connection.
#[derive(Debug)]
pub(super) struct FirstRecords {
    left: usize,
}

impl FirstRecords {
    /// Creates the state of a new connection. One without TLS has no records.
    pub(super) const fn new(is_encrypted: bool) -> Self {
        Self { left: if is_encrypted { SHORT_RECORDS_BYTES } else { 0 } }
    }

    /// Calls `write` with the part of `slices` for one write.
    pub(super) fn limit_write<T>(&self, slices: &[IoSlice<'_>], write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let length = slices.iter().fold(0_usize, |sum, slice| sum.saturating_add(slice.len()));
        if self.left == 0 || length <= SHORT_RECORD_LEN {
            return write(slices);
        }
        let mut short = [IoSlice::new(&[]); MAX_LIMITED_SLICES];
        let (mut room, mut count) = (SHORT_RECORD_LEN, 0);
        for (place, slice) in short.iter_mut().zip(slices) {
            let slice: &[u8] = slice;
            let part = slice.get(..room).unwrap_or(slice);
            (*place, room, count) = (IoSlice::new(part), room - part.len(), count + 1);
        }
        // A write of no bytes would mean the end.
        if room == SHORT_RECORD_LEN { write(slices) } else { write(short.get(..count).unwrap_or_default()) }
    }

    pub(super) const fn count_written(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths(records: &FirstRecords, slices: &[&[u8]]) -> Vec<usize> {
        let slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        records.limit_write(&slices, |slices| slices.iter().map(|slice| slice.len()).collect())
    }

    #[test]
    fn the_first_records_are_short_and_later_ones_are_not() {
        let mut records = FirstRecords::new(true);
        let body = vec![7; 20_000];
        assert_eq!(lengths(&records, &[&body]), [4096]);
        assert_eq!(lengths(&records, &[b"short"]), [5]);
        assert_eq!(lengths(&records, &[b"header", &body, b"next"]), [6, 4090, 0]);
        assert_eq!(lengths(&records, &[b"header", &body[..4000], b"next"]), [6, 4000, 4]);
        records.count_written(SHORT_RECORDS_BYTES - 1);
        assert_eq!(lengths(&records, &[&body]), [4096]);
        records.count_written(1);
        assert_eq!(lengths(&records, &[&body]), [20_000]);
        assert_eq!(lengths(&records, &[b"header", &body]), [6, 20_000]);
    }

    #[test]
    fn a_connection_without_tls_has_no_records() {
        let records = FirstRecords::new(false);
        assert_eq!(lengths(&records, &[&[7; 20_000]]), [20_000]);
    }

    proptest! {
        #[test]
        fn a_short_write_is_the_beginning_of_a_long_one(
            slices in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3_000), 0..20),
        ) {
            let all: Vec<u8> = slices.concat();
            let slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
            let written = FirstRecords::new(true).limit_write(&slices, |slices| {
                slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>()
            });
            prop_assert!(all.starts_with(&written));
            prop_assert!(written.len() <= SHORT_RECORD_LEN || slices.iter().take(MAX_LIMITED_SLICES).all(|slice| slice.is_empty()));
            prop_assert!(all.is_empty() || !written.is_empty());
        }
    }
}
