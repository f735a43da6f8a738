//! Opens tunnels: the switch of protocols, the slots of a worker, and the origin's end.

mod protocol_switch;
mod side;
mod slots;

pub(crate) use protocol_switch::{ProtocolSwitch, choose_protocol};
pub(crate) use side::TunnelSide;
pub(crate) use slots::TunnelPool;
