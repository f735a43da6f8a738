//! Stateless resets while two processes have connections on one address: neither sends one for a connection ID of the
//! other's, as an observer of it could end that connection (RFC 9000 §21.11).

use super::{Download, Service, ended, terminate};
use crate::support::prelude::*;
use quinn::udp::{Transmit, UdpSocketState};
use tokio::{io::Interest, net::UdpSocket};

/// Bytes of a stateless reset token.
const TOKEN: usize = 16;
const LEN: usize = 2_000_000;

/// A packet with a short header of a connection of worker 0, of the process of `generation`.
pub(super) fn short(generation: u8, id: u8) -> Vec<u8> {
    [&[0x41, 0xef, generation, 0][..], &[id; 60]].concat()
}

/// An observer that has seen connection IDs.
pub(super) struct Observer {
    socket: UdpSocket,
    state: UdpSocketState,
    server: SocketAddr,
}

impl Observer {
    pub(super) async fn of(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let state = UdpSocketState::new((&socket).into()).unwrap();
        Self { socket, state, server }
    }

    /// Sends the packets as one message, which the kernel gives to one socket as a whole: that of the first.
    async fn send(&self, train: &[Vec<u8>]) {
        let contents = train.concat();
        let segment_size = (train.len() > 1).then_some(train[0].len());
        let transmit =
            Transmit { destination: self.server, ecn: None, contents: &contents, segment_size, src_ip: None };
        let send = || self.state.try_send((&self.socket).into(), &transmit);
        self.socket.async_io(Interest::WRITABLE, send).await.unwrap();
    }

    /// The token of the next reset.
    async fn token(&self) -> Vec<u8> {
        let mut buffer = [0; 1500];
        let len = within("a reset", self.socket.recv(&mut buffer)).await.unwrap();
        buffer[len - TOKEN..len].to_vec()
    }

    /// The token for one packet.
    pub(super) async fn token_for(&self, packet: Vec<u8>) -> Vec<u8> {
        self.send(&[packet]).await;
        self.token().await
    }

    /// The tokens for a train.
    async fn tokens_for(&self, train: [Vec<u8>; 2]) -> Vec<Vec<u8>> {
        // What marks the end goes the same way.
        let mark = short(train[0][2], 99);
        let marked = self.token_for(mark.clone()).await;
        self.send(&train).await;
        let mut tokens = vec![self.token().await];
        self.send(&[mark]).await;
        loop {
            let token = self.token().await;
            if token == marked {
                return tokens;
            }
            tokens.push(token);
        }
    }
}

#[tokio::test]
async fn a_process_resets_no_connection_of_another_that_runs() {
    let service = Service::new().await;
    let old = service.start().await;
    let mut download = Download::begin(&service, LEN).await;
    let new = service.start().await;
    service.until("older_processes", 1).await;
    let observer = Observer::of(service.address).await;

    // The old process' connection at the new one, and the other way round. Each answers for its own.
    let of_old = observer.tokens_for([short(1, 1), short(0, 2)]).await;
    let of_new = observer.tokens_for([short(0, 3), short(1, 4)]).await;
    assert_eq!((of_old.len(), of_new.len()), (1, 1));
    assert_ne!(of_new[0], observer.token_for(short(1, 4)).await);

    assert!(!download.read_to(usize::MAX).await);
    drop(download);
    ended(old).await;
    service.until("older_processes", 0).await;
    // Now the connection is gone, and its client has to learn it.
    assert_ne!(of_old[0], observer.token_for(short(0, 2)).await);
    terminate(new).await;
}
