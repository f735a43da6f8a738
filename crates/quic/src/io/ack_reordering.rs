//! Reorders ACK frames so that they can be merged, newest first: of the acknowledgements that a connection's client
//! sent since the socket was last emptied, the newest includes the others. [`AckReordering`] moves it before them,
//! `quic::connection` finds that they have no new numbers, and `quic::endpoint` writes PADDING over them, which
//! s2n-quic skips. Nothing is held back, so that nothing can be lost. Pure.
//! docs/adr/0012-newest-acknowledgement-first.md has the reasons.
//!
//! A batch of datagrams is processed in the order of arrival, except that the last two of a connection's consecutive
//! small datagrams precede the others of that run, the newest first. Two, because which of them holds an
//! acknowledgement is not known yet, and some clients send other frames (MAX_STREAM_DATA) separately.

use std::collections::HashMap;

/// Largest number of its connection's datagrams that one may overtake. s2n-quic regards a packet as a duplicate if its
/// number is 129 below the largest seen: with 64, half of the client's packets may be lost on the path, and none is
/// rejected.
pub const MAX_OVERTAKEN: usize = 64;
/// Largest datagram that may overtake, bytes: an ACK frame of 64 ranges, with header and tag. A larger one carries an
/// upload, which must keep its order; nothing overtakes it.
pub const MAX_SMALL_DATAGRAM_LEN: usize = 256;
/// Largest number of connections examined in a batch; datagrams of further connections keep their place.
pub const MAX_REORDERED_CONNECTIONS: usize = 1024;

/// A received datagram before decryption.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<P> {
    /// Key of the connection, equal for its datagrams. Two connections with one key, by accident or by an attacker's
    /// choice, have their datagrams reordered as if they were one, which harms neither.
    pub connection: u64,
    /// Addresses of the datagram, which does not overtake one of another path: s2n-quic sends to the source of the last
    /// one.
    pub path: P,
    /// Bytes of the datagram.
    pub len: usize,
}

/// Reorders batches of datagrams. Holds 32 bytes for each datagram of the largest batch, and those of
/// [`MAX_REORDERED_CONNECTIONS`] connections.
#[derive(Debug)]
pub struct AckReordering<P> {
    positions: Vec<BatchPosition>,
    runs: Vec<SmallRun<P>>,
    /// Index of each connection's run. The hash has a key, because senders choose the content of datagrams.
    by_connection: HashMap<u64, usize>,
    /// Connection of the last datagram, and index of its run: with GRO one connection's datagrams are adjacent.
    last: Option<(u64, usize)>,
}

/// Datagrams that are processed at one position of a batch.
#[derive(Debug, Clone, Copy)]
enum BatchPosition {
    /// The datagram that arrived at the position.
    Itself,
    /// One or two later datagrams, then the one that arrived at the position.
    Behind(usize, Option<usize>),
    /// No datagram: the one that arrived at the position was moved ahead.
    Gone,
}

/// A run of a connection's small datagrams, with none of its large ones between.
#[derive(Debug)]
struct SmallRun<P> {
    first: usize,
    last: usize,
    before_last: usize,
    /// Number of datagrams in the run.
    len: usize,
    path: P,
}

impl<P> Default for AckReordering<P> {
    fn default() -> Self {
        Self { positions: Vec::new(), runs: Vec::new(), by_connection: HashMap::new(), last: None }
    }
}

impl<P: Copy + PartialEq> AckReordering<P> {
    /// Orders a batch, in place of the last one. `None` stands for a datagram without a known connection ID, which
    /// keeps its place.
    pub fn order_batch(&mut self, batch: impl Iterator<Item = Option<Arrival<P>>>) {
        self.positions.clear();
        self.runs.clear();
        self.by_connection.clear();
        self.last = None;
        for (index, arrival) in batch.enumerate() {
            self.positions.push(BatchPosition::Itself);
            if let Some(arrival) = arrival {
                self.add_arrival(index, &arrival);
            }
        }
        for run in &mut self.runs {
            run.end_run(&mut self.positions);
        }
    }

    /// Passes the indices of the whole batch to `hand_over`, in the new order.
    pub fn for_each_index(&self, mut hand_over: impl FnMut(usize)) {
        (0..self.positions.len()).for_each(|index| self.visit_position(index, &mut hand_over));
    }

    /// Passes the indices of the datagrams at position `index` to `hand_over`: up to three.
    pub fn visit_position(&self, index: usize, mut hand_over: impl FnMut(usize)) {
        match self.positions.get(index) {
            Some(BatchPosition::Itself) => hand_over(index),
            Some(&BatchPosition::Behind(newest, next)) => {
                hand_over(newest);
                next.into_iter().for_each(&mut hand_over);
                hand_over(index);
            }
            Some(BatchPosition::Gone) | None => {}
        }
    }

    fn add_arrival(&mut self, index: usize, arrival: &Arrival<P>) {
        let Some(run) = self.find_run(arrival).and_then(|run| self.runs.get_mut(run)) else { return };
        if arrival.len > MAX_SMALL_DATAGRAM_LEN {
            run.end_run(&mut self.positions);
            return;
        }
        if run.path != arrival.path || run.len > MAX_OVERTAKEN {
            run.end_run(&mut self.positions);
        }
        if run.len == 0 {
            (run.first, run.path) = (index, arrival.path);
        }
        run.before_last = std::mem::replace(&mut run.last, index);
        run.len += 1;
    }

    /// Finds or creates the run of an arrival's connection; `None` beyond [`MAX_REORDERED_CONNECTIONS`].
    fn find_run(&mut self, arrival: &Arrival<P>) -> Option<usize> {
        let Arrival { connection, path, .. } = *arrival;
        if let Some((last, run)) = self.last
            && last == connection
        {
            return Some(run);
        }
        let known = self.by_connection.get(&connection).copied();
        let run = known.or_else(|| {
            let run = self.runs.len();
            (run < MAX_REORDERED_CONNECTIONS).then(|| {
                self.runs.push(SmallRun { first: 0, last: 0, before_last: 0, len: 0, path });
                self.by_connection.insert(connection, run);
                run
            })
        })?;
        self.last = Some((connection, run));
        Some(run)
    }
}

impl<P> SmallRun<P> {
    fn end_run(&mut self, positions: &mut [BatchPosition]) {
        let len = std::mem::take(&mut self.len);
        if len < 2 {
            return;
        }
        let next = (len > 2).then_some(self.before_last);
        let gone = [Some(self.last), next].into_iter().flatten().map(|index| (index, BatchPosition::Gone));
        for (index, position) in gone.chain([(self.first, BatchPosition::Behind(self.last, next))]) {
            if let Some(at) = positions.get_mut(index) {
                *at = position;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    type Slot = Option<Arrival<u8>>;

    fn small(connection: u64) -> Slot {
        Some(Arrival { connection, path: 0, len: 50 })
    }

    fn large(connection: u64) -> Slot {
        Some(Arrival { connection, path: 0, len: MAX_SMALL_DATAGRAM_LEN + 1 })
    }

    fn from(path: u8) -> Slot {
        Some(Arrival { connection: 1, path, len: MAX_SMALL_DATAGRAM_LEN })
    }

    fn arrange(order: &mut AckReordering<u8>, batch: &[Slot]) -> Vec<usize> {
        order.order_batch(batch.iter().copied());
        let mut sequence = Vec::new();
        order.for_each_index(|index| sequence.push(index));
        sequence
    }

    #[test]
    fn the_two_newest_small_datagrams_of_each_connection_go_first() {
        let mut order = AckReordering::default();
        let table: &[(&str, &[Slot], &[usize])] = &[
            ("none", &[], &[]),
            ("one", &[small(1)], &[0]),
            ("two of one", &[small(1), small(1)], &[1, 0]),
            ("three of one", &[small(1), small(1), small(1)], &[2, 1, 0]),
            ("four of one", &[small(1), small(1), small(1), small(1)], &[3, 2, 0, 1]),
            ("of two", &[small(1), small(2), small(1), small(2), small(1)], &[4, 2, 0, 3, 1]),
            ("of no connection", &[None, None, None], &[0, 1, 2]),
            ("between them one of no connection", &[small(1), None, small(1)], &[2, 0, 1]),
            ("an upload", &[large(1), large(1), small(1)], &[0, 1, 2]),
            ("beside an upload", &[large(1), small(1), small(1), large(1), small(1), small(1)], &[0, 2, 1, 3, 5, 4]),
            ("beside another's upload", &[small(1), large(2), small(1)], &[2, 0, 1]),
            ("moving", &[from(1), from(1), from(2), from(2)], &[1, 0, 3, 2]),
            ("moving to and fro", &[from(1), from(2), from(1), from(2)], &[0, 1, 2, 3]),
        ];
        for (what, batch, expected) in table {
            assert_eq!(arrange(&mut order, batch), *expected, "{what}");
        }
    }

    #[test]
    fn no_datagram_overtakes_more_than_64() {
        let batch = vec![small(1); 200];
        let mut expected = Vec::new();
        for (first, last) in [(0, 64), (65, 129), (130, 194), (195, 199)] {
            expected.extend([last, last - 1]);
            expected.extend(first..last - 1);
        }
        assert_eq!(arrange(&mut AckReordering::default(), &batch), expected);
    }

    #[test]
    fn memory_for_a_batch_of_many_connections_is_bounded() {
        let mut order = AckReordering::default();
        let many = 2 * MAX_REORDERED_CONNECTIONS as u64;
        let batch: Vec<_> = (0..many).chain(0..many).map(small).collect();
        let sequence = arrange(&mut order, &batch);
        assert_eq!(
            (order.runs.len(), order.by_connection.len()),
            (MAX_REORDERED_CONNECTIONS, MAX_REORDERED_CONNECTIONS)
        );
        assert_eq!(sequence[..2], [2 * MAX_REORDERED_CONNECTIONS, 0], "those known go ahead");
        assert_eq!(sequence.last(), Some(&(batch.len() - 1)), "those unknown keep their place");
        assert_eq!(sequence.len(), batch.len());
        // A second batch lets nothing grow.
        let before = (order.positions.capacity(), order.runs.capacity(), order.by_connection.capacity());
        arrange(&mut order, &batch);
        assert_eq!((order.positions.capacity(), order.runs.capacity(), order.by_connection.capacity()), before);
    }

    /// Orders a batch by the rule to the letter, at any cost.
    fn oracle(batch: &[Slot]) -> Vec<usize> {
        let mut taken = vec![false; batch.len()];
        let mut ahead = vec![Vec::new(); batch.len()];
        for first in 0..batch.len() {
            let Some(begin) = batch[first].filter(|arrival| !taken[first] && arrival.len <= MAX_SMALL_DATAGRAM_LEN)
            else {
                continue;
            };
            let mut run = vec![first];
            for (index, arrival) in batch.iter().enumerate().skip(first + 1) {
                let Some(arrival) = arrival.filter(|arrival| arrival.connection == begin.connection) else { continue };
                if arrival.len > MAX_SMALL_DATAGRAM_LEN || arrival.path != begin.path || run.len() == MAX_OVERTAKEN + 1
                {
                    break;
                }
                run.push(index);
            }
            run.iter().for_each(|&index| taken[index] = true);
            ahead[first] = run.into_iter().rev().take(2).take_while(|&newest| newest != first).collect();
        }
        let mut sequence = Vec::new();
        for index in 0..batch.len() {
            sequence.extend(&ahead[index]);
            if !ahead.concat().contains(&index) {
                sequence.push(index);
            }
        }
        sequence
    }

    fn batch() -> impl Strategy<Value = Vec<Slot>> {
        let len = prop_oneof![12 => Just(60), 1 => Just(MAX_SMALL_DATAGRAM_LEN), 1 => Just(MAX_SMALL_DATAGRAM_LEN + 1), 1 => Just(1400)];
        let path = prop_oneof![20 => Just(0u8), 1 => Just(1u8)];
        let arrival = (0u64..3, path, len).prop_map(|(connection, path, len)| Arrival { connection, path, len });
        vec(prop_oneof![20 => arrival.prop_map(Some), 1 => Just(None)], 0..400)
    }

    proptest! {
        #[test]
        fn a_batch_is_ordered_by_the_rule(batches in vec(batch(), 1..4)) {
            let mut order = AckReordering::default();
            for batch in batches {
                prop_assert_eq!(arrange(&mut order, &batch), oracle(&batch));
            }
        }

        #[test]
        fn each_datagram_is_handed_over_once_within_the_overtaking_limit(batch in batch()) {
            let sequence = arrange(&mut AckReordering::default(), &batch);
            let mut sorted = sequence.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..batch.len()));
            for (at, &index) in sequence.iter().enumerate() {
                let Some(arrival) = batch[index] else { continue };
                let overtaken: Vec<Arrival<u8>> = sequence[at + 1..]
                    .iter()
                    .filter(|&&later| later < index)
                    .filter_map(|&later| batch[later])
                    .filter(|other| other.connection == arrival.connection)
                    .collect();
                prop_assert!(overtaken.len() <= MAX_OVERTAKEN);
                prop_assert!(overtaken.iter().all(|other| other.len <= MAX_SMALL_DATAGRAM_LEN && other.path == arrival.path));
                prop_assert!(overtaken.is_empty() || arrival.len <= MAX_SMALL_DATAGRAM_LEN);
            }
        }
    }
}
