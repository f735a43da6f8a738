//! Remembers the client of each flow of a load balancer that writes a PROXY protocol header before a flow's first
//! datagram alone (`listen.proxy_protocol_udp = "first"`).
//!
//! Behind such a load balancer a later datagram arrives as the client wrote it, and may begin with a header of the
//! client's own. A header is therefore believed only if the load balancer cannot know the flow any more. Pure but for
//! the locks.

use litequic_net::datagram::NetworkPath;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Shards of the table: workers rarely wait for each other.
const SHARDS: usize = 64;
/// Flows of a shard: 65,536 in all, of 17 MiB at most.
const MAX_SHARD_FLOWS: usize = 1024;

/// Addresses of both ends of a flow.
type FlowKey = (SocketAddr, SocketAddr);

/// Table of flows, one for all workers of a process: the connections of a client's port are spread over workers.
#[derive(Debug)]
pub struct ProxyFlows {
    shards: Box<[Mutex<HashMap<FlowKey, ProxyFlow>>]>,
    hasher: RandomState,
}

/// A flow between load balancer and litequic.
#[derive(Debug, Clone, Copy)]
struct ProxyFlow {
    /// The client; `None` once another header named another client.
    client: Option<SocketAddr>,
    /// Time of the last datagram in either direction.
    last: Instant,
    /// The load balancer forgets the flow after this time without a datagram.
    timeout: Duration,
}

impl ProxyFlow {
    fn is_alive(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) <= self.timeout
    }
}

/// Reason for which a datagram is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusedHeader {
    /// The header is missing or malformed.
    Missing,
    /// A header of the flow named another client than the first one: the client wrote it, or the load balancer has
    /// forgotten the flow too early.
    Forged,
    /// The table is full.
    Full,
}

impl Default for ProxyFlows {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl ProxyFlows {
    /// The client of a datagram on `path`, whose header names the client `named`, or that has no header. The load
    /// balancer forgets a flow that is silent for `timeout`.
    pub(super) fn flow_client(
        &self,
        path: &NetworkPath,
        named: Option<SocketAddr>,
        timeout: Duration,
        now: Instant,
    ) -> Result<SocketAddr, RefusedHeader> {
        let (mut shard, key) = self.lock_shard(path).ok_or(RefusedHeader::Full)?;
        if let Some(flow) = shard.get_mut(&key).filter(|flow| flow.is_alive(now)) {
            (flow.last, flow.timeout) = (now, timeout);
            if named.is_some_and(|named| flow.client != Some(named)) {
                flow.client = None;
            }
            return flow.client.ok_or(RefusedHeader::Forged);
        }
        let client = named.ok_or(RefusedHeader::Missing)?;
        if shard.len() >= MAX_SHARD_FLOWS {
            shard.retain(|_, flow| flow.is_alive(now));
        }
        if shard.len() >= MAX_SHARD_FLOWS && !shard.contains_key(&key) {
            return Err(RefusedHeader::Full);
        }
        shard.insert(key, ProxyFlow { client: Some(client), last: now, timeout });
        Ok(client)
    }

    /// Records a message that is sent on `path`.
    pub(super) fn record_sent(&self, path: &NetworkPath, now: Instant) {
        if let Some((mut shard, key)) = self.lock_shard(path)
            && let Some(flow) = shard.get_mut(&key).filter(|flow| flow.is_alive(now))
        {
            flow.last = now;
        }
    }

    fn lock_shard(&self, path: &NetworkPath) -> Option<(MutexGuard<'_, HashMap<FlowKey, ProxyFlow>>, FlowKey)> {
        let key = (path.addresses.remote_address.0.into(), path.addresses.local_address.0.into());
        let index = usize::try_from(self.hasher.hash_one(key)).unwrap_or_default() % SHARDS;
        Some((self.shards.get(index)?.lock(), key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use s2n_quic_core::path::Tuple;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn path(port: u16) -> NetworkPath {
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let addresses = Tuple {
            remote_address: s2n_quic_core::inet::SocketAddress::from(address(port)).into(),
            local_address: s2n_quic_core::inet::SocketAddress::from(address(443)).into(),
        };
        NetworkPath { addresses, interface: 0 }
    }

    fn client(n: u8) -> SocketAddr {
        ([198, 51, 100, n], 4433).into()
    }

    #[test]
    fn a_full_table_forgets_silent_flows_and_refuses_new_ones() {
        let (flows, now) = (ProxyFlows::default(), Instant::now());
        let add = |port: u16, now| flows.flow_client(&path(port), Some(client(1)), TIMEOUT, now);
        let full = (0..u16::MAX).filter(|port| add(*port, now) == Err(RefusedHeader::Full)).count();
        let held = || flows.shards.iter().map(|shard| shard.lock().len()).sum::<usize>();
        assert!(full > 0 && held() + full == usize::from(u16::MAX), "{full}");
        assert!(flows.shards.iter().all(|shard| shard.lock().len() <= MAX_SHARD_FLOWS));
        let later = now + TIMEOUT + Duration::from_secs(1);
        assert!((0..u16::MAX).all(|port| port % 2 == 1 || add(port, later).is_ok()));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Received(u16, Option<u8>),
        Sent(u16),
        Passed(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (port, named) = (1..3_u16, prop_oneof![2 => Just(None), 1 => (1..3_u8).prop_map(Some)]);
        prop_oneof![
            4 => (port.clone(), named).prop_map(|(port, named)| Step::Received(port, named)),
            1 => port.prop_map(Step::Sent),
            2 => (1..40_u64).prop_map(Step::Passed),
        ]
    }

    proptest! {
        /// A model that keeps all events: the client of a flow is the one that the first header after the last silence
        /// named, if no later one named another.
        #[test]
        fn a_flow_has_the_client_of_its_first_header(steps in vec(step(), 0..60)) {
            let (flows, start) = (ProxyFlows::default(), Instant::now());
            let (mut now, mut known) = (start, HashMap::<u16, (Vec<u8>, Instant)>::new());
            for step in steps {
                known.retain(|_, (_, last)| now - *last <= TIMEOUT);
                match step {
                    Step::Passed(seconds) => now += Duration::from_secs(seconds),
                    Step::Sent(port) => {
                        flows.record_sent(&path(port), now);
                        known.entry(port).and_modify(|(_, last)| *last = now);
                    }
                    Step::Received(port, named) => {
                        if named.is_some() || known.contains_key(&port) {
                            let (names, last) = known.entry(port).or_insert((Vec::new(), now));
                            names.extend(named);
                            *last = now;
                        }
                        let expected = match known.get(&port).map(|(names, _)| names.as_slice()) {
                            None => Err(RefusedHeader::Missing),
                            Some([first, rest @ ..]) if rest.iter().all(|name| name == first) => Ok(client(*first)),
                            Some(_) => Err(RefusedHeader::Forged),
                        };
                        prop_assert_eq!(flows.flow_client(&path(port), named.map(client), TIMEOUT, now), expected);
                    }
                }
            }
        }
    }
}
