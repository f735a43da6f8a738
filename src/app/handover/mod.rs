//! Hands the sockets of a running process over to a new one without a lost request: the hot upgrade (docs/adr/0020).
//!
//! The two processes meet at the Unix socket of `admin.handover`, at which a process that starts first looks for a
//! running one; or at a socket of the old process alone, which tells its path to the process that it starts.
//!
//! ```text
//! old                                       new
//!   │ ◄──────────────── connects ─────────── │  its configuration and certificates are good
//!   │ ──── offer: sockets, secret ─────────► │  joins the groups, starts its workers
//!   │ ◄────────── PREPARED, its version ──── │
//!   │ ──── GO ─────────────────────────────► │  steers what is new to itself, accepts connections
//!   │ ◄──────────────── READY ────────────── │
//!   │ ──── DONE ───────────────────────────► │  is found at its socket from now on
//!   │ drains, and ends                       │
//! ```
//!
//! Until READY the old process serves as before, and continues for good if the new one ends: it steers back, which
//! undoes all that the new one may have done. A new process that hangs is sent REFUSED, and killed if it still does not
//! end: no other process can take over while its sockets are in the groups. The new process, and those after it, get a
//! descriptor of a pipe whose other end only the old process holds: the pipe ends with that process, whose position in
//! the groups is then free.

mod inherited_state;
mod offer;
mod predecessor;
mod protocol;
mod server;
mod successor;
mod takeover;

pub(super) use inherited_state::InheritedState;
pub(super) use protocol::HandoverError;
pub(super) use server::{HandoverListener, HandoverServer};
pub(super) use takeover::{HandoverPath, take_over};
