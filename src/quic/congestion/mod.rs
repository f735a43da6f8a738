//! Congestion control and pacing (docs/adr/0023-congestion-control.md). s2n-quic's CUBIC and BBR decide how much may be
//! in flight; their assumptions that do not hold in litequic are handled here:
//!
//! - [`controller`] counts what was acknowledged in bytes: clients that acknowledge rarely, and ACK frames that are
//!   merged, do not slow the growth of CUBIC's window.
//! - [`bbr`] restarts after a pause of the path.
//! - [`undo`] reverts a reduction of the window for packets that arrive after all (spurious losses).
//! - [`reno_friendly`] keeps that window as large as additive increase would make it.
//! - [`pacer`] decides when packets are sent, and how many at once.
//! - [`buffer`] decides how much of the path's buffer that may fill.
//! - `laboratory`, with the feature of that name alone, has what the laboratory changes.
//! - [`published`] reads the state that s2n-quic's controllers publish.
//! - [`feedback`] is between the controller of a path and the state of its connection.

mod bbr;
mod buffer;
mod controller;
mod feedback;
#[cfg(feature = "laboratory")]
mod laboratory;
mod pacer;
mod published;
mod reno_friendly;
mod rtt;
mod undo;

pub(super) use buffer::BottleneckBuffer;
pub(super) use controller::Controller;
pub(super) use feedback::{PathFeedback, PathFeedbacks};
pub(super) use rtt::round_trip;
