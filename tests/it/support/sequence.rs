//! The order in which the bytes of several streams came.

/// Eight requests in the reverse of their order, each with its `Priority` field, and fields of its response.
pub(crate) const EIGHT: [(Option<&str>, &str); 8] = [
    (Some("u=7"), ""),
    (Some("u=5, i"), ""),
    (Some("u=5, i"), ""),
    (None, ""),
    (Some("u=3"), ""),
    (Some("u=2, i"), ""),
    (Some("u=1"), ""),
    (Some("u=0"), ""),
];
/// Urgency of each of [`EIGHT`], and whether it is incremental.
pub(crate) const PRIORITIES_OF_EIGHT: [(u8, bool); 8] =
    [(7, false), (5, true), (5, true), (3, false), (3, false), (2, true), (1, false), (0, false)];

/// Bytes of streams, each with its ID, as they came.
#[derive(Debug, Clone)]
pub(crate) struct Sequence(pub(crate) Vec<(u64, u64)>);

impl Sequence {
    /// Bytes of `other` that came before the last byte of `stream`.
    pub(crate) fn before_the_last_of(&self, stream: u64, other: u64) -> u64 {
        let last = self.0.iter().rposition(|(id, _)| *id == stream).expect("it came");
        self.0[..last].iter().filter(|(id, _)| *id == other).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of `stream` that came before the first byte of `other`.
    pub(crate) fn before_the_first_of(&self, other: u64, stream: u64) -> u64 {
        let earlier = self.0.iter().take_while(|(id, _)| *id != other);
        earlier.filter(|(id, _)| *id == stream).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of `stream` that came.
    pub(crate) fn of(&self, stream: u64) -> u64 {
        self.0.iter().filter(|(id, _)| *id == stream).map(|(_, bytes)| bytes).sum()
    }

    /// By how many bytes one of `streams` was ahead of another at most, before the first of them had come to its end.
    pub(crate) fn greatest_difference(&self, streams: &[u64]) -> u64 {
        let last = streams.iter().filter_map(|stream| self.0.iter().rposition(|(id, _)| id == stream)).min();
        let mut came = vec![0; streams.len()];
        let mut greatest = 0;
        for (id, bytes) in &self.0[..last.expect("they came")] {
            let Some(index) = streams.iter().position(|stream| stream == id) else { continue };
            came[index] += bytes;
            greatest = greatest.max(came.iter().max().unwrap_or(&0) - came.iter().min().unwrap_or(&0));
        }
        greatest
    }

    /// Checks that each pair of `streams`, an ID with urgency and whether it is incremental, came in order, up to
    /// `horizon` bytes, and that the incremental ones of an urgency, of `size` bytes each, came side by side, up to as
    /// much and a `turn`.
    pub(crate) fn is_in_order(&self, streams: &[(u64, (u8, bool))], (horizon, turn, size): (u64, u64, u64)) {
        for (first, (urgency, incremental)) in streams {
            for (second, (other_urgency, other_incremental)) in streams {
                let precedes = urgency < other_urgency
                    || urgency == other_urgency && !incremental && !other_incremental && first < second;
                if precedes {
                    let overtook = self.before_the_last_of(*first, *second);
                    assert!(overtook <= horizon, "{overtook} bytes of {second} came before the last of {first}");
                }
                if urgency == other_urgency && *incremental && *other_incremental && first != second {
                    let beside = self.before_the_last_of(*first, *second);
                    assert!(beside + horizon + turn >= size, "{second} had {beside} bytes when {first} ended");
                }
            }
        }
    }
}
