//! Defines the metrics of a worker's UDP sockets.

use litequic_telemetry::{Counter, IO_SYSCALLS, metrics};

metrics! {
    /// Metrics of one worker's UDP sockets, which only that worker writes. Aligned so that two workers never share a
    /// cache line.
    #[repr(align(128))]
    pub struct SocketMetrics {
        Counter("datagrams_received", "Datagrams received.") { datagrams_received }
        Counter("datagram_bytes_received", "Bytes of datagrams received, without IP and UDP headers.") {
            datagram_bytes_received,
        }
        Counter("receive_messages", "Messages received; with UDP GRO, a message holds several datagrams.") {
            receive_messages,
        }
        Counter("receive_batches", "Batches in which messages were received.") {
            receive_batches "System calls that returned messages, except with io_uring. Datagrams per batch show how \
                             busy a worker is.",
        }
        Counter("datagrams_sent", "Datagrams sent.") { datagrams_sent }
        Counter("datagram_bytes_sent", "Bytes of datagrams sent, without IP and UDP headers.") { datagram_bytes_sent }
        Counter("send_messages", "Messages sent; with UDP GSO, a message holds several datagrams.") { send_messages }
        Counter("gso_messages", "Messages sent that held several datagrams.") { gso_messages }
        Counter("gso_segments", "Datagrams sent in messages with several datagrams.") {
            gso_segments "Divided by the metric above: datagrams per message. The more, the cheaper large downloads \
                          are.",
        }
        Counter(IO_SYSCALLS) {
            syscalls_recvmmsg [call: "recvmmsg"] "System calls to receive.",
            syscalls_sendmmsg [call: "sendmmsg"] "System calls to send.",
            syscalls_io_uring_enter [call: "io_uring_enter"] "System calls to do both, with `io = \"io-uring\"`.",
        }
        Counter("receive_rearmed", "Times a receive of many messages ended and was restarted.") {
            receive_rearmed_buffers [reason: "buffers"]
                "io_uring's receive used up its buffers (twice `receive_batch`) before the worker processed them. \
                 Later datagrams waited in the socket; none was lost.",
            receive_rearmed_other [reason: "other"] "The receive ended for another reason.",
        }
        Counter("send_blocked", "Times datagrams had to wait before the kernel took them.") {
            send_blocked_buffer [by: "buffer"] "The socket's buffer was full: datagrams waited for it.",
            send_blocked_below [by: "queue"]
                "A queue below the socket was full, or memory was short: datagrams waited for a millisecond.",
        }
        Counter("datagrams_dropped", "Datagrams that could not be received or sent.") {
            datagrams_dropped_truncated [reason: "truncated"]
                "Received datagrams that were larger than their buffer, which is 2 KiB without GRO.",
            datagrams_dropped_too_large [reason: "too_large"]
                "Datagrams larger than the path's MTU. Path MTU discovery causes them, which is not a fault.",
            datagrams_dropped_refused [reason: "refused"]
                "Datagrams that the system refused to send: no route, a firewall, an address that is no longer local.",
        }
        Counter("io_degraded", "Sockets without a feature that is configured.") {
            io_degraded_gso_missing [feature: "gso", reason: "missing"]
                "Sockets without GSO, because the kernel does not support it. See \
                    [Kernel features](../operating.md#kernel-features-gso-gro-ecn).",
            io_degraded_gso_eio [feature: "gso", reason: "EIO"]
                "Sockets on which GSO was switched off because a device cannot compute checksums. No datagram was \
                 lost.",
            io_degraded_gso_einval [feature: "gso", reason: "EINVAL"],
            io_degraded_io_uring_forbidden [feature: "io_uring", reason: "forbidden"]
                "Sockets that fell back to epoll although `io = \"io-uring\"` is configured: seccomp, a security module or \
                    `kernel.io_uring_disabled` forbids it. See [io_uring](../operating.md#io_uring).",
            io_degraded_io_uring_missing [feature: "io_uring", reason: "missing"],
            io_degraded_io_uring_memory [feature: "io_uring", reason: "memory"],
            io_degraded_io_uring_broken [feature: "io_uring", reason: "broken"],
            io_degraded_gro [feature: "gro", reason: "missing"] "Sockets without GRO.",
            io_degraded_ecn [feature: "ecn", reason: "missing"] "Sockets that cannot read congestion marks (ECN).",
            io_degraded_pktinfo [feature: "pktinfo", reason: "missing"]
                "Sockets that cannot read to which local address a datagram came.",
        }
    }
}
