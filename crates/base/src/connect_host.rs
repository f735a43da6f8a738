//! Connects to a host by its name, for tasks of the control thread: exchanges with a CA, and exports of traces.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    thread,
    time::Duration,
};
use tokio::{net::TcpStream, sync::oneshot, time::timeout};

/// Longest time of a connection attempt to one of a host's addresses.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why there is no connection to a host.
#[derive(Debug)]
pub enum ConnectHostError {
    /// The name was not found.
    Lookup(io::Error),
    /// No address accepted a connection.
    Connect(io::Error),
}

/// Connects to the first of the addresses of `host`, a name or an IP address, that accepts a connection.
///
/// # Errors
///
/// The failure of the lookup, or of the last address.
pub async fn connect_host(host: &str, port: u16) -> Result<TcpStream, ConnectHostError> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup_addresses(host, port).await.map_err(ConnectHostError::Lookup)? {
        match timeout(ADDRESS_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(ConnectHostError::Connect(last))
}

/// Looks up the addresses of `host` by getaddrinfo(3), which can neither be cancelled nor limited in time: on a thread
/// for which nothing has to wait.
async fn lookup_addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (found, finding) = oneshot::channel();
    let name = host.to_owned();
    thread::Builder::new().name("lookup".into()).spawn(move || {
        // The receiver is gone if the task has given up.
        let _ = found.send((name.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    })?;
    finding.await.map_err(|_| io::Error::other("the lookup ended without a result"))?
}
