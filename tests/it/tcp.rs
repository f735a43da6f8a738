//! The TCP listeners: HTTP/1.1 and HTTP/2 in front of the same proxy, with real clients.

mod ends;
mod exchange;
mod expect;
mod first;
mod goaway;
mod http1;
mod http2;
mod interim;
mod life;
mod memory;
pub(crate) mod pieces;
mod pipelined;
pub(crate) mod priorities;
mod records;
mod written;
