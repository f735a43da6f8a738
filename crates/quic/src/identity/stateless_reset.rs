//! Makes stateless reset tokens (RFC 9000 §10.3): a client learns at once that its connection is gone.
//!
//! A packet arrives at the worker that its connection ID names; one for which this worker has no connection belongs to
//! a connection that is gone. [`ConnectionIdFormat`](super::connection_id::ConnectionIdFormat) drops packets of other
//! workers before, and those of other processes that run. s2n-quic responds only to packets with a short header, with
//! fewer bytes than received, so that two endpoints cannot keep each other busy (§10.3.3), and never fewer than 42: a
//! packet too small for that is dropped.
//!
//! Each endpoint has a key of its own: another listen address has another one, and so has another replica with the same
//! secret ([`Replica`](super::Replica)). With one key for all, a packet with the connection ID of another client's
//! connection, sent to the wrong address, or from another port to the wrong replica, would get the token that ends that
//! connection (§21.11).
//!
//! With a random key the token is invalid after a restart, and clients of the old process wait for their idle timeout;
//! within a process it ends connections that were closed while their client slept. With a key of `listen.secret_file`
//! clients of a process that crashed get a reset from the next one.

use super::{IdScheme, ServerIdOwner, retry_ids::SharedRetryIds, secrets::Secrets};
use crate::metrics::QuicMetrics;
use aws_lc_rs::hmac;
use s2n_quic::provider::stateless_reset_token::{Generator, Provider};
use s2n_quic_core::stateless_reset::token::{LEN, Token};
use std::{convert::Infallible, net::SocketAddr, sync::Arc};

/// Stateless reset tokens of one endpoint: HMAC-SHA256 of the connection ID, cut to the token's length.
#[derive(Debug)]
pub(crate) struct ResetTokens {
    key: hmac::Key,
    scheme: Arc<IdScheme>,
    metrics: Arc<QuicMetrics>,
    retry_ids: SharedRetryIds,
}

impl ResetTokens {
    /// Tokens of the endpoint that is bound to `address`, whose IDs follow `scheme`; `metrics` counts packets without a
    /// connection, which are told from new IDs by `retry_ids`.
    pub(crate) fn new(
        secrets: &Secrets,
        address: SocketAddr,
        scheme: Arc<IdScheme>,
        metrics: Arc<QuicMetrics>,
        retry_ids: SharedRetryIds,
    ) -> Self {
        Self { key: secrets.reset_key(address), scheme, metrics, retry_ids }
    }

    /// Counts a packet without a connection by the owner of its ID.
    fn count_by_owner(&self, id: &[u8]) {
        let metrics = &self.metrics;
        let counter = match self.scheme.server_id_owner(id) {
            ServerIdOwner::Own => &metrics.packets_without_connection_own,
            ServerIdOwner::Other => &metrics.packets_without_connection_other,
            ServerIdOwner::None => &metrics.packets_without_connection_none,
        };
        counter.increment();
    }

    /// Token of `id`, which is new if it `begins`, or belongs to a packet without a connection, which is counted.
    fn reset_token(&self, id: &[u8], begins: bool) -> Token {
        if !begins {
            self.count_by_owner(id);
        }
        let tag = hmac::sign(&self.key, id);
        let mut token = [0; LEN];
        token.iter_mut().zip(tag.as_ref()).for_each(|(byte, tag)| *byte = *tag);
        token.into()
    }
}

impl Provider for ResetTokens {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl Generator for ResetTokens {
    const ENABLED: bool = true;

    fn generate(&mut self, local_connection_id: &[u8]) -> Token {
        // s2n-quic also requests the tokens of newly issued IDs here.
        let begins = self.retry_ids.lock().begin_id(local_connection_id);
        self.reset_token(local_connection_id, begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Replica,
        identity::connection_id::{ConnectionIdFormat, OwnIds, WorkerIndex},
    };
    use litequic_config::ServerId;
    use s2n_quic::provider::connection_id::{ConnectionInfo, Generator as _};
    use s2n_quic_core::inet::SocketAddress;

    fn of_secrets(secrets: &Secrets, address: SocketAddr) -> ResetTokens {
        let scheme = Arc::new(IdScheme::new(None, None, None).unwrap());
        ResetTokens::new(secrets, address, scheme, Arc::default(), Arc::default())
    }

    fn tokens(secret: u8, address: &str) -> ResetTokens {
        of_secrets(&Secrets::from_secret(&[secret; 32]), address.parse().unwrap())
    }

    #[test]
    fn packets_without_a_connection_are_counted_by_owner() {
        let server_id = |digits: &str| ServerId::from_digits(digits, 14, None);
        let scheme = Arc::new(IdScheme::new(Some(&server_id("01")), None, None).unwrap());
        let metrics = Arc::<QuicMetrics>::default();
        let secrets = Secrets::from_secret(&[1; 32]);
        let address = "0.0.0.0:443".parse().unwrap();
        let tokens = ResetTokens::new(&secrets, address, scheme, Arc::clone(&metrics), Arc::default());
        let own = [&[0x0f, 1][..], &[7; 14]].concat();
        let count = || {
            let QuicMetrics {
                packets_without_connection_own: own,
                packets_without_connection_other: other,
                packets_without_connection_none: none,
                ..
            } = &*metrics;
            [own, other, none].map(|counter| counter.get())
        };
        // This ID is newly issued, so nothing is counted.
        tokens.reset_token(&own, true);
        assert_eq!(count(), [0, 0, 0]);
        tokens.reset_token(&own, false);
        tokens.reset_token(&[&[0x0f, 2][..], &[7; 14]].concat(), false);
        tokens.reset_token(&[0xef; 16], false);
        tokens.reset_token(&[0xef; 16], false);
        assert_eq!(count(), [1, 1, 2]);
    }

    #[test]
    fn processes_with_one_secret_make_the_same_token_at_an_address() {
        let address = "0.0.0.0:443";
        let [one, two, stranger] = [1, 1, 2].map(|secret| tokens(secret, address));
        assert_eq!(one.reset_token(b"an id", true), two.reset_token(b"an id", true));
        assert_ne!(one.reset_token(b"an id", true), one.reset_token(b"another", true));
        assert_ne!(one.reset_token(b"an id", true), stranger.reset_token(b"an id", true));
    }

    #[test]
    fn replicas_make_different_tokens_and_each_repeats_its_own() {
        let address = "0.0.0.0:443".parse().unwrap();
        let token = |replica: &str| {
            let mut secrets = Secrets::from_secret(&[1; 32]);
            secrets.replica = Replica::with_name(replica);
            of_secrets(&secrets, address).reset_token(b"an id", true)
        };
        let replicas = ["", "web-0", "web-1", "web", "web-00.0.0.0:443"];
        let tokens = replicas.map(token);
        for (index, replica) in replicas.iter().enumerate() {
            assert!(!tokens[..index].contains(&tokens[index]), "{replica}");
            assert_eq!(token(replica), tokens[index], "{replica}");
        }
    }

    #[test]
    fn no_two_addresses_make_the_same_token() {
        let addresses =
            ["0.0.0.0:443", "0.0.0.0:4433", "127.0.0.1:443", "[::]:443", "[fe80::1%2]:443", "[fe80::1%3]:443"];
        let tokens = addresses.map(|address| tokens(1, address).reset_token(b"an id", true));
        for (index, token) in tokens.iter().enumerate() {
            assert!(!tokens[..index].contains(token), "{}", addresses[index]);
        }
    }

    #[test]
    fn only_the_second_token_of_an_id_counts_an_unknown_packet() {
        let (retry_ids, metrics) = (SharedRetryIds::default(), Arc::<QuicMetrics>::default());
        let scheme = Arc::new(IdScheme::new(None, None, None).unwrap());
        let own = OwnIds::new(&scheme, 0, Arc::default(), WorkerIndex(0), 1);
        let mut ids = ConnectionIdFormat::new(own, Arc::clone(&scheme), Arc::default(), Arc::clone(&retry_ids));
        let secrets = Secrets::from_secret(&[1; 32]);
        let address = ([127, 0, 0, 1], 443).into();
        let mut resets = ResetTokens::new(&secrets, address, scheme, Arc::clone(&metrics), Arc::clone(&retry_ids));
        let id = ids.generate(&ConnectionInfo::new(&SocketAddress::default()));
        assert_eq!(retry_ids.lock().issued, Some(id));
        for unknown in [0, 1] {
            resets.generate(id.as_bytes());
            assert_eq!(metrics.packets_without_connection_none.get(), unknown);
        }
        // s2n-quic adopts a client's own ID after a Retry.
        retry_ids.lock().record_addressed(&[2; 16]);
        for unknown in [1, 2] {
            resets.generate(&[2; 16]);
            assert_eq!(metrics.packets_without_connection_none.get(), unknown);
        }
    }
}
