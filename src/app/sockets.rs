//! Binds the sockets of the process, beside those that the service manager or the previous process has bound.

use super::start_error::StartError;
use litequic_config::Config;
use litequic_net::{self as net, ListenError, SocketGroup};
use litequic_quic::MAX_WORKERS;
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    num::NonZeroUsize,
    thread,
};

/// Sockets that another process has bound. Those without a key of the configuration are closed.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    /// UDP sockets of each address.
    pub(super) groups: Vec<SocketGroup>,
    /// TCP listeners of each address.
    pub(super) listeners: Vec<(SocketAddr, Vec<TcpListener>)>,
}

impl InheritedSockets {
    /// Takes the sockets of a service manager, each for the keys that name its address. Several UDP sockets of one
    /// address are a reuseport group, in the order of their bind(2).
    ///
    /// # Errors
    ///
    /// [`StartError::Bind`], or the kernel's.
    pub fn from_service_manager(udp: Vec<UdpSocket>, tcp: Vec<TcpListener>) -> Result<Self, StartError> {
        let (mut by_address, mut listeners) = (Vec::new(), Vec::new());
        for socket in udp {
            group_by_address(&mut by_address, socket.local_addr().map_err(StartError::Passed)?, socket);
        }
        for listener in tcp {
            listener.set_nonblocking(true).map_err(StartError::Passed)?;
            group_by_address(&mut listeners, listener.local_addr().map_err(StartError::Passed)?, listener);
        }
        let groups = by_address.into_iter().map(|(_, sockets)| SocketGroup::from_sockets(sockets, Vec::new()));
        Ok(Self { groups: groups.collect::<Result<_, _>>()?, listeners })
    }

    /// Number of workers: one per core, unless the configuration has another number; the standard library reads the
    /// affinity mask and the cgroups' quotas, versions 1 and 2, and a quota of 1.5 counts as 1. Inherited groups
    /// without an owner need one worker per socket: each socket must be read.
    pub(super) fn worker_count(&self, config: &Config) -> usize {
        let passed = self.groups.iter().filter(|group| group.generations.is_empty());
        let passed = passed.filter(|group| config.listen.udp.contains(&group.address));
        let count = match config.listen.workers {
            Some(count) => usize::from(count.get()),
            None => match passed.map(|group| group.sockets.len()).min() {
                Some(sockets) => sockets,
                None => thread::available_parallelism().map_or(1, NonZeroUsize::get),
            },
        };
        count.min(MAX_WORKERS)
    }

    fn take_group(&mut self, address: SocketAddr) -> Option<SocketGroup> {
        let at = self.groups.iter().position(|group| group.address == address)?;
        Some(self.groups.swap_remove(at))
    }

    fn take_listeners(&mut self, address: SocketAddr) -> Option<Vec<TcpListener>> {
        let at = self.listeners.iter().position(|(of, _)| *of == address)?;
        Some(self.listeners.swap_remove(at).1)
    }
}

fn group_by_address<T>(into: &mut Vec<(SocketAddr, Vec<T>)>, address: SocketAddr, socket: T) {
    match into.iter_mut().find(|(of, _)| *of == address) {
        Some((_, sockets)) => sockets.push(socket),
        None => into.push((address, vec![socket])),
    }
}

/// Sockets of the process: its own and those that older processes serve.
pub(super) struct ProcessSockets {
    /// UDP groups in the order of `[listen] udp`, then those that only older processes serve.
    pub(super) groups: Vec<SocketGroup>,
    /// UDP sockets of this process: for each address, one per worker.
    udp: Vec<std::vec::IntoIter<UdpSocket>>,
    /// Addresses of the UDP groups, in the order of `[listen] udp`.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) tcp: ListenerGroups,
    pub(super) redirects: ListenerGroups,
    pub(super) admin: Option<TcpListener>,
    pub(super) probes: Option<TcpListener>,
}

/// Number of attempts if a port that the kernel chose for UDP is in use in TCP.
const MAX_BIND_ATTEMPTS: usize = 32;

impl ProcessSockets {
    /// Binds the sockets that are not `inherited`, for `workers` workers of the process of `generation`.
    ///
    /// # Errors
    ///
    /// [`StartError`]: an address is in use, or not local.
    pub(super) fn bind_all(
        config: &Config,
        mut inherited: InheritedSockets,
        workers: usize,
        generation: u8,
    ) -> Result<Self, StartError> {
        let mut tries = 0;
        let (mut groups, udp, addresses, tcp) = loop {
            let (groups, udp) = bind_udp(config, &mut inherited, workers, generation)?;
            let addresses: Vec<_> = groups.iter().map(|group| group.address).collect();
            tries += 1;
            let tcp = ListenerGroups::bind_groups(&config.listen.tcp, &mut inherited, workers, |ip| {
                addresses.iter().find(|address| address.ip() == ip).map_or(0, SocketAddr::port)
            });
            match tcp {
                Ok(tcp) => break (groups, udp, addresses, tcp),
                // The kernel chose the port: another one may be free for both.
                Err(error) if error.is_address_in_use() && tries < MAX_BIND_ATTEMPTS && shares_free_port(config) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let redirects = ListenerGroups::bind_groups(&config.listen.redirect, &mut inherited, workers, |_| 0)?;
        let mut operator = |key, address: Option<SocketAddr>| {
            let Some(address) = address else { return Ok(None) };
            let listener = match inherited.take_listeners(address).and_then(|mut all| all.pop()) {
                Some(listener) => Ok(listener),
                None => TcpListener::bind(address),
            };
            listener.map(Some).map_err(|source| StartError::Admin { key, address, source })
        };
        let admin = operator("admin.listen", config.admin.listen)?;
        let probes = operator("admin.probes", config.admin.probes)?;
        groups.extend(inherited.groups);
        for group in groups.iter().filter(|group| group.generations.is_empty()) {
            tracing::warn!(address = %group.address, "the service manager passed a UDP socket that no key of [listen] names");
        }
        groups.retain(|group| !group.generations.is_empty());
        for (address, _) in inherited.listeners {
            tracing::warn!(%address, "the service manager passed a TCP socket that no key names: closing it");
        }
        Ok(Self { groups, udp, addresses, tcp, redirects, admin, probes })
    }

    /// UDP sockets of the next worker, one per listen address.
    pub(super) fn next_worker_sockets(&mut self) -> Vec<UdpSocket> {
        self.udp.iter_mut().filter_map(Iterator::next).collect()
    }
}

/// Returns whether the kernel chooses a port for UDP that TCP must have as well.
fn shares_free_port(config: &Config) -> bool {
    config.listen.udp.iter().any(|udp| udp.port() == 0 && config.listen.tcp.contains(udp))
}

/// One group per listen address, and the sockets of this process in each.
type JoinedGroups = (Vec<SocketGroup>, Vec<std::vec::IntoIter<UdpSocket>>);

fn bind_udp(
    config: &Config,
    inherited: &mut InheritedSockets,
    workers: usize,
    generation: u8,
) -> Result<JoinedGroups, net::BindError> {
    let (mut groups, mut sockets) = (Vec::new(), Vec::new());
    for address in &config.listen.udp {
        let mut group = inherited.take_group(*address).unwrap_or_else(|| SocketGroup::new(*address));
        group.with_server_id = config.listen.server_id.is_some();
        sockets.push(group.add_process(generation, workers)?.into_iter());
        groups.push(group);
    }
    Ok((groups, sockets))
}

/// TCP listeners: for each address one per worker, or as many as were inherited.
#[derive(Default)]
pub(super) struct ListenerGroups(pub(super) Vec<(SocketAddr, Vec<TcpListener>)>);

impl ListenerGroups {
    /// Binds all of `addresses`; one with port 0 gets the port that `port` returns.
    fn bind_groups(
        addresses: &[SocketAddr],
        inherited: &mut InheritedSockets,
        workers: usize,
        port: impl Fn(IpAddr) -> u16,
    ) -> Result<Self, ListenError> {
        let mut group = |address: &SocketAddr| {
            let chosen = if address.port() == 0 { port(address.ip()) } else { address.port() };
            let address = SocketAddr::new(address.ip(), chosen);
            let listeners = match inherited.take_listeners(address) {
                Some(listeners) => listeners,
                None => net::listen_group(address, workers)?,
            };
            let bound = listeners.first().and_then(|listener| listener.local_addr().ok()).unwrap_or(address);
            Ok((bound, listeners))
        };
        addresses.iter().map(&mut group).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn bound_addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|(address, _)| *address).collect()
    }

    /// Duplicates of the listeners for one of `workers`, each with the result of `with` for its address: all listeners
    /// are accepted from, and every worker has one to accept from.
    ///
    /// # Errors
    ///
    /// The kernel's, if file descriptors run out.
    pub(super) fn duplicates_for<T>(
        &self,
        worker: usize,
        workers: usize,
        with: impl Fn(SocketAddr) -> T,
    ) -> io::Result<Vec<(TcpListener, T)>> {
        let mut all = Vec::new();
        for (address, group) in &self.0 {
            let places = (worker..workers.max(group.len())).step_by(workers.max(1));
            for listener in places.filter_map(|place| group.get(place % group.len().max(1))) {
                all.push((listener.try_clone()?, with(*address)));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_accepts_and_every_listener_is_accepted_from() {
        for (listeners, workers) in [(1, 1), (1, 4), (4, 1), (3, 2), (2, 3), (4, 4)] {
            let address = SocketAddr::from(([127, 0, 0, 1], 0));
            let bound: Vec<_> = (0..listeners).map(|_| TcpListener::bind(address).unwrap()).collect();
            let ports: Vec<_> = bound.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
            let all = ListenerGroups(vec![(address, bound)]);
            let mut accepted = Vec::new();
            for worker in 0..workers {
                let own = all.duplicates_for(worker, workers, |_| ()).unwrap();
                assert!(!own.is_empty(), "{listeners} listeners, worker {worker} of {workers}");
                accepted.extend(own.iter().map(|(listener, ())| listener.local_addr().unwrap().port()));
            }
            assert!(ports.iter().all(|port| accepted.contains(port)), "{listeners} listeners, {workers} workers");
        }
    }

    #[test]
    fn passed_sockets_are_grouped_by_address() {
        let udp = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let sockets = [udp(), udp()];
        let twice = sockets[0].try_clone().unwrap();
        let [first, second] = sockets;
        let addresses = [first.local_addr().unwrap(), second.local_addr().unwrap()];
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let inherited = InheritedSockets::from_service_manager(vec![first, second, twice], vec![tcp]).unwrap();
        let groups: Vec<_> = inherited.groups.iter().map(|group| (group.address, group.sockets.len())).collect();
        assert_eq!(groups, [(addresses[0], 2), (addresses[1], 1)]);
        assert_eq!(inherited.listeners.len(), 1);
    }
}
