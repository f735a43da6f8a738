//! Divides the file descriptors of the process between clients' and origins' connections, of which each side has a
//! share that the other cannot take. Pure but for the count, which all workers share: one atomic operation when a
//! connection opens and one when it closes, none for a request.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;

/// Reserve of clients' connections: a half of the pool, however many origins' connections there are. Clients are many,
/// and each needs a connection of its own.
const CLIENT_RESERVE_DIVISOR: u32 = 2;
/// Reserve of origins' connections: a quarter of the pool, however many clients' connections there are. Every request
/// over HTTP/3 needs one, and all clients reuse connections to origins.
const ORIGIN_RESERVE_DIVISOR: u32 = 4;
/// Idle connections to origins may have a fifth of all descriptors, as with HAProxy's `tune.pool-low-fd-ratio`: an idle
/// connection saves a round trip, but another connection may need its descriptor.
const IDLE_ORIGIN_DIVISOR: u32 = 5;
/// Minimum size of the pool, where the fixed part leaves less: with no descriptor, a process with a low limit would
/// serve no client over TCP although the kernel may still have some.
const MIN_POOL_SIZE: u32 = 16;

/// Side of the proxy on which a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxySide {
    /// Connections from clients over TCP.
    Clients,
    /// Connections to servers of origins, including tunnels.
    Origins,
}

impl ProxySide {
    const fn opposite_side(self) -> Self {
        match self {
            Self::Clients => Self::Origins,
            Self::Origins => Self::Clients,
        }
    }
}

/// Division of the process's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorDivision {
    /// Maximum number of descriptors of the process: RLIMIT_NOFILE.
    pub limit: u32,
    /// Descriptors for other things than clients' and origins' connections: listeners, workers' sockets, admin
    /// connections, files.
    pub fixed: u32,
}

impl DescriptorDivision {
    /// Number of descriptors for clients' and origins' connections together.
    pub fn pool_size(&self) -> u32 {
        self.limit.saturating_sub(self.fixed).max(MIN_POOL_SIZE)
    }

    /// Number of descriptors that are reserved for `side`.
    pub fn reserved_for(&self, side: ProxySide) -> u32 {
        match side {
            ProxySide::Clients => self.pool_size() / CLIENT_RESERVE_DIVISOR,
            ProxySide::Origins => self.pool_size() / ORIGIN_RESERVE_DIVISOR,
        }
    }

    /// Number of descriptors that `side` can have while the other side needs no more than its reserve.
    pub fn max_for_side(&self, side: ProxySide) -> u32 {
        self.pool_size() - self.reserved_for(side.opposite_side())
    }

    /// Maximum number of descriptors of idle connections to origins.
    pub fn max_idle_origins(&self) -> u32 {
        self.limit / IDLE_ORIGIN_DIVISOR
    }

    /// Whether a connection of `side` may have another descriptor beside `taken`.
    fn admits_descriptor(&self, side: ProxySide, taken: TakenDescriptors) -> bool {
        u64::from(taken.clients) + u64::from(taken.origins) < self.pool_size().into()
            && taken.taken_by(side) < self.max_for_side(side)
    }
}

/// Numbers of descriptors that open connections have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenDescriptors {
    /// Descriptors of clients' connections over TCP.
    pub clients: u32,
    /// Descriptors of connections to origins.
    pub origins: u32,
}

impl TakenDescriptors {
    /// Number of descriptors that `side` has.
    pub const fn taken_by(self, side: ProxySide) -> u32 {
        match side {
            ProxySide::Clients => self.clients,
            ProxySide::Origins => self.origins,
        }
    }

    /// Splits an integer that packs both counts, so that one atomic operation compares and changes both.
    fn from_packed(packed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = packed.to_be_bytes();
        Self { origins: u32::from_be_bytes([a, b, c, d]), clients: u32::from_be_bytes([e, f, g, h]) }
    }

    /// One descriptor of `side`, as the packed integer counts it.
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
    /// Number of waiting callers of [`Descriptors::wait_for_origin_descriptor`].
    waiting: AtomicU32,
    /// Notified of each descriptor that is released while callers wait.
    freed: Notify,
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new(DescriptorDivision { limit: u32::MAX, fixed: 0 })
    }
}

impl Descriptors {
    /// Free descriptors, divided by `division`.
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

    /// Sets the division. Descriptors in use stay in use.
    pub fn set_division(&self, division: DescriptorDivision) {
        self.limit.store(division.limit, SeqCst);
        self.fixed.store(division.fixed, SeqCst);
    }

    /// Division in force.
    pub fn division(&self) -> DescriptorDivision {
        DescriptorDivision { limit: self.limit.load(SeqCst), fixed: self.fixed.load(SeqCst) }
    }

    /// Numbers of descriptors that connections have now.
    pub fn taken_descriptors(&self) -> TakenDescriptors {
        TakenDescriptors::from_packed(self.taken.load(SeqCst))
    }

    /// Takes a descriptor for a connection of `side`; `None` if none is free for that side.
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

    /// Waits for a descriptor for a connection to an origin, and takes it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; the next caller gets the descriptor.
    pub async fn wait_for_origin_descriptor(self: &Arc<Self>) -> Descriptor {
        self.waiting.fetch_add(1, SeqCst);
        let _waiting = WaitingCaller(self);
        loop {
            let mut freed = pin!(self.freed.notified());
            // The waiter is registered before the count is read, or a descriptor that is released in between is missed.
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

/// Descriptor that a connection has, released when dropped.
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

/// Counts a waiting caller until dropped.
struct WaitingCaller<'a>(&'a Descriptors);

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
    fn clients_have_half_of_the_descriptors_and_origins_a_quarter() {
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
    async fn an_origin_connection_waits_for_any_free_descriptor() {
        const DEADLINE: Duration = Duration::from_secs(5);
        let descriptors = Arc::new(Descriptors::new(DescriptorDivision { limit: 16, fixed: 0 }));
        for given_back in [ProxySide::Clients, ProxySide::Origins] {
            let mut held = [ProxySide::Clients, ProxySide::Origins]
                .map(|side| std::iter::from_fn(|| descriptors.take_descriptor(side)).collect::<Vec<_>>());
            let [clients, origins] = &mut held;
            assert_eq!((clients.len(), origins.len()), (12, 4));
            assert!(timeout(Duration::from_millis(1), descriptors.wait_for_origin_descriptor()).await.is_err());
            assert!(!descriptors.has_waiting_origin(), "who has gone does not wait");
            let (waiting, giving) = tokio::join!(timeout(DEADLINE, descriptors.wait_for_origin_descriptor()), async {
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
    fn threads_that_take_and_release_leave_no_descriptor_in_use() {
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
        /// Compared with two plain counts: each side has its share whatever the other one does, one side can use all
        /// that is not reserved, and nothing is left in the end.
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
            // A side alone has all but the other side's reserve.
            let all: Vec<_> = std::iter::from_fn(|| descriptors.take_descriptor(ProxySide::Clients)).collect();
            prop_assert_eq!(count(&all), pool - pool / 4);
            let rest: Vec<_> = std::iter::from_fn(|| descriptors.take_descriptor(ProxySide::Origins)).collect();
            prop_assert_eq!(count(&rest), pool / 4);
        }
    }
}
