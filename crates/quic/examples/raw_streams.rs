//! An echo server of raw QUIC streams on one socket of litequic's, and a client that sends it 10 MB and compares what
//! returns:
//!
//! ```sh
//! cargo run --release -p litequic-quic --example raw_streams
//! ```
#![expect(clippy::print_stdout, reason = "what it shows")]

use litequic_config::{Config, LiteQuic};
use litequic_net::{Backend, OpenSocket, SocketGroup, SocketOptions};
use litequic_quic::{EndpointParts, Observer, SocketIo, WorkerIndex, connect_client, start_endpoint};
use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::PrivateKeyDer};
use s2n_quic::{Server, provider::tls::rustls::Server as Tls};
use std::{error::Error, sync::Arc, time::Duration};
use tokio::io::{AsyncReadExt, copy};

/// Bytes that the client sends.
const BYTES: usize = 10_000_000;
/// The application protocol of both sides.
const ALPN: &[u8] = b"echo";

// litequic has one thread, with a runtime of its own, for each worker.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];

    // The kernel chooses the port. The configuration is a proxy's: its origin and its certificate's files are unused.
    let mut group = SocketGroup::new(([127, 0, 0, 1], 0).into());
    let socket = group.add_process(0, 1)?.remove(0);
    let local = group.address;
    let config = Config::with_defaults(local, "http://localhost".parse()?, "".into(), "".into());
    let LiteQuic { receive_batch, gso, gro, .. } = config.litequic;
    let options = SocketOptions { backend: Backend::Epoll, receive_batch, gso, gro };
    let sockets = Arc::<litequic_net::SocketMetrics>::default();
    let OpenSocket { receiver, sender, may_probe_mtu, .. } = OpenSocket::new(socket, options, Arc::clone(&sockets))?;
    let io = SocketIo { receive: receiver, transmit: sender, local, may_probe_mtu };
    let parts = EndpointParts::for_one_worker(config.into_live(), Tls::from(tls))?;
    tokio::spawn(echo_streams(start_endpoint(io, local, WorkerIndex(0), &parts)?.server));
    println!("listening on {local}");

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let mut tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut connection = connect_client(local, "localhost", tls, Duration::from_secs(5), &Observer::default()).await?;
    let (mut receive, mut send) = connection.open_bidirectional_stream().await?.split();
    let data: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    let mut returned = Vec::new();
    let sending = async {
        send.send(data.clone().into()).await?;
        Ok(send.finish()?)
    };
    tokio::try_join!(receive.read_to_end(&mut returned), sending)?;
    assert!(returned == data, "other bytes returned");
    let (merged, acks) = (parts.metrics.ack_frames_merged.get(), parts.metrics.ack_frames_received.get());
    let (batches, datagrams) = (sockets.receive_batches.get(), sockets.datagrams_received.get());
    println!("{BYTES} bytes returned; {merged} of {acks} ACK frames merged; {datagrams} datagrams, {batches} batches");
    Ok(())
}

/// Sends back the bytes of each stream of each connection.
async fn echo_streams(mut server: Server) {
    while let Some(mut connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
                let (mut receive, mut send) = stream.split();
                tokio::spawn(async move { copy(&mut receive, &mut send).await.map(|_| send.finish()) });
            }
        });
    }
}
