//! Opens the workers' TCP listeners, one for each worker at the same address. The kernel distributes connections over
//! them by a hash, and a connection stays with the worker that accepted it.

use litequic_base::tcp_keepalive::enable_keepalive;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::{
    io,
    net::{SocketAddr, TcpListener},
};

/// Connections that the kernel queues until the worker accepts them: a flash crowd of some milliseconds. The kernel
/// caps the value at net.core.somaxconn.
const LISTEN_BACKLOG: i32 = 1024;

/// Error of binding a TCP address; the operator's fault.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on TCP {address}: {source}")]
pub struct ListenError {
    /// Address that cannot be bound.
    pub address: SocketAddr,
    /// The system's error.
    pub source: io::Error,
}

impl ListenError {
    /// Whether another socket is bound to the address.
    pub fn is_address_in_use(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }
}

/// Binds a listener for each worker to `address`, in one SO_REUSEPORT group. Port 0 becomes one free port for all;
/// `[::]` includes IPv4. The sockets do not block.
///
/// The first listener is bound before it gets SO_REUSEPORT, as in [`super::SocketGroup::add_process`]: otherwise the
/// group would silently share the address of another process of the same user.
///
/// # Errors
///
/// [`ListenError`].
pub fn listen_group(address: SocketAddr, workers: usize) -> Result<Vec<TcpListener>, ListenError> {
    let failed = |source| ListenError { address, source };
    let mut address = address;
    let mut listeners = Vec::with_capacity(workers);
    for _ in 0..workers {
        let listener = bind_listener(address, listeners.is_empty()).map_err(failed)?;
        // For port 0 the first listener has chosen the port.
        address = listener.local_addr().map_err(failed)?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn open_tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.ip().is_ipv6() {
        // The system's default is net.ipv6.bindv6only.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Connections of a previous process may still be in TIME_WAIT.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn bind_listener(address: SocketAddr, is_first: bool) -> io::Result<TcpListener> {
    let socket = open_tcp_socket(address)?;
    socket.set_reuse_port(!is_first)?;
    socket.set_nonblocking(true)?;
    // Accepted connections inherit both options (tcp(7)).
    socket.set_tcp_nodelay(true)?;
    enable_keepalive(&SockRef::from(&socket))?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    // The option is set only now: two sockets with SO_REUSEADDR may be bound to one address while neither listens.
    socket.set_reuse_port(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::{
        collections::HashSet,
        net::TcpStream,
        time::{Duration, Instant},
    };

    #[test]
    fn an_address_that_another_group_has_is_refused() {
        let group = listen_group(([127, 0, 0, 1], 0).into(), 2).unwrap();
        let address = group[0].local_addr().unwrap();
        let error = listen_group(address, 1).unwrap_err();
        assert!(error.is_address_in_use() && error.to_string().contains(&address.to_string()), "{error}");
    }

    #[test]
    fn connections_are_spread_over_a_group() {
        let group = listen_group(([127, 0, 0, 1], 0).into(), 3).unwrap();
        let address = group[0].local_addr().unwrap();
        let mut accepted = [0; 3];
        let deadline = Instant::now() + Duration::from_secs(10);
        while accepted.contains(&0) && Instant::now() < deadline {
            let _client = TcpStream::connect(address).unwrap();
            for (listener, accepted) in group.iter().zip(&mut accepted) {
                *accepted += u32::from(listener.accept().is_ok());
            }
        }
        assert!(!accepted.contains(&0), "{accepted:?}");
    }

    #[test]
    fn groups_at_port_0_share_no_port() {
        let groups: Vec<_> = (0..600).map(|_| listen_group(([127, 0, 0, 1], 0).into(), 1).unwrap()).collect();
        let ports: HashSet<_> = groups.iter().map(|group| group[0].local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), groups.len());
    }

    #[test]
    fn accepted_connections_inherit_nodelay_and_keepalive() {
        let group = listen_group(([127, 0, 0, 1], 0).into(), 1).unwrap();
        let _client = TcpStream::connect(group[0].local_addr().unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let (stream, _) = loop {
            match group[0].accept() {
                Ok(accepted) => break accepted,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), 30);
    }
}
