//! Tracks the bytes that a connection's streams have queued, sent and in flight, and wakes streams that wait to write
//! more (docs/adr/0025-send-buffers-follow-the-path.md). s2n-quic reports which bytes of a stream it has sent
//! (`FrameSent`), and after each ACK frame and each burst of packets the bytes in flight and the state of the path
//! (`RecoveryMetrics`). It reports acknowledged bytes of a stream only on request, and wakes a stream only when its own
//! buffer was full.
//!
//! Only streams that send more than a first train are tracked; for others an event costs one comparison. s2n-quic's
//! packet processing and the streams' tasks run on one thread, one after the other: a woken task runs after the packet
//! was processed, and nothing happens between reading the state and registering the waker. A [`SendQueue`] holds only
//! numbers, which a stream's task and the events of each frame use without the endpoint's lock; the streams are behind
//! it.

mod in_order;
mod short_responses;
mod turn_delay;

use super::{
    stream_credit::OpenStreams,
    stream_state::{StreamProgress, StreamSendState, WAKE_NEVER, WAKE_ON_ACKNOWLEDGED, WAKE_ON_SENT, WOKEN},
};
use litequic_base::relaxed_cell::RelaxedCell;
use litequic_exchange::priority::PriorityOrder;
use litequic_resources::send::path::{MIN_REFILL, OWN_LOW_WATER, QueuedBytes, SendPath, WriteAllowance};
use litequic_telemetry::clients::TransportReport;
use parking_lot::Mutex;
use short_responses::ShortResponses;
use std::{ops::Range, sync::Arc, time::Duration};

/// Order of one connection's streams. Only one thread locks it.
type StreamOrder = Mutex<PriorityOrder<Arc<StreamSendState>>>;

/// Bytes of one connection's streams that are queued and in flight.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Number of streams that are tracked.
    tracked: RelaxedCell,
    /// Bytes of tracked streams that were handed over to s2n-quic and not sent.
    unsent: RelaxedCell,
    /// Bytes of STREAM frames sent so far, with retransmissions. The difference to `in_flight` rises by acknowledged
    /// and lost bytes.
    sent: RelaxedCell,
    in_flight: RelaxedCell,
    /// Number of streams that wait for acknowledgements.
    waiting: RelaxedCell,
    window: RelaxedCell,
    /// Bytes of the connection's first congestion window.
    first_window: RelaxedCell,
    /// Probe timeouts since the client acknowledged anything.
    timeouts: RelaxedCell,
    smoothed_rtt: RelaxedCell,
    min_rtt: RelaxedCell,
    /// 1 if an ACK_FREQUENCY frame is to be sent; read for each packet that leaves.
    ack_frequency: RelaxedCell,
    /// 1 if a PATH_CHALLENGE is unanswered; read for each packet that leaves.
    challenge: RelaxedCell,
    /// Number of request streams that are open.
    open: RelaxedCell,
    /// Order of the streams, if they are served by priority. The following fields belong to it.
    order: Option<StreamOrder>,
    /// Number of streams that wait in the order.
    held: RelaxedCell,
    /// Bytes that streams were granted and have not handed over yet.
    reserved: RelaxedCell,
    /// Unsent and reserved bytes at which the next stream in the order is granted more.
    grant_at: RelaxedCell,
    /// Bytes granted out of turn to less urgent streams, to be counted.
    rest: RelaxedCell,
    /// Responses that were handed over whole, outside the order.
    short: ShortResponses,
}

impl SendQueue {
    /// Whether an ACK_FREQUENCY frame is to be sent.
    pub(crate) fn wants_ack_frequency(&self) -> bool {
        self.ack_frequency.get() > 0
    }

    /// Sets whether an ACK_FREQUENCY frame is to be sent.
    pub(crate) fn set_wants_ack_frequency(&self, wanted: bool) {
        self.ack_frequency.set(wanted.into());
    }

    /// Whether a PATH_CHALLENGE is unanswered.
    pub(crate) fn has_challenge(&self) -> bool {
        self.challenge.get() > 0
    }

    /// Sets whether a PATH_CHALLENGE is unanswered.
    pub(crate) fn set_has_challenge(&self, has_challenge: bool) {
        self.challenge.set(has_challenge.into());
    }

    /// Tracks a stream, which has written `sent` bytes and is about to write more.
    fn track_stream(&self, id: u64, stream: &StreamProgress, sent: u64) {
        if stream.tracked.get() > 0 {
            return;
        }
        stream.tracked.set(1);
        self.tracked.add_saturating(1);
        // Bytes that are not known to be unsent count as sent: a stream with unsent bytes by this count has some, so a
        // frame of it will leave.
        stream.sent.set(sent.saturating_sub(self.short.remove_short_response(id)));
        self.change_progress(stream, |stream| stream.queued.set(sent));
    }

    /// Bytes of `ready` that may be written on a stream that has written `sent` bytes, of which `outstanding` are not
    /// acknowledged. Tracks the stream.
    pub(crate) fn send_allowance(
        &self,
        id: u64,
        state: &Arc<StreamSendState>,
        sent: u64,
        outstanding: u64,
        ready: u64,
    ) -> WriteAllowance {
        let stream = &state.progress;
        self.track_stream(id, stream, sent);
        if stream.wake_on.get() == WOKEN {
            stream.wake_on.set(WAKE_NEVER);
            turn_delay::record_turn(stream.wake_at.get());
        }
        if let Some(order) = &self.order {
            return self.ordered_allowance(order, id, state, sent, outstanding, ready);
        }
        self.record_queued(stream, sent);
        let queued = QueuedBytes { connection: self.unsent.get(), stream: stream.stream_unsent(), outstanding };
        self.send_path().stream_allowance(queued, ready)
    }

    /// Observed bytes that the client acknowledges within a round trip, beyond the first window, which was not earned.
    /// 0 while the client acknowledges nothing.
    pub(crate) fn earned_window(&self) -> u64 {
        if self.timeouts.get() > 0 { 0 } else { self.window.get().saturating_sub(self.first_window.get()) }
    }

    /// Records that a stream has handed over `sent` bytes in all, if it is tracked.
    fn record_queued(&self, stream: &StreamProgress, sent: u64) {
        if stream.tracked.get() > 0 {
            self.change_progress(stream, |stream| stream.queued.set(sent));
        }
    }

    /// Has the stream woken once, when few enough bytes are unsent.
    pub(crate) fn wait_until_sent(&self, stream: &StreamProgress) {
        debug_assert!(stream.tracked.get() > 0, "nothing would wake it");
        if self.has_order() {
            return; // The order wakes the stream.
        }
        self.clear_wait(stream);
        stream.wake_at.set(self.send_path().unsent_low_water());
        stream.wake_on.set(WAKE_ON_SENT);
    }

    /// Has the stream woken once, when about `bytes` bytes of it are acknowledged, or all in flight. Streams that wait
    /// share the acknowledgements: each waits for its bytes times the number of waiting streams.
    pub(crate) fn wait_until_acknowledged(&self, stream: &StreamProgress, bytes: u64) {
        debug_assert!(stream.tracked.get() > 0, "nothing would wake it");
        self.clear_wait(stream);
        self.waiting.add_saturating(1);
        let share = bytes.min(MIN_REFILL).saturating_mul(self.waiting.get());
        stream.wake_at.set(self.left_flight().wrapping_add(share));
        stream.wake_on.set(WAKE_ON_ACKNOWLEDGED);
    }

    /// s2n-quic has put the bytes of a stream at `range` into a packet. `last` is the stream of the previous frame;
    /// `find` finds another open stream.
    pub(crate) fn record_stream_sent(
        &self,
        last: &mut Option<(u64, Arc<StreamSendState>)>,
        id: u64,
        range: Range<u64>,
        find: impl FnOnce() -> Option<Arc<StreamSendState>>,
    ) {
        let Range { start, end } = range;
        if self.tracked.get() == 0 {
            *last = None;
            self.short.on_short_sent(id, end);
            return;
        }
        self.sent.set(self.sent.get().wrapping_add(end.saturating_sub(start)));
        if self.short.on_short_sent(id, end) {
            self.grant_if_due();
            return;
        }
        if last.as_ref().is_none_or(|(known, _)| *known != id) {
            let Some(state) = find() else { return };
            *last = Some((id, state));
        }
        let Some((_, state)) = last else { return };
        let stream = &state.progress;
        if end > stream.sent.get() {
            self.change_progress(stream, |stream| stream.sent.set(end));
            if self.has_order() {
                self.on_room_freed(id, stream);
            } else if stream.wake_on.get() == WAKE_ON_SENT
                && (self.unsent.get() <= stream.wake_at.get() || stream.stream_unsent() <= OWN_LOW_WATER)
            {
                self.wake_stream(state);
            }
        }
    }

    /// s2n-quic has processed an ACK frame, or sent a burst of packets.
    pub(crate) fn on_recovery_metrics(
        &self,
        window: u32,
        smoothed_rtt: Duration,
        min_rtt: Duration,
        in_flight: u32,
        timeouts: u32,
    ) {
        if self.first_window.get() == 0 {
            self.first_window.set(window.into());
        }
        self.timeouts.set(timeouts.into());
        self.window.set(window.into());
        self.smoothed_rtt.set(to_microseconds(smoothed_rtt));
        self.min_rtt.set(to_microseconds(min_rtt));
        self.in_flight.set(in_flight.into());
    }

    /// State of the path that s2n-quic reported last.
    pub(crate) fn queue_report(&self) -> TransportReport {
        let known = |number: &RelaxedCell| Some(number.get()).filter(|number| *number > 0);
        TransportReport {
            rtt: known(&self.smoothed_rtt).map(Duration::from_micros),
            congestion_window: known(&self.window),
            bytes_in_flight: Some(self.in_flight.get()),
            ..TransportReport::default()
        }
    }

    /// Streams of `streams` whose awaited acknowledgements have arrived; to be woken by
    /// [`wake_stream`](Self::wake_stream).
    pub(crate) fn due_streams(&self, streams: &OpenStreams) -> Vec<Arc<StreamSendState>> {
        if !self.has_waiting_streams() {
            return Vec::new();
        }
        let (left_flight, is_idle) = (self.left_flight(), self.in_flight.get() == 0);
        let is_due = |state: &&Arc<StreamSendState>| {
            let StreamProgress { wake_on, wake_at, .. } = &state.progress;
            wake_on.get() == WAKE_ON_ACKNOWLEDGED
                && (is_idle || left_flight.wrapping_sub(wake_at.get()) <= u64::MAX / 2)
        };
        streams.values().filter(is_due).cloned().collect()
    }

    /// Whether a stream waits for acknowledgements.
    pub(crate) fn has_waiting_streams(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Removes a stream that is over.
    pub(crate) fn remove_tracked_stream(&self, id: u64, state: &StreamSendState) {
        let stream = &state.progress;
        if stream.tracked.get() > 0 {
            self.clear_wait(stream);
            // Bytes of the stream that s2n-quic still sends do not count.
            self.change_progress(stream, |stream| stream.queued.set(0));
            stream.tracked.set(0);
            self.tracked.subtract_saturating(1);
        } else {
            self.short.remove_short_response(id);
        }
        self.remove_from_order(id, state);
    }

    /// Bytes acknowledged or lost so far.
    fn left_flight(&self) -> u64 {
        self.sent.get().wrapping_sub(self.in_flight.get())
    }

    fn send_path(&self) -> SendPath {
        SendPath {
            window: self.window.get(),
            smoothed_rtt: self.smoothed_rtt.get(),
            min_rtt: self.min_rtt.get(),
            turn_delay: turn_delay::longest_delay(),
        }
    }

    fn change_progress(&self, stream: &StreamProgress, change: impl FnOnce(&StreamProgress)) {
        let before = stream.stream_unsent();
        change(stream);
        self.unsent.set((self.unsent.get() + stream.stream_unsent()).saturating_sub(before));
    }

    /// Wakes the task of a stream, and ends its wait. Not to be called under the endpoint's lock.
    pub(crate) fn wake_stream(&self, state: &StreamSendState) {
        self.clear_wait(&state.progress);
        state.progress.wake_at.set(turn_delay::wake_time());
        state.progress.wake_on.set(WOKEN);
        state.waker.wake();
    }

    fn clear_wait(&self, stream: &StreamProgress) {
        if stream.wake_on.get() == WAKE_ON_ACKNOWLEDGED {
            self.waiting.subtract_saturating(1);
        }
        stream.wake_on.set(WAKE_NEVER);
    }
}

/// A connection's send queue, with the stream of the last STREAM frame, for frames that leave.
#[derive(Debug)]
pub(crate) struct SentStreams {
    pub(crate) send_queue: Arc<SendQueue>,
    /// Stream of the last STREAM frame.
    pub(crate) last: Option<(u64, Arc<StreamSendState>)>,
}

fn to_microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::{ArcWake, waker};
    use litequic_exchange::priority::Priority;
    use litequic_resources::send::TRAIN;
    use std::{
        collections::VecDeque,
        sync::atomic::{AtomicUsize, Ordering},
    };

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(count: &Arc<Self>) {
            count.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection whose packets have only STREAM frames of 1,000 bytes.
    #[derive(Default)]
    struct Connection {
        send_queue: SendQueue,
        tracked: OpenStreams,
        last: Option<(u64, Arc<StreamSendState>)>,
        in_flight: u32,
    }

    /// A stream of the simulated connection.
    struct Sending {
        id: u64,
        state: Arc<StreamSendState>,
        woken: Arc<Count>,
        queued: u64,
        sent: u64,
    }

    const PACKET: u32 = 1_000;

    impl Connection {
        fn stream(&self, id: u64) -> Sending {
            let (state, woken) = (StreamSendState::new(u64::MAX), Arc::<Count>::default());
            Sending { id, state, woken, queued: 0, sent: 0 }
        }

        fn on_recovery_metrics(&self, window: u32) {
            let rtt = Duration::from_millis(20);
            self.send_queue.on_recovery_metrics(window, rtt, rtt, self.in_flight, 0);
            self.send_queue.due_streams(&self.tracked).iter().for_each(|state| self.send_queue.wake_stream(state));
        }

        fn room(&mut self, stream: &Sending, outstanding: u64, ready: u64) -> WriteAllowance {
            drop(self.tracked.insert(stream.id, Arc::clone(&stream.state)));
            self.send_queue.send_allowance(stream.id, &stream.state, stream.queued, outstanding, ready)
        }

        fn sent(&mut self, id: u64, bytes: u64, end: u64) {
            let Self { send_queue, tracked, last, .. } = self;
            send_queue.record_stream_sent(last, id, end - bytes..end, || tracked.get(&id).cloned());
        }

        /// Sends a packet of `stream`.
        fn sends(&mut self, stream: &mut Sending) {
            stream.sent += u64::from(PACKET);
            self.sent(stream.id, PACKET.into(), stream.sent);
            self.in_flight += PACKET;
        }

        fn acknowledges(&mut self, packets: u32) {
            self.in_flight -= packets * PACKET;
            self.on_recovery_metrics(100_000);
        }

        /// Hands over as many bytes as are allowed.
        fn hands_over(&mut self, stream: &mut Sending, outstanding: u64) -> WriteAllowance {
            stream.state.waker.register(&waker(Arc::clone(&stream.woken)));
            let room = self.room(stream, outstanding, u64::MAX);
            if let WriteAllowance::Bytes(bytes) = room {
                stream.queued += bytes;
                self.send_queue.record_handed_over(stream.id, &stream.state, stream.queued);
            }
            room
        }
    }

    impl Sending {
        fn woken(&self) -> usize {
            self.woken.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_stream_is_woken_once_when_half_its_bytes_are_sent() {
        let mut connection = Connection::default();
        let mut stream = connection.stream(0);
        let WriteAllowance::Bytes(room) = connection.hands_over(&mut stream, 0) else { panic!() };
        assert_eq!(connection.hands_over(&mut stream, 0), WriteAllowance::Unsent);
        connection.send_queue.wait_until_sent(&stream.state.progress);
        while stream.sent < room / 2 {
            assert_eq!(stream.woken(), 0, "{}", stream.sent);
            connection.sends(&mut stream);
        }
        connection.sends(&mut stream);
        assert_eq!(stream.woken(), 1);
        assert!(matches!(connection.hands_over(&mut stream, 0), WriteAllowance::Bytes(_)));
        // A retransmission is not counted twice.
        connection.sent(0, 1_000, 1_000);
        assert_eq!(stream.woken(), 0);
    }

    #[test]
    fn the_earned_window_is_the_growth_of_the_window() {
        let send_queue = SendQueue::default();
        assert_eq!(send_queue.earned_window(), 0);
        let rtt = Duration::from_millis(20);
        for (window, timeouts, earned_window) in
            [(30_000, 0, 0), (30_000, 1, 0), (90_000, 0, 60_000), (90_000, 1, 0), (90_000, 0, 60_000), (12_000, 0, 0)]
        {
            send_queue.on_recovery_metrics(window, rtt, rtt, 0, timeouts);
            assert_eq!(send_queue.earned_window(), earned_window, "{window}, {timeouts}");
        }
    }

    #[test]
    fn acknowledged_bytes_wake_a_waiting_stream() {
        let mut connection = Connection::default();
        let mut stream = connection.stream(0);
        connection.hands_over(&mut stream, 0);
        for _ in 0..20 {
            connection.sends(&mut stream);
        }
        connection.on_recovery_metrics(100_000);
        connection.send_queue.wait_until_acknowledged(&stream.state.progress, 5_000);
        connection.acknowledges(4);
        assert_eq!(stream.woken(), 0);
        connection.acknowledges(1);
        assert_eq!(stream.woken(), 1);
        connection.acknowledges(1);
        assert_eq!(stream.woken(), 0, "once");
        stream.state.waker.register(&waker(Arc::clone(&stream.woken)));
        connection.send_queue.wait_until_acknowledged(&stream.state.progress, 1_000_000);
        connection.acknowledges(13);
        assert_eq!(stream.woken(), 0);
        connection.acknowledges(1);
        assert_eq!(stream.woken(), 1, "nothing is in flight any more");
    }

    #[test]
    fn waiting_streams_share_the_wakes_of_one() {
        let mut connection = Connection::default();
        let mut streams: Vec<_> = (0..10).map(|id| connection.stream(4 * id)).collect();
        for stream in &mut streams {
            connection.hands_over(stream, 0);
            connection.sends(stream);
            stream.state.waker.register(&waker(Arc::clone(&stream.woken)));
        }
        connection.on_recovery_metrics(100_000);
        for stream in &streams {
            connection.send_queue.wait_until_acknowledged(&stream.state.progress, 1_000);
        }
        for _ in 0..9 {
            connection.acknowledges(1);
        }
        let woken: usize = streams.iter().map(Sending::woken).sum();
        assert_eq!(woken, 9);
    }

    #[test]
    fn short_responses_and_ended_streams_are_not_tracked() {
        let mut connection = Connection::default();
        let mut short = connection.stream(0);
        connection.sends(&mut short);
        assert!(connection.last.is_none());
        let mut stream = connection.stream(4);
        connection.hands_over(&mut stream, 0);
        connection.send_queue.wait_until_acknowledged(&stream.state.progress, 1);
        connection.send_queue.remove_tracked_stream(4, &stream.state);
        assert!(connection.tracked.remove(&4).is_some());
        let SendQueue { tracked, unsent, waiting, .. } = &connection.send_queue;
        assert_eq!((tracked.get(), unsent.get(), waiting.get()), (0, 0, 0));
        connection.sends(&mut stream);
        connection.acknowledges(2);
        assert_eq!(stream.woken(), 0);
    }

    /// Simulates streams over a path that sends at most a window, in turn, and acknowledges any number of packets at
    /// once.
    #[test]
    fn no_wake_is_lost_in_any_interleaving() {
        const TOTAL: u64 = 1_000_000;
        let cases = [(1, 1, 12), (1, 7, 100), (3, 1, 50), (10, 32, 40), (40, 3, 200), (1, 500, 900)];
        for ((streams, bunch, window), is_ordered) in cases.into_iter().flat_map(|case| [(case, false), (case, true)]) {
            let send_queue = if is_ordered { SendQueue::new_ordered() } else { SendQueue::default() };
            let mut connection = Connection { send_queue, ..Connection::default() };
            let mut sending: Vec<_> = (0..streams).map(|id| connection.stream(4 * id)).collect();
            for stream in &sending {
                connection.send_queue.count_opened_stream();
                // Some streams have equal urgencies.
                let priority = Priority { urgency: (stream.id / 16 % 8) as u8, incremental: stream.id % 8 == 0 };
                connection.send_queue.reprioritize_stream(stream.id, &stream.state, priority);
            }
            // Unacknowledged bytes of each stream, and the streams of the packets in flight, in order.
            let mut outstanding = vec![0; sending.len()];
            let mut order = VecDeque::new();
            let mut ready: VecDeque<usize> = (0..sending.len()).collect();
            let mut turn = 0;
            connection.on_recovery_metrics(window * PACKET);
            while sending.iter().any(|stream| stream.sent < TOTAL) || !order.is_empty() {
                while let Some(index) = ready.pop_front() {
                    let stream = &mut sending[index];
                    while stream.queued < TOTAL {
                        // A lease of two trains a stream.
                        if outstanding[index] + TRAIN > 2 * TRAIN {
                            connection.room(stream, outstanding[index], 0);
                            connection.send_queue.wait_until_acknowledged(&stream.state.progress, TRAIN / 2);
                            break;
                        }
                        let before = stream.queued;
                        stream.state.waker.register(&waker(Arc::clone(&stream.woken)));
                        match connection.room(stream, outstanding[index], TRAIN) {
                            WriteAllowance::Bytes(bytes) => {
                                // Whole packets.
                                stream.queued = (before + bytes).next_multiple_of(PACKET.into()).min(TOTAL);
                                connection.send_queue.record_handed_over(stream.id, &stream.state, stream.queued);
                                outstanding[index] += stream.queued - before;
                            }
                            WriteAllowance::Unsent => {
                                connection.send_queue.wait_until_sent(&stream.state.progress);
                                break;
                            }
                            WriteAllowance::Unacknowledged => panic!("two trains are less than any path takes"),
                        }
                    }
                    stream.state.waker.register(&waker(Arc::clone(&stream.woken)));
                }
                let mut idle = 0;
                while connection.in_flight < window * PACKET && idle < sending.len() {
                    // Streams send in turn, or one after the other if they are ordered.
                    if !is_ordered || sending[turn].sent >= sending[turn].queued {
                        turn = (turn + 1) % sending.len();
                    }
                    if sending[turn].sent < sending[turn].queued {
                        connection.sends(&mut sending[turn]);
                        order.push_back(turn);
                        idle = 0;
                    } else {
                        idle += 1;
                    }
                }
                connection.on_recovery_metrics(window * PACKET);
                assert!(!order.is_empty(), "all wait, and nothing is in flight: {streams} {bunch} {window}");
                let mut packets = 0;
                for index in order.drain(..order.len().min(bunch)) {
                    outstanding[index] -= u64::from(PACKET);
                    packets += 1;
                }
                connection.in_flight -= packets * PACKET;
                connection.on_recovery_metrics(window * PACKET);
                ready.extend((0..sending.len()).filter(|index| sending[*index].woken() > 0));
            }
        }
    }
}
