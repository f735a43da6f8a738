//! Receives and sends many messages with one system call: recvmmsg(2) into buffers that are allocated once, and
//! sendmmsg(2).

use super::{
    control::{CONTROL_LEN, ControlBuffer, ControlValues, to_cmsg_length},
    raw_address::{RAW_ADDRESS_LEN, RawAddress},
};
use crate::datagram::{MAX_MESSAGE_LEN, OutgoingMessage};
#[cfg(not(target_env = "musl"))]
use libc::sendmmsg;
use libc::{c_uint, iovec, mmsghdr, msghdr};
use std::{
    io,
    mem::zeroed,
    net::{IpAddr, SocketAddr},
    ops::Range,
    os::fd::{AsFd, AsRawFd},
    ptr::{self, NonNull},
    slice,
};

/// Bytes between two receive buffers, in addition to a message's. Buffers a power of two apart begin in the same few
/// sets of a core's caches: 128 small datagrams would evict each other.
pub(super) const CACHE_COLOUR: usize = 256;
/// Receive buffer for a message with UDP_GRO, bytes.
pub(crate) const GRO_MESSAGE_LEN: usize = 65_535;
/// Receive buffer for a message without UDP_GRO, bytes: more than an Ethernet frame carries.
pub(crate) const PLAIN_MESSAGE_LEN: usize = 2048;
/// Largest number of messages in a call that sends.
pub(super) const MAX_SEND_MESSAGES: usize = 64;

/// The kernel's description of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelMessage {
    /// Sender; `None` if the kernel gave no address.
    pub(crate) remote: Option<SocketAddr>,
    /// Local address, if the kernel reports one.
    pub(crate) local: Option<IpAddr>,
    /// Index of the interface at which the message arrived, if the kernel reports it: for IPv6.
    pub(crate) interface: u32,
    pub(crate) ecn: u8,
    /// Bytes of all datagrams.
    pub(crate) len: usize,
    /// Bytes of each datagram but the last; `len` if the message is one datagram.
    pub(crate) segment: usize,
    /// A part of the message, or of its control messages, did not fit into the buffer.
    pub(crate) truncated: bool,
}

/// A slice to which the kernel gets pointers: the memory stays at one address when the owner moves.
pub(super) struct StableSlice<T>(NonNull<[T]>);

impl<T> StableSlice<T> {
    pub(super) fn new(values: Vec<T>) -> Self {
        Self(NonNull::from(Box::leak(values.into_boxed_slice())))
    }

    /// Address of element `index`, which the caller keeps below the length.
    pub(super) fn element_address(&self, index: usize) -> *mut T {
        // The pointer is not dereferenced here, and the addition wraps: any index is sound.
        self.0.as_ptr().cast::<T>().wrapping_add(index)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: recvmmsg(2) writes only during a call, which borrows the owner mutably: there is no other writer.
        (index < self.len()).then(|| unsafe { &*self.element_address(index) })
    }

    fn slice_mut(&mut self, range: Range<usize>) -> Option<&mut [T]> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        // SAFETY: as `get`; the range was checked against the length.
        Some(unsafe { slice::from_raw_parts_mut(self.element_address(range.start), range.len()) })
    }
}

impl<T> Drop for StableSlice<T> {
    fn drop(&mut self) {
        // SAFETY: malloc(3): the pointer is `new`'s leaked box, given back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Memory for a batch of received messages, with the last batch.
pub(crate) struct ReceiveBatch {
    bytes: StableSlice<u8>,
    names: StableSlice<RawAddress>,
    /// Memory that the headers point to.
    _controls: StableSlice<ControlBuffer>,
    iovecs: StableSlice<iovec>,
    headers: StableSlice<mmsghdr>,
    stride: usize,
    /// Number of messages that the last call wrote.
    filled: usize,
}

// SAFETY: recvmmsg(2): the headers' pointers lead to the memory beside them, which is this struct's own, and the kernel
// follows them only during a call. Nothing here belongs to a thread.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// Memory for `messages` messages of `message_len` bytes each.
    pub(crate) fn new(messages: usize, message_len: usize) -> Self {
        let stride = message_len.next_multiple_of(64) + CACHE_COLOUR;
        let bytes = StableSlice::new(vec![0; messages * stride]);
        let names = StableSlice::new(vec![RawAddress::zero_address(); messages]);
        let controls = StableSlice::new(vec![ControlBuffer::EMPTY; messages]);
        let iovec = |n| iovec { iov_base: bytes.element_address(n * stride).cast(), iov_len: message_len };
        let iovecs = StableSlice::new((0..messages).map(iovec).collect());
        let header = |n| {
            // SAFETY: sendmsg(2): a msghdr is integers and pointers, for which zero is a value.
            let mut header: mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_name = names.element_address(n).cast();
            header.msg_hdr.msg_namelen = RAW_ADDRESS_LEN;
            header.msg_hdr.msg_iov = iovecs.element_address(n);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls.element_address(n).cast();
            header.msg_hdr.msg_controllen = to_cmsg_length(CONTROL_LEN);
            header
        };
        let headers = StableSlice::new((0..messages).map(header).collect());
        Self { bytes, names, _controls: controls, iovecs, headers, stride, filled: 0 }
    }

    /// Largest number of messages in a batch.
    pub(crate) fn message_capacity(&self) -> usize {
        self.iovecs.len()
    }

    /// Takes messages that are queued at `socket`, without waiting. Returns their number: fewer than
    /// [`ReceiveBatch::message_capacity`] means that none is left.
    ///
    /// # Errors
    ///
    /// EAGAIN if no message is queued, or another error of recv(2). The batch is empty then.
    pub(crate) fn call_recvmmsg(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        // The kernel has overwritten the sizes of used buffers with lengths.
        for header in self.headers.slice_mut(0..self.filled).unwrap_or_default() {
            header.msg_hdr.msg_namelen = RAW_ADDRESS_LEN;
            header.msg_hdr.msg_controllen = to_cmsg_length(CONTROL_LEN);
        }
        self.filled = 0;
        let room = c_uint::try_from(self.message_capacity()).unwrap_or(c_uint::MAX);
        // SAFETY: recvmmsg(2): `headers` has `room` entries, whose names, buffers and control buffers are this struct's
        // and as long as they say. No timeout. They are borrowed mutably for the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.element_address(0),
                room,
                libc::MSG_DONTWAIT as _, // unsigned in musl
                ptr::null_mut(),
            )
        };
        self.filled = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(self.filled)
    }

    /// Description of message `index` of the last call.
    pub(crate) fn kernel_message(&self, index: usize) -> Option<KernelMessage> {
        let header = self.headers.get(index).filter(|_| index < self.filled)?;
        // SAFETY: recvmsg(2): the kernel has set msg_controllen to what it wrote into the control buffer.
        let said = unsafe { ControlValues::read_control(&header.msg_hdr) };
        let len = usize::try_from(header.msg_len).unwrap_or(usize::MAX);
        Some(KernelMessage {
            remote: self.names.get(index)?.decode_address(header.msg_hdr.msg_namelen),
            local: said.local,
            interface: said.interface,
            ecn: said.ecn,
            len,
            segment: said.segment.map_or(len, usize::from),
            truncated: header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        })
    }

    /// The bytes `range` of message `index`.
    pub(crate) fn message_bytes_mut(&mut self, index: usize, range: Range<usize>) -> Option<&mut [u8]> {
        if index >= self.filled || range.end > self.stride - CACHE_COLOUR {
            return None;
        }
        let start = index * self.stride;
        self.bytes.slice_mut(start + range.start..start + range.end)
    }
}

/// Memory for the arguments of sendmmsg(2), each of which begins with those of sendmsg(2), allocated once.
pub(crate) struct SendBatch {
    names: Vec<RawAddress>,
    controls: Vec<ControlBuffer>,
    iovecs: Vec<iovec>,
    headers: Vec<mmsghdr>,
    /// The socket's family is IPv6, for which IPv4 addresses are IPv4-mapped.
    is_v6: bool,
    /// The socket has several addresses: a message must name the one to leave from.
    names_local: bool,
}

// SAFETY: sendmmsg(2): the pointers in `iovecs` and `headers` are written anew by each call and followed only during
// it. They lead to this struct's own memory and to the payload; nothing here belongs to a thread.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Memory for messages of a socket that is bound to `local`.
    pub(crate) fn new(local: SocketAddr) -> Self {
        Self {
            names: Vec::with_capacity(MAX_SEND_MESSAGES),
            controls: vec![ControlBuffer::EMPTY; MAX_SEND_MESSAGES],
            iovecs: Vec::with_capacity(MAX_SEND_MESSAGES),
            headers: Vec::with_capacity(MAX_SEND_MESSAGES),
            is_v6: local.is_ipv6(),
            names_local: local.ip().is_unspecified(),
        }
    }

    /// Sends the first of `messages`, whose bytes `payload` returns, without waiting. Returns the number of sent
    /// messages, at least one.
    ///
    /// # Errors
    ///
    /// An error of send(2) for the first message.
    pub(crate) fn call_sendmmsg<'a>(
        &mut self,
        socket: &impl AsFd,
        messages: &'a [OutgoingMessage],
        payload: impl Fn(&'a OutgoingMessage) -> &'a [u8],
    ) -> io::Result<usize> {
        self.write_headers(messages, payload);
        let count = c_uint::try_from(self.headers.len()).unwrap_or(c_uint::MAX);
        // SAFETY: sendmmsg(2): `headers` has `count` entries. Their names, buffers and control buffers are alive until
        // the call returns: in this struct, or borrowed for 'a. The kernel reads the buffers and writes msg_len alone.
        let sent =
            unsafe { sendmmsg(socket.as_fd().as_raw_fd(), self.headers.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Writes the headers of the first of `messages`, and discards earlier headers.
    fn write_headers<'a>(
        &mut self,
        messages: &'a [OutgoingMessage],
        payload: impl Fn(&'a OutgoingMessage) -> &'a [u8],
    ) {
        self.names.clear();
        self.iovecs.clear();
        self.headers.clear();
        // These vectors are filled before any pointer into them is taken. None of the three grows beyond its capacity.
        let mut name_lens = [0; MAX_SEND_MESSAGES];
        for (message, name_len) in messages.iter().zip(&mut name_lens) {
            let (name, len) = RawAddress::new(message.path.destination(), self.is_v6);
            self.names.push(name);
            *name_len = len;
            let bytes = payload(message);
            debug_assert!(bytes.len() <= MAX_MESSAGE_LEN, "a message fits into a packet");
            self.iovecs.push(iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
        }
        let parts = self.names.iter_mut().zip(&mut self.iovecs).zip(&mut self.controls);
        for (((name, iovec), control), (message, name_len)) in parts.zip(messages.iter().zip(name_lens)) {
            // SAFETY: sendmsg(2): a msghdr is integers and pointers, for which zero is a value.
            let mut header: msghdr = unsafe { zeroed() };
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_namelen = name_len;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            control_values(message, self.names_local).write_control(
                message.path.destination().is_ipv4(),
                &mut header,
                control,
            );
            self.headers.push(mmsghdr { msg_hdr: header, msg_len: 0 });
        }
    }

    /// Writes the headers of the first of `messages`, for a caller that passes them to the kernel one by one. The
    /// headers point to the payloads, and stay at their addresses until the next call.
    pub(super) fn message_headers<'a>(
        &mut self,
        messages: &'a [OutgoingMessage],
        payload: impl Fn(&'a OutgoingMessage) -> &'a [u8],
    ) -> impl Iterator<Item = *const msghdr> {
        self.write_headers(messages, payload);
        self.headers.iter().map(|header| &raw const header.msg_hdr)
    }

    /// Invalidates the headers from index `first` on: the kernel sends nothing for them, and reads no payload.
    pub(super) fn invalidate_headers(&mut self, first: usize) {
        for header in self.headers.iter_mut().skip(first) {
            // sendmsg(2): EMSGSIZE beyond UIO_MAXIOV, which is 1024.
            header.msg_hdr.msg_iovlen = 1 << 16;
        }
    }
}

/// Calls sendmmsg(2). musl's function of that name calls sendmsg(2) for each message, since it cannot know that a
/// header's padding, which the kernel reads with the length before, is zero; here the padding is zero.
///
/// # Safety
///
/// The rules of the system call.
#[cfg(target_env = "musl")]
unsafe fn sendmmsg(
    socket: std::os::fd::RawFd,
    headers: *mut mmsghdr,
    count: c_uint,
    flags: libc::c_int,
) -> libc::c_long {
    // SAFETY: sendmmsg(2): the caller vouches for the headers; musl's have the kernel's layout.
    unsafe { libc::syscall(libc::SYS_sendmmsg, socket, headers, count, flags) }
}

/// Values for the control messages of a message to send.
fn control_values(message: &OutgoingMessage, names_local: bool) -> ControlValues {
    let local = SocketAddr::from(message.path.addresses.local_address).ip();
    ControlValues {
        ecn: message.ecn as u8,
        local: Some(local).filter(|local| names_local && !local.is_unspecified()),
        interface: message.path.interface,
        segment: if message.count > 1 { u16::try_from(message.segment).ok() } else { None },
    }
}

#[cfg(test)]
mod tests {
    use super::{super::IntOption, *};
    use crate::datagram::{NetworkPath, OutgoingBatch};
    use s2n_quic_core::{inet::ExplicitCongestionNotification as Ecn, path::Tuple};
    use std::{
        convert::Infallible,
        net::UdpSocket,
        time::{Duration, Instant},
    };

    fn receiver(address: &str, gro: bool) -> UdpSocket {
        let socket = UdpSocket::bind(address).unwrap();
        let numbers: &[IntOption] = if socket.local_addr().unwrap().is_ipv6() {
            &[IntOption::IPV6_RECVPKTINFO, IntOption::IPV6_RECVTCLASS, IntOption::IP_RECVTOS]
        } else {
            &[IntOption::IP_PKTINFO, IntOption::IP_RECVTOS]
        };
        for number in numbers {
            number.set_option(&socket, 1).unwrap();
        }
        if gro {
            IntOption::UDP_GRO.set_option(&socket, 1).unwrap();
        }
        socket
    }

    /// Receives until `wanted` messages have arrived.
    fn receive(socket: &UdpSocket, batch: &mut ReceiveBatch, wanted: usize) -> Vec<(KernelMessage, Vec<u8>)> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut all = Vec::new();
        while all.len() < wanted && Instant::now() < deadline {
            match batch.call_recvmmsg(socket) {
                Ok(count) => {
                    for index in 0..count {
                        let arrived = batch.kernel_message(index).unwrap();
                        all.push((arrived, batch.message_bytes_mut(index, 0..arrived.len).unwrap().to_vec()));
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    std::thread::yield_now();
                }
            }
        }
        assert_eq!(all.len(), wanted);
        all
    }

    fn path(local: &UdpSocket, remote: &UdpSocket, family: &str) -> NetworkPath {
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        let ip: IpAddr = family.parse().unwrap();
        Tuple {
            remote_address: s2n_quic_core::inet::SocketAddress::from(SocketAddr::new(ip, port(remote))).into(),
            local_address: s2n_quic_core::inet::SocketAddress::from(SocketAddr::new(ip, port(local))).into(),
        }
        .into()
    }

    /// A message of `count` datagrams of `segment` bytes, the last of which has `last` bytes.
    fn outgoing(path: NetworkPath, ecn: Ecn, segment: usize, count: usize, last: usize) -> OutgoingBatch {
        let mut outgoing = OutgoingBatch::new(MAX_MESSAGE_LEN);
        for n in 0..count {
            let len = if n + 1 == count { last } else { segment };
            let write = |room: &mut [u8]| {
                room[..len].fill(u8::try_from(n).unwrap());
                Ok::<_, Infallible>(len)
            };
            let Ok(_) =
                if n == 0 { outgoing.begin_message(path, ecn, true, write) } else { outgoing.join_message(write) };
        }
        outgoing
    }

    fn send(socket: &UdpSocket, outgoing: &OutgoingBatch) -> io::Result<usize> {
        let mut batch = SendBatch::new(socket.local_addr().unwrap());
        batch.call_sendmmsg(socket, outgoing.messages(), |message| outgoing.payload(message))
    }

    const FAMILIES: [(&str, &str); 4] =
        [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "::1"), ("[::]:0", "127.0.0.1")];

    #[test]
    fn ecn_and_local_address_arrive_over_every_family() {
        for (bind, family) in FAMILIES {
            let (sender, receiver) = (receiver(bind, false), receiver(bind, false));
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                let outgoing = outgoing(path(&sender, &receiver, family), ecn, 100, 1, 100);
                assert_eq!(send(&sender, &outgoing).unwrap(), 1);
                let (arrived, bytes) = receive(&receiver, &mut ReceiveBatch::new(4, PLAIN_MESSAGE_LEN), 1).remove(0);
                let port = sender.local_addr().unwrap().port();
                let ip: IpAddr = family.parse().unwrap();
                let expected = KernelMessage {
                    remote: Some((ip, port).into()),
                    local: Some(ip),
                    // The loopback interface is the first of each namespace.
                    interface: if ip.is_ipv6() { 1 } else { arrived.interface },
                    ecn: ecn as u8,
                    len: 100,
                    segment: 100,
                    truncated: false,
                };
                assert_eq!((arrived, bytes), (expected, vec![0; 100]), "{bind} {family}");
            }
        }
    }

    #[test]
    fn a_message_leaves_from_the_address_that_it_names() {
        let (sender, receiver) = (receiver("0.0.0.0:0", false), receiver("127.0.0.1:0", false));
        let local: SocketAddr = ([127, 0, 0, 2], sender.local_addr().unwrap().port()).into();
        let mut path = path(&sender, &receiver, "127.0.0.1");
        path.addresses.local_address = s2n_quic_core::inet::SocketAddress::from(local).into();
        send(&sender, &outgoing(path, Ecn::Ect0, 10, 1, 10)).unwrap();
        let (arrived, _) = receive(&receiver, &mut ReceiveBatch::new(1, PLAIN_MESSAGE_LEN), 1).remove(0);
        assert_eq!(arrived.remote, Some(local));
    }

    #[test]
    fn segments_arrive_as_datagrams_of_their_size() {
        for (bind, family) in FAMILIES {
            let (sender, receiver) = (receiver(bind, false), receiver(bind, false));
            let outgoing = outgoing(path(&sender, &receiver, family), Ecn::Ect0, 1200, 54, 700);
            assert_eq!(send(&sender, &outgoing).unwrap(), 1);
            let all = receive(&receiver, &mut ReceiveBatch::new(16, PLAIN_MESSAGE_LEN), 54);
            for (n, (arrived, bytes)) in all.iter().enumerate() {
                let len = if n == 53 { 700 } else { 1200 };
                assert_eq!((arrived.len, arrived.segment, arrived.ecn), (len, len, 2), "{family}, datagram {n}");
                assert_eq!(bytes, &vec![u8::try_from(n).unwrap(); len]);
            }
        }
    }

    #[test]
    fn segments_arrive_joined_with_gro() {
        let (sender, receiver) = (receiver("127.0.0.1:0", true), receiver("127.0.0.1:0", true));
        let outgoing = outgoing(path(&sender, &receiver, "127.0.0.1"), Ecn::Ce, 1000, 64, 10);
        send(&sender, &outgoing).unwrap();
        let (arrived, bytes) = receive(&receiver, &mut ReceiveBatch::new(2, GRO_MESSAGE_LEN), 1).remove(0);
        assert_eq!((arrived.len, arrived.segment, arrived.ecn), (63_010, 1000, 3));
        assert_eq!(bytes, outgoing.payload(&outgoing.messages()[0]));
    }

    #[test]
    fn a_message_with_too_many_segments_is_an_error() {
        let (sender, receiver) = (receiver("127.0.0.1:0", true), receiver("127.0.0.1:0", true));
        let mut outgoing = outgoing(path(&sender, &receiver, "127.0.0.1"), Ecn::NotEct, 10, 64, 10);
        let mut message = outgoing.messages()[0];
        // 640 bytes are 320 segments of 2 bytes, where kernels accept 64 or 128.
        message.segment = 2;
        message.count = 320;
        let mut batch = SendBatch::new(sender.local_addr().unwrap());
        let error = batch.call_sendmmsg(&sender, &[message], |message| outgoing.payload(message)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        outgoing.split_messages(1);
        assert_eq!(send(&sender, &outgoing).unwrap(), 64);
    }

    #[test]
    fn a_message_larger_than_its_buffer_is_marked_as_truncated() {
        let (sender, receiver) = (receiver("127.0.0.1:0", false), receiver("127.0.0.1:0", false));
        let outgoing = outgoing(path(&sender, &receiver, "127.0.0.1"), Ecn::NotEct, 2049, 1, 2049);
        send(&sender, &outgoing).unwrap();
        send(&sender, &self::outgoing(path(&sender, &receiver, "127.0.0.1"), Ecn::NotEct, 2048, 1, 2048)).unwrap();
        let all = receive(&receiver, &mut ReceiveBatch::new(2, PLAIN_MESSAGE_LEN), 2);
        let seen: Vec<_> = all.iter().map(|(arrived, _)| (arrived.len, arrived.truncated)).collect();
        assert_eq!(seen, [(2048, true), (2048, false)]);
    }

    #[test]
    fn a_full_batch_leaves_the_other_messages_in_the_socket() {
        let (sender, receiver) = (receiver("127.0.0.1:0", false), receiver("127.0.0.1:0", false));
        let to = receiver.local_addr().unwrap();
        for n in 0..5_u8 {
            sender.send_to(&[n; 9], to).unwrap();
        }
        let mut batch = ReceiveBatch::new(3, PLAIN_MESSAGE_LEN);
        let mut counts = Vec::new();
        let mut first = Vec::new();
        while let Ok(count) = batch.call_recvmmsg(&receiver) {
            counts.push(count);
            first.extend((0..count).map(|index| batch.message_bytes_mut(index, 0..9).unwrap()[0]));
        }
        assert_eq!((counts, first), (vec![3, 2], vec![0, 1, 2, 3, 4]));
        // The messages of the batch before are gone.
        assert_eq!(batch.kernel_message(0), None);
        assert!(batch.message_bytes_mut(0, 0..9).is_none());
    }

    #[test]
    fn nothing_is_read_beyond_a_message() {
        let (sender, receiver) = (receiver("127.0.0.1:0", false), receiver("127.0.0.1:0", false));
        sender.send_to(b"", receiver.local_addr().unwrap()).unwrap();
        let mut batch = ReceiveBatch::new(2, PLAIN_MESSAGE_LEN);
        let (arrived, bytes) = receive(&receiver, &mut batch, 1).remove(0);
        assert_eq!((arrived.len, bytes.len()), (0, 0));
        assert_eq!(batch.kernel_message(1), None);
        assert!(batch.message_bytes_mut(0, 0..PLAIN_MESSAGE_LEN + 1).is_none());
    }
}
