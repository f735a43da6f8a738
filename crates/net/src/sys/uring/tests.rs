//! Tests a ring without room in the kernel, and a ring used by the wrong thread.

use super::{MultishotReceive, Ring};
use crate::{datagram::OutgoingBatch, sys::PLAIN_MESSAGE_LEN};
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{
    convert::Infallible,
    env, io,
    io::Write as _,
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let local = socket.local_addr().unwrap();
    (socket, local)
}

/// A ring and its local address; `None`, with a message, if io_uring is unavailable.
fn ring(completions: usize) -> Option<(Ring, SocketAddr)> {
    let (socket, local) = socket();
    match Ring::new(&socket, local, completions) {
        Ok(ring) => Some((ring, local)),
        Err(refusal) => {
            assert!(env::var_os("LITEQUIC_REQUIRE").is_none(), "LITEQUIC_REQUIRE is set, but {refusal}");
            let _ = writeln!(io::stderr(), "skipped: io_uring: {refusal}");
            None
        }
    }
}

/// One datagram for each of `bytes`, of ten equal bytes.
fn outgoing(local: SocketAddr, remote: SocketAddr, bytes: impl IntoIterator<Item = u8>) -> OutgoingBatch {
    let mut outgoing = OutgoingBatch::new(1472);
    let (remote_address, local_address) = (SocketAddress::from(remote).into(), SocketAddress::from(local).into());
    let path = Tuple { remote_address, local_address }.into();
    for byte in bytes {
        let Ok(_) = outgoing.begin_message(path, Ecn::NotEct, false, |room| {
            room[..10].fill(byte);
            Ok::<_, Infallible>(10)
        });
    }
    outgoing
}

fn send(ring: &Ring, outgoing: &OutgoingBatch) -> Vec<Result<(), i32>> {
    let mut outcomes = Vec::new();
    ring.submit_sends(outgoing.messages(), |message| outgoing.payload(message), &mut outcomes);
    outcomes
}

/// First bytes of the messages that arrive, until `wanted` have arrived.
fn receive(receive: &mut MultishotReceive, wanted: usize) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut seen = Vec::new();
    while seen.len() < wanted && Instant::now() < deadline {
        let taken = receive.take_messages().unwrap();
        seen.extend((0..taken.messages).map(|index| receive.payload_mut(index, 0..10).unwrap()[0]));
        thread::yield_now();
    }
    seen
}

#[test]
fn completions_beyond_the_queue_come_later_and_none_is_lost() {
    // Room for 128, where 256 buffers and 64 sends may complete.
    let Some((ring, local)) = ring(1) else { return };
    let mut batch = MultishotReceive::new(ring.clone(), 128, PLAIN_MESSAGE_LEN).unwrap();
    let (client, from) = socket();
    for n in 0..=250 {
        assert_eq!(client.send_to(&[n; 10], local).unwrap(), 10);
    }
    assert_eq!(send(&ring, &outgoing(local, from, 0..64)), [Ok(()); 64]);
    assert_eq!(receive(&mut batch, 251), (0..=250).collect::<Vec<u8>>());
    let mut byte = [0];
    let sent: Vec<u8> = (0..64).map(|_| client.recv(&mut byte).map(|_| byte[0]).unwrap()).collect();
    assert_eq!(sent, (0..64).collect::<Vec<u8>>());
}

#[test]
fn entries_that_the_kernel_did_not_consume_are_never_sent() {
    let Some((ring, local)) = ring(1) else { return };
    let (client, from) = socket();
    let messages = outgoing(local, from, 0..20);
    // The kernel takes entries only of the thread that created the ring.
    let outcomes = thread::scope(|scope| scope.spawn(|| send(&ring, &messages)).join().unwrap());
    assert_eq!(outcomes, [Err(libc::ENOBUFS); 20]);
    drop(messages);
    for n in 100..110 {
        assert_eq!(send(&ring, &outgoing(local, from, [n])), [Ok(())]);
    }
    let mut byte = [0];
    let mut seen = Vec::new();
    while let Ok(len) = client.recv(&mut byte) {
        assert_eq!(len, 1);
        seen.push(byte[0]);
    }
    assert_eq!(seen, (100..110).collect::<Vec<u8>>());
}

#[test]
fn buffers_that_stay_registered_are_leaked_not_freed() {
    let Some((ring, local)) = ring(1) else { return };
    let mut batch = MultishotReceive::new(ring.clone(), 2, PLAIN_MESSAGE_LEN).unwrap();
    let (client, _) = socket();
    // The kernel unregisters buffers only for the thread that created the ring: dropped by another, they stay.
    let bytes = batch.buffers.buffer_bytes_mut(0).unwrap().as_ptr() as usize;
    thread::scope(|scope| scope.spawn(move || drop(batch)).join().unwrap());
    let others: Vec<Vec<u8>> = (0..100).map(|_| vec![1; 4 * PLAIN_MESSAGE_LEN]).collect();
    for other in &others {
        let range = other.as_ptr() as usize..other.as_ptr() as usize + other.len();
        assert!(!range.contains(&bytes));
    }
    client.send_to(&[9; 10], local).unwrap();
    assert_eq!(send(&ring, &outgoing(local, local, [1])), [Ok(())]);
    assert!(others.iter().all(|other| other.iter().all(|byte| *byte == 1)));
}

#[test]
fn a_dropped_receive_leaves_the_ring_to_sends() {
    let Some((ring, local)) = ring(1) else { return };
    let mut batch = MultishotReceive::new(ring.clone(), 2, PLAIN_MESSAGE_LEN).unwrap();
    let (client, from) = socket();
    client.send_to(&[7; 10], local).unwrap();
    assert_eq!(receive(&mut batch, 1), [7]);
    drop(batch);
    client.send_to(&[8; 10], local).unwrap();
    assert_eq!(send(&ring, &outgoing(local, from, [1])), [Ok(())]);
    assert!(!ring.0.lock().armed);
    // Another receive may take the place of the dropped one.
    let mut batch = MultishotReceive::new(ring, 2, PLAIN_MESSAGE_LEN).unwrap();
    assert_eq!(receive(&mut batch, 1), [8]);
}
