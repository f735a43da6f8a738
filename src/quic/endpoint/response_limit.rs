//! Rate limit of answers to clients without a connection: stateless resets, Retry packets, refusals. s2n-quic queues
//! each until the socket takes it, without a limit, so a sender faster than the socket would fill the memory.

use crate::{quic::metrics::Metrics, rate::Bucket};
use s2n_codec::EncoderValue;
use s2n_quic::provider::tls::{ConnectionInfo, Provider};
use s2n_quic_core::{application::ServerName, crypto::tls::Endpoint};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Stateless resets a second of an endpoint: all clients of a worker that crashed with 20,000 connections get one
/// within 20 seconds, about as long as their own timeouts.
pub(super) const MAX_RESETS_PER_SECOND: u32 = 1_000;
/// Retry packets and refusals a second of an endpoint: more handshakes than a core completes.
pub(super) const MAX_RESPONSES_PER_SECOND: u32 = 20_000;
/// Responses that may come at once: a second's worth, all of which s2n-quic may have to queue, of 1.2 KB each.
const BURST: Duration = Duration::from_secs(1);
/// Bytes of a tag so large that no reset is shorter than the packet that asked for it.
const SUPPRESSING_TAG_LEN: usize = u16::MAX as usize;

/// A rate limit of responses. Behind a lock, because s2n-quic wants its providers `Send`; one thread alone takes it.
#[derive(Debug)]
pub(super) struct StatelessResponseLimit(Mutex<Bucket>);

impl StatelessResponseLimit {
    /// A limit of `per_second` responses.
    pub(super) fn new(per_second: u32) -> Self {
        Self(Mutex::new(Bucket::with_burst(per_second, BURST)))
    }

    /// Whether another response may be sent `now`.
    pub(super) fn admit(&self, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take_if_there(now)
    }
}

/// TLS that limits stateless resets. s2n-quic requests the longest tag for each stateless reset and for nothing else,
/// and sends none that would not be shorter than the packet that it answers (RFC 9000 §10.3.3): so a huge tag
/// suppresses one.
pub(super) struct ResetLimitedTls<T> {
    tls: T,
    resets: StatelessResponseLimit,
    metrics: Arc<Metrics>,
}

impl<T> ResetLimitedTls<T> {
    pub(super) fn new(tls: T, metrics: Arc<Metrics>) -> Self {
        Self { tls, resets: StatelessResponseLimit::new(MAX_RESETS_PER_SECOND), metrics }
    }
}

impl<T: Provider> Provider for ResetLimitedTls<T> {
    type Server = ResetLimitedTls<T::Server>;
    type Client = T::Client;
    type Error = T::Error;

    fn start_server(self) -> Result<Self::Server, T::Error> {
        Ok(ResetLimitedTls { tls: self.tls.start_server()?, resets: self.resets, metrics: self.metrics })
    }

    fn start_client(self) -> Result<T::Client, T::Error> {
        self.tls.start_client()
    }
}

impl<E: Endpoint> Endpoint for ResetLimitedTls<E> {
    type Session = E::Session;

    fn new_server_session<P: EncoderValue>(&mut self, parameters: &P, info: ConnectionInfo) -> E::Session {
        self.tls.new_server_session(parameters, info)
    }

    fn new_client_session<P: EncoderValue>(&mut self, parameters: &P, name: ServerName) -> E::Session {
        self.tls.new_client_session(parameters, name)
    }

    fn max_tag_length(&self) -> usize {
        if self.resets.admit(Instant::now()) {
            return self.tls.max_tag_length();
        }
        self.metrics.limit_stateless_resets.increment();
        SUPPRESSING_TAG_LEN
    }
}
