//! Serves one listener of a worker: accepts connections until the drain, and waits for their end.

use super::{
    acceptor::{SpareAcceptor, is_out_of_descriptors},
    http1, http2,
    listener_alt_svc::ListenerAltSvc,
    proxy_header::read_connection_addresses,
    tcp_connection::TcpConnection,
    tcp_worker::{AdmittedConnection, HandshakeConfig, TcpWorker},
    tls_handshake::accept_tls,
};
use crate::tcp_metrics::TcpMetrics;
use litequic_base::lifecycle::{ProcessPhase, propagate_panic};
use litequic_exchange::{AdvertisedPort, Client, ClientTls, Handler, LastForwarded, Protocol, TlsIdentity};
use litequic_telemetry::WakeCause;
use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    task::JoinSet,
    time::sleep,
};

/// Delay after an accept that failed for want of file descriptors or memory, as the next one would fail, too.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves HTTP/1.1 and HTTP/2 over TLS until the drain is over. Clients reach HTTP/3 at the `advertised` port.
///
/// # Errors
///
/// The kernel's error if the listener cannot be polled.
///
/// # Cancel safety
///
/// Dropping the future ends every connection.
pub async fn serve_tls<H: Handler>(
    listener: std::net::TcpListener,
    front: Rc<TcpWorker<H>>,
    tls: Rc<HandshakeConfig>,
    advertised: AdvertisedPort,
) -> io::Result<()> {
    let alt_svc = Rc::new(ListenerAltSvc::new(advertised));
    let begin = |stream, address, admitted: AdmittedConnection| {
        let (front, tls, alt_svc) = (Rc::clone(&front), Rc::clone(&tls), Some(Rc::clone(&alt_svc)));
        async move {
            let Some((stream, client)) = accept_tls(stream, address, &admitted.entry, &front, &tls).await else {
                return;
            };
            let metrics = Arc::clone(&front.metrics);
            let protocol = client.protocol;
            let connection = TcpConnection::new(front, client, alt_svc, admitted);
            let stream = connection.with_write_timeout(stream);
            if protocol == Protocol::Http2 {
                metrics.tcp_connections_h2.increment();
                http2::serve_http2(stream, connection).await;
            } else {
                metrics.tcp_connections_h1.increment();
                http1::serve_http1(stream, connection).await;
            }
        }
    };
    accept_until_drain(listener, &front, begin).await
}

/// Serves HTTP/1.1 without TLS until the drain is over.
///
/// # Errors
///
/// The kernel's error if the listener cannot be polled.
///
/// # Cancel safety
///
/// Dropping the future ends every connection.
pub async fn serve_plain<H: Handler>(listener: std::net::TcpListener, front: Rc<TcpWorker<H>>) -> io::Result<()> {
    let begin = |mut stream: TcpStream, address, admitted: AdmittedConnection| {
        let front = Rc::clone(&front);
        async move {
            let ends = select! {
                ends = read_connection_addresses(&mut stream, address, &admitted.entry, &front) => ends,
                reason = admitted.entry.wait_for_eviction() => {
                    front.count_ended_handshake(reason);
                    None
                }
            };
            let Some(ends) = ends else { return };
            let client = Client {
                address: ends.client,
                local: ends.local,
                protocol: Protocol::Http1,
                server_name: None,
                forwarded: LastForwarded::default(),
                identity: TlsIdentity { tls: ClientTls::Plain, ..TlsIdentity::default() },
                connection: 0,
            };
            front.metrics.tcp_connections_plain.increment();
            let connection = TcpConnection::new(Rc::clone(&front), client, None, admitted);
            let stream = connection.with_write_timeout(stream);
            http1::serve_http1(stream, connection).await;
        }
    };
    accept_until_drain(listener, &front, begin).await
}

async fn accept_until_drain<H: Handler, F: Future<Output = ()> + 'static>(
    listener: std::net::TcpListener,
    front: &Rc<TcpWorker<H>>,
    begin: impl Fn(TcpStream, SocketAddr, AdmittedConnection) -> F,
) -> io::Result<()> {
    let acceptor = SpareAcceptor::new(TcpListener::from_std(listener)?);
    let mut watch = front.watch.clone();
    let mut connections = JoinSet::new();
    loop {
        select! {
            biased;
            () = watch.wait_for_phase(ProcessPhase::Draining) => break,
            Some(ended) = connections.join_next() => propagate_panic(ended),
            accepted = count_wakes(acceptor.accept_client(), &front.metrics) => match accepted {
                // A connection without room is closed at once. Otherwise its client would wait.
                Ok((stream, address)) => if let Some(admitted) = front.admit_tcp_peer(address) {
                    let connection = begin(stream, address, admitted);
                    let metrics = Arc::clone(&front.metrics);
                    connections.spawn_local(async move { count_wakes(connection, &metrics).await });
                },
                Err(error) if is_out_of_descriptors(&error) => {
                    let shed = acceptor.shed_waiting();
                    front.metrics.limit_descriptors.increment_by(shed.closed);
                    let closed = shed.closed;
                    tracing::warn!(%error, closed, "no file descriptor is left for clients: closing their new connections");
                    if shed.pause {
                        sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a TCP listener failed to accept a connection");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(acceptor);
    while let Some(ended) = connections.join_next().await {
        propagate_panic(ended);
    }
    Ok(())
}

/// Polls `future`, and counts each poll as a wake of the worker by TCP.
async fn count_wakes<F: Future>(future: F, metrics: &TcpMetrics) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        metrics.wake.note_cause(WakeCause::Origin);
        future.as_mut().poll(cx)
    })
    .await
}
