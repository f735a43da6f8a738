//! One listener of a worker: accepts connections until the drain, and waits for their end.

use super::{
    accept::{Acceptor, is_exhausted},
    alt_svc::AltSvc,
    connection::Connection,
    front::{Admitted, TcpWorker, Tls},
    handshake::shake,
    http1, http2,
    proxy_header::ends,
};
use crate::metrics::Metrics;
use litequic_base::lifecycle::{Phase, pass_panic_on};
use litequic_exchange::{Client, ClientTls, Handler, Identity, LastForwarded, Protocol};
use litequic_telemetry::Cause;
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

/// Pause after an accept that failed for want of file descriptors or memory: the next one would fail at once as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves HTTP/1.1 and HTTP/2 over TLS until the drain is over. Clients reach HTTP/3 at `http3_port`.
///
/// # Errors
///
/// The kernel's, when the listener cannot be waited for.
///
/// # Cancel safety
///
/// Dropping the future ends every connection.
pub async fn serve_tls<H: Handler>(
    listener: std::net::TcpListener,
    front: Rc<TcpWorker<H>>,
    tls: Rc<Tls>,
    http3_port: u16,
) -> io::Result<()> {
    let alt_svc = Rc::new(AltSvc::new(http3_port));
    let begin = |stream, address, admitted: Admitted| {
        let (front, tls, alt_svc) = (Rc::clone(&front), Rc::clone(&tls), Some(Rc::clone(&alt_svc)));
        async move {
            let Some((stream, client)) = shake(stream, address, &admitted.holder, &front, &tls).await else { return };
            let metrics = Arc::clone(&front.metrics);
            let protocol = client.protocol;
            let connection = Connection::new(front, client, alt_svc, admitted);
            let stream = connection.timed(stream);
            if protocol == Protocol::Http2 {
                metrics.tcp_connections_h2.increment();
                http2::serve(stream, connection).await;
            } else {
                metrics.tcp_connections_h1.increment();
                http1::serve(stream, connection).await;
            }
        }
    };
    accept(listener, &front, begin).await
}

/// Serves HTTP/1.1 without TLS in the same way.
///
/// # Errors
///
/// The kernel's, when the listener cannot be waited for.
///
/// # Cancel safety
///
/// Dropping the future ends every connection.
pub async fn serve_plain<H: Handler>(listener: std::net::TcpListener, front: Rc<TcpWorker<H>>) -> io::Result<()> {
    let begin = |mut stream: TcpStream, address, admitted: Admitted| {
        let front = Rc::clone(&front);
        async move {
            let ends = select! {
                ends = ends(&mut stream, address, &admitted.holder, &front) => ends,
                reason = admitted.holder.ended() => {
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
                identity: Identity { tls: ClientTls::Plain, ..Identity::default() },
                connection: 0,
            };
            front.metrics.tcp_connections_plain.increment();
            let connection = Connection::new(Rc::clone(&front), client, None, admitted);
            let stream = connection.timed(stream);
            http1::serve(stream, connection).await;
        }
    };
    accept(listener, &front, begin).await
}

async fn accept<H: Handler, F: Future<Output = ()> + 'static>(
    listener: std::net::TcpListener,
    front: &Rc<TcpWorker<H>>,
    begin: impl Fn(TcpStream, SocketAddr, Admitted) -> F,
) -> io::Result<()> {
    let acceptor = Acceptor::new(TcpListener::from_std(listener)?);
    let mut watch = front.watch.clone();
    let mut connections = JoinSet::new();
    loop {
        select! {
            biased;
            () = watch.reached(Phase::Draining) => break,
            Some(ended) = connections.join_next() => pass_panic_on(ended),
            accepted = noted(acceptor.accept(), &front.metrics) => match accepted {
                // One for which there is no room is closed at once: otherwise its client would wait.
                Ok((stream, address)) => if let Some(admitted) = front.admit(address) {
                    let connection = begin(stream, address, admitted);
                    let metrics = Arc::clone(&front.metrics);
                    connections.spawn_local(async move { noted(connection, &metrics).await });
                },
                Err(error) if is_exhausted(&error) => {
                    let shed = acceptor.shed();
                    front.metrics.limit_descriptors.add(shed.closed);
                    let closed = shed.closed;
                    tracing::warn!(%error, closed, "no file descriptor is left for clients: closing their new connections");
                    if shed.pause {
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a TCP listener failed to accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(acceptor);
    while let Some(ended) = connections.join_next().await {
        pass_panic_on(ended);
    }
    Ok(())
}

/// Notes at each poll of `future` that TCP may be what woke the worker.
async fn noted<F: Future>(future: F, metrics: &Metrics) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        metrics.wake.note(Cause::Origin);
        future.as_mut().poll(cx)
    })
    .await
}
