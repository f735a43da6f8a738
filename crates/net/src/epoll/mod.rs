//! Datagrams over epoll: a socket that is readable is emptied with recvmmsg(2), a batch at a time, and QUIC's packets
//! are sent with sendmmsg(2) in the same turn of the worker's loop. There is no task or queue between.

mod receive;
mod send;

pub(super) use receive::EpollReceiver;
