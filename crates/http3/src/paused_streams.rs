//! Keeps a connection open while its client pauses a response, or has a tunnel.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// Wait for the client's window that counts as a pause, as by the button of a player. A full path recovers sooner.
const PAUSE_DELAY: Duration = Duration::from_secs(1);

/// The paused streams of a connection, which keep it from its idle timeout. s2n-quic does so by itself for a stream
/// with more bytes than the client's window (RFC 9000 §4.1: a blocked sender should), but here it never gets more bytes
/// than the window has.
pub(super) struct PausedStreams {
    handle: RefCell<s2n_quic::connection::Handle>,
    /// Wait after which a stream counts as paused.
    pub(super) delay: Duration,
    paused: Cell<usize>,
}

impl PausedStreams {
    /// Creates the state of a connection with the idle timeout `idle`. The client may request a shorter one, which
    /// s2n-quic enforces.
    pub(super) fn new(handle: s2n_quic::connection::Handle, idle: Duration) -> Rc<Self> {
        Rc::new(Self { handle: RefCell::new(handle), delay: PAUSE_DELAY.min(idle / 4), paused: Cell::new(0) })
    }

    /// Keeps the connection open by PING frames until the returned guard is dropped.
    pub(super) fn begin_pause(self: &Rc<Self>) -> PauseGuard {
        self.set_paused_count(self.paused.get() + 1);
        PauseGuard(Rc::clone(self))
    }

    fn set_paused_count(&self, paused: usize) {
        let before = self.paused.replace(paused);
        if (before == 0) != (paused == 0) {
            // An error means that the connection is gone.
            let _ = self.handle.borrow_mut().keep_alive(paused > 0);
        }
    }
}

/// Guard of a stream that waits for its client, or of a tunnel.
pub(super) struct PauseGuard(Rc<PausedStreams>);

impl Drop for PauseGuard {
    fn drop(&mut self) {
        self.0.set_paused_count(self.0.paused.get() - 1);
    }
}
