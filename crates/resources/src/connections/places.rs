//! The pools of a worker's connections, and the slots of TLS handshakes.

use super::account_state::{AccountState, ConnectionPool};
use crate::fairness::{Fair, Source};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    convert::Infallible,
    rc::Rc,
};

/// The slots of all pools.
#[derive(Debug)]
pub(super) struct Places {
    tls: RefCell<PooledConnections>,
    plain: RefCell<PooledConnections>,
    pub(super) quic: RefCell<PooledConnections>,
    /// TLS handshakes over TCP.
    pub(super) handshakes: RefCell<Fair<Rc<AccountState>>>,
}

/// A pool of connections.
#[derive(Debug)]
pub(super) struct PooledConnections {
    pub(super) fair: Fair<Infallible>,
    /// Connections that were told to end, have no slot any more, and are open still: the first is the longest told.
    pub(super) leaving: VecDeque<u64>,
    /// The period in which the source that holds most had no idle connection.
    pub(super) none_idle: Cell<Option<u32>>,
    /// The period in which the source of a newcomer had no idle connection, and that source.
    pub(super) none_own: Cell<Option<(u32, Source)>>,
}

impl Default for Places {
    fn default() -> Self {
        let pool = || {
            RefCell::new(PooledConnections {
                fair: Fair::ranked(0),
                leaving: VecDeque::new(),
                none_idle: Cell::new(None),
                none_own: Cell::new(None),
            })
        };
        Self { tls: pool(), plain: pool(), quic: pool(), handshakes: RefCell::new(Fair::ranked(0)) }
    }
}

impl Places {
    pub(super) fn pool(&self, pool: ConnectionPool) -> &RefCell<PooledConnections> {
        match pool {
            ConnectionPool::Tls => &self.tls,
            ConnectionPool::Plain => &self.plain,
            ConnectionPool::Quic => &self.quic,
        }
    }

    /// The connection `id` has ended, or is to: its slots are free.
    pub(super) fn release(&self, id: u64, state: &AccountState, is_leaving: bool) {
        self.release_handshake(state);
        let mut pool = self.pool(state.pool).borrow_mut();
        if let Some(slot) = state.slot.take() {
            pool.fair.give_back(slot);
            if is_leaving {
                pool.leaving.push_back(id);
            }
        } else if !is_leaving && let Some(at) = pool.leaving.iter().position(|leaving| *leaving == id) {
            pool.leaving.remove(at);
        }
    }

    /// The handshake of a connection is over, or given up: its slot goes to the next one that waits.
    pub(super) fn release_handshake(&self, state: &AccountState) {
        if let Some(place) = state.waits.take() {
            self.handshakes.borrow_mut().leave(place);
        }
        if let Some(slot) = state.handshake.take() {
            self.handshakes.borrow_mut().give_back(slot);
            self.grant_handshakes();
        }
    }

    pub(super) fn grant_handshakes(&self) {
        loop {
            let Some((state, slot)) = self.handshakes.borrow_mut().grant() else { return };
            state.waits.set(None);
            state.handshake.set(Some(slot));
            state.wake();
        }
    }

    pub(super) fn rename(&self, state: &AccountState, source: Source) {
        if let Some(slot) = state.slot.get() {
            self.pool(state.pool).borrow_mut().fair.rename(slot, source);
        }
        if let Some(slot) = state.handshake.get() {
            self.handshakes.borrow_mut().rename(slot, source);
        }
    }
}
