//! Creates the congestion controller of each path, by the current configuration.

use super::endpoint_state::EndpointState;
use crate::congestion::{Controller, PathFeedback};
use s2n_quic::provider::congestion_controller::{Endpoint, PathInfo};
use std::sync::Arc;

/// Creates the controllers of one endpoint's paths.
#[derive(Debug)]
pub(super) struct ControllerFactory(pub(super) Arc<EndpointState>);

impl Endpoint for ControllerFactory {
    type CongestionController = Controller;

    /// Called before a packet of the path is authenticated, and without the connection: the next event of a new
    /// connection, or of a created path, binds the feedback.
    fn new_congestion_controller(&mut self, path: PathInfo<'_>) -> Controller {
        let state = &self.0;
        let config = state.config.load();
        let feedback = Arc::new(PathFeedback::new(Arc::clone(&state.metrics)));
        let unbound = state.with_table(|table| table.new.feedback.replace(Arc::clone(&feedback)));
        drop(unbound);
        let moderation = state.moderation.clone();
        Controller::new(config.litequic.congestion, config.litequic.initial_window, path, moderation, feedback)
    }
}
