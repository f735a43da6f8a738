//! Shares a worker's tunnels among its clients: a silent one is evicted for a client that holds less. Pure.

use litequic_exchange::TunnelExpiry;
use litequic_resources::fairness::{ClientSource, FairPool, PoolSlot, SlotExcess};
use slab::Slab;
use std::{
    cell::RefCell,
    convert::Infallible,
    rc::{Rc, Weak},
    time::Duration,
};

/// Silence after which a tunnel may be evicted for another one, before the division by its client's
/// [`SlotExcess::ratio`]: messages of a conversation are closer, and a client that holds a thousand tunnels loses one
/// although it sends pings.
const MIN_TUNNEL_SILENCE: Duration = Duration::from_secs(10);

/// Tunnels of a worker, those that are still being opened too.
#[derive(Debug, Default, Clone)]
pub(crate) struct TunnelPool(Rc<RefCell<OpenTunnels>>);

#[derive(Debug)]
struct OpenTunnels {
    fair: FairPool<Infallible>,
    tunnels: Slab<TunnelEntry>,
}

impl Default for OpenTunnels {
    fn default() -> Self {
        Self { fair: FairPool::with_ranking(0), tunnels: Slab::new() }
    }
}

#[derive(Debug)]
struct TunnelEntry {
    /// Slot of the tunnel, until the tunnel is evicted.
    slot: Option<PoolSlot>,
    /// Silence of the tunnel, once it is open.
    quiet: Weak<TunnelExpiry>,
}

/// A tunnel's slot among those of a worker: given back when dropped.
#[derive(Debug)]
pub(crate) struct TunnelSlot {
    tunnels: TunnelPool,
    number: usize,
}

impl TunnelPool {
    /// Takes a slot for a tunnel of `source`; also returns whether another tunnel was evicted. If there are `most`,
    /// that is the longest silent one of the source that holds most, and at least two more than this one. `None` if
    /// there is none such.
    pub(crate) fn take_tunnel_slot(&self, most: u32, source: ClientSource) -> Option<(TunnelSlot, bool)> {
        let Self(open) = self;
        open.borrow_mut().fair.limit = most;
        let is_full = open.borrow().fair.used_slot_count() >= most;
        if is_full && !open.borrow_mut().evict_silent(&source) {
            return None;
        }
        let open = &mut *open.borrow_mut();
        let slot = Some(open.fair.take_slot_beyond_limit(source));
        let number = open.tunnels.insert(TunnelEntry { slot, quiet: Weak::new() });
        Some((TunnelSlot { tunnels: self.clone(), number }, is_full))
    }
}

impl OpenTunnels {
    fn evict_silent(&mut self, taker: &ClientSource) -> bool {
        if self.fair.largest_source_connections(taker).next().is_none() {
            return false;
        }
        let taker = self.fair.source_branches(taker);
        let silent = self.tunnels.iter().filter_map(|(number, entry)| {
            let silence = entry.quiet.upgrade()?.idle_time();
            let excess: SlotExcess = self.fair.slot_excess(entry.slot?, &taker)?;
            (silence >= MIN_TUNNEL_SILENCE / excess.ratio.max(1)).then_some((excess, silence, number))
        });
        let Some((.., number)) = silent.max() else { return false };
        let Some(entry) = self.tunnels.get_mut(number) else { return false };
        if let Some(slot) = entry.slot.take() {
            self.fair.release_slot(slot);
        }
        if let Some(quiet) = entry.quiet.upgrade() {
            quiet.evict_tunnel();
        }
        true
    }
}

impl TunnelSlot {
    /// Notes that the tunnel is open, and may be ended by `quiet`.
    pub(crate) fn set_quiet(&self, quiet: &Rc<TunnelExpiry>) {
        if let Some(entry) = self.tunnels.0.borrow_mut().tunnels.get_mut(self.number) {
            entry.quiet = Rc::downgrade(quiet);
        }
    }
}

impl Drop for TunnelSlot {
    fn drop(&mut self) {
        let open = &mut *self.tunnels.0.borrow_mut();
        if let Some(TunnelEntry { slot: Some(slot), .. }) = open.tunnels.try_remove(self.number) {
            open.fair.release_slot(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_exchange::{ExpiryCause, Tunnel};
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::time::timeout;

    /// An end of a tunnel on which no byte moves.
    struct Silence {
        _slot: TunnelSlot,
    }

    impl AsyncRead for Silence {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Silence {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn source(last: u8, connection: u64) -> ClientSource {
        ClientSource::new(Some(([192, 0, 2, last].into(), 32)), connection)
    }

    fn open(tunnels: &TunnelPool, source: ClientSource) -> Option<(Tunnel, bool)> {
        let (slot, evicts) = tunnels.take_tunnel_slot(4, source)?;
        let expiry = TunnelExpiry::new(Duration::from_secs(3600), Duration::from_secs(3600));
        slot.set_quiet(&expiry);
        Some((Tunnel::new("websocket".into(), Silence { _slot: slot }, expiry), evicts))
    }

    async fn is_evicted(tunnel: &Tunnel) -> bool {
        matches!(timeout(Duration::ZERO, tunnel.expiry_handle().wait_for_expiry()).await, Ok(ExpiryCause::Evicted))
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_pool_evicts_the_largest_sources_longest_silent_tunnel() {
        let tunnels = TunnelPool::default();
        let mut held = Vec::new();
        for connection in 0..4 {
            held.push(open(&tunnels, source(1, connection)).unwrap().0);
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert!(open(&tunnels, source(1, 9)).is_none(), "its own source holds most");
        assert!(open(&tunnels, source(2, 9)).is_none(), "none is silent for a quarter of ten seconds");
        tokio::time::advance(Duration::from_millis(500)).await;
        let (other, evicts) = open(&tunnels, source(2, 9)).unwrap();
        assert!(evicts);
        let mut evicted = Vec::new();
        for tunnel in &held {
            evicted.push(is_evicted(tunnel).await);
        }
        assert_eq!(evicted, [true, false, false, false]);
        // The sources hold three tunnels and one: a third source takes one more of the first, and the second then none.
        tokio::time::advance(Duration::from_secs(2)).await;
        let (third, _) = open(&tunnels, source(3, 9)).unwrap();
        assert!(open(&tunnels, source(2, 10)).is_none());
        drop((held, other, third));
        assert_eq!(tunnels.0.borrow().fair.used_slot_count(), 0);
        assert!(tunnels.0.borrow().tunnels.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_that_is_still_being_opened_makes_no_room() {
        let tunnels = TunnelPool::default();
        let slots: Vec<_> =
            (0..4).map(|connection| tunnels.take_tunnel_slot(4, source(1, connection)).unwrap()).collect();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(tunnels.take_tunnel_slot(4, source(2, 9)).is_none());
        drop(slots);
        assert!(tunnels.take_tunnel_slot(0, source(2, 9)).is_none());
        assert!(tunnels.take_tunnel_slot(1, source(2, 9)).is_some());
    }
}
