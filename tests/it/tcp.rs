//! The companion over TCP: HTTP/1.1 and HTTP/2 before the same proxy, by clients as they are.

mod exchange;
mod first;
mod http1;
mod http2;
mod life;
mod memory;
mod pieces;
mod pipelined;
