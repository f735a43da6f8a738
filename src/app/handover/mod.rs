//! Upgrade: a new process takes over from a running one, and no request is lost (docs/adr/0020).
//!
//! The two meet at the Unix socket of `admin.handover`. A process that starts first looks for a running one there.
//!
//! ```text
//! old                                       new
//!   │ ◄──────────────── connects ─────────── │  its configuration and certificates are good
//!   │ ──── offer: sockets, secret ─────────► │  joins the groups, starts its workers
//!   │ ◄─────── VERSION, its own; PREPARED ── │
//!   │ ──── GO ─────────────────────────────► │  steers what is new to itself, accepts connections
//!   │ ◄──────────────── READY ────────────── │
//!   │ ──── DONE ───────────────────────────► │  is found at admin.handover from now on
//!   │ drains, and ends                       │
//! ```
//!
//! Until READY the old process serves as before, and continues for good if the new one ends: it steers back, which
//! undoes all that the new one may have done. One that hangs is sent REFUSED, and killed if that does not end it: no
//! other process can take over while its sockets are in the groups. The new process, and those after it, get a
//! descriptor of a pipe whose other end only the old process holds: it reports when that process has ended, and its
//! place in the groups is free.

mod inherited_state;
mod offer;
mod predecessor;
mod protocol;
mod server;
mod successor;
mod takeover;

pub(super) use inherited_state::InheritedState;
pub(super) use predecessor::Predecessor;
pub(super) use protocol::HandoverError;
pub(super) use server::HandoverListener;
pub(super) use takeover::take_over;
