//! ACK merging, newest first: of the acknowledgements that a connection's client sent since the socket was last
//! emptied, the newest includes the others. [`Order`] moves it before them, [`Acknowledged`] finds that they have no
//! news, and `quic::packets` writes PADDING over them, which s2n-quic skips. Nothing is held back, so that nothing can
//! be lost. Pure. docs/adr/0012-newest-acknowledgement-first.md has the reasons.

mod acknowledged;
mod order;

pub use acknowledged::{Acknowledged, MAX_RANGES};
pub use order::{Arrival, MAX_AHEAD, MAX_CONNECTIONS, Order, SMALL};
