//! Serves the origin of `litequic demo`: an HTTP/1.1 server with a page to look at and bodies to measure with.
//! This origin depends on no other module of litequic, as a real one would not.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that shows by which protocol it and its images came |
//! | `/image/N.svg` | an image |
//! | `/bytes/N` | N bytes, `k`, `M`, `G` as suffixes of powers of 1000; byte i is i mod 251; takes `Range` |
//! | `/echo` (POST, PUT) | the request's body, streamed back |
//! | `/sink` (POST, PUT) | how many bytes the request's body had, and their SHA-256 |
//! | `/slow/MS` | after MS milliseconds |
//! | `/status/CODE` | with that status |
//! | `/headers` | the request's header as text |
//! | `/early-hints` | 103, then 200 |

mod answer;
mod byte_pattern;
mod page;

pub use answer::{DemoAnswer, DemoBody, DemoFailure, answer_request};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{io, net::SocketAddr, os::fd::AsFd, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

/// Maximum number of connections; further ones wait in the kernel's backlog. The workers' pools of a demo open fewer.
const MAX_CONNECTIONS: usize = 1024;

/// Idle timeout of a connection: longer than a pool's own, so that the pool closes first and no request meets a closing
/// connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Pause after an accept that failed for want of file descriptors: the next one would fail at once as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bound listener of the demo's origin.
#[derive(Debug)]
pub struct DemoOrigin {
    listener: TcpListener,
}

impl DemoOrigin {
    /// Binds `address`. Returns the bound address, with the kernel's choice for port 0, and the future that serves.
    /// Dropping the future closes every connection. To be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel's, when the address cannot be bound.
    pub async fn bind_origin(
        address: SocketAddr,
    ) -> io::Result<(SocketAddr, impl Future<Output = ()> + Send + 'static)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((address, Self { listener }.serve_connections()))
    }

    async fn serve_connections(self) {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                _ = connections.join_next(), if !room => {}
                accepted = self.listener.accept(), if room => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve_client(stream));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the demo's origin failed to accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Socket of a connection, for bytes that hyper does not write: hyper's server sends no interim response.
pub type RawSocket = Arc<std::net::TcpStream>;

/// Duplicates the socket of `stream`.
///
/// # Errors
///
/// The kernel's: no file descriptor is left.
pub fn duplicate_socket(stream: &TcpStream) -> io::Result<RawSocket> {
    Ok(Arc::new(stream.as_fd().try_clone_to_owned()?.into()))
}

async fn serve_client(stream: TcpStream) {
    // Without TCP_NODELAY, Nagle's algorithm delays small answers until an acknowledgement.
    let _ = stream.set_nodelay(true);
    let Ok(socket) = duplicate_socket(&stream) else { return };
    let service = service_fn(move |request| answer_request(request, Arc::clone(&socket)));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the demo's origin failed");
    }
}

#[cfg(test)]
mod tests;
