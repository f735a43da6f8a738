//! Pools of a worker's connections, and the slots of TLS handshakes.

use super::registered_connection::{ConnectionPool, RegisteredConnection};
use crate::fairness::{ClientSource, FairPool};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    convert::Infallible,
    rc::Rc,
};

#[derive(Debug)]
pub(super) struct ConnectionPools {
    tls: RefCell<PoolState>,
    plain: RefCell<PoolState>,
    pub(super) quic: RefCell<PoolState>,
    /// Slots of TLS handshakes over TCP.
    pub(super) handshakes: RefCell<FairPool<Rc<RegisteredConnection>>>,
}

#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) fair: FairPool<Infallible>,
    /// Connections that are ending gracefully and have released their slots, in the order of eviction.
    pub(super) leaving: VecDeque<u64>,
    /// Period in which the source that holds most had no idle connection.
    pub(super) none_idle: Cell<Option<u32>>,
    /// Period in which the source of a newcomer had no idle connection, and that source.
    pub(super) none_own: Cell<Option<(u32, ClientSource)>>,
}

impl Default for ConnectionPools {
    fn default() -> Self {
        let pool = || {
            RefCell::new(PoolState {
                fair: FairPool::with_ranking(0),
                leaving: VecDeque::new(),
                none_idle: Cell::new(None),
                none_own: Cell::new(None),
            })
        };
        Self { tls: pool(), plain: pool(), quic: pool(), handshakes: RefCell::new(FairPool::with_ranking(0)) }
    }
}

impl ConnectionPools {
    pub(super) fn pool_state(&self, pool: ConnectionPool) -> &RefCell<PoolState> {
        match pool {
            ConnectionPool::Tls => &self.tls,
            ConnectionPool::Plain => &self.plain,
            ConnectionPool::Quic => &self.quic,
        }
    }

    /// Releases the slots of the connection `id`, which has ended or is to end.
    pub(super) fn release_slots(&self, id: u64, state: &RegisteredConnection, is_leaving: bool) {
        self.release_handshake_slot(state);
        let mut pool = self.pool_state(state.pool).borrow_mut();
        if let Some(slot) = state.slot.take() {
            pool.fair.release_slot(slot);
            if is_leaving {
                pool.leaving.push_back(id);
            }
        } else if !is_leaving && let Some(at) = pool.leaving.iter().position(|leaving| *leaving == id) {
            pool.leaving.remove(at);
        }
    }

    /// Releases the slot of a connection's handshake, which is over or cancelled, for the next one in the queue.
    pub(super) fn release_handshake_slot(&self, state: &RegisteredConnection) {
        if let Some(place) = state.handshake_place.take() {
            self.handshakes.borrow_mut().leave_queue(place);
        }
        if let Some(slot) = state.handshake.take() {
            self.handshakes.borrow_mut().release_slot(slot);
            self.grant_handshake_slots();
        }
    }

    pub(super) fn grant_handshake_slots(&self) {
        loop {
            let Some((state, slot)) = self.handshakes.borrow_mut().grant_slot() else { return };
            state.handshake_place.set(None);
            state.handshake.set(Some(slot));
            state.wake_task();
        }
    }

    pub(super) fn move_to_source(&self, state: &RegisteredConnection, source: ClientSource) {
        if let Some(slot) = state.slot.get() {
            self.pool_state(state.pool).borrow_mut().fair.change_slot_source(slot, source);
        }
        if let Some(slot) = state.handshake.get() {
            self.handshakes.borrow_mut().change_slot_source(slot, source);
        }
    }
}
