//! Bounds the bytes of responses in memory, of a stream, a connection and a worker: the send budget. HTTP/1.1, HTTP/2
//! and HTTP/3 share it.
//!
//! s2n-quic and h2 bound only the send buffer of a stream, so a stream leases bytes from its connection's and its
//! worker's budget before it writes them. Bytes stay leased until the client has acknowledged them (QUIC), or the
//! kernel has taken them (TCP). A lease follows the outstanding bytes, up and down, by three rules. A client that
//! acknowledges nothing never holds more than its first share, and the bytes that its connection was seen to take
//! within a round trip. First packet trains, first shares and further bytes that acknowledgements allow have a part of
//! a budget each, so that a new stream is served however much the others hold; when even the trains are taken, it gets
//! a packet at a time. And of a part a stream may have as much as is left, times a constant: the dynamic threshold of
//! shared-memory switches (Choudhury and Hahne, 1998). Pure.
//!
//! [`path`] computes the part of a lease that QUIC can use.

mod budget;
pub mod path;

pub use budget::{BufferLease, FIRST_SHARE_BYTES, SendBudget, TRAIN, TRAIN_BYTES};
