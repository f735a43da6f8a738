//! Whether io_uring works here, tested with a datagram and its control messages over loopback, out of a ring's
//! multishot receive.

use super::super::{
    feature,
    sys::{MultishotReceive, PLAIN_MESSAGE, Ring, UringError, completions},
};
use crate::datagram::Outgoing;
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

/// Bytes of the datagrams.
const SEGMENT: usize = 600;
/// How many there are: more than there are buffers, so that they run out.
const DATAGRAMS: usize = 5;
/// Messages received at once, which makes for twice as many buffers.
const BATCH: usize = 2;
/// How long a datagram may take over loopback.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends datagrams to itself by a ring and receives them, beyond the end of its buffers. Takes a millisecond.
///
/// # Errors
///
/// The step that does not work.
pub(crate) fn check() -> Result<(), UringError> {
    let socket = bound().map_err(UringError::Socket)?;
    let local = socket.local_addr().map_err(UringError::Socket)?;
    let ring = Ring::new(&socket, local, completions(BATCH))?;
    // Features that the kernel lacks are not io_uring's fault.
    let _ = feature::local_address(&socket, local);
    let mut receive = MultishotReceive::new(ring.clone(), BATCH, PLAIN_MESSAGE)?;
    let local_address = SocketAddress::from(local);
    let path = Tuple { remote_address: local_address.into(), local_address: local_address.into() };
    let mut outgoing = Outgoing::new(SEGMENT);
    for _ in 0..DATAGRAMS {
        let Ok(_) = outgoing.begin(path, Ecn::NotEct, false, |room| {
            room.fill(7);
            Ok::<_, Infallible>(room.len())
        });
    }
    let mut outcomes = Vec::new();
    ring.send(outgoing.messages(), |message| outgoing.payload(message), &mut outcomes);
    if outcomes != [Ok(()); DATAGRAMS] {
        return Err(UringError::Loopback("does not leave"));
    }
    let (deadline, mut arrived) = (Instant::now() + PATIENCE, 0);
    while arrived < DATAGRAMS && Instant::now() < deadline {
        let taken = receive.receive().map_err(UringError::Enter)?;
        for index in 0..taken.messages {
            let whole = receive.arrived(index).is_some_and(|message| {
                (message.len, message.remote, message.truncated) == (SEGMENT, Some(local), false)
            });
            let payload = receive.bytes_mut(index, 0..SEGMENT).is_some_and(|bytes| bytes.iter().all(|&o| o == 7));
            if !whole || !payload {
                return Err(UringError::Loopback("does not arrive as it was sent"));
            }
        }
        arrived += taken.messages;
        if taken.messages == 0 {
            std::thread::yield_now();
        }
    }
    if arrived < DATAGRAMS { Err(UringError::Loopback("does not arrive")) } else { Ok(()) }
}

fn bound() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
