//! What each of litequic's mechanisms has saved in CPU time, for `/status`: an estimate, of how often it saved
//! something and of what that was measured to cost without it. Pure.
//!
//! The costs are differences of measurements in benches/lab/performance-log.md and docs/papers.md, which
//! benches/lab/performance-log.md#the-cost-model derives. They are of one machine and of downloads; those of another
//! are in proportion to its speed, and other loads' differ.

use crate::config::{AckFrequency, Io, LiteQuic};
use serde_json::{Value as Json, json};

/// Seconds that a datagram costs less in a message with others than by itself (GSO): the ladder's steps without and
/// with it, 2.63 and 1.50 s/GB of 690,000 packets, 43 of 44 of which share a message.
const SECONDS_A_SEGMENT: f64 = 1.7e-6;
/// Seconds of a received message, which a datagram that was joined to another does not take (GRO): an acknowledgement's
/// in recvmmsg(2), by "What costs most".
const SECONDS_A_RECEIVED_MESSAGE: f64 = 1.0e-6;
/// Seconds for s2n-quic to process an ACK frame that brings no news: the ladder's steps without and with merging, 1.55
/// and 1.50 s/GB, 97 % of 345,000 ACK frames.
const SECONDS_AN_ACK_FRAME: f64 = 0.15e-6;
/// Seconds to receive an acknowledgement, with all that it brings about: the ladder's last two steps, 1.50 and 1.10
/// s/GB, 345,000 and 23,000 acknowledgements.
const SECONDS_AN_ACK: f64 = 1.2e-6;
/// Packets that clients acknowledge at once where they are not asked otherwise (RFC 9000 §13.2.2).
const PACKETS_AN_ACK: u64 = 2;
/// Seconds for a worker to sleep and wake, with what it then does in smaller portions: receive moderation alone beside
/// own I/O, 15.7 and 8.2 s/GB, 367,000 and 52,000 wakes (docs/papers.md).
const SECONDS_A_WAKE: f64 = 24e-6;
/// Seconds that a datagram costs less to send by litequic's own I/O than by s2n-quic's: the ladder's 1.75 and 1.50 s/GB
/// of 690,000 packets. io_uring costs what epoll does.
const SECONDS_A_DATAGRAM: f64 = 0.36e-6;

/// What all workers have counted since the start.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "they have the metrics' names")]
pub struct MechanismWork {
    pub datagrams_received: u64,
    pub receive_messages: u64,
    pub receive_batches: u64,
    pub datagrams_sent: u64,
    pub gso_messages: u64,
    pub gso_segments: u64,
    pub packets_sent: u64,
    pub ack_frames_received: u64,
    pub ack_frames_merged: u64,
    pub connections: u64,
    pub ack_frequency_offers: u64,
    pub wakes_moderation: u64,
    /// Sockets that do without.
    pub without_gso: u64,
    pub without_gro: u64,
    pub without_io_uring: u64,
}

/// A row for each mechanism: its name and state, what it saved, how often, and the seconds of CPU time that this stands
/// for.
pub fn mechanisms(config: &LiteQuic, work: &MechanismWork) -> Json {
    let own = config.io != Io::S2nQuic;
    let state = |is_on: bool, without: u64| match (is_on, without) {
        (false, _) => "off",
        (true, 0) => "on",
        (true, 1..) => "not on every socket",
    };
    let io = match (config.io, work.without_io_uring) {
        (Io::S2nQuic, _) => "s2n-quic",
        (Io::IoUring, 0) => "io-uring",
        (Io::IoUring, 1..) => "epoll: io_uring is unavailable",
        (Io::Auto | Io::Epoll, _) => "epoll",
    };
    let segments = work.gso_segments.saturating_sub(work.gso_messages);
    let joined = work.datagrams_received.saturating_sub(work.receive_messages);
    let row = |name: &str, state: &str, saved: &str, count: u64, seconds: f64| {
        json!({
            "name": name,
            "state": state,
            "saved": saved,
            "count": count,
            "cpu_seconds": count as f64 * seconds,
        })
    };
    [
        row("GSO", state(config.gso, work.without_gso), "messages to send", segments, SECONDS_A_SEGMENT),
        row("GRO", state(config.gro, work.without_gro), "messages to receive", joined, SECONDS_A_RECEIVED_MESSAGE),
        row(
            "ACK merging",
            state(config.ack_merge && own, 0),
            "ACK frames to process",
            work.ack_frames_merged,
            SECONDS_AN_ACK_FRAME,
        ),
        row(
            "ACK frequency",
            state(config.ack_frequency != AckFrequency::Off, 0),
            "ACKs to receive",
            if config.ack_frequency == AckFrequency::Off { 0 } else { acknowledgements(work) },
            SECONDS_AN_ACK,
        ),
        row("receive moderation", state(config.receive_moderation && own, 0), "wakes", wakes(work), SECONDS_A_WAKE),
        row("own I/O", io, "datagrams sent by it", if own { work.datagrams_sent } else { 0 }, SECONDS_A_DATAGRAM),
    ]
    .into_iter()
    .collect()
}

/// Acknowledgements that did not come: of all that one for every second packet would have been, those of clients that
/// can be asked. Connections are taken for alike, so that a client that acknowledges rarely by itself counts among
/// them.
fn acknowledgements(work: &MechanismWork) -> u64 {
    let MechanismWork { packets_sent, ack_frames_received, connections, ack_frequency_offers, .. } = *work;
    let fewer = (packets_sent / PACKETS_AN_ACK).saturating_sub(ack_frames_received);
    part(fewer, ack_frequency_offers.min(connections), connections)
}

/// Waits that did not end with each datagram: one at a fixed time had as many as a batch has.
fn wakes(work: &MechanismWork) -> u64 {
    let MechanismWork { datagrams_received, receive_batches, wakes_moderation, .. } = *work;
    part(wakes_moderation, datagrams_received.saturating_sub(receive_batches), receive_batches)
}

/// `count` × `above` / `below`; 0 where `below` is.
fn part(count: u64, above: u64, below: u64) -> u64 {
    let product = u128::from(count) * u128::from(above);
    product.checked_div(below.into()).map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GB to clients that acknowledge every second packet and can be asked, as the ladder has it.
    const GIGABYTE: MechanismWork = MechanismWork {
        datagrams_received: 23_000,
        receive_messages: 23_000,
        receive_batches: 2_300,
        datagrams_sent: 690_000,
        gso_messages: 15_682,
        gso_segments: 690_000,
        packets_sent: 690_000,
        ack_frames_received: 23_000,
        ack_frames_merged: 0,
        connections: 4,
        ack_frequency_offers: 4,
        wakes_moderation: 0,
        without_gso: 0,
        without_gro: 0,
        without_io_uring: 0,
    };

    fn row(config: &LiteQuic, work: &MechanismWork, name: &str) -> Json {
        let rows = mechanisms(config, work);
        rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone()
    }

    /// In milliseconds a GB.
    fn milliseconds(work: &MechanismWork, name: &str) -> f64 {
        (row(&LiteQuic::default(), work, name)["cpu_seconds"].as_f64().unwrap() * 1000.0).round()
    }

    #[test]
    fn a_gigabyte_saves_what_the_measurements_found() {
        let merged = MechanismWork { ack_frames_received: 345_000, ack_frames_merged: 334_650, ..GIGABYTE };
        let moderated = MechanismWork {
            datagrams_received: 345_000,
            receive_messages: 345_000,
            receive_batches: 34_500,
            wakes_moderation: 34_500,
            ..GIGABYTE
        };
        for (work, name, at_least, at_most) in [
            (&GIGABYTE, "GSO", 1100.0, 1160.0),
            (&GIGABYTE, "ACK frequency", 380.0, 400.0),
            (&GIGABYTE, "own I/O", 240.0, 255.0),
            (&GIGABYTE, "GRO", 0.0, 0.0),
            (&GIGABYTE, "receive moderation", 0.0, 0.0),
            (&merged, "ACK merging", 49.0, 51.0),
            (&merged, "ACK frequency", 0.0, 0.0),
            (&moderated, "receive moderation", 7400.0, 7500.0),
            (&MechanismWork { receive_messages: 11_500, ..GIGABYTE }, "GRO", 11.0, 12.0),
        ] {
            let found = milliseconds(work, name);
            assert!((at_least..=at_most).contains(&found), "{name}: {found}");
        }
    }

    #[test]
    fn clients_that_cannot_be_asked_are_no_saving() {
        let half = MechanismWork { ack_frequency_offers: 2, ..GIGABYTE };
        assert_eq!(milliseconds(&half, "ACK frequency"), (milliseconds(&GIGABYTE, "ACK frequency") / 2.0).floor());
        assert_eq!(milliseconds(&MechanismWork { ack_frequency_offers: 0, ..GIGABYTE }, "ACK frequency"), 0.0);
        let more_than_all = MechanismWork { ack_frequency_offers: 9, ..GIGABYTE };
        assert_eq!(milliseconds(&more_than_all, "ACK frequency"), milliseconds(&GIGABYTE, "ACK frequency"));
    }

    #[test]
    fn nothing_counted_is_nothing_saved_and_no_numbers_make_it_panic() {
        let most = MechanismWork {
            gso_messages: u64::MAX,
            receive_messages: u64::MAX,
            receive_batches: u64::MAX,
            ack_frames_received: u64::MAX,
            connections: u64::MAX,
            wakes_moderation: u64::MAX,
            ..MechanismWork::default()
        };
        for work in [MechanismWork::default(), most] {
            for row in mechanisms(&LiteQuic::default(), &work).as_array().unwrap() {
                assert_eq!((&row["count"], &row["cpu_seconds"]), (&json!(0), &json!(0.0)), "{row}");
            }
        }
    }

    #[test]
    fn a_mechanism_says_whether_it_is_on() {
        let off = LiteQuic {
            gso: false,
            gro: false,
            ack_merge: false,
            receive_moderation: false,
            ack_frequency: AckFrequency::Off,
            ..LiteQuic::default()
        };
        let of_the_library = LiteQuic { io: Io::S2nQuic, ..LiteQuic::default() };
        let uring = LiteQuic { io: Io::IoUring, ..LiteQuic::default() };
        let without = MechanismWork { without_gso: 1, without_io_uring: 2, ..GIGABYTE };
        for (config, work, name, expected) in [
            (LiteQuic::default(), &GIGABYTE, "GSO", "on"),
            (LiteQuic::default(), &without, "GSO", "not on every socket"),
            (off, &without, "GSO", "off"),
            (off, &GIGABYTE, "GRO", "off"),
            (off, &GIGABYTE, "ACK merging", "off"),
            (off, &GIGABYTE, "ACK frequency", "off"),
            (off, &GIGABYTE, "receive moderation", "off"),
            (of_the_library, &GIGABYTE, "ACK merging", "off"),
            (of_the_library, &GIGABYTE, "own I/O", "s2n-quic"),
            (uring, &GIGABYTE, "own I/O", "io-uring"),
            (uring, &without, "own I/O", "epoll: io_uring is unavailable"),
            (LiteQuic::default(), &GIGABYTE, "own I/O", "epoll"),
        ] {
            assert_eq!(row(&config, work, name)["state"], expected, "{name}");
        }
        assert_eq!(row(&of_the_library, &GIGABYTE, "own I/O")["cpu_seconds"], 0.0);
    }
}
