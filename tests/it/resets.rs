//! Stateless resets of a litequic at several addresses.

use crate::support::prelude::*;
use std::collections::HashSet;
use tokio::net::UdpSocket;

/// The stateless reset token for a packet to `server`, whose ID is one of worker 0's.
async fn token(server: SocketAddr) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let packet = [&[0x41, 0xef, 0, 0][..], &[7; 60]].concat();
    socket.send_to(&packet, server).await.unwrap();
    let mut buffer = [0; 1500];
    let len = within("a reset", socket.recv(&mut buffer)).await.unwrap();
    buffer[len - 16..len].to_vec()
}

#[tokio::test]
async fn a_stateless_reset_token_is_not_sent_to_another_address() {
    let litequic = Litequic::demo(|config| {
        config.listen.udp = vec![([127, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 0).into(), ([127, 0, 0, 2], 0).into()];
    })
    .await;
    let mut tokens = HashSet::new();
    for address in &litequic.addresses {
        let first = token(*address).await;
        assert_eq!(token(*address).await, first, "of an address it is always the same");
        tokens.insert(first);
    }
    assert_eq!(tokens.len(), 3);
    litequic.stop().await;
}
