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

mod bbr;
mod buffer;
mod controller;
#[cfg(feature = "laboratory")]
mod laboratory;
mod pacer;
mod published;
mod reno_friendly;
mod rtt;
mod spurious;
mod undo;

pub(super) use buffer::BottleneckBuffer;
pub(super) use controller::Controller;
pub(super) use published::is_slow_start;
pub(super) use rtt::round_trip;
pub(super) use spurious::SpuriousLosses;

use crate::{config::Live, quic::io::Moderation};
use s2n_quic::provider::congestion_controller::{Endpoint, PathInfo};
use std::fmt;

/// Creates the controller of each path, by the configuration at that time.
pub(super) struct ControllerFactory {
    config: Live,
    moderation: Moderation,
    spurious: SpuriousLosses,
}

impl ControllerFactory {
    pub(super) fn new(config: Live, moderation: Moderation, spurious: SpuriousLosses) -> Self {
        Self { config, moderation, spurious }
    }
}

impl Endpoint for ControllerFactory {
    type CongestionController = Controller;

    fn new_congestion_controller(&mut self, path: PathInfo<'_>) -> Controller {
        let config = self.config.load();
        let heard = (self.moderation.clone(), self.spurious.clone());
        Controller::new(config.litequic.congestion, config.litequic.initial_window, path, heard)
    }
}

impl fmt::Debug for ControllerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerFactory")
    }
}
