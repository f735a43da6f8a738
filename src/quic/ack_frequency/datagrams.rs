//! Room in packets for ACK_FREQUENCY frames, by way of s2n-quic's datagrams: the one provider that writes whole frames
//! of its own. litequic neither sends nor takes a datagram.

use super::{AckFrequencies, peer::Peer, placeholder};
use s2n_quic::provider::datagram::{
    ConnectionInfo, Endpoint, Packet, PreConnectionInfo, ReceiveContext, Receiver, Sender,
};
use s2n_quic_core::connection::Error;
use std::sync::Arc;

/// Octets that stay free behind a placeholder: without them its last DATAGRAM frame might be the packet's last, which
/// s2n-quic writes without a length.
const ROOM: usize = 8;

pub(in super::super) struct Datagrams(pub(super) AckFrequencies);

impl Endpoint for Datagrams {
    type Sender = Places;
    type Receiver = Nothing;

    fn create_connection(&mut self, _: &ConnectionInfo) -> (Places, Nothing) {
        (Places { peer: self.0.newcomer(), frequencies: self.0.clone() }, Nothing)
    }

    /// None is taken: the transport parameter is not sent (RFC 9221 §3).
    fn max_datagram_frame_size(&self, _: &PreConnectionInfo) -> u64 {
        0
    }
}

/// One connection's.
pub(in super::super) struct Places {
    /// `None` if its client has not offered: then it never writes anything.
    peer: Option<Arc<Peer>>,
    frequencies: AckFrequencies,
}

impl Sender for Places {
    /// Empty DATAGRAM frames need no permission from the peer, and must not reach it: `quic::packets` replaces them
    /// before this very packet is encrypted.
    fn on_transmit<P: Packet>(&mut self, packet: &mut P) {
        let Some(peer) = self.peer.as_ref().filter(|peer| peer.is_wanted()) else { return };
        if packet.remaining_capacity() < placeholder::LEN + ROOM {
            return; // the next has more
        }
        self.frequencies.mark(peer);
        // Should one fail, which there is room for, what is there of a placeholder is found and taken out.
        let _ = (0..placeholder::DATAGRAMS).try_for_each(|_| packet.write_datagram(&[]));
    }

    fn has_transmission_interest(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_wanted())
    }

    fn on_connection_error(&mut self, _: Error) {}
}

pub(in super::super) struct Nothing;

impl Receiver for Nothing {
    fn on_datagram(&mut self, _: &ReceiveContext<'_>, _: &[u8]) {}

    fn on_connection_error(&mut self, _: Error) {}
}
