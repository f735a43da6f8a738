//! The file descriptors of the process as one pool, of which clients' and origins' connections each have a share that
//! the other side cannot take. Pure but for the count, which all workers share: one atomic operation when a connection
//! opens and one when it closes, none for a request.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;

/// The part of the pool that clients' connections have whatever origins' connections take: a half. Clients are many,
/// and each needs a connection of its own.
const CLIENT_RESERVE_DIVISOR: u32 = 2;
/// The part of the pool that origins' connections have whatever clients' connections take: a quarter. Every request of
/// HTTP/3 needs one, and connections to origins are reused by all clients.
const ORIGIN_RESERVE_DIVISOR: u32 = 4;
/// The part of all descriptors that idle connections to origins may have: a fifth, as HAProxy's
/// `tune.pool-low-fd-ratio`. An idle connection saves a round trip, and another connection may need its descriptor.
const IDLE_ORIGIN_DIVISOR: u32 = 5;
/// Descriptors of the pool at least, where the fixed part leaves fewer: with none, a process with a low limit would
/// serve no one over TCP although the kernel may still have some.
const MIN_POOL_SIZE: u32 = 16;

/// The side of the proxy on which a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxySide {
    /// Connections that clients opened over TCP.
    Clients,
    /// Connections that litequic opened to servers of origins, tunnels among them.
    Origins,
}

impl ProxySide {
    /// The other side.
    const fn opposite_side(self) -> Self {
        match self {
            Self::Clients => Self::Origins,
            Self::Origins => Self::Clients,
        }
    }
}

/// How the descriptors of the process are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorDivision {
    /// Descriptors that the process may have: RLIMIT_NOFILE.
    pub limit: u32,
    /// Descriptors that are no client's and no origin's: listeners, workers' sockets, admin connections, files.
    pub fixed: u32,
}

impl DescriptorDivision {
    /// Descriptors for clients' and origins' connections together.
    pub fn pool_size(&self) -> u32 {
        self.limit.saturating_sub(self.fixed).max(MIN_POOL_SIZE)
    }

    /// Descriptors that `side` can always have.
    pub fn reserved_for(&self, side: ProxySide) -> u32 {
        match side {
            ProxySide::Clients => self.pool_size() / CLIENT_RESERVE_DIVISOR,
            ProxySide::Origins => self.pool_size() / ORIGIN_RESERVE_DIVISOR,
        }
    }

    /// Descriptors that `side` can have while the other side needs no more than what is reserved for it.
    pub fn max_for_side(&self, side: ProxySide) -> u32 {
        self.pool_size() - self.reserved_for(side.opposite_side())
    }

    /// Descriptors that idle connections to origins may have.
    pub fn max_idle_origins(&self) -> u32 {
        self.limit / IDLE_ORIGIN_DIVISOR
    }

    /// Whether a connection of `side` may have a descriptor beside those that are `taken`.
    fn admits_descriptor(&self, side: ProxySide, taken: TakenDescriptors) -> bool {
        u64::from(taken.clients) + u64::from(taken.origins) < self.pool_size().into()
            && taken.taken_by(side) < self.max_for_side(side)
    }
}

/// Descriptors of connections that are open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenDescriptors {
    /// Clients' connections over TCP.
    pub clients: u32,
    /// Connections to origins.
    pub origins: u32,
}

impl TakenDescriptors {
    /// The number of descriptors that `side` has.
    pub const fn taken_by(self, side: ProxySide) -> u32 {
        match side {
            ProxySide::Clients => self.clients,
            ProxySide::Origins => self.origins,
        }
    }

    /// Splits the number that has both counts, so that one atomic operation compares and changes them.
    fn from_packed(packed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = packed.to_be_bytes();
        Self { origins: u32::from_be_bytes([a, b, c, d]), clients: u32::from_be_bytes([e, f, g, h]) }
    }

    /// The packed number of one descriptor of `side`.
    const fn packed_unit(side: ProxySide) -> u64 {
        match side {
            ProxySide::Clients => 1,
            ProxySide::Origins => 1 << 32,
        }
    }
}

/// The descriptors of the process for connections, shared by all workers.
#[derive(Debug)]
pub struct Descriptors {
    limit: AtomicU32,
    fixed: AtomicU32,
    /// [`TakenDescriptors`], packed.
    taken: AtomicU64,
    /// Callers of [`Descriptors::origin`] that wait.
    waiting: AtomicU32,
    /// Notified of each descriptor that is given back while callers wait.
    freed: Notify,
}

impl Default for Descriptors {
    /// Descriptors without a limit.
    fn default() -> Self {
        Self::new(DescriptorDivision { limit: u32::MAX, fixed: 0 })
    }
}

impl Descriptors {
    /// Descriptors of which none is taken, divided by `division`.
    pub fn new(division: DescriptorDivision) -> Self {
        let DescriptorDivision { limit, fixed } = division;
        Self {
            limit: limit.into(),
            fixed: fixed.into(),
            taken: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            freed: Notify::new(),
        }
    }

    /// Divides the descriptors by `division` from now on; descriptors that are taken stay taken.
    pub fn set_division(&self, division: DescriptorDivision) {
        self.limit.store(division.limit, SeqCst);
        self.fixed.store(division.fixed, SeqCst);
    }

    /// The division in force.
    pub fn division(&self) -> DescriptorDivision {
        DescriptorDivision { limit: self.limit.load(SeqCst), fixed: self.fixed.load(SeqCst) }
    }

    /// The descriptors that connections have now.
    pub fn taken_descriptors(&self) -> TakenDescriptors {
        TakenDescriptors::from_packed(self.taken.load(SeqCst))
    }

    /// A descriptor for a connection of `side`; `None` if there is none for that side.
    pub fn take_descriptor(self: &Arc<Self>, side: ProxySide) -> Option<Descriptor> {
        let division = self.division();
        let take = |packed: u64| {
            // Neither count overflows: both together stay below the pool, which is a u32.
            division
                .admits_descriptor(side, TakenDescriptors::from_packed(packed))
                .then(|| packed + TakenDescriptors::packed_unit(side))
        };
        let taken = self.taken.fetch_update(SeqCst, SeqCst, take);
        taken.is_ok().then(|| Descriptor { descriptors: Arc::clone(self), side })
    }

    /// A descriptor for a connection to an origin, as soon as there is one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; the next caller gets the descriptor.
    pub async fn wait_for_origin_descriptor(self: &Arc<Self>) -> Descriptor {
        let _waiting = WaitingCaller::new(self);
        loop {
            let mut freed = pin!(self.freed.notified());
            // Registered before the count is read, or a descriptor that is given back in between is missed.
            freed.as_mut().enable();
            if let Some(descriptor) = self.take_descriptor(ProxySide::Origins) {
                return descriptor;
            }
            freed.await;
        }
    }

    /// Whether a connection to an origin waits for a descriptor.
    pub fn has_waiting_origin(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }
}

/// A descriptor that a connection has, given back when dropped.
#[derive(Debug)]
pub struct Descriptor {
    descriptors: Arc<Descriptors>,
    side: ProxySide,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.descriptors.taken.fetch_sub(TakenDescriptors::packed_unit(self.side), SeqCst);
        if self.descriptors.has_waiting_origin() {
            self.descriptors.freed.notify_one();
        }
    }
}

/// A caller that waits, counted.
struct WaitingCaller<'a>(&'a Descriptors);

impl<'a> WaitingCaller<'a> {
    fn new(descriptors: &'a Descriptors) -> Self {
        descriptors.waiting.fetch_add(1, SeqCst);
        Self(descriptors)
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{thread, time::Duration};
    use tokio::time::timeout;

    #[test]
    fn a_half_is_the_clients_and_a_quarter_the_origins() {
        for (limit, fixed, pool, clients, origins, idle) in [
            (1_024, 224, 800, (400, 600), (200, 400), 204),
            (20_000, 0, 20_000, (10_000, 15_000), (5_000, 10_000), 4_000),
            (1_048_576, 576, 1_048_000, (524_000, 786_000), (262_000, 524_000), 209_715),
            (64, 224, 16, (8, 12), (4, 8), 12),
            (
                u32::MAX,
                0,
                u32::MAX,
                (u32::MAX / 2, u32::MAX - u32::MAX / 4),
                (u32::MAX / 4, u32::MAX / 2 + 1),
                u32::MAX / 5,
            ),
        ] {
            let division = DescriptorDivision { limit, fixed };
            let of = |side| (division.reserved_for(side), division.max_for_side(side));
            assert_eq!(
                (division.pool_size(), of(ProxySide::Clients), of(ProxySide::Origins)),
                (pool, clients, origins),
                "{limit}"
            );
            assert_eq!(division.max_idle_origins(), idle);
        }
    }

    #[tokio::test]
    async fn a_connection_to_an_origin_waits_for_a_descriptor_of_either_side() {
        const PATIENCE: Duration = Duration::from_secs(5);
        let descriptors = Arc::new(Descriptors::new(DescriptorDivision { limit: 16, fixed: 0 }));
        for given_back in [ProxySide::Clients, ProxySide::Origins] {
            let mut held = [ProxySide::Clients, ProxySide::Origins]
                .map(|side| std::iter::from_fn(|| descriptors.take_descriptor(side)).collect::<Vec<_>>());
            let [clients, origins] = &mut held;
            assert_eq!((clients.len(), origins.len()), (12, 4));
            assert!(timeout(Duration::from_millis(1), descriptors.wait_for_origin_descriptor()).await.is_err());
            assert!(!descriptors.has_waiting_origin(), "who has gone does not wait");
            let (waiting, giving) = tokio::join!(timeout(PATIENCE, descriptors.wait_for_origin_descriptor()), async {
                assert!(descriptors.has_waiting_origin());
                let given = match given_back {
                    ProxySide::Clients => clients.pop(),
                    ProxySide::Origins => origins.pop(),
                };
                given.map(|descriptor| descriptor.side)
            });
            assert_eq!(giving, Some(given_back));
            assert_eq!(waiting.map(|descriptor| descriptor.side).unwrap(), ProxySide::Origins);
        }
        assert_eq!(descriptors.taken_descriptors(), TakenDescriptors::default());
    }

    #[test]
    fn threads_that_take_and_give_back_leave_nothing() {
        let descriptors = Arc::new(Descriptors::new(DescriptorDivision { limit: 100, fixed: 20 }));
        let threads = [ProxySide::Clients, ProxySide::Origins, ProxySide::Clients, ProxySide::Origins].map(|side| {
            let descriptors = Arc::clone(&descriptors);
            thread::spawn(move || {
                let mut held = Vec::new();
                for round in 0..2_000 {
                    held.extend(descriptors.take_descriptor(side));
                    let TakenDescriptors { clients, origins } = descriptors.taken_descriptors();
                    assert!(clients + origins <= 80 && clients <= 60 && origins <= 40, "{clients} {origins}");
                    if round % 3 == 0 {
                        held.truncate(held.len() / 2);
                    }
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(descriptors.taken_descriptors(), TakenDescriptors::default());
    }

    proptest! {
        /// Against two plain counts: each side has its share whatever the other one does, all is used if a side wants
        /// it, and nothing is left in the end.
        #[test]
        fn each_side_has_its_share_whatever_the_other_does(
            limit in 0_u32..400,
            fixed in 0_u32..200,
            steps in prop::collection::vec((any::<bool>(), 0_u8..4), 0..1_000),
        ) {
            let pool = limit.saturating_sub(fixed).max(MIN_POOL_SIZE);
            let count = |held: &Vec<Descriptor>| u32::try_from(held.len()).unwrap();
            let descriptors = Arc::new(Descriptors::new(DescriptorDivision { limit, fixed }));
            let (mut clients, mut origins) = (Vec::new(), Vec::new());
            for (is_client, step) in steps {
                let (side, held, other, most) = match is_client {
                    true => (ProxySide::Clients, &mut clients, count(&origins), pool - pool / 4),
                    false => (ProxySide::Origins, &mut origins, count(&clients), pool - pool / 2),
                };
                if step == 0 {
                    held.pop();
                } else {
                    let expected = count(held) < most && count(held) + other < pool;
                    let taken = descriptors.take_descriptor(side);
                    prop_assert_eq!(taken.is_some(), expected);
                    let reserved = descriptors.division().reserved_for(side);
                    prop_assert!(taken.is_some() || count(held) >= reserved, "{:?} has its share", side);
                    held.extend(taken);
                }
                let taken = TakenDescriptors { clients: count(&clients), origins: count(&origins) };
                prop_assert_eq!(descriptors.taken_descriptors(), taken);
            }
            drop((clients, origins));
            prop_assert_eq!(descriptors.taken_descriptors(), TakenDescriptors::default());
            // A side alone has all but what is reserved for the other one.
            let all: Vec<_> = std::iter::from_fn(|| descriptors.take_descriptor(ProxySide::Clients)).collect();
            prop_assert_eq!(count(&all), pool - pool / 4);
            let rest: Vec<_> = std::iter::from_fn(|| descriptors.take_descriptor(ProxySide::Origins)).collect();
            prop_assert_eq!(count(&rest), pool / 4);
        }
    }
}
