//! Congestion control and pacing (docs/adr/0023-congestion-control.md):
//!
//! - [`controller`] is what s2n-quic calls: it has CUBIC or BBR, and paces.
//! - [`cubic`] is litequic's own: how much may be in flight (RFC 9438), in bytes, however often a client acknowledges.
//! - [`hystart`] ends CUBIC's slow start before packets are lost.
//! - [`reno_friendly`] keeps CUBIC's window as large as additive increase would make it.
//! - [`undo`] reverts a reduction of CUBIC's window for packets that arrive after all (spurious losses).
//! - [`bbr`] is s2n-quic's, restarted after a pause of the path.
//! - [`published`] reads the state that either algorithm publishes.
//! - [`pacer`] decides when packets are sent, and how many at once: a mechanism a file.
//! - [`buffer`] estimates the buffer at the path's bottleneck, and how much of it a burst may fill.
//! - `laboratory`, with the feature of that name alone, has what the laboratory changes.
//! - [`near`] limits what waits in the socket of a client on the same machine or network.
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
mod rtt;
mod undoable_reduction;

pub(super) use bottleneck_buffer::BottleneckBuffer;
pub(super) use controller::Controller;
pub(super) use feedback::{PathFeedback, PathFeedbacks};
pub(super) use rtt::current_rtt;
