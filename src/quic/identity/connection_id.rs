//! The connection IDs that litequic issues: they name the worker, so that every packet of a connection reaches it after
//! any migration of its client.
//!
//! ```text
//! byte  0                     config rotation (3 bits) and length − 1 (5 bits), after draft-ietf-quic-load-balancers
//!        1 ..  1 + s           server ID, s = 0 to 4 bytes, for a QUIC-LB balancer's plaintext algorithm
//!        1 + s                 process generation
//!        2 + s                 worker index
//!        3 + s .. 16 + s       random
//! ```
//!
//! The config rotation bits are 0b111 without a server ID, which tells a QUIC-LB balancer to route by the 4-tuple, as
//! this ID cannot be routed, and 0b000, its first configuration, with one.
//!
//! Worker and generation are in plaintext because a classic BPF program steers by them, and cannot decrypt. That costs
//! little: an observer who sees two IDs of one connection learns that the same worker of the same process issued both,
//! as it did those of all its other connections (RFC 9000 §5.1 forbids what identifies a connection, and QUIC-LB's
//! plaintext algorithm reveals as much by its server ID). The other 104 bits are random: an ID cannot be guessed, which
//! protects stateless resets (RFC 9000 §21.11) and other clients' connections, and two are never equal.

use super::{generations::Generations, retry_id::RetryIds};
use s2n_quic::provider::connection_id::{ConnectionInfo, Generator, LocalId, Validator};
use std::sync::Arc;

/// Workers that one byte distinguishes.
pub const MAX_WORKERS: usize = 256;

/// Bytes of an ID without server ID.
const BASE_LEN: u8 = 16;
/// RFC 9000 §17.2: a connection ID has 20 bytes at most.
const MAX_LEN: u8 = 20;
/// Bytes of the longest server ID.
const MAX_SERVER_ID_LEN: u8 = MAX_LEN - BASE_LEN;
/// RFC 9000 §17.2: the header's form, in a packet's first byte.
const LONG_HEADER: u8 = 0x80;
/// "This ID cannot be routed" in the config rotation bits.
const UNROUTABLE: u8 = 0b111 << 5;

/// A worker of its process, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerIndex(pub u8);

/// The server that a QUIC-LB balancer is to route to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerId {
    bytes: [u8; MAX_SERVER_ID_LEN as usize],
    len: u8,
}

/// Why a server ID is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server ID has at most {MAX_SERVER_ID_LEN} bytes, not {0}")]
pub struct LayoutError(usize);

impl TryFrom<&[u8]> for ServerId {
    type Error = LayoutError;

    fn try_from(id: &[u8]) -> Result<Self, LayoutError> {
        let mut bytes = [0; MAX_SERVER_ID_LEN as usize];
        bytes.get_mut(..id.len()).ok_or(LayoutError(id.len()))?.copy_from_slice(id);
        Ok(Self { bytes, len: u8::try_from(id.len()).map_err(|_| LayoutError(id.len()))? })
    }
}

impl ServerId {
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The layout of an ID. The same for all workers of a process, and for all processes that share a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    server_id: ServerId,
}

impl Layout {
    /// The layout of IDs that carry `server_id`.
    pub const fn new(server_id: ServerId) -> Self {
        Self { server_id }
    }

    /// Bytes of every ID.
    pub fn id_len(&self) -> usize {
        usize::from(BASE_LEN + self.server_id.len)
    }

    /// The process generation's place.
    pub fn generation_offset(&self) -> usize {
        1 + usize::from(self.server_id.len)
    }

    /// The worker index's place.
    pub fn worker_offset(&self) -> usize {
        2 + usize::from(self.server_id.len)
    }

    /// What identifies the connection of a datagram with a short header: the last bytes of its destination connection
    /// ID, which are random. `None` of a long header, and of a datagram that is too short.
    pub(in crate::quic) fn connection(&self, datagram: &[u8]) -> Option<u64> {
        let (first, rest) = datagram.split_first()?;
        let id = rest.get(..self.id_len())?;
        (first & LONG_HEADER == 0).then_some(u64::from_le_bytes(*id.last_chunk()?))
    }

    /// The first byte of every ID.
    pub fn first_byte(&self) -> u8 {
        let rotation = if self.server_id.len == 0 { UNROUTABLE } else { 0 };
        // At most 19: five bits hold it.
        let length = BASE_LEN - 1 + self.server_id.len;
        rotation | length
    }
}

/// Issues and recognizes one worker's connection IDs.
#[derive(Debug, Clone)]
pub(in crate::quic) struct ConnectionIdFormat {
    layout: Layout,
    generation: u8,
    /// Generations of other processes that run.
    others: Arc<Generations>,
    worker: WorkerIndex,
    workers: usize,
    retry: RetryIds,
}

impl ConnectionIdFormat {
    /// The IDs of `worker`, one of `workers`, in the process of this `generation`, beside which `others` may run.
    pub(in crate::quic) fn new(
        layout: Layout,
        (generation, others): (u8, Arc<Generations>),
        worker: WorkerIndex,
        workers: usize,
    ) -> Self {
        Self { layout, generation, others, worker, workers, retry: RetryIds::default() }
    }

    /// Records each ID that is issued in `retry`.
    pub(in crate::quic) fn recording(self, retry: RetryIds) -> Self {
        Self { retry, ..self }
    }

    fn issue(&self) -> [u8; MAX_LEN as usize] {
        // rand's generator is a CSPRNG, reseeded from the system. Bytes beyond the ID's length are not used.
        let mut id: [u8; MAX_LEN as usize] = rand::random();
        let head = std::iter::once(self.layout.first_byte())
            .chain(self.layout.server_id.as_bytes().iter().copied())
            .chain([self.generation, self.worker.0]);
        id.iter_mut().zip(head).for_each(|(byte, value)| *byte = value);
        id
    }

    /// Whether `id` looks like one that this worker issued.
    pub(in crate::quic) fn is_own(&self, id: &[u8]) -> bool {
        let head = [self.layout.first_byte()];
        let tail = [self.generation, self.worker.0];
        id.len() == self.layout.id_len()
            && head.iter().chain(self.layout.server_id.as_bytes()).chain(&tail).zip(id).all(|(own, byte)| own == byte)
    }

    /// Whether another worker of this very process issued `id`, or another process that runs, and may have a connection
    /// for it.
    fn is_anothers(&self, id: &[u8]) -> bool {
        let worker = id.get(self.layout.worker_offset()).copied();
        match id.get(self.layout.generation_offset()) {
            Some(generation) if *generation == self.generation => {
                worker.is_some_and(|worker| worker != self.worker.0 && usize::from(worker) < self.workers)
            }
            Some(generation) => self.others.contains(*generation),
            None => false,
        }
    }
}

impl Generator for ConnectionIdFormat {
    #[expect(clippy::expect_used, reason = "16 to 20 bytes are an ID's length by construction")]
    fn generate(&mut self, _: &ConnectionInfo<'_>) -> LocalId {
        let id = self.issue();
        let id = id.get(..self.layout.id_len()).and_then(LocalId::try_from_bytes);
        let id = id.expect("16 to 20 bytes are a connection ID");
        self.retry.issue(id);
        id
    }
}

impl Validator for ConnectionIdFormat {
    /// The length of a short header's connection ID. It is always the same; what follows may be any packet's, an old
    /// process' too, whose client gets a stateless reset.
    ///
    /// A packet for another worker of this process, or for another process that runs, is not processed here: that may
    /// have the connection, and a stateless reset from here would end it (RFC 9000 §21.11). It is dropped. It arrives
    /// here if the kernel does not steer, or if GRO has joined it with one of this worker's, which an attacker who
    /// wants a token can cause.
    fn validate(&self, _: &ConnectionInfo<'_>, buffer: &[u8]) -> Option<usize> {
        let len = self.layout.id_len();
        let id = buffer.get(..len)?;
        (!self.is_anothers(id)).then_some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::inet::SocketAddress;
    use std::collections::HashSet;

    const GENERATION: u8 = 9;

    fn format(server_id: &[u8], worker: u8) -> ConnectionIdFormat {
        let generations = (GENERATION, Arc::new(Generations::of([GENERATION - 2, GENERATION + 1])));
        ConnectionIdFormat::new(Layout::new(server_id.try_into().unwrap()), generations, WorkerIndex(worker), 4)
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
    fn an_id_has_the_bytes_of_its_layout() {
        let table: &[(&[u8], u8)] = &[(&[], 0b1110_1111), (&[1], 16), (&[1, 2], 17), (&[1, 2, 3, 4], 19)];
        for (server_id, first) in table {
            let mut format = format(server_id, 3);
            let id = generate(&mut format);
            let head = [&[*first], *server_id, &[GENERATION, 3]].concat();
            assert!(id.starts_with(&head), "{id:?}");
            assert_eq!(id.len(), format.layout.id_len());
            assert_eq!(id.len(), 16 + server_id.len());
            assert_eq!(id[format.layout.generation_offset()], GENERATION);
            assert_eq!(id[format.layout.worker_offset()], 3);
        }
    }

    #[test]
    fn a_server_id_of_five_bytes_is_refused() {
        assert_eq!(ServerId::try_from(&[0; 5][..]), Err(LayoutError(5)));
    }

    #[test]
    fn ids_are_unique() {
        let mut format = format(&[], 0);
        let ids: HashSet<_> = (0..10_000).map(|_| generate(&mut format)).collect();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn datagrams_of_one_connection_are_known_by_their_id_however_long_it_is() {
        for server_id in [&[][..], &[1, 2, 3, 4]] {
            let format = format(server_id, 1);
            let connection =
                |first: u8, id: &[u8], rest: &[u8]| format.layout.connection(&[&[first], id, rest].concat());
            let ids: Vec<Vec<u8>> = (0..100).map(|_| generate(&mut format.clone())).collect();
            let all: HashSet<_> = ids.iter().map(|id| connection(0x41, id, &[1, 2]).unwrap()).collect();
            assert_eq!(all.len(), ids.len());
            let id = &ids[0];
            assert_eq!(connection(0x41, id, &[1, 2, 3]), connection(0x7f, id, &[]));
            assert_eq!(connection(0xc1, id, &[1, 2, 3]), None, "a long header");
            assert_eq!(connection(0x41, &id[1..], &[]), None, "too short");
            assert_eq!(format.layout.connection(&[]), None);
        }
    }

    #[test]
    fn packets_of_sibling_workers_and_of_processes_that_run_are_left_alone() {
        let own = format(&[], 1);
        let id = |generation, worker| [&[0xef, generation, worker], &[0; 30][..]].concat();
        let table = [
            ("our own", id(GENERATION, 1), Some(16)),
            ("a sibling's", id(GENERATION, 2), None),
            ("of a worker that does not exist", id(GENERATION, 4), Some(16)),
            ("of a process before", id(GENERATION - 1, 2), Some(16)),
            ("of one that drains", id(GENERATION - 2, 1), None),
            ("of the next one", id(GENERATION + 1, 1), None),
            ("just long enough", id(GENERATION, 1)[..16].to_vec(), Some(16)),
            ("too short", id(GENERATION, 1)[..15].to_vec(), None),
            ("empty", vec![], None),
        ];
        for (what, buffer, expected) in table {
            assert_eq!(validate(&own, &buffer), expected, "{what}");
        }
    }
}
