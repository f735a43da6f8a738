//! A UDP socket through quinn-udp: recvmmsg and GRO, GSO, ECN; large buffers.

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{setsockopt, sockopt},
};
use quinn_proto::EcnCodepoint;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use std::{
    io::{self, IoSliceMut},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
};

/// Receive buffer to request, if permitted: a burst must not be lost here, or the server would be measured in recovery.
const BUFFER: usize = 32 << 20;

/// Room for one message: with GRO up to 64 KB.
const MESSAGE: usize = 65_536;

/// How long a send waits for room in the kernel, milliseconds. Beyond it the packets count as lost.
const SEND_WAIT_MS: u16 = 20;

/// Where messages are received into; all sockets share one.
pub(super) struct Buffers {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BATCH_SIZE * MESSAGE], metas: [RecvMeta::default(); BATCH_SIZE] }
    }

    /// The first `count` messages with what is known of them.
    pub(super) fn messages(&self, count: usize) -> impl Iterator<Item = (&RecvMeta, &[u8])> {
        let messages = self.metas.iter().zip(self.bytes.chunks(MESSAGE)).take(count);
        messages.map(|(meta, bytes)| (meta, bytes.get(..meta.len).unwrap_or_default()))
    }
}

/// A socket for one or several connections.
pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    /// Messages of a call.
    messages: usize,
    pub(super) sends: u64,
    pub(super) sends_dropped: u64,
    pub(super) receive_calls: u64,
}

impl Socket {
    /// A socket that reaches `remote`, with the receive buffer that a user's program gets by requesting
    /// `receive_buffer`, none if that is 0. A call takes so many `messages`.
    pub(super) fn bind(
        remote: SocketAddr,
        gro: bool,
        receive_buffer: Option<usize>,
        messages: usize,
    ) -> io::Result<Self> {
        let any = match remote {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let io = UdpSocket::bind(any)?;
        let state = UdpSocketState::new((&io).into())?;
        if !gro {
            setsockopt(&io, sockopt::UdpGroSegment, &false)?;
        }
        match receive_buffer {
            Some(0) => {}
            Some(bytes) => state.set_recv_buffer_size((&io).into(), bytes)?,
            // Beyond net.core.*mem_max with CAP_NET_ADMIN alone; the report has the actual size.
            None if setsockopt(&io, sockopt::RcvBufForce, &BUFFER).is_err() => {
                state.set_recv_buffer_size((&io).into(), BUFFER)?;
            }
            None => {}
        }
        if setsockopt(&io, sockopt::SndBufForce, &BUFFER).is_err() {
            state.set_send_buffer_size((&io).into(), BUFFER)?;
        }
        Ok(Self { io, state, messages, sends: 0, sends_dropped: 0, receive_calls: 0 })
    }

    /// What the kernel granted, bytes.
    pub(super) fn receive_buffer(&self) -> u64 {
        self.state.recv_buffer_size((&self.io).into()).unwrap_or(0) as u64
    }

    /// Segments that one send may have.
    pub(super) fn max_gso_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Receives messages; 0 if there are none.
    pub(super) fn receive(&mut self, buffers: &mut Buffers) -> io::Result<usize> {
        let mut slices = buffers.bytes.chunks_mut(MESSAGE);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slices.next().unwrap_or_default()));
        let slices = slices.get_mut(..self.messages).unwrap_or_default();
        match self.state.recv((&self.io).into(), slices, &mut buffers.metas) {
            Ok(count) => {
                self.receive_calls += 1;
                Ok(count)
            }
            // An ICMP error is ignored: a server that does not answer is found by its timeout.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Sends quinn's packets. Waits a little for room; a packet that finds none is lost.
    pub(super) fn send(&mut self, transmit: &quinn_proto::Transmit, contents: &[u8]) {
        let transmit = Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn: EcnCodepoint| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: contents.get(..transmit.size).unwrap_or_default(),
            segment_size: transmit.segment_size,
            src_ip: None,
        };
        self.sends += 1;
        let mut sent = self.state.try_send((&self.io).into(), &transmit);
        if matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            let mut ready = [PollFd::new(self.io.as_fd(), PollFlags::POLLOUT)];
            if poll(&mut ready, PollTimeout::from(SEND_WAIT_MS)).is_ok_and(|count| count > 0) {
                sent = self.state.try_send((&self.io).into(), &transmit);
            }
        }
        // EMSGSIZE is how path MTU discovery meets the limit: lost like any other packet.
        self.sends_dropped += u64::from(sent.is_err());
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}
