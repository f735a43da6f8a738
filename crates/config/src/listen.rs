//! Defines `[listen]`: the listeners for clients, and the number of worker threads.

use super::origin::TlsVersion;
use super::server_id::{SERVER_ID_READER, ServerId};
use crate::reading::name_kinds::{MAX_NETWORKS, address_kind, network_kind, path_kind, replica_kind};
use crate::reading::section::ConfigSection;
use crate::reading::table::{KeyTable as _, file_key, keys, list_key, optional_key};
use crate::reading::value_kinds::{
    DAY, RawValue, TIMEOUT_RANGE, ValueKind, boolean_kind, duration_kind, nonzero_kind, one_of, or_word, text_kind,
};
use litequic_base::network::Network;
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    num::NonZeroU16,
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

keys! {
    /// The listeners for clients.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Listen {
        /// Addresses for HTTP/3. `[::]:PORT` includes IPv4, and is `0.0.0.0:PORT` on a system without
        /// IPv6. Port 0 is not possible, because clients have to know the port.
        udp: Vec<SocketAddr> = vec![Self::DEFAULT_ADDRESS], list_key(address_kind(), 1..=Self::MAX_ADDRESSES), restart;

        /// Whether HTTP/3 is served. With `false`, also by a reload, QUIC handshakes are refused (CONNECTION_REFUSED),
        /// open connections get GOAWAY and end after their last request, and answers over TCP have `Alt-Svc: clear`, by
        /// which clients forget HTTP/3. The UDP addresses stay bound, so a reload with `true` serves HTTP/3 again.
        http3: bool = true, boolean_kind(), counted_by("litequic_handshakes_refused_total");

        /// Addresses for HTTP/1.1 and HTTP/2 over TLS, with the same routes; their answers advertise HTTP/3
        /// (`Alt-Svc`). Without the key, the addresses of `listen.udp`; `[]` is none.
        tcp: Vec<SocketAddr> = vec![Self::DEFAULT_ADDRESS], list_key(address_kind(), 0..=Self::MAX_ADDRESSES), restart;

        /// Addresses for plain HTTP. Each request gets a redirect (308) to the same host, path and query at https, with
        /// the port `advertised_port`, or else the port of the first address of `listen.tcp`.
        redirect: Vec<SocketAddr> = Vec::new(), list_key(address_kind(), 0..=Self::MAX_ADDRESSES), restart;

        /// Networks whose TCP connections begin with a PROXY protocol header, which has the client's address.
        proxy_protocol_from: Vec<Network> = Vec::new(), list_key(network_kind(), 0..=MAX_NETWORKS);

        /// Whether datagrams from `proxy_protocol_from` begin with a PROXY protocol header of version 2, which has the
        /// client's address: with `"every"` each datagram, and one without a valid header is dropped; with
        /// `"first:30s"` the first of a flow. A header of a flow that was silent for this time begins another one. It
        /// is the load balancer's own timeout of UDP flows: nginx' `proxy_timeout`, 30 s with Cloudflare Spectrum and
        /// frp. It is longer than `timeouts.idle`, or idle clients get another flow. With `"first"` a client can name
        /// another address if the first datagram of its flow is lost, or if the time is shorter than the load
        /// balancer's: let no `allow` or `deny` depend on it. Datagrams of other networks never have one.
        proxy_protocol_udp: ProxyProtocolUdp = ProxyProtocolUdp::Off, proxy_protocol_udp_kind(), restart,
            counted_by("litequic_udp_proxy_headers_total");

        /// Port that clients connect to, if it is not the bound one, for example behind a Service or a load balancer:
        /// for `Alt-Svc` and redirects. By default `Alt-Svc` has the port of the request's host where `listen.udp` and
        /// `listen.tcp` have the same port, as a port mapping leads both to litequic, and otherwise that of
        /// `listen.udp`; redirects have that of `listen.tcp`.
        advertised_port: Option<NonZeroU16> = None, optional_key(nonzero_kind(1..=u16::MAX.into()), "the port of the request's host"), restart;

        // In TLS 1.2, a leaked ticket key or RSA key exchange decrypts recorded traffic.
        /// Lowest version of TLS over TCP; over QUIC it is 1.3. `"1.2"` also serves clients that have no newer version:
        /// only with ECDHE, an AEAD cipher and the extended master secret (RFC 7627), and without resumption. Hosts
        /// whose clients may present a certificate do not accept TLS 1.2, which would send that certificate
        /// unencrypted.
        tls_min: TlsVersion = TlsVersion::Tls13, one_of(TlsVersion::NAMES),
            counted_by("litequic_tcp_handshakes_tls12_total");

        // As long as browsers and other servers remember it.
        /// Time for which clients remember HTTP/3: `ma` of `Alt-Svc`, in whole seconds.
        alt_svc_max_age: Duration = DAY, duration_kind(Self::ALT_SVC_AGE_RANGE);

        /// Worker threads. `auto` is one for each core that the process may use: its affinity mask, bounded by its
        /// cgroup's CPU quota, rounded down to at least 1.
        workers: Option<NonZeroU16> = None, or_word("auto", nonzero_kind(1..=Self::MAX_WORKERS.into())), restart;

        /// A file of 32 to 4096 random bytes (`openssl rand -hex 32`), from which the keys of Retry and reset tokens,
        /// of session tickets and of the cookies of `origin.sticky` are derived, byte for byte. Replicas should share
        /// it: each then accepts the tokens, tickets and cookies of the others. After a crash, the next process with
        /// the same file and the same `replica` resets its predecessor's connections; tokens, tickets and cookies stay
        /// valid. Without the key, the keys are random, and are lost when the process and its successors by hot upgrade
        /// have ended.
        secret_file: Option<PathBuf> = None, file_key(path_kind("the path of a file of at least 32 random bytes")), restart;

        /// Name of this replica, unique among the replicas that share `secret_file`. Stateless reset tokens are derived
        /// from it, so that no replica resets connections of another. The default is the host's name (gethostname(2)),
        /// which containers and pods keep when they are restarted. With `listen.server_id`, the server ID is used
        /// instead. A process that takes over keeps the name of its predecessor.
        replica: Option<String> = None, optional_key(replica_kind(), "the host's name"), restart;

        /// Connection IDs by which load balancers route.
        server_id: Option<ServerId> = None, SERVER_ID_READER, restart;

        /// Whether clients may migrate to another address on their own (RFC 9000 §9). `false` asks new clients not to
        /// (`disable_active_migration`), for load balancers that hash addresses and would send a migrated client's
        /// packets to another replica. A client whose address changes without its doing, as by a NAT, is followed
        /// either way.
        migration: bool = true, boolean_kind();
    }
}

impl Listen {
    /// Default address. Port 8443 needs no privileges, and a Service or balancer maps 443 to such a port.
    pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 8443);
    /// Number of addresses: each is a socket per worker.
    pub const MAX_ADDRESSES: usize = 16;
    /// Range of `alt_svc_max_age`: RFC 7838 counts seconds, and a client may learn of HTTP/3 anew after a month.
    const ALT_SVC_AGE_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
    /// Number of workers: one byte of a connection ID names the worker.
    pub const MAX_WORKERS: u16 = 256;

    /// Whether a reload can apply the server ID of `next`: the lengths of the connection IDs' parts are equal.
    pub fn keeps_server_id_shape(&self, next: &Self) -> bool {
        self.server_id.as_ref().map(ServerId::id_shape) == next.server_id.as_ref().map(ServerId::id_shape)
    }

    /// Whether connections from `remote` begin with a PROXY protocol header, and datagrams if
    /// `proxy_protocol_udp` says so.
    pub fn is_proxy_sender(&self, remote: IpAddr) -> bool {
        self.proxy_protocol_from.iter().any(|network| network.contains_address(remote))
    }

    /// Listens at one address for all HTTP versions, with as many workers as cores.
    pub fn at_address(address: SocketAddr) -> Self {
        Self { udp: vec![address], tcp: vec![address], ..Self::default() }
    }
}

/// Datagrams of load balancers that begin with a PROXY protocol header: `listen.proxy_protocol_udp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocolUdp {
    /// None.
    Off,
    /// Each one.
    Every,
    /// The first one of a flow, which ends when it is silent for this time.
    First(Duration),
}

impl ProxyProtocolUdp {
    /// Whether datagrams may have such a header.
    pub fn has_headers(self) -> bool {
        self != Self::Off
    }
}

impl fmt::Display for ProxyProtocolUdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Every => f.write_str("every"),
            Self::First(timeout) => write!(f, "first:{}", humantime::format_duration(*timeout)),
        }
    }
}

fn proxy_protocol_udp_kind() -> ValueKind<ProxyProtocolUdp> {
    let timeout = duration_kind(TIMEOUT_RANGE);
    let parse = move |text: String| match text.split_once(':') {
        None if text == "off" => Ok(ProxyProtocolUdp::Off),
        None if text == "every" => Ok(ProxyProtocolUdp::Every),
        // No default: a wrong value refuses clients, or believes headers that clients wrote.
        None if text == "first" => Err("needs the load balancer's timeout of UDP flows".into()),
        Some(("first", time)) => match (timeout.read)(RawValue::Text(time.into())) {
            Ok(timeout) => Ok(ProxyProtocolUdp::First(timeout)),
            Err(wrong) => Err(wrong.problem.into()),
        },
        _ => Err("unknown value".into()),
    };
    text_kind("\"off\", \"every\" or \"first:TIME\", such as \"first:30s\"", parse, ToString::to_string)
        .with_pattern("off|every|first:[0-9a-zA-Zµ.\\s]+")
}

/// Reads `[listen]`.
pub(super) fn read_listen(section: &mut ConfigSection<'_>) -> Listen {
    let mut listen = Listen::read_table(section);
    if !section.has_key("tcp") {
        listen.tcp.clone_from(&listen.udp);
    }
    let (udp, tcp, none) = (&*listen.udp, &*listen.tcp, [].as_slice());
    for (key, addresses, others) in [("udp", udp, none), ("tcp", tcp, none), ("redirect", &*listen.redirect, tcp)] {
        for (n, address) in addresses.iter().enumerate() {
            if let Some(other) = addresses.iter().take(n).chain(others).find(|other| addresses_clash(address, other)) {
                section.note_list_fault(key, n, format!("is already used by {other}"));
            }
        }
    }
    if listen.proxy_protocol_udp.has_headers() && listen.proxy_protocol_from.is_empty() {
        section.note_fault_expecting(
            "proxy_protocol_udp",
            "has no effect without `proxy_protocol_from`",
            "the networks of the load balancers",
        );
    }
    if !listen.http3 && listen.tcp.is_empty() {
        section.note_fault("http3", "leaves nothing to serve: listen.tcp has no address");
    }
    listen
}

/// Whether two sockets with SO_REUSEPORT cannot be bound together: `[::]` includes IPv4.
fn addresses_clash(one: &SocketAddr, other: &SocketAddr) -> bool {
    let wildcards = |v6: &SocketAddr, v4: &SocketAddr| {
        v6.is_ipv6() && v6.ip().is_unspecified() && v4.is_ipv4() && v4.ip().is_unspecified()
    };
    one == other || (one.port() == other.port() && (wildcards(one, other) || wildcards(other, one)))
}
