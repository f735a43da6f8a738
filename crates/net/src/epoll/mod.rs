//! Receives and sends datagrams over epoll: a readable socket is emptied with recvmmsg(2), a batch at a time, and
//! QUIC's packets are sent with sendmmsg(2) in the same turn of the worker's loop. No task or queue is between the two.

mod receive;
mod send;

pub(super) use receive::EpollReceiver;
