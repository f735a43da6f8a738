//! The halves of a socket: batches that are received, and batches to be sent.

use super::outgoing_batch::OutgoingBatch;
use s2n_quic_core::inet::datagram::Header;
use std::{
    io,
    task::{Context, Poll},
};

/// A received datagram's path and ECN codepoint.
pub type DatagramHeader = Header<s2n_quic_core::path::Tuple>;

/// The receiving half of a socket.
pub trait Receive: Send + 'static {
    /// Waits for datagrams and takes a batch of them, in place of the last one. Returns how many there are, at least
    /// one.
    ///
    /// # Errors
    ///
    /// The socket failed.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Takes a batch of what has arrived, in place of the last one, without waiting. Returns how many datagrams there
    /// are, 0 where there is none. From then on no arrival is an event, until [`poll_batch`](Self::poll_batch) waits
    /// for one.
    ///
    /// # Errors
    ///
    /// The socket failed.
    fn take_batch(&mut self) -> io::Result<usize>;

    /// Whether the last batch emptied the socket: until the runtime has polled for events, no further batch is ready.
    fn is_drained(&self) -> bool;

    /// The datagram `index` of the batch, counted from 0 in the order of arrival. They may be asked for in any order,
    /// and more than once.
    fn datagram(&mut self, index: usize) -> Option<(DatagramHeader, &mut [u8])>;
}

/// The sending half of a socket.
pub trait Transmit: Send + 'static {
    /// How many datagrams a message may hold now. It may sink to 1 while the socket is in use.
    fn max_segments(&self) -> usize;

    /// Sends what `outgoing` holds. What stays in it could not be sent yet: nothing is to be added before
    /// [`Transmit::poll_writable`] is ready. A datagram that can never be sent is dropped, as by the network, and
    /// delays no other.
    fn transmit(&mut self, outgoing: &mut OutgoingBatch);

    /// Waits until a socket that did not take everything is writable again.
    ///
    /// # Errors
    ///
    /// The socket failed.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}
