//! Provides connection IDs and stateless reset tokens to s2n-quic. `quic::identity` makes both; the endpoint's state
//! has the IDs of the token at hand.

use super::endpoint_state::EndpointState;
use crate::identity::{ConnectionIdFormat, stateless_reset::ResetTokens};
use s2n_quic::provider::{
    connection_id::{ConnectionInfo, Generator, Validator},
    stateless_reset_token::{Generator as TokenGenerator, Provider as TokenProvider},
};
use s2n_quic_core::{connection::LocalId, stateless_reset};
use std::{convert::Infallible, sync::Arc, time::Duration};

/// Provider of one endpoint's connection IDs.
#[derive(Debug)]
pub(super) struct EndpointIds {
    pub(super) format: ConnectionIdFormat,
    pub(super) state: Arc<EndpointState>,
}

impl Generator for EndpointIds {
    fn generate(&mut self, connection: &ConnectionInfo<'_>) -> LocalId {
        let id = self.format.generate(connection);
        self.state.with_table(|table| table.retry_ids.issued = Some(id));
        id
    }

    fn lifetime(&self) -> Option<Duration> {
        self.format.lifetime()
    }
}

impl Validator for EndpointIds {
    fn validate(&self, connection: &ConnectionInfo<'_>, buffer: &[u8]) -> Option<usize> {
        self.format.validate(connection, buffer)
    }
}

/// Provider of one endpoint's stateless reset tokens.
#[derive(Debug)]
pub(super) struct EndpointResets {
    pub(super) tokens: ResetTokens,
    pub(super) state: Arc<EndpointState>,
}

impl TokenProvider for EndpointResets {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl TokenGenerator for EndpointResets {
    const ENABLED: bool = true;

    fn generate(&mut self, local_connection_id: &[u8]) -> stateless_reset::Token {
        // s2n-quic also requests the tokens of newly issued IDs here.
        let begins = self.state.with_table(|table| table.retry_ids.begin_id(local_connection_id));
        self.tokens.reset_token(local_connection_id, begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::{IdScheme, Secrets},
        metrics::QuicMetrics,
    };
    use s2n_quic_core::inet::SocketAddress;

    #[test]
    fn only_the_second_token_of_an_id_counts_an_unknown_packet() {
        let (state, metrics) = (EndpointState::for_tests(), Arc::<QuicMetrics>::default());
        let scheme = Arc::new(IdScheme::new(None, None, None).unwrap());
        let secrets = Secrets::from_secret(&[1; 32]);
        let tokens =
            ResetTokens::new(&secrets, ([127, 0, 0, 1], 443).into(), Arc::clone(&scheme), Arc::clone(&metrics));
        let mut ids = EndpointIds { format: ConnectionIdFormat::for_only_worker(scheme), state: Arc::clone(&state) };
        let mut resets = EndpointResets { tokens, state: Arc::clone(&state) };
        let id = ids.generate(&ConnectionInfo::new(&SocketAddress::default()));
        assert_eq!(state.with_table(|table| table.retry_ids.issued), Some(id));
        for unknown in [0, 1] {
            resets.generate(id.as_bytes());
            assert_eq!(metrics.packets_without_connection_none.get(), unknown);
        }
        // s2n-quic adopts a client's own ID after a Retry.
        state.with_table(|table| table.retry_ids.record_addressed(&[2; 16]));
        for unknown in [1, 2] {
            resets.generate(&[2; 16]);
            assert_eq!(metrics.packets_without_connection_none.get(), unknown);
        }
    }
}
