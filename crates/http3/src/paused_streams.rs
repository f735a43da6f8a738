//! Keeps a connection open while its client pauses a response, or has a tunnel.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// A wait for the client's window that lasts this long is a pause: the player's button, rather than a full pipe.
const PAUSE_DELAY: Duration = Duration::from_secs(1);

/// Keeps a connection from its idle timeout while a client pauses a response, or has a tunnel. s2n-quic does so by
/// itself for a stream with more bytes than the client's window (RFC 9000 §4.1: a blocked sender should), but gets no
/// more bytes than the window has.
pub(super) struct PausedStreams {
    handle: RefCell<s2n_quic::connection::Handle>,
    /// How long a wait lasts before it counts as one.
    pub(super) delay: Duration,
    paused: Cell<usize>,
}

impl PausedStreams {
    /// For a connection with an idle timeout of `idle`; its client may want less, which s2n-quic ensures.
    pub(super) fn new(handle: s2n_quic::connection::Handle, idle: Duration) -> Rc<Self> {
        Rc::new(Self { handle: RefCell::new(handle), delay: PAUSE_DELAY.min(idle / 4), paused: Cell::new(0) })
    }

    /// Until this is dropped the connection is kept open, by a PING now and then.
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

/// A stream that waits for its client, or a tunnel.
pub(super) struct PauseGuard(Rc<PausedStreams>);

impl Drop for PauseGuard {
    fn drop(&mut self) {
        self.0.set_paused_count(self.0.paused.get() - 1);
    }
}
