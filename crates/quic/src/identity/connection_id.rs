//! Issues one endpoint's connection IDs by the [`layout`](super::id_layout) and the [`scheme`](super::id_scheme) of its
//! process, and recognizes the IDs of its worker.
//!
//! IDs are unique by construction: a counter of the endpoint is in each, encrypted. s2n-quic ends the process for a
//! repeated one.

use super::{
    generations::Generations,
    id_layout::{ISSUER_LEN, IdLayout, UNROUTABLE, UNROUTABLE_LEN, mask_issuer},
    id_scheme::IdScheme,
    retry_ids::SharedRetryIds,
};
use crate::metrics::QuicMetrics;
use litequic_base::half_sip_hash::SipHashKey;
use s2n_quic::provider::connection_id::{ConnectionInfo, Generator, LocalId, Validator};
use std::{sync::Arc, time::Duration};

/// Largest number of workers: one byte distinguishes them.
pub const MAX_WORKERS: usize = 256;

/// Index of a worker in its process, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerIndex(pub u8);

/// Recognizes connection IDs that one worker has issued.
#[derive(Debug, Clone)]
pub(crate) struct OwnIds {
    layout: IdLayout,
    mask: SipHashKey,
    generation: u8,
    /// Generations of other processes that run on the same port.
    others: Arc<Generations>,
    worker: WorkerIndex,
    workers: usize,
}

impl OwnIds {
    /// Recognizes IDs of `worker`, one of `workers`, in the process of `generation`, beside which the processes
    /// `others` may run.
    pub(crate) fn new(
        scheme: &IdScheme,
        generation: u8,
        others: Arc<Generations>,
        worker: WorkerIndex,
        workers: usize,
    ) -> Self {
        Self { layout: scheme.layout(), mask: scheme.mask, generation, others, worker, workers }
    }

    /// Whether `id` looks like one that this worker issued, under any rotation.
    pub(crate) fn contains_own_id(&self, id: &[u8]) -> bool {
        let own = [self.generation, self.worker.0];
        id.len() == self.layout.id_len() && self.layout.read_issuer(self.mask, id) == Some(own)
    }

    /// Whether another worker of this process, or another process that runs, issued `id` and may have a connection for
    /// it.
    fn belongs_to_another(&self, id: &[u8]) -> bool {
        match self.layout.read_issuer(self.mask, id) {
            Some([generation, worker]) if generation == self.generation => {
                worker != self.worker.0 && usize::from(worker) < self.workers
            }
            Some([generation, _]) => self.others.contains(generation),
            None => false,
        }
    }
}

/// Issues and validates one endpoint's connection IDs.
#[derive(Debug)]
pub struct ConnectionIdFormat {
    own: OwnIds,
    scheme: Arc<IdScheme>,
    /// Number of the last ID, whose lowest bytes are in the ID, as many as fit.
    counter: u128,
    metrics: Arc<QuicMetrics>,
    retry_ids: SharedRetryIds,
}

impl ConnectionIdFormat {
    /// IDs of the only worker of a process that shares its port with no other.
    pub fn for_only_worker(scheme: Arc<IdScheme>) -> Self {
        let own = OwnIds::new(&scheme, 0, Arc::default(), WorkerIndex(0), 1);
        Self::new(own, scheme, Arc::default(), Arc::default())
    }

    /// Issues IDs by `scheme` for the worker of `own`; `metrics` counts them, and `retry_ids` has the last one.
    pub(crate) fn new(
        own: OwnIds,
        scheme: Arc<IdScheme>,
        metrics: Arc<QuicMetrics>,
        retry_ids: SharedRetryIds,
    ) -> Self {
        // A restarted process has the generation of the one before, and must not repeat its IDs.
        Self { own, scheme, counter: rand::random(), metrics, retry_ids }
    }

    fn issue_id(&mut self) -> Vec<u8> {
        let issuer = [self.own.generation, self.own.worker.0];
        let Some((shape, hashed)) = self.own.layout.0.zip(self.own.layout.hashed_range()) else {
            // rand's generator is a CSPRNG, reseeded from the system.
            let random: [u8; UNROUTABLE_LEN - 1 - ISSUER_LEN] = rand::random();
            return [&[UNROUTABLE][..], &issuer, &random].concat();
        };
        self.counter = self.counter.wrapping_add(1);
        let unique = usize::from(shape.nonce).saturating_sub(ISSUER_LEN);
        let counter = self.counter.to_be_bytes();
        let counter = counter.get(counter.len().saturating_sub(unique)..).unwrap_or_default();
        let mut id = self.scheme.begin_id(issuer, counter);
        let tail = mask_issuer(issuer, self.own.mask, id.get(hashed).unwrap_or_default());
        id.extend(tail);
        id
    }
}

impl Generator for ConnectionIdFormat {
    #[expect(clippy::expect_used, reason = "16 to 20 bytes are an ID's length by construction")]
    fn generate(&mut self, _: &ConnectionInfo<'_>) -> LocalId {
        let id = self.issue_id();
        let id = LocalId::try_from_bytes(&id).expect("16 to 20 bytes are a connection ID");
        self.metrics.connection_ids_issued.increment();
        self.retry_ids.lock().issued = Some(id);
        id
    }

    /// Lifetime of an ID: balancers forget a configuration that no ID uses any more. `None` without a server ID.
    fn lifetime(&self) -> Option<Duration> {
        self.scheme.id_lifetime()
    }
}

impl Validator for ConnectionIdFormat {
    /// Length of a short header's connection ID, always the same; the packet may be any, also one of an old process,
    /// whose client gets a stateless reset. Called for every short header: nothing is decrypted here.
    ///
    /// A packet for another worker of this process, or for another process that runs, is dropped: its receiver may have
    /// the connection, and a stateless reset from here would end it (RFC 9000 §21.11). Such a packet arrives if the
    /// kernel does not steer, or if GRO has joined it with one of this worker's, which an attacker who wants a token
    /// can cause.
    fn validate(&self, _: &ConnectionInfo<'_>, buffer: &[u8]) -> Option<usize> {
        let len = self.own.layout.id_len();
        let id = buffer.get(..len)?;
        (!self.own.belongs_to_another(id)).then_some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::quic_lb::ServerIdKey;
    use litequic_config::ServerId;
    use proptest::prelude::*;
    use s2n_quic_core::inet::SocketAddress;
    use std::collections::HashSet;

    const GENERATION: u8 = 9;
    const KEY: [u8; 16] =
        [0x8f, 0x95, 0xf0, 0x92, 0x45, 0x76, 0x5f, 0x80, 0x25, 0x69, 0x34, 0xe5, 0x0c, 0x66, 0x20, 0x7f];

    /// A configuration of `[listen.server_id]`.
    fn server_id(id: &[u8], nonce: u8, encrypted: bool) -> ServerId {
        let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        ServerId::from_digits(&digits, nonce, encrypted.then(|| "key".into()))
    }

    fn scheme(server_id: Option<&ServerId>) -> Arc<IdScheme> {
        let key = server_id.is_some_and(|one| one.id_shape().encrypted).then(|| ServerIdKey::from(KEY));
        Arc::new(IdScheme::new(server_id, key, None).unwrap())
    }

    fn of_worker(scheme: &Arc<IdScheme>, worker: u8) -> ConnectionIdFormat {
        let others = Arc::new(Generations::from_numbers([GENERATION - 2, GENERATION + 1]));
        let own = OwnIds::new(scheme, GENERATION, others, WorkerIndex(worker), 4);
        ConnectionIdFormat::new(own, Arc::clone(scheme), Arc::default(), Arc::default())
    }

    fn format(worker: u8) -> ConnectionIdFormat {
        of_worker(&scheme(None), worker)
    }

    fn generate(format: &mut ConnectionIdFormat) -> Vec<u8> {
        let address = SocketAddress::default();
        format.generate(&ConnectionInfo::new(&address)).as_bytes().to_vec()
    }

    fn validate(format: &ConnectionIdFormat, buffer: &[u8]) -> Option<usize> {
        let address = SocketAddress::default();
        format.validate(&ConnectionInfo::new(&address), buffer)
    }

    #[test]
    fn an_id_without_a_server_id_names_generation_and_worker() {
        let mut format = format(3);
        let id = generate(&mut format);
        assert!(id.starts_with(&[0xef, GENERATION, 3]), "{id:?}");
        assert_eq!((id.len(), format.own.layout.id_len()), (16, 16));
        assert!(format.lifetime().is_none());
        assert_eq!(format.own.layout.to_string(), "16 bytes: no server ID");
    }

    /// Layouts: server ID, bytes of the nonce, whether a key encrypts, bytes of the ID.
    const LAYOUTS: [(&[u8], u8, bool, usize); 8] = [
        (&[1, 2, 3, 4, 5, 6, 7, 8], 7, false, 16),
        (&[10, 1, 2, 3], 11, false, 16),
        (&[1], 18, false, 20),
        (&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 7, false, 20),
        (&[1, 2, 3, 4, 5, 6, 7, 8], 8, true, 19),
        (&[1], 8, true, 12),
        (&[1, 2, 3], 13, true, 19),
        (&[1, 2, 3, 4, 5, 6, 7, 8, 9], 8, true, 20),
    ];

    #[test]
    fn an_id_has_its_server_id_and_a_masked_issuer() {
        for (id, nonce, encrypted, len) in LAYOUTS {
            let configured = server_id(id, nonce, encrypted);
            let scheme = scheme(Some(&configured));
            let mut format = of_worker(&scheme, 3);
            assert_eq!(format.lifetime(), Some(Duration::from_secs(86_400)));
            let mut tails = HashSet::new();
            let (mut changes, mut mistaken) = (0, 0);
            for _ in 0..100 {
                let issued = generate(&mut format);
                assert_eq!(issued.len(), len);
                assert_eq!(usize::from(issued[0]), len - 1, "rotation 0");
                if encrypted {
                    let mut text = issued[1..=id.len() + usize::from(nonce)].to_vec();
                    super::super::quic_lb::IdCipher::new(KEY.into()).unwrap().decrypt(&mut text);
                    assert_eq!(text[..id.len() + 2], [id, &[GENERATION, 3]].concat());
                } else {
                    assert_eq!(issued[1..=id.len()], *id);
                }
                assert!(format.own.contains_own_id(&issued));
                assert_eq!(format.own.layout.read_issuer(scheme.mask, &issued), Some([GENERATION, 3]));
                for changed in format.own.layout.hashed_range().unwrap() {
                    let mut other = issued.clone();
                    other[changed] ^= 1;
                    changes += 1;
                    mistaken += u32::from(format.own.contains_own_id(&other));
                }
                assert!(
                    !format.own.contains_own_id(&issued[1..])
                        && !format.own.contains_own_id(&[&*issued, &[0]].concat())
                );
                tails.insert(issued[len - 2..].to_vec());
            }
            assert!(tails.len() > 90, "{} distinct masks of 100", tails.len());
            // The mask has 16 bits: one of 65,536 is right by chance.
            assert!(mistaken <= 5, "{mistaken} of {changes}");
        }
    }

    /// AWS' load balancer, for which the guide of its controller configures Envoy, reads server ID 8, nonce 7.
    #[test]
    fn the_server_id_of_aws_and_katran_is_where_they_read_it() {
        let first = |server_id: &[u8], nonce: u8, rotation: u8| {
            let configured = self::server_id(server_id, nonce, false).with_rotation(rotation);
            generate(&mut of_worker(&scheme(Some(&configured)), 0))
        };
        let id = [0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 7, 8];
        let aws = first(&id, 7, 0);
        assert_eq!((aws.len(), &aws[..9]), (16, &[&[0x0f], &id[..]].concat()[..]));

        // Katran: the first two bits are the version; server IDs of version 2 are bytes 1 to 3, of version 3 bytes 1 to
        // 4.
        for (rotation, len, version) in [(4, 3, 2), (5, 3, 2), (6, 4, 3)] {
            let katran = first(&id[..len], 15 - u8::try_from(len).unwrap(), rotation);
            assert_eq!((katran[0] >> 6, &katran[1..=len]), (version, &id[..len]));
        }
    }

    #[test]
    fn ids_without_a_server_id_are_unique() {
        let mut format = format(0);
        let ids: HashSet<_> = (0..10_000).map(|_| generate(&mut format)).collect();
        assert_eq!(ids.len(), 10_000);
    }

    /// Five random bytes would repeat 45 times among 10 million.
    #[test]
    fn ten_million_ids_with_a_server_id_have_no_two_alike() {
        let scheme = scheme(Some(&server_id(&[1; 8], 7, false)));
        let begin = of_worker(&scheme, 0).counter;
        let issued = |n: u128| {
            let mut format = ConnectionIdFormat { counter: begin.wrapping_add(n * 2_500_000), ..of_worker(&scheme, 0) };
            let number = |id: Vec<u8>| {
                let bytes: [u8; 5] = id[9..14].try_into().unwrap();
                bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
            };
            (0..2_500_000).map(|_| number(format.issue_id())).collect::<Vec<u64>>()
        };
        // Four threads issue the IDs: one takes too long in a test build.
        let mut unique = std::thread::scope(|scope| {
            let parts: Vec<_> = (0..4).map(|n| scope.spawn(move || issued(n))).collect();
            parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<_>>().concat()
        });
        // An observer does not see the counter: neighbours are as far apart as any two.
        let far = unique.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) > 1 << 32).count();
        assert!(far > 9_800_000, "{far}");
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 10_000_000);
    }

    #[test]
    fn a_reload_changes_new_ids_and_old_ones_stay_our_own() {
        for encrypted in [false, true] {
            let nonce = if encrypted { 13 } else { 12 };
            let configured = server_id(&[1, 2, 3], nonce, encrypted);
            let scheme = scheme(Some(&configured));
            let mut format = of_worker(&scheme, 2);
            let old = generate(&mut format);
            let next = server_id(&[4, 5, 6], nonce, encrypted).with_rotation(1);
            scheme.apply_server_id(&next, None).unwrap();
            let new = generate(&mut format);
            assert_eq!((old[0] >> 5, new[0] >> 5), (0, 1));
            assert!(encrypted || new[1..4] == [4, 5, 6]);
            assert!(format.own.contains_own_id(&old) && format.own.contains_own_id(&new));
            assert_eq!(validate(&of_worker(&scheme, 1), &old), None, "another worker's");
        }
    }

    #[test]
    fn datagrams_of_one_connection_have_one_key_in_every_layout() {
        for server_id in [None, Some(server_id(&[1; 8], 7, false)), Some(server_id(&[1; 9], 8, true))] {
            let mut format = of_worker(&scheme(server_id.as_ref()), 1);
            let layout = format.own.layout;
            let connection = |first: u8, id: &[u8], rest: &[u8]| layout.connection_key(&[&[first], id, rest].concat());
            let ids: Vec<Vec<u8>> = (0..100).map(|_| generate(&mut format)).collect();
            let all: HashSet<_> = ids.iter().map(|id| connection(0x41, id, &[1, 2]).unwrap()).collect();
            assert_eq!(all.len(), ids.len());
            let id = &ids[0];
            assert_eq!(connection(0x41, id, &[1, 2, 3]), connection(0x7f, id, &[]));
            assert_eq!(connection(0xc1, id, &[1, 2, 3]), None, "a long header");
            assert_eq!(connection(0x41, &id[1..], &[]), None, "too short");
            assert_eq!(layout.connection_key(&[]), None);
        }
    }

    #[test]
    fn packets_of_other_workers_and_running_processes_are_dropped() {
        let own = format(1);
        let id = |generation, worker| [&[0xef, generation, worker], &[0; 30][..]].concat();
        let table = [
            ("our own", id(GENERATION, 1), Some(16)),
            ("a sibling's", id(GENERATION, 2), None),
            ("of a worker that does not exist", id(GENERATION, 4), Some(16)),
            ("of a process before", id(GENERATION - 1, 2), Some(16)),
            ("of one that drains", id(GENERATION - 2, 1), None),
            ("of the next one", id(GENERATION + 1, 1), None),
            ("of another layout", [&[0x0f], &id(GENERATION, 2)[1..]].concat(), Some(16)),
            ("just long enough", id(GENERATION, 1)[..16].to_vec(), Some(16)),
            ("too short", id(GENERATION, 1)[..15].to_vec(), None),
            ("empty", vec![], None),
        ];
        for (what, buffer, expected) in table {
            assert_eq!(validate(&own, &buffer), expected, "{what}");
        }
    }

    proptest! {
        /// Only generation and worker decide about a masked ID.
        #[test]
        fn only_generation_and_worker_decide_about_a_masked_id(
            unique: [u8; 16],
            generation in GENERATION - 3..GENERATION + 3,
            worker in 0_u8..6,
            rotation in 0_u8..7,
            layout in 0..LAYOUTS.len(),
        ) {
            let (id, nonce, encrypted, len) = LAYOUTS[layout];
            let scheme = scheme(Some(&server_id(id, nonce, encrypted)));
            let own = of_worker(&scheme, 1);
            let hashed = scheme.layout().hashed_range().unwrap();
            let mut buffer = [&[rotation << 5 | u8::try_from(len - 1).unwrap()], &*unique.repeat(2)].concat();
            let tail = mask_issuer([generation, worker], scheme.mask, &buffer[hashed]);
            buffer[len - 2..len].copy_from_slice(&tail);
            let is_anothers = match generation {
                GENERATION => worker != 1 && worker < 4,
                other => other == GENERATION - 2 || other == GENERATION + 1,
            };
            prop_assert_eq!(validate(&own, &buffer), (!is_anothers).then_some(len));
            prop_assert_eq!(own.own.contains_own_id(&buffer[..len]), (generation, worker) == (GENERATION, 1));
        }
    }
}
