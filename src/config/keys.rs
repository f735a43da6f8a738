//! The keys of the configuration file: name, kind, range, default, what for; and the rules between them. The schema
//! and the search for a misspelt key know what is read here, so no key is listed twice. Long because it is the list.

use super::{
    AccessField, AccessFormat, AccessLog, AccessTarget, AckFrequency, Admin, CertificateFiles, ClientCertificates,
    Config, Io, Level, Limits, Listen, LiteQuic, Log, LogFormat, Origin, OriginAddress, Route, Timeouts, Verify,
    Workers,
    fault::{nearest, quote},
    names::{address, authority, host_pattern, network, origin_address, path, path_prefix},
    section::Section,
    values::{Kind, ack_frequency, boolean, duration, number, one_of, or_none, share, show_size, size, text, workers},
};
use std::{collections::BTreeSet, net::SocketAddr, num::NonZeroU16, ops::RangeInclusive, path::Path, time::Duration};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// What a worker can count and hold of anything; a typing error is usually beyond.
const COUNT: RangeInclusive<u64> = 1..=10_000_000;
/// RFC 9114 §6.1 wants at least 100 streams, but a small device may take fewer; 2^60 is QUIC's own bound
/// (RFC 9000 §4.6).
const STREAMS: RangeInclusive<u64> = 1..=1_000_000;
const REQUESTS: RangeInclusive<u64> = 1..=1 << 60;
/// Less than 1 KiB takes no browser's header; a field section is held in memory as a whole.
const HEADER_BYTES: RangeInclusive<u64> = KIB..=MIB;
const HEADERS: RangeInclusive<u64> = 1..=10_000;
/// A QUIC stream carries four times as much (RFC 9000 §4.5).
const BODY_BYTES: RangeInclusive<u64> = 0..=1 << 60;
/// Less than a few packets' worth stalls each stream; a u32 holds the rest.
const BUFFER: RangeInclusive<u64> = 16 * KIB..=GIB;
const WORKER_BUFFER: RangeInclusive<u64> = 16 * KIB..=1024 * GIB;
/// Zero would end what it limits at once; a day is "for ever" for an exchange.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;
/// Zero goes on at once.
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=DAY;
/// Less would ask a name server without pause.
const DNS_INTERVAL: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;
/// Port 0 is none that a client could reach.
const PORT: RangeInclusive<u64> = 1..=u16::MAX as u64;
const RECEIVE_BATCH: RangeInclusive<u64> = 1..=LiteQuic::MAX_RECEIVE_BATCH as u64;
const DAY: Duration = Duration::from_secs(86_400);
/// Each is compared with a peer's address, one after the other.
const MAX_NETWORKS: usize = 256;
/// Names that a message lists at most.
const MAX_NAMES: usize = 16;
/// What fits into `sun_path` with its final zero (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

const LEVELS: &[(&str, Level)] = &[
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];
const FORMATS: &[(&str, LogFormat)] =
    &[("auto", LogFormat::Auto), ("human", LogFormat::Human), ("json", LogFormat::Json)];

const VERIFY: &[(&str, Verify)] =
    &[("none", Verify::None), ("optional", Verify::Optional), ("required", Verify::Required)];
/// Whom a key needs to be of use.
const WITH_CA: &str = "client_certificates.ca, the path of a PEM file";

/// Everything that a file may say; relative paths are relative to `directory`. `None` where faults were noted.
pub(super) fn config(root: &mut Section<'_>, directory: &Path) -> Option<Config> {
    let listen = root.table("listen", "Where clients reach litequic.", |section| listen(section, directory));
    let certificates = root.tables(
        "certificates",
        "Certificates; the first is served to a client that names none of the others' names.",
        |section| certificate(section, directory),
    );
    if !root.has("certificates") {
        root.missing("certificates", "[[certificates]] with cert and key: QUIC is always encrypted");
    } else if root.is_empty_list("certificates") {
        root.fault("certificates", "has no certificate", None, None);
    }

    let about = "Which clients show certificates, and whom litequic believes about them.";
    let (client_certificates, has_ca) =
        root.table("client_certificates", about, |section| client_certificates(section, directory));

    let has_origin = root.has("origin");
    let simple =
        root.table("origin", "The origin of every request that no route takes.", |section| origin(section, directory));
    let mut origins = root.named_tables("origins", "Origins, for routes to name.", |name, section| {
        if has_origin && name == Config::ORIGIN {
            section.fault_here("is the name of [origin] already", "another name");
        }
        origin(section, directory)
    });
    if has_origin {
        origins.push((Config::ORIGIN.into(), simple));
    }

    let names: BTreeSet<_> = origins.iter().map(|(name, _)| name.as_str()).collect();
    let mut seen = BTreeSet::new();
    let about = "Which origin serves which requests; the longest match wins.";
    let mut routes = root.tables("routes", about, |section| route(section, &names, &mut seen, has_ca));
    if has_origin && !seen.contains(&(None, String::new())) {
        routes.push(Some(Route::catch_all(Config::ORIGIN)));
    }
    if !has_origin && !root.has("routes") {
        root.missing("origin", "[origin] with url, or [[routes]] and [origins.NAME]");
    } else if routes.is_empty() && root.is_empty_list("routes") {
        root.fault("routes", "has no route", None, None);
    }

    let limits = root.table("limits", "What a client may do at most.", limits);
    let timeouts = root.table("timeouts", "How long litequic waits.", timeouts);
    let litequic = root.table("litequic", "How datagrams are received and sent.", litequic);
    let admin = root.table("admin", "Where the operator reaches litequic.", |section| admin(section, directory));
    let log = root.table("log", "What is logged and how.", log);
    let access_log =
        root.table("access_log", "What is written of each request.", |section| access_log(section, directory));
    let trusted_proxies = root.list(
        "trusted_proxies",
        network(),
        0..=MAX_NETWORKS,
        &[],
        "Networks whose Forwarded and X-Forwarded-* fields are appended to instead of removed.",
    );
    Some(Config {
        listen,
        certificates: certificates.into_iter().collect::<Option<_>>()?,
        client_certificates,
        routes: routes.into_iter().collect::<Option<_>>()?,
        origins: origins.into_iter().map(|(name, origin)| Some((name, origin?))).collect::<Option<_>>()?,
        limits,
        timeouts,
        litequic,
        admin,
        log,
        access_log,
        trusted_proxies: trusted_proxies.unwrap_or_default().into_iter().map(|(_, network)| network).collect(),
    })
}

fn listen(section: &mut Section<'_>, directory: &Path) -> Listen {
    let about = "UDP addresses for HTTP/3; [::]:PORT takes IPv4 as well.";
    let udp = section.list("udp", address(), 1..=Listen::MAX_ADDRESSES, &[Listen::UDP], about);
    let udp = udp.unwrap_or_else(|| vec![(0, Listen::UDP)]);
    for (n, address) in &udp {
        let earlier = udp.iter().take_while(|(m, _)| m < n);
        if let Some((_, other)) = earlier.into_iter().find(|(_, other)| clash(address, other)) {
            section.fault_in_list("udp", *n, &format!("is taken by {other} already"));
        }
    }
    let about = "TCP addresses for HTTP/1.1 and HTTP/2; those of udp unless given, none if empty.";
    let tcp = section.list("tcp", address(), 0..=Listen::MAX_ADDRESSES, &[Listen::UDP], about);
    let about = "TCP addresses for plain HTTP, from where clients are sent on to https.";
    let redirect = section.list("redirect", address(), 0..=Listen::MAX_ADDRESSES, &[], about).unwrap_or_default();
    for (key, list) in [("tcp", tcp.as_deref().unwrap_or_default()), ("redirect", &redirect)] {
        for (n, address) in list {
            let earlier = list.iter().take_while(|(m, _)| m < n);
            let others = tcp.iter().flatten().filter(|_| key == "redirect");
            if let Some((_, other)) = earlier.chain(others).find(|(_, other)| clash(address, other)) {
                section.fault_in_list(key, *n, &format!("is taken by {other} already"));
            }
        }
    }
    let advertised_port = section.optional(
        "advertised_port",
        number(PORT),
        "The port at which clients reach litequic, where it is another than the one it listens at.",
    );
    let workers =
        section.value("workers", workers(Listen::MAX_WORKERS), Workers::Auto, "Worker threads; auto is one a core.");
    let secret_file = section.optional(
        "secret_file",
        path("the path of a file of at least 32 random octets"),
        "What makes tokens good in the next process too; without it they die with theirs.",
    );
    let addresses = |list: Vec<(usize, SocketAddr)>| list.into_iter().map(|(_, address)| address).collect();
    Listen {
        tcp: addresses(tcp.unwrap_or_else(|| udp.clone())),
        udp: addresses(udp),
        redirect: addresses(redirect),
        advertised_port: advertised_port.and_then(NonZeroU16::new),
        workers,
        secret_file: secret_file.map(|path| directory.join(path)),
    }
}

/// Whether both cannot be bound: `[::]` takes IPv4 as well.
fn clash(one: &SocketAddr, other: &SocketAddr) -> bool {
    let wildcards = |v6: &SocketAddr, v4: &SocketAddr| {
        v6.is_ipv6() && v6.ip().is_unspecified() && v4.is_ipv4() && v4.ip().is_unspecified()
    };
    one == other || (one.port() == other.port() && (wildcards(one, other) || wildcards(other, one)))
}

fn certificate(section: &mut Section<'_>, directory: &Path) -> Option<CertificateFiles> {
    let cert = section.required("cert", path("the path of a PEM file"), "The chain, leaf first: a PEM file.");
    let key = section.required("key", path("the path of a PEM file"), "The leaf's private key: a PEM file.");
    Some(CertificateFiles { cert: directory.join(cert?), key: directory.join(key?) })
}

/// And whether there is a CA, right or wrong.
fn client_certificates(section: &mut Section<'_>, directory: &Path) -> (ClientCertificates, bool) {
    let ca = section.optional(
        "ca",
        path("the path of a PEM file"),
        "The authorities that may have signed a client's certificate: a PEM file.",
    );
    let crl =
        section.optional("crl", path("the path of a PEM file"), "What they have revoked: a PEM file of X.509 CRLs.");
    let verify = section.optional(
        "verify",
        one_of(VERIFY),
        "Whether clients show a certificate where a route does not say; with ca and without this key, required.",
    );
    let chain =
        section.value("chain", boolean(), false, "Whether the origin gets Client-Cert-Chain beside Client-Cert.");
    if !section.has("ca") {
        let asks = verify.is_some_and(|verify| verify != Verify::None);
        for key in [("verify", asks), ("crl", true), ("chain", chain)].into_iter().filter(|(_, useless)| *useless) {
            section.fault(key.0, "is of no use without an authority", Some(WITH_CA), None);
        }
    }
    let certificates = ClientCertificates {
        verify: verify.unwrap_or(if ca.is_some() { Verify::Required } else { Verify::None }),
        ca: ca.map(|ca| directory.join(ca)),
        crl: crl.map(|crl| directory.join(crl)),
        chain,
    };
    (certificates, section.has("ca"))
}

fn origin(section: &mut Section<'_>, directory: &Path) -> Option<Origin> {
    let address = section.required("url", origin_address(), "Where it listens: http://HOST:PORT or unix:/PATH.");
    let address = address.map(|address| match address {
        OriginAddress::Unix(path) => OriginAddress::Unix(directory.join(path)),
        tcp @ OriginAddress::Tcp { .. } => tcp,
    });
    if let Some(OriginAddress::Unix(path)) = &address
        && path.as_os_str().len() > MAX_SOCKET_PATH
    {
        section.fault("url", &format!("a socket's path has at most {MAX_SOCKET_PATH} bytes"), None, None);
    }
    // Every key is asked for before the first `?`: what is not asked for is unknown.
    let max_connections = section.value(
        "max_connections",
        number(COUNT),
        Origin::MAX_CONNECTIONS,
        "Connections a worker keeps to it at most.",
    );
    let max_queue = section.value(
        "max_queue",
        number(0..=*COUNT.end()),
        Origin::MAX_QUEUE,
        "Requests a worker lets wait for a connection; further ones are answered 503.",
    );
    let idle_timeout = section.value(
        "idle_timeout",
        duration(TIMEOUT),
        Origin::IDLE_TIMEOUT,
        "An idle connection is closed after that long; below the origin's own keep-alive timeout.",
    );
    let max_age = section.value(
        "max_age",
        or_none(duration(TIMEOUT)),
        Origin::MAX_AGE,
        "A connection is not used again beyond this age, or \"none\".",
    );
    let dns_interval = section.value(
        "dns_interval",
        duration(DNS_INTERVAL),
        Origin::DNS_INTERVAL,
        "A name is looked up again after that long.",
    );
    Some(Origin { address: address?, max_connections, max_queue, idle_timeout, max_age, dns_interval })
}

fn route(
    section: &mut Section<'_>,
    names: &BTreeSet<&str>,
    seen: &mut BTreeSet<(Option<String>, String)>,
    has_ca: bool,
) -> Option<Route> {
    let host = section.optional("host", host_pattern(), "A host, or *. and a host; without it, every host.");
    let prefix = section.value("path_prefix", path_prefix(), "/".into(), "Matches whole segments of a path.");
    let origin = section.required("origin", origin_name(), "The name of an origin.");
    let rewrite_host =
        section.optional("rewrite_host", authority(), "What the origin gets as Host, instead of the client's.");
    let max_body_bytes = section.optional(
        "max_body_bytes",
        or_none(size(BODY_BYTES)),
        "Instead of limits.max_body_bytes, for this route.",
    );

    let client_certificate = section.optional(
        "client_certificate",
        one_of(VERIFY),
        "Instead of client_certificates.verify, for this route.",
    );
    if !has_ca && client_certificate.is_some_and(|verify| verify != Verify::None) {
        section.fault("client_certificate", "is of no use without an authority", Some(WITH_CA), None);
    }

    if let Some(origin) = origin.as_deref().filter(|origin| !names.contains(origin)) {
        let some: Vec<_> = names.iter().take(MAX_NAMES).map(|name| quote(name)).collect();
        let more = if names.len() > MAX_NAMES { ", …" } else { "" };
        let expected = format!("one of {}{more}", some.join(", "));
        let expected = if names.is_empty() { "a name of [origins.NAME]" } else { &expected };
        let near = nearest(origin, names.iter().copied()).map(|name| format!("{name:?}"));
        section.fault("origin", "no origin has this name", Some(expected), near.as_deref());
    }
    if section.is_right(&["host", "path_prefix"]) && !seen.insert((host.clone(), prefix.trim_end_matches('/').into())) {
        let key = ["path_prefix", "host", "origin"].into_iter().find(|key| section.has(key)).unwrap_or("origin");
        section.fault(key, "another route has the same host and prefix", None, None);
    }
    Some(Route {
        host,
        path_prefix: prefix,
        origin: origin?,
        rewrite_host,
        // No body is longer than what a stream can carry.
        max_body_bytes: max_body_bytes.map(|bytes| bytes.unwrap_or(u64::MAX)),
        client_certificate,
    })
}

fn origin_name() -> Kind<String> {
    text("the name of an origin", Ok, Clone::clone)
}

fn limits(section: &mut Section<'_>) -> Limits {
    let defaults = Limits::default();
    let limits = Limits {
        max_connections: section.value(
            "max_connections",
            number(COUNT),
            defaults.max_connections,
            "Connections a worker; further ones are refused.",
        ),
        retry_handshakes: section.value(
            "retry_handshakes",
            number(0..=*COUNT.end()),
            defaults.retry_handshakes,
            "Handshakes in flight a worker from which on a client must first prove its address (Retry); 0 is always.",
        ),
        max_handshakes: section.value(
            "max_handshakes",
            number(COUNT),
            defaults.max_handshakes,
            "Handshakes in flight a worker; further ones are dropped.",
        ),
        max_streams: section.value(
            "max_streams",
            number(STREAMS),
            defaults.max_streams,
            "Requests at once on a connection.",
        ),
        max_requests: section.value(
            "max_requests",
            number(REQUESTS),
            defaults.max_requests,
            "Requests on a connection in all; then GOAWAY.",
        ),
        max_resets: section.value(
            "max_resets",
            number(COUNT),
            defaults.max_resets,
            "Requests a second that a client may cancel on a connection; the connection is closed beyond.",
        ),
        max_control_frames: section.value(
            "max_control_frames",
            number(COUNT),
            defaults.max_control_frames,
            "QUIC frames without data a second on a connection; the connection is closed beyond.",
        ),
        max_small_frames: section.value(
            "max_small_frames",
            number(COUNT),
            defaults.max_small_frames,
            "DATA frames of a few bytes a second on a connection; the connection is closed beyond.",
        ),
        max_header_bytes: section.value(
            "max_header_bytes",
            size(HEADER_BYTES),
            defaults.max_header_bytes,
            "Bytes of a header (names, values, 32 a field); 431 beyond.",
        ),
        max_headers: section.value(
            "max_headers",
            number(HEADERS),
            defaults.max_headers,
            "Fields of a header; 431 beyond.",
        ),
        max_body_bytes: section.value(
            "max_body_bytes",
            or_none(size(BODY_BYTES)),
            defaults.max_body_bytes,
            "Bytes of a request's body, or \"none\"; 413 beyond.",
        ),
        stream_receive_buffer: section.value(
            "stream_receive_buffer",
            size(BUFFER),
            defaults.stream_receive_buffer,
            "Bytes a stream that a client may send ahead (flow control).",
        ),
        connection_receive_buffer: section.value(
            "connection_receive_buffer",
            size(BUFFER),
            defaults.connection_receive_buffer,
            "Bytes a connection that a client may send ahead (flow control).",
        ),
        worker_receive_buffer: section.value(
            "worker_receive_buffer",
            size(WORKER_BUFFER),
            defaults.worker_receive_buffer,
            "Bytes a worker that all clients together may send ahead (flow control).",
        ),
        stream_send_buffer: section.value(
            "stream_send_buffer",
            size(BUFFER),
            defaults.stream_send_buffer,
            "Unacknowledged response bytes a stream.",
        ),
        connection_send_buffer: section.value(
            "connection_send_buffer",
            size(BUFFER),
            defaults.connection_send_buffer,
            "Unacknowledged response bytes a connection.",
        ),
        worker_send_buffer: section.value(
            "worker_send_buffer",
            size(WORKER_BUFFER),
            defaults.worker_send_buffer,
            "Unacknowledged response bytes a worker.",
        ),
    };
    for (inner, inner_bytes, outer, outer_bytes) in [
        (
            "stream_receive_buffer",
            limits.stream_receive_buffer,
            "connection_receive_buffer",
            limits.connection_receive_buffer.into(),
        ),
        (
            "stream_send_buffer",
            limits.stream_send_buffer,
            "connection_send_buffer",
            limits.connection_send_buffer.into(),
        ),
        (
            "connection_receive_buffer",
            limits.connection_receive_buffer,
            "worker_receive_buffer",
            limits.worker_receive_buffer,
        ),
        ("connection_send_buffer", limits.connection_send_buffer, "worker_send_buffer", limits.worker_send_buffer),
    ] {
        if u64::from(inner_bytes) <= outer_bytes || !section.is_right(&[inner, outer]) {
            continue;
        }
        let (inner_size, outer_size) = (show_size(inner_bytes.into()), show_size(outer_bytes));
        if section.has(inner) {
            let problem = format!("is larger than {outer}");
            section.fault(inner, &problem, Some(&format!("at most {outer_size}")), None);
        } else {
            let problem = format!("is smaller than {inner}");
            section.fault(outer, &problem, Some(&format!("at least {inner_size}")), None);
        }
    }
    limits
}

fn timeouts(section: &mut Section<'_>) -> Timeouts {
    let defaults = Timeouts::default();
    let mut wait = |key, default, about| section.value(key, duration(TIMEOUT), default, about);
    let handshake = wait("handshake", defaults.handshake, "A client's handshake, from its first packet.");
    let idle = wait("idle", defaults.idle, "A connection on which nothing moves is closed.");
    let request_header = wait("request_header", defaults.request_header, "A request's whole header; 408 beyond.");
    let request_body =
        wait("request_body", defaults.request_body, "Between two reads of a request's body; 408 beyond.");
    let send = wait("send", defaults.send, "Between two writes to a client that takes no bytes; then a reset.");
    let connect = wait("connect", defaults.connect, "A connection to the origin, DNS included; 502 beyond.");
    let response_header = wait(
        "response_header",
        defaults.response_header,
        "From the request's end to the response's header; 504 beyond.",
    );
    let response_body =
        wait("response_body", defaults.response_body, "Between two reads of the origin's body; then a reset.");
    let queue = wait("queue", defaults.queue, "A wait for a connection of a full pool; 503 beyond.");
    let request =
        section.value("request", or_none(duration(TIMEOUT)), defaults.request, "A whole exchange, or \"none\".");
    let mut drain = |key, default, about| section.value(key, duration(DRAIN), default, about);
    let drain_grace = drain(
        "drain_grace",
        defaults.drain_grace,
        "From the notice to drain, when readiness fails, to the first GOAWAY.",
    );
    let drain = drain("drain", defaults.drain, "From the first GOAWAY to the end of what still runs.");
    Timeouts {
        handshake,
        idle,
        request_header,
        request_body,
        send,
        connect,
        response_header,
        response_body,
        request,
        queue,
        drain_grace,
        drain,
    }
}

fn litequic(section: &mut Section<'_>) -> LiteQuic {
    let defaults = LiteQuic::default();
    let mut litequic = LiteQuic {
        io: section.value(
            "io",
            one_of(Io::NAMES),
            defaults.io,
            "Who moves datagrams: litequic over epoll (auto) or io-uring; s2n-quic is the library's, to compare with.",
        ),
        receive_batch: section.value(
            "receive_batch",
            number(RECEIVE_BATCH),
            defaults.receive_batch,
            "Messages received at once, at most; not of s2n-quic.",
        ),
        gso: section.value(
            "gso",
            boolean(),
            defaults.gso,
            "Whether messages may hold several datagrams on the way out.",
        ),
        gro: section.value(
            "gro",
            boolean(),
            defaults.gro,
            "Whether messages may hold several datagrams on the way in.",
        ),
        ack_merge: section.value(
            "ack_merge",
            boolean(),
            defaults.ack_merge,
            "Whether a client's newest acknowledgement spares QUIC its earlier ones; not of s2n-quic.",
        ),
        ack_frequency: section.value(
            "ack_frequency",
            ack_frequency(),
            defaults.ack_frequency,
            "Packets that clients acknowledge at once if they let themselves be asked: adaptive asks while a worker is busy.",
        ),
    };
    if litequic.io == Io::S2nQuic && litequic.ack_frequency == AckFrequency::Adaptive {
        if section.is_right(&["ack_frequency"]) {
            let problem = "goes by the batches of litequic's own I/O, which io = \"s2n-quic\" is not";
            section.fault("ack_frequency", problem, Some("\"off\", a number, or another io"), None);
        }
        litequic.ack_frequency = AckFrequency::Off;
    }
    litequic
}

fn admin(section: &mut Section<'_>, directory: &Path) -> Admin {
    let listen = section.optional("listen", address(), "Everything that the operator may see and do; TCP.");
    let probes = section.optional("probes", address(), "/healthz, /readyz and /metrics alone; TCP.");
    if listen.is_some() && listen == probes {
        section.fault("probes", "is taken by admin.listen already", None, None);
    }
    let ready_needs_origin =
        section.value("ready_needs_origin", boolean(), false, "Whether /readyz also asks that an origin be reachable.");
    let token_file = section.optional(
        "token_file",
        path("the path of a file with a token"),
        "What requests to admin.listen have to show as Authorization: Bearer.",
    );
    let token_env = section.optional(
        "token_env",
        text("the name of an environment variable", Ok, Clone::clone),
        "The environment variable with that, instead of a file.",
    );
    if token_file.is_some() && token_env.is_some() {
        section.fault("token_env", "there is admin.token_file already", None, None);
    }
    // A token that is there but wrong has its own fault.
    let has_token = section.has("token_file") || section.has("token_env");
    if !has_token && listen.is_some_and(|listen| !listen.ip().to_canonical().is_loopback()) {
        let expected = "a loopback address, or admin.token_file as well";
        section.fault("listen", "is open to other machines, and there is no token", Some(expected), None);
    }
    Admin { listen, probes, ready_needs_origin, token_file: token_file.map(|path| directory.join(path)), token_env }
}

fn log(section: &mut Section<'_>) -> Log {
    let defaults = Log::default();
    Log {
        level: section.value("level", one_of(LEVELS), defaults.level, "The least severe level that is written."),
        format: section.value(
            "format",
            one_of(FORMATS),
            defaults.format,
            "auto is human on a terminal and json otherwise.",
        ),
    }
}

fn access_log(section: &mut Section<'_>, directory: &Path) -> AccessLog {
    let defaults = AccessLog::default();
    let path = section.optional("path", access_target(), "Where lines go; without it there are none.");
    let format = section.value("format", one_of(AccessFormat::NAMES), defaults.format, "How a line is written.");
    let all = AccessField::NAMES.len();
    let fields =
        section.list("fields", one_of(AccessField::NAMES), 1..=all, AccessLog::FIELDS, "What is in a line, in order.");
    let fields = fields.unwrap_or_else(|| defaults.fields.into_iter().enumerate().collect());
    for (n, field) in &fields {
        if fields.iter().any(|(m, other)| m < n && other == field) {
            section.fault_in_list("fields", *n, "stands there twice");
        }
    }
    let sample = section.value("sample", share(), defaults.sample, "The share of requests that get a line.");
    let path = path.map(|target| match target {
        AccessTarget::File(path) => AccessTarget::File(directory.join(path)),
        AccessTarget::Stderr => AccessTarget::Stderr,
    });
    AccessLog { path, format, fields: fields.into_iter().map(|(_, field)| field).collect(), sample }
}

fn access_target() -> Kind<AccessTarget> {
    let parse = |text: String| match &*text {
        "" => Err("empty".into()),
        "stderr" => Ok(AccessTarget::Stderr),
        _ => Ok(AccessTarget::File(text.into())),
    };
    text("\"stderr\" or the path of a file", parse, ToString::to_string)
}
