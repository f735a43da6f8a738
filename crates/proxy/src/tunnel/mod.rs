//! Tunnels: the switch of protocols that opens one, the slots of a worker, and the origin's end.

mod side;
mod slots;
mod upgrade;

pub(crate) use side::TunnelSide;
pub(crate) use slots::TunnelPool;
pub(crate) use upgrade::{ProtocolSwitch, choose_protocol};
