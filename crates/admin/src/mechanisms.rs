//! Counts the savings of each of litequic's mechanisms, for `/status`. Pure.
//!
//! Only counts: the cost of one saved operation depends on host and load (benches/lab/evidence/costs.md has
//! measurements).

use super::status::MechanismStatus;
use litequic_config::{AckFrequency, Io, LiteQuic};

/// Packets per ACK of a client without another request (RFC 9000 §13.2.2).
const PACKETS_PER_ACK: u64 = 2;

/// Counts of all workers since the start.
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
    /// Sockets without GSO.
    pub without_gso: u64,
    pub without_gro: u64,
    pub without_io_uring: u64,
}

/// Returns a row for each mechanism: name, state, saved operation and number of savings.
pub fn mechanism_rows(config: &LiteQuic, work: &MechanismWork) -> Vec<MechanismStatus> {
    let own = config.io != Io::S2nQuic;
    let asks = config.ack_frequency != AckFrequency::Off;
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
    let row = |name: &str, state: &str, saved: &str, count: u64| MechanismStatus {
        name: Some(name.into()),
        state: Some(state.into()),
        saved: Some(saved.into()),
        count: Some(count),
    };
    vec![
        row("GSO", state(config.gso, work.without_gso), "messages to send", segments),
        row("GRO", state(config.gro, work.without_gro), "messages to receive", joined),
        row("ACK merging", state(config.ack_merge && own, 0), "ACK frames to process", work.ack_frames_merged),
        row("ACK frequency", state(asks, 0), "ACKs to receive", if asks { saved_acknowledgements(work) } else { 0 }),
        row("receive moderation", state(config.receive_moderation && own, 0), "wakes", saved_wakes(work)),
        row("own I/O", io, "datagrams sent by it", if own { work.datagrams_sent } else { 0 }),
    ]
}

/// Estimates the ACKs that ACK_FREQUENCY saved: the difference to one ACK per two packets, times the share of clients
/// that support the extension. All connections are assumed to be alike, so clients that acknowledge rarely on their own
/// count as well.
fn saved_acknowledgements(work: &MechanismWork) -> u64 {
    let MechanismWork { packets_sent, ack_frames_received, connections, ack_frequency_offers, .. } = *work;
    let fewer = (packets_sent / PACKETS_PER_ACK).saturating_sub(ack_frames_received);
    scale_count(fewer, ack_frequency_offers.min(connections), connections)
}

/// Estimates the wakes that receive moderation saved: a wait that ended at a fixed time replaces one wake for each
/// datagram of the batch.
fn saved_wakes(work: &MechanismWork) -> u64 {
    let MechanismWork { datagrams_received, receive_batches, wakes_moderation, .. } = *work;
    scale_count(wakes_moderation, datagrams_received.saturating_sub(receive_batches), receive_batches)
}

/// Returns `count` × `above` / `below`; 0 if `below` is 0.
fn scale_count(count: u64, above: u64, below: u64) -> u64 {
    let product = u128::from(count) * u128::from(above);
    product.checked_div(below.into()).map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work of a download of 1 GB by clients that support ACK_FREQUENCY and acknowledge every second packet without it.
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

    fn row(config: &LiteQuic, work: &MechanismWork, name: &str) -> MechanismStatus {
        mechanism_rows(config, work).into_iter().find(|row| row.name.as_deref() == Some(name)).unwrap()
    }

    fn count(work: &MechanismWork, name: &str) -> u64 {
        row(&LiteQuic::default(), work, name).count.unwrap()
    }

    #[test]
    fn the_savings_of_a_gigabyte_are_counted() {
        let merged = MechanismWork { ack_frames_received: 345_000, ack_frames_merged: 334_650, ..GIGABYTE };
        let moderated = MechanismWork {
            datagrams_received: 345_000,
            receive_messages: 345_000,
            receive_batches: 34_500,
            wakes_moderation: 34_500,
            ..GIGABYTE
        };
        for (work, name, expected) in [
            (&GIGABYTE, "GSO", 674_318),
            (&GIGABYTE, "ACK frequency", 322_000),
            (&GIGABYTE, "own I/O", 690_000),
            (&GIGABYTE, "GRO", 0),
            (&GIGABYTE, "receive moderation", 0),
            (&merged, "ACK merging", 334_650),
            (&merged, "ACK frequency", 0),
            (&moderated, "receive moderation", 310_500),
            (&MechanismWork { receive_messages: 11_500, ..GIGABYTE }, "GRO", 11_500),
        ] {
            assert_eq!(count(work, name), expected, "{name}");
        }
    }

    #[test]
    fn clients_without_ack_frequency_save_nothing() {
        let half = MechanismWork { ack_frequency_offers: 2, ..GIGABYTE };
        assert_eq!(count(&half, "ACK frequency"), count(&GIGABYTE, "ACK frequency") / 2);
        assert_eq!(count(&MechanismWork { ack_frequency_offers: 0, ..GIGABYTE }, "ACK frequency"), 0);
        let more_than_all = MechanismWork { ack_frequency_offers: 9, ..GIGABYTE };
        assert_eq!(count(&more_than_all, "ACK frequency"), count(&GIGABYTE, "ACK frequency"));
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
            for row in mechanism_rows(&LiteQuic::default(), &work) {
                assert_eq!(row.count, Some(0), "{row:?}");
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
            assert_eq!(row(&config, work, name).state.as_deref(), Some(expected), "{name}");
        }
        assert_eq!(row(&of_the_library, &GIGABYTE, "own I/O").count, Some(0));
    }
}
