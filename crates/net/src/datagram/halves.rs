//! Defines the two halves of a socket as traits: one receives batches of datagrams, the other sends batches.

use super::{network_path::NetworkPath, outgoing_batch::OutgoingBatch};
use s2n_quic_core::inet::datagram::Header;
use std::{
    io,
    task::{Context, Poll},
};

/// A received datagram's path and ECN codepoint.
pub type DatagramHeader = Header<NetworkPath>;

/// The receiving half of a socket.
pub trait Receive: Send + 'static {
    /// Waits for datagrams, and takes a batch that replaces the last one. Returns the number of datagrams, at least
    /// one.
    ///
    /// # Errors
    ///
    /// The socket failed.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Takes a batch of arrived datagrams that replaces the last one, without waiting. Returns the number of datagrams,
    /// which may be 0. From then on no arrival is an event, until [`poll_batch`](Self::poll_batch) waits for one.
    ///
    /// # Errors
    ///
    /// The socket failed.
    fn take_batch(&mut self) -> io::Result<usize>;

    /// Whether the last batch emptied the socket: until the runtime has polled for events, no further batch is ready.
    fn is_drained(&self) -> bool;

    /// The datagram `index` of the batch, counted from 0 in the order of arrival. Datagrams may be read in any order,
    /// and more than once.
    fn datagram(&mut self, index: usize) -> Option<(DatagramHeader, &mut [u8])>;
}

/// The sending half of a socket.
pub trait Transmit: Send + 'static {
    /// Largest number of datagrams in a message at present. May sink to 1 while the socket is in use.
    fn max_segments(&self) -> usize;

    /// Sends the messages of `outgoing`. Messages that stay could not be sent yet: nothing is to be added before
    /// [`Transmit::poll_writable`] is ready. A datagram that can never be sent is dropped, as by the network, and
    /// delays no other.
    fn transmit(&mut self, outgoing: &mut OutgoingBatch);

    /// Waits until a socket whose buffer or queue was full is writable again.
    ///
    /// # Errors
    ///
    /// The socket failed.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}
