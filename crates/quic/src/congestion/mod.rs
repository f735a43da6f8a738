//! Controls congestion and paces packets (docs/adr/0023-congestion-control.md):
//!
//! - [`controller`], which s2n-quic calls, has CUBIC or BBR, and paces.
//! - [`cubic`] is litequic's CUBIC (RFC 9438), in bytes, for any number of ACK frames.
//! - [`hystart`] ends CUBIC's slow start before packets are lost.
//! - [`reno_friendly`] keeps CUBIC's window as large as additive increase would make it.
//! - [`reordering_window`] decides how long a reduction of CUBIC's window waits for packets that a path has reordered.
//! - [`undoable_reduction`] reverts a reduction of CUBIC's window for packets that arrive after all (spurious losses).
//! - [`bbr`] is s2n-quic's BBR, restarted after a pause of the path.
//! - [`published`] reads the state that either algorithm publishes.
//! - [`pacer`] decides when packets are sent, and how many at once: a mechanism a file.
//! - [`bottleneck_buffer`] estimates the buffer at the path's bottleneck, and the part that a burst may fill.
//! - `laboratory`, with the feature of that name only, makes the laboratory's changes.
//! - [`near_limit`] limits the bytes that wait in the socket of a client on the same machine or network.
//! - [`feedback`] passes reports between the controller of a path and the state of its connection.

mod bbr;
mod bottleneck_buffer;
mod controller;
mod cubic;
mod feedback;
mod hystart;
#[cfg(feature = "laboratory")]
mod laboratory;
mod near_limit;
mod pacer;
mod published;
mod reno_friendly;
mod reordering_window;
mod rtt;
mod undoable_reduction;

pub(super) use bottleneck_buffer::BottleneckBuffer;
pub(super) use controller::Controller;
pub(super) use feedback::{PathFeedback, PathFeedbacks};
pub(super) use rtt::current_rtt;
