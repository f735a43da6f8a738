//! The send budget: how many bytes of responses may be in memory, so that a stream, a connection and a worker stay
//! bounded. HTTP/1.1, HTTP/2 and HTTP/3 share it.
//!
//! s2n-quic and h2 bound a stream's send buffer alone, so a stream leases bytes from its connection's and its worker's
//! budget before it writes them. They stay leased until the client has acknowledged them (QUIC), or the kernel has
//! taken them (TCP). A lease follows what is outstanding, up and down, by three rules. A client that acknowledges
//! nothing never holds more than its first share, and what its connection was seen to take within a round trip. First
//! packet trains, first shares and all that acknowledgements allow beyond have a part of a budget each, so that a new
//! stream is served however much the others hold; when even the trains are taken, it gets a packet at a time. And of a
//! part a stream may have as much as is left, times a constant: the dynamic threshold of shared-memory switches
//! (Choudhury and Hahne, 1998). Pure.
//!
//! [`path`] computes how much of that QUIC can use.

mod budget;
pub mod path;

pub use budget::{BufferLease, FIRST_SHARE_BYTES, SendBudget, TRAIN, TRAIN_BYTES};
