//! Stateless reset tokens (RFC 9000 §10.3): a client learns at once that its connection is gone.
//!
//! Enabled. A packet reaches the worker that its connection ID names; one that this worker has no connection for
//! belongs to a connection that is gone. [`ConnectionIdFormat`](super::connection_id::ConnectionIdFormat) drops packets
//! of other workers before they get here, and those of other processes that run. s2n-quic answers only packets with a
//! short header, with fewer bytes than it got, so that two endpoints cannot keep each other busy (§10.3.3), and never
//! fewer than 42: a packet too small for that is dropped.
//!
//! The key is one endpoint's: another listen address has another one, and another replica with the same secret
//! ([`Replica`](super::Replica)). With one key for all, a packet sent to the wrong address, or from another port to the
//! wrong replica, with the connection ID of another client's connection, would be answered with the token that ends it
//! (§21.11).
//!
//! With a random key the token is invalid after a restart, and clients of the old process wait for their idle timeout;
//! within a process it ends connections that were closed while their client slept. With a key of `listen.secret_file`
//! clients of a process that crashed get a reset from the next one.

use super::{IdScheme, ServerIdOwner, retry_id::RetryIds, secrets::Secrets};
use crate::quic::metrics::Metrics;
use aws_lc_rs::hmac;
use s2n_quic::provider::stateless_reset_token::{Generator as TokenGenerator, Provider};
use s2n_quic_core::stateless_reset::token::{LEN, Token};
use std::{convert::Infallible, net::SocketAddr, sync::Arc};

/// HMAC-SHA256 of the connection ID, cut to the token's length.
#[derive(Debug)]
pub(in crate::quic) struct Generator {
    key: hmac::Key,
    scheme: Arc<IdScheme>,
    ids: RetryIds,
    metrics: Arc<Metrics>,
}

impl Generator {
    /// A generator for the endpoint that is bound to `address`, which issues `ids` after `scheme`; counts packets of no
    /// connection.
    pub(in crate::quic) fn new(
        secrets: &Secrets,
        address: SocketAddr,
        (scheme, ids): (Arc<IdScheme>, RetryIds),
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { key: secrets.reset_key(address), scheme, ids, metrics }
    }

    /// Counts a packet of no connection by whose ID it has.
    fn count(&self, id: &[u8]) {
        let metrics = &self.metrics;
        let counter = match self.scheme.owner(id) {
            ServerIdOwner::Own => &metrics.packets_without_connection_own,
            ServerIdOwner::Other => &metrics.packets_without_connection_other,
            ServerIdOwner::None => &metrics.packets_without_connection_none,
        };
        counter.increment();
    }
}

impl Provider for Generator {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl TokenGenerator for Generator {
    const ENABLED: bool = true;

    fn generate(&mut self, local_connection_id: &[u8]) -> Token {
        // s2n-quic requests the tokens of IDs that it issues here too.
        if !self.ids.begin(local_connection_id) {
            self.count(local_connection_id);
        }
        let tag = hmac::sign(&self.key, local_connection_id);
        let mut token = [0; LEN];
        token.iter_mut().zip(tag.as_ref()).for_each(|(byte, tag)| *byte = *tag);
        token.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::ServerId, quic::Replica};

    fn of_secrets(secrets: &Secrets, address: SocketAddr) -> Generator {
        let scheme = Arc::new(IdScheme::new(None, None, None).unwrap());
        Generator::new(secrets, address, (scheme, RetryIds::default()), Arc::default())
    }

    fn generator(secret: u8, address: &str) -> Generator {
        of_secrets(&Secrets::derive(&[secret; 32]), address.parse().unwrap())
    }

    #[test]
    fn packets_of_no_connection_are_counted_by_whose_id_they_have() {
        let server_id = |digits: &str| ServerId::of(digits, 14, None);
        let scheme = Arc::new(IdScheme::new(Some(&server_id("01")), None, None).unwrap());
        let (ids, metrics) = (RetryIds::default(), Arc::<Metrics>::default());
        let secrets = Secrets::derive(&[1; 32]);
        let address = "0.0.0.0:443".parse().unwrap();
        let mut generator = Generator::new(&secrets, address, (scheme, ids.clone()), Arc::clone(&metrics));
        let own = [&[0x0f, 1][..], &[7; 14]].concat();
        let issued = s2n_quic_core::connection::LocalId::try_from_bytes(&own).unwrap();
        let count = || {
            let Metrics {
                packets_without_connection_own: own,
                packets_without_connection_other: other,
                packets_without_connection_none: none,
                ..
            } = &*metrics;
            [own, other, none].map(|counter| counter.get())
        };
        // The token of an ID that is issued.
        ids.issue(issued);
        generator.generate(&own);
        assert_eq!(count(), [0, 0, 0]);
        generator.generate(&own);
        generator.generate(&[&[0x0f, 2][..], &[7; 14]].concat());
        generator.generate(&[0xef; 16]);
        generator.generate(&[0xef; 16]);
        assert_eq!(count(), [1, 1, 2]);
    }

    #[test]
    fn every_worker_and_every_process_with_the_secret_makes_the_same_token_at_an_address() {
        let address = "0.0.0.0:443";
        let (mut one, mut two, mut stranger) = (generator(1, address), generator(1, address), generator(2, address));
        assert_eq!(one.generate(b"an id"), two.generate(b"an id"));
        assert_ne!(one.generate(b"an id"), one.generate(b"another"));
        assert_ne!(one.generate(b"an id"), stranger.generate(b"an id"));
    }

    #[test]
    fn no_two_replicas_make_the_same_token_and_a_replica_makes_its_own_again() {
        let address = "0.0.0.0:443".parse().unwrap();
        let token = |replica: &str| {
            let secrets = Secrets::derive(&[1; 32]).of_replica(Replica::named(replica));
            of_secrets(&secrets, address).generate(b"an id")
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
        let tokens = addresses.map(|address| generator(1, address).generate(b"an id"));
        for (index, token) in tokens.iter().enumerate() {
            assert!(!tokens[..index].contains(token), "{}", addresses[index]);
        }
    }
}
