//! `[limits]`: what a client may do at most. Every limit has a default with its reason, and a metric that counts
//! when it bites (`litequic_limit_reached_total`).

use std::time::Duration;

/// Bytes in a MiB.
const MIB: u32 = 1024 * 1024;

/// What a client may do at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections a worker; further ones are refused (CONNECTION_REFUSED, RFC 9000 §20.1).
    pub max_connections: u32,
    /// Handshakes in flight a worker from which on a client must first prove its address by a Retry
    /// (RFC 9000 §8.1.2).
    pub retry_handshakes: u32,
    /// Handshakes in flight a worker; further Initials are dropped.
    pub max_handshakes: u32,
    /// Requests at once on a connection: the QUIC transport parameter `initial_max_streams_bidi`.
    pub max_streams: u32,
    /// Tunnels (WebSockets and the like) at once a worker: 503 beyond. 0 offers none.
    pub max_tunnels: u32,
    /// Requests on a connection in all; then GOAWAY.
    pub max_requests: u64,
    /// Requests a second that a client may cancel on a connection, ten seconds' worth at once: H3_EXCESSIVE_LOAD beyond.
    pub max_resets: u32,
    /// Frames a second on a connection that move no data (RFC 9000 §19: all but ACK, PADDING, STREAM with data and
    /// CONNECTION_CLOSE), ten seconds' worth at once: H3_EXCESSIVE_LOAD beyond.
    pub max_control_frames: u32,
    /// DATA frames a second on a connection with next to nothing in them, ten seconds' worth at once: H3_EXCESSIVE_LOAD
    /// beyond.
    pub max_small_frames: u32,
    /// Bytes of a field section as RFC 9114 §4.2.2 counts them (name + value + 32 a field): 431 beyond.
    pub max_header_bytes: u32,
    /// Fields of a field section: 431 beyond.
    pub max_headers: u32,
    /// Bytes of a request's body; `None` is no limit: 413 beyond.
    pub max_body_bytes: Option<u64>,
    /// Bytes a second at which a client sends a request's body at least, while litequic waits for it: 408 beyond. 0 is no
    /// minimum.
    pub min_upload_rate: u64,
    /// The same of a response that it takes: the stream is reset, over HTTP/1.1 the connection closed.
    pub min_download_rate: u64,
    /// For how long a client is waited for beyond that.
    pub rate_grace: Duration,
    /// Bytes of a request's body that are discarded once it was answered; 0 is none. Over HTTP/3 and HTTP/2 the client is
    /// told to stop beyond, over HTTP/1.1 the connection is closed.
    pub max_lingering_bytes: u64,
    /// Bytes a stream that litequic takes from its client before it must wait (QUIC flow control).
    pub stream_receive_buffer: u32,
    /// Bytes a connection that litequic takes from its client before it must wait (QUIC flow control).
    pub connection_receive_buffer: u32,
    /// Bytes a worker that were received and not read: a new connection's window is smaller as it is used up, and beyond it
    /// the connection that holds most is closed.
    pub worker_receive_buffer: u64,
    /// Response bytes a stream that the client has not acknowledged (QUIC) or the kernel not taken (TCP).
    pub stream_send_buffer: u32,
    /// The same a connection.
    pub connection_send_buffer: u32,
    /// The same a worker.
    pub worker_send_buffer: u64,
    /// As what the process uses comes near it, connections are refused, then buffers made smaller, then connections ended.
    pub memory: MemoryLimit,
}

/// How much memory the process may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// What its memory cgroup allows, and those that it is in; without a limit of theirs, any.
    #[default]
    Cgroup,
    /// So many bytes in RAM besides the pages of files, and what its cgroups allow.
    Bytes(u64),
    /// Any, whatever its cgroup allows.
    None,
}

impl Limits {
    /// About what one core serves; each idle connection takes some 10 KiB.
    pub const MAX_CONNECTIONS: u32 = 20_000;
    /// A core does a few thousand handshakes a second: this many in flight is more than a round trip's worth.
    pub const RETRY_HANDSHAKES: u32 = 256;
    /// A flood with forged addresses never gets past Retry; one with real ones stops here.
    pub const MAX_HANDSHAKES: u32 = 2_048;
    /// What nginx and the RFC (9114 §6.1: at least 100) agree on.
    pub const MAX_STREAMS: u32 = 128;
    /// Half of the connections; 16 KiB of buffers each, and as much again of QUIC's or TLS'.
    pub const MAX_TUNNELS: u32 = 10_000;
    /// A connection does not live for ever, so that load spreads again after a scale-up.
    pub const MAX_REQUESTS: u64 = 1_000_000;
    /// A browser that leaves a page cancels what is open, `max_streams` at most, and a seek in a video a request or two: a
    /// thousand at once are seven pages left within a second, and nobody leaves one a second for ever.
    pub const MAX_RESETS: u32 = 100;
    /// A client of quinn's sends 5,000 for a gigabyte that it downloads, and 55,000 with a window of 32 KiB: all that 7 Gbit/s
    /// need even so.
    pub const MAX_CONTROL_FRAMES: u32 = 50_000;
    /// A megabyte in lines of 50 bytes is 20,000 frames, and may come at once; a message every 10 ms is 100 a second.
    pub const MAX_SMALL_FRAMES: u32 = 10_000;
    /// What origins accept: nginx takes 4 × 8 KiB.
    pub const MAX_HEADER_BYTES: u32 = 32 * 1024;
    /// What Apache takes.
    pub const MAX_HEADERS: u32 = 100;
    /// A proxy does not know its origin's uploads: the origin's own limit holds.
    pub const MAX_BODY_BYTES: Option<u64> = None;
    /// A tenth of what GPRS does, for ten requests at once.
    pub const MIN_UPLOAD_RATE: u64 = 240;
    /// The same.
    pub const MIN_DOWNLOAD_RATE: u64 = 240;
    /// Apache's: a tunnel of a train, a change of network.
    pub const RATE_GRACE: Duration = Duration::from_secs(20);
    /// A short video: browsers see a 413 only when they have sent all (Chromium over HTTP/3). nginx has no bound but time.
    pub const MAX_LINGERING_BYTES: u64 = 64 * MIB as u64;
    /// One stream carries 200 Mbit/s at 100 ms, which are 2.5 MB in flight: s2n-quic raises a window once a tenth of it was
    /// read, so that nine tenths of it are there at any time.
    pub const STREAM_RECEIVE_BUFFER: u32 = 3 * MIB;
    /// Two such streams: one whose origin does not read leaves the connection's other requests their windows.
    pub const CONNECTION_RECEIVE_BUFFER: u32 = 6 * MIB;
    /// A container's memory with room for the rest. Of what is read at once hardly anything is held; of uploads that their
    /// origins do not read, 85 whole streams.
    pub const WORKER_RECEIVE_BUFFER: u64 = 256 * MIB as u64;
    /// 500 Mbit/s at 100 ms are 6.25 MB in flight, and as much again stays in memory while a lost packet is missing.
    pub const STREAM_SEND_BUFFER: u32 = 16 * MIB;
    /// What one stream may have: the streams of a connection share its congestion window.
    pub const CONNECTION_SEND_BUFFER: u32 = 16 * MIB;
    /// A worker's share of a small container's memory: half of it is for those who have read, and a stream alone may have
    /// half of that. 1,000 who have not hold 32 MiB. Beyond it each stream gets less at a time, none fails.
    pub const WORKER_SEND_BUFFER: u64 = 64 * MIB as u64;
    /// A container's limit is its memory cgroup's; elsewhere the process does not know what it may take.
    pub const MEMORY: MemoryLimit = MemoryLimit::Cgroup;
}

impl Limits {
    /// What a connection may send ahead however much the others have, beyond the budget if need be: a request's header and
    /// some 25 Mbit/s at 20 ms.
    pub const RECEIVE_FLOOR: u64 = 64 * 1024;
    /// A connection gets at most what is left divided by this: whole windows as long as a quarter of the default budget is
    /// used, and half of it in a budget of 64 MiB; less then, and never all that is left.
    const RECEIVE_SHARE: u64 = 32;

    /// Bytes that the client of a new connection may send ahead, when `used` of the worker's budget is held, or may be on
    /// connections that upload.
    pub fn receive_window(&self, used: u64) -> u64 {
        let left = self.worker_receive_buffer.saturating_sub(used);
        (left / Self::RECEIVE_SHARE).max(Self::RECEIVE_FLOOR).min(self.connection_receive_buffer.into())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: Self::MAX_CONNECTIONS,
            retry_handshakes: Self::RETRY_HANDSHAKES,
            max_handshakes: Self::MAX_HANDSHAKES,
            max_streams: Self::MAX_STREAMS,
            max_tunnels: Self::MAX_TUNNELS,
            max_requests: Self::MAX_REQUESTS,
            max_resets: Self::MAX_RESETS,
            max_control_frames: Self::MAX_CONTROL_FRAMES,
            max_small_frames: Self::MAX_SMALL_FRAMES,
            max_header_bytes: Self::MAX_HEADER_BYTES,
            max_headers: Self::MAX_HEADERS,
            max_body_bytes: Self::MAX_BODY_BYTES,
            min_upload_rate: Self::MIN_UPLOAD_RATE,
            min_download_rate: Self::MIN_DOWNLOAD_RATE,
            rate_grace: Self::RATE_GRACE,
            max_lingering_bytes: Self::MAX_LINGERING_BYTES,
            stream_receive_buffer: Self::STREAM_RECEIVE_BUFFER,
            connection_receive_buffer: Self::CONNECTION_RECEIVE_BUFFER,
            worker_receive_buffer: Self::WORKER_RECEIVE_BUFFER,
            stream_send_buffer: Self::STREAM_SEND_BUFFER,
            connection_send_buffer: Self::CONNECTION_SEND_BUFFER,
            worker_send_buffer: Self::WORKER_SEND_BUFFER,
            memory: Self::MEMORY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_window_is_a_share_of_what_is_left_within_its_bounds() {
        const MIB: u64 = super::MIB as u64;
        const FLOOR: u64 = Limits::RECEIVE_FLOOR;
        let table = [
            ("all is left", 6 * MIB, 256 * MIB, 0, 6 * MIB),
            ("three quarters are left", 6 * MIB, 256 * MIB, 64 * MIB, 6 * MIB),
            ("a quarter is left", 6 * MIB, 256 * MIB, 192 * MIB, 2 * MIB),
            ("hardly anything is left", 6 * MIB, 256 * MIB, 255 * MIB, FLOOR),
            ("nothing is left", 6 * MIB, 256 * MIB, 256 * MIB, FLOOR),
            ("less than nothing is left", 6 * MIB, 256 * MIB, 300 * MIB, FLOOR),
            ("a connection may have less than the floor", 16 * 1024, 256 * MIB, 300 * MIB, 16 * 1024),
        ];
        for (what, connection, worker_receive_buffer, used, expected) in table {
            let connection_receive_buffer = connection.try_into().unwrap();
            let limits = Limits { connection_receive_buffer, worker_receive_buffer, ..Limits::default() };
            assert_eq!(limits.receive_window(used), expected, "{what}");
        }
    }
}
