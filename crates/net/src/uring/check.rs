//! Tests whether io_uring works here: datagrams and their control messages are sent over loopback and received by a
//! multishot receive.

use super::super::{
    feature,
    sys::{MultishotReceive, PLAIN_MESSAGE_LEN, Ring, UringError, max_completions},
};
use crate::datagram::OutgoingBatch;
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, UdpSocket},
    time::{Duration, Instant},
};

/// Bytes of a test datagram.
const CHECK_DATAGRAM_LEN: usize = 600;
/// Number of test datagrams: more than the receive has buffers.
const CHECK_DATAGRAMS: usize = 5;
/// Messages received at once; the receive has twice as many buffers.
const CHECK_BATCH_MESSAGES: usize = 2;
/// Longest time that the test waits for datagrams over loopback.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends datagrams over loopback by a ring and receives them, until its buffers are used up. Takes a millisecond.
///
/// # Errors
///
/// The error of the step that failed.
pub(crate) fn check_io_uring() -> Result<(), UringError> {
    let socket = bind_loopback().map_err(UringError::in_step("io_uring_register, files"))?;
    let local = socket.local_addr().map_err(UringError::in_step("io_uring_register, files"))?;
    let ring = Ring::new(&socket, local, max_completions(CHECK_BATCH_MESSAGES))?;
    // Features that the kernel lacks are not io_uring's fault.
    let _ = feature::enable_local_address(&socket, local);
    let mut receive = MultishotReceive::new(ring.clone(), CHECK_BATCH_MESSAGES, PLAIN_MESSAGE_LEN)?;
    let local_address = SocketAddress::from(local);
    let path = Tuple { remote_address: local_address.into(), local_address: local_address.into() }.into();
    let mut outgoing = OutgoingBatch::new(CHECK_DATAGRAM_LEN);
    for _ in 0..CHECK_DATAGRAMS {
        let Ok(_) = outgoing.begin_message(path, Ecn::NotEct, false, |room| {
            room.fill(7);
            Ok::<_, Infallible>(room.len())
        });
    }
    let mut outcomes = Vec::new();
    ring.submit_sends(outgoing.messages(), |message| outgoing.payload(message), &mut outcomes);
    if outcomes != [Ok(()); CHECK_DATAGRAMS] {
        return Err(UringError::Loopback("does not leave"));
    }
    let (deadline, mut arrived) = (Instant::now() + CHECK_TIMEOUT, 0);
    while arrived < CHECK_DATAGRAMS && Instant::now() < deadline {
        let taken = receive.take_messages().map_err(UringError::in_step("io_uring_enter"))?;
        for index in 0..taken.messages {
            let whole = receive.batch_message(index).is_some_and(|message| {
                (message.len, message.remote, message.truncated) == (CHECK_DATAGRAM_LEN, Some(local), false)
            });
            let payload =
                receive.payload_mut(index, 0..CHECK_DATAGRAM_LEN).is_some_and(|bytes| bytes.iter().all(|&o| o == 7));
            if !whole || !payload {
                return Err(UringError::Loopback("does not arrive as it was sent"));
            }
        }
        arrived += taken.messages;
        if taken.messages == 0 {
            std::thread::yield_now();
        }
    }
    if arrived < CHECK_DATAGRAMS { Err(UringError::Loopback("does not arrive")) } else { Ok(()) }
}

fn bind_loopback() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
