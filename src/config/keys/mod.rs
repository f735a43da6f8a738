//! The keys of the configuration file: name, kind, range, default, what for; and the rules between them. The schema
//! and the search for a misspelt key know what is read here, so no key is listed twice.

mod bounds;
mod origin;
#[cfg(test)]
mod patterns;
mod routing;
mod rules;

use super::{
    AccessField, AccessFormat, AccessLog, AccessTarget, AckFrequency, Admin, CertificateFiles, ClientCertificates,
    Config, Congestion, Io, Level, Listen, LiteQuic, Log, LogFormat, Route, Verify, Workers,
    names::{address, host, network, path},
    section::Section,
    values::{Kind, ack_frequency, boolean, number, one_of, share, text, workers},
};
use bounds::{limits, sources, timeouts};
use origin::origin;
use routing::{Around, route};
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    num::NonZeroU16,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

/// What a worker can count and hold of anything; a typing error is usually beyond.
const COUNT: RangeInclusive<u64> = 1..=10_000_000;
/// A QUIC stream carries four times as much (RFC 9000 §4.5).
const BODY_BYTES: RangeInclusive<u64> = 0..=1 << 60;
/// Zero would end what it limits at once; a day is "for ever" for an exchange.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;
/// Port 0 is none that a client could reach.
const PORT: RangeInclusive<u64> = 1..=u16::MAX as u64;
const RECEIVE_BATCH: RangeInclusive<u64> = 1..=LiteQuic::MAX_RECEIVE_BATCH as u64;
const INITIAL_WINDOW: RangeInclusive<u64> = LiteQuic::MIN_INITIAL_WINDOW as u64..=LiteQuic::MAX_INITIAL_WINDOW as u64;
const DAY: Duration = Duration::from_secs(86_400);
/// Each is compared with a peer's address, one after the other.
const MAX_NETWORKS: usize = 256;
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

/// Everything that a file may say; relative paths are relative to `directory`. Where faults were
/// noted it is good for nothing but to look for more.
pub(super) fn config(root: &mut Section<'_>, directory: &Path) -> Config {
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

    let about = "The file that is the body of litequic's own answer with that status, where its route has none: a \
        number from `400` to `599`, or `4xx`, `5xx`. A number comes before its class. Read at the start and on a \
        reload, 256 KiB at most; the end of its name says its `Content-Type`.";
    let error_pages = rules::error_pages(root, directory, about);
    let names: BTreeSet<_> = origins.iter().map(|(name, _)| name.as_str()).collect();
    let mut seen = BTreeSet::new();
    let around = Around { directory, origins: &names, has_ca, has_pages: root.has_entries("error_pages") };
    let about = "Which origin serves which requests. The host decides first, an exact one before `*.`; then the \
        longest prefix. The order in the file does not matter.";
    let mut routes = root.tables("routes", about, |section| route(section, &around, &mut seen));
    if has_origin && !seen.contains(&(None, String::new())) {
        routes.push(Route::catch_all(Config::ORIGIN));
    }
    if !has_origin && !root.has("routes") {
        root.missing("origin", "[origin] with url, or [[routes]] and [origins.NAME]");
    } else if routes.is_empty() && root.is_empty_list("routes") {
        root.fault("routes", "has no route", None, None);
    }

    let about = "What a client may do at most.";
    let (limits, sources) = root.table("limits", about, |section| (limits(section), sources(section)));
    let timeouts = root.table("timeouts", "How long litequic waits.", timeouts);
    let litequic = root.table("litequic", "How datagrams are received and sent.", litequic);
    let admin =
        root.table("admin", "Where the operator reaches litequic.", |section| admin(section, directory, &listen));
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
    Config {
        listen,
        certificates,
        client_certificates,
        routes,
        error_pages,
        origins: origins.into_iter().filter_map(|(name, origin)| Some((name, origin?))).collect(),
        limits,
        sources,
        timeouts,
        litequic,
        admin,
        log,
        access_log,
        trusted_proxies: trusted_proxies.unwrap_or_default().into_iter().map(|(_, network)| network).collect(),
    }
}

fn listen(section: &mut Section<'_>, directory: &Path) -> Listen {
    let about = "Where HTTP/3 is served. `[::]:PORT` takes IPv4 as well. No port 0: a client must know it.";
    let udp = section.list("udp", address(), 1..=Listen::MAX_ADDRESSES, &[Listen::UDP], about);
    let udp = udp.unwrap_or_else(|| vec![(0, Listen::UDP)]);
    for (n, address) in &udp {
        let earlier = udp.iter().take_while(|(m, _)| m < n);
        if let Some((_, other)) = earlier.into_iter().find(|(_, other)| clash(address, other)) {
            section.fault_in_list("udp", *n, &format!("is taken by {other} already"));
        }
    }
    let about = "Where HTTP/1.1 and HTTP/2 are served, over TLS, by the same routes; their answers announce HTTP/3 \
        (`Alt-Svc`). Without the key, the addresses of `listen.udp`; `[]` is nowhere.";
    let tcp = section.list("tcp", address(), 0..=Listen::MAX_ADDRESSES, &[Listen::UDP], about);
    let about = "Where plain HTTP is answered 308, to the same host, path and query at https: at `advertised_port`, \
        or the first of `listen.tcp`.";
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
    let about = "Networks whose TCP connections begin with a PROXY protocol header, by which their client is known.";
    let proxy_protocol_from = section.list("proxy_protocol_from", network(), 0..=MAX_NETWORKS, &[], about);
    let advertised_port = section.optional(
        "advertised_port",
        number(PORT),
        "The port that clients reach, where a Service or a balancer maps another than the one bound: in `Alt-Svc` and \
        redirects. Without it the port of `listen.udp`.",
    );
    let workers = section.value(
        "workers",
        workers(Listen::MAX_WORKERS),
        Workers::Auto,
        "Worker threads. `auto` is one a core that the process may use: its affinity mask, bounded by its cgroup's \
        CPU quota, rounded down to at least 1.",
    );
    let secret_file = section.optional(
        "secret_file",
        path("the path of a file of at least 32 random octets"),
        "A file of 32 to 4096 random octets (`openssl rand -hex 32`), from which the keys of Retry and reset tokens \
        follow, octet for octet. Clients of a process that crashed learn so from the next one with the same file, and \
        Retry tokens stay good. Without it the keys are random and die with the process.",
    );
    let about = "`litequic.congestion` of some addresses of `listen.udp`.";
    let named = |name: &str| match name.parse::<SocketAddr>() {
        Ok(address) if udp.iter().any(|(_, other)| *other == address) => Ok(address),
        Ok(_) => Err("is no address of listen.udp".into()),
        Err(_) => Err("is no address and port".into()),
    };
    let names = one_of(Congestion::NAMES);
    let congestion = section.map("congestion", ".+", named, names, Listen::MAX_ADDRESSES, about);
    let addresses = |list: Vec<(usize, SocketAddr)>| list.into_iter().map(|(_, address)| address).collect();
    Listen {
        tcp: addresses(tcp.unwrap_or_else(|| udp.clone())),
        udp: addresses(udp),
        redirect: addresses(redirect),
        proxy_protocol_from: proxy_protocol_from.unwrap_or_default().into_iter().map(|(_, network)| network).collect(),
        advertised_port: advertised_port.and_then(NonZeroU16::new),
        workers,
        secret_file: secret_file.map(|path| directory.join(path)),
        congestion,
    }
}

/// Whether both cannot be bound by groups of sockets that share a port (SO_REUSEPORT): `[::]` takes IPv4 as well.
fn clash(one: &SocketAddr, other: &SocketAddr) -> bool {
    let wildcards = |v6: &SocketAddr, v4: &SocketAddr| {
        v6.is_ipv6() && v6.ip().is_unspecified() && v4.is_ipv4() && v4.ip().is_unspecified()
    };
    one == other || (one.port() == other.port() && (wildcards(one, other) || wildcards(other, one)))
}

/// The same where one of them is a socket by itself, which takes part in no group: an address is taken by "any address",
/// too (ip(7)).
fn overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    let (one_ip, other_ip) = (one.ip().to_canonical(), other.ip().to_canonical());
    let takes = |any: IpAddr, of: IpAddr| any.is_unspecified() && (any.is_ipv6() || of.is_ipv4());
    one.port() == other.port() && (one_ip == other_ip || takes(one_ip, other_ip) || takes(other_ip, one_ip))
}

/// A path that is missing or wrong is empty.
fn certificate(section: &mut Section<'_>, directory: &Path) -> CertificateFiles {
    let cert = section.required("cert", path("the path of a PEM file"), "The chain, leaf first, in PEM.");
    let key = section.required("key", path("the path of a PEM file"), "The leaf's private key, in PEM.");
    let file = |path: Option<PathBuf>| path.map_or_else(PathBuf::new, |path| directory.join(path));
    CertificateFiles { cert: file(cert), key: file(key) }
}

/// And whether there is a CA, right or wrong.
fn client_certificates(section: &mut Section<'_>, directory: &Path) -> (ClientCertificates, bool) {
    let ca = section.optional(
        "ca",
        path("the path of a PEM file"),
        "The authorities that may have signed a client's certificate, in PEM. Without it no client is asked for one, \
        and no key may want one.",
    );
    let crl = section.optional(
        "crl",
        path("the path of a PEM file"),
        "What the authorities have revoked: X.509 CRLs in PEM, one of each authority in a client's chain. A \
        certificate of an authority without one, or with one past its next update, is refused.",
    );
    let verify = section.optional(
        "verify",
        one_of(VERIFY),
        "Whether clients show a certificate, for routes that do not say. Without it `required`, once there is a `ca`.",
    );
    let chain =
        section.value("chain", boolean(), false, "Whether the origin gets `Client-Cert-Chain` beside `Client-Cert`.");
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

fn litequic(section: &mut Section<'_>) -> LiteQuic {
    let defaults = LiteQuic::default();
    let mut litequic = LiteQuic {
        io: section.value(
            "io",
            one_of(Io::NAMES),
            defaults.io,
            "Who moves datagrams. `auto` is `epoll`, litequic's own. `io-uring` is litequic's own by other system \
            calls, at the same cost, or `epoll` where the kernel refuses it. `s2n-quic` is what the QUIC library \
            brings: it costs more CPU time, and is there to compare with.",
        ),
        receive_batch: section.value(
            "receive_batch",
            number(RECEIVE_BATCH),
            defaults.receive_batch,
            "Messages received at once, at most. Each has a buffer of 64 KiB, or of 2 KiB without `gro`, for each \
            listen address and worker; with `io-uring` two. Not of `s2n-quic`.",
        ),
        gso: section.value(
            "gso",
            boolean(),
            defaults.gso,
            "Whether a message may hold several datagrams on its way out (UDP_SEGMENT): 64 or 65,507 bytes, 10 with \
            `s2n-quic`.",
        ),
        gro: section.value(
            "gro",
            boolean(),
            defaults.gro,
            "Whether a message may hold several datagrams on its way in (UDP_GRO).",
        ),
        ack_merge: section.value(
            "ack_merge",
            boolean(),
            defaults.ack_merge,
            "Whether the newest of the acknowledgements that a client sent since the last batch is processed first, \
            and those that it makes superfluous are not. Not of `s2n-quic`.",
        ),
        receive_moderation: section.value(
            "receive_moderation",
            boolean(),
            defaults.receive_moderation,
            "Whether a worker with many downloads in flight takes datagrams every 1 or 2 ms, an eighth of a round trip at \
            most, instead of when each arrives: acknowledgements then form batches. Not of `s2n-quic`.",
        ),
        ack_frequency: section.value(
            "ack_frequency",
            ack_frequency(),
            defaults.ack_frequency,
            "How many packets clients acknowledge at once, of those that let themselves be asked \
            (draft-ietf-quic-ack-frequency: Firefox, quinn, Chromium with `AFIA`). `adaptive` asks for more, up to 32, while a \
            worker is busy. A number is asked for at the beginning of each connection, however little there is to do; \
            more than fits into a client's congestion window slows it down. With `s2n-quic` there is no `adaptive`, \
            and `\"off\"` is the default.",
        ),
        congestion: section.value(
            "congestion",
            one_of(Congestion::NAMES),
            defaults.congestion,
            "What decides how much may be in flight, of connections that begin: `cubic` (RFC 9438) shares a bottleneck with \
            TCP as TCP does, `bbr` (version 2) goes by what the path delivers, and takes random loss for no congestion.",
        ),
        initial_window: section.value(
            "initial_window",
            number(INITIAL_WINDOW),
            defaults.initial_window,
            "Packets that a connection that begins may have in flight before any is acknowledged (RFC 9002 §7.2). The first 10 \
            leave at once, more within the first round trip.",
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

fn admin(section: &mut Section<'_>, directory: &Path, clients: &Listen) -> Admin {
    let listen = section.optional(
        "listen",
        address(),
        "Everything that the operator may see and do. One that is not on the loopback interface takes a token. \
        Without it there is none.",
    );
    let probes = section.optional(
        "probes",
        address(),
        "`/healthz`, `/readyz` and `/metrics` alone: for what probes and scrapes from outside. Without it there is \
        none.",
    );
    if let (Some(listen), Some(probes)) = (listen, probes)
        && overlap(&listen, &probes)
    {
        section.fault("probes", "is taken by admin.listen already", None, None);
    }
    for (key, address) in [("listen", listen), ("probes", probes)] {
        for (of, taken) in [("tcp", &clients.tcp), ("redirect", &clients.redirect)] {
            if let Some(taken) = taken.iter().find(|taken| address.is_some_and(|address| overlap(&address, taken))) {
                section.fault(key, &format!("is taken by {taken} of listen.{of} already"), None, None);
            }
        }
    }
    let ready_needs_origin = section.value(
        "ready_needs_origin",
        boolean(),
        false,
        "Whether `/readyz` also asks that a server of each origin be well that a route leads to.",
    );
    let token_file = section.optional(
        "token_file",
        path("the path of a file with a token"),
        "The file with what requests to `admin.listen` have to show: 16 to 1024 printable characters without blanks.",
    );
    let token_env = section.optional(
        "token_env",
        text("the name of an environment variable", Ok, Clone::clone),
        "The environment variable with that, instead of a file.",
    );
    if token_file.is_some() && token_env.is_some() {
        section.fault("token_env", "there is admin.token_file already", None, None);
    }
    let about = "Names by which `/metrics`, `/status` and `/config` may be asked for without a token, besides IP addresses \
        and `localhost`, such as that of a Service or of a container: a name that an attacker controls would make these \
        readable for a web page in the browser of an operator (DNS rebinding). 403 for others.";
    let names = section.list("names", host(), 0..=Admin::MAX_NAMES, &[], about).unwrap_or_default();
    let handover = section.optional(
        "handover",
        path("the path of a Unix socket").of_length(1..=Admin::MAX_HANDOVER_LEN),
        "Where a new process takes over from a running one; without it there is no such way.",
    );
    let file = |path: Option<PathBuf>| path.map(|path| directory.join(path));
    let handover = file(handover);
    if handover.as_ref().is_some_and(|path| path.as_os_str().len() > Admin::MAX_HANDOVER_LEN) {
        section.fault("handover", "is too long for a Unix socket", Some("96 octets at most, with the folder"), None);
    }
    // A token that is there but wrong has its own fault.
    let has_token = section.has("token_file") || section.has("token_env");
    if !has_token && listen.is_some_and(|listen| !listen.ip().to_canonical().is_loopback()) {
        let expected = "a loopback address, or admin.token_file as well";
        section.fault("listen", "is open to other machines, and there is no token", Some(expected), None);
    }
    let names = names.into_iter().map(|(_, name)| name).collect();
    Admin { listen, probes, ready_needs_origin, token_file: file(token_file), token_env, names, handover }
}

fn log(section: &mut Section<'_>) -> Log {
    let defaults = Log::default();
    Log {
        level: section.value("level", one_of(LEVELS), defaults.level, "The least severe level that is written."),
        format: section.value(
            "format",
            one_of(FORMATS),
            defaults.format,
            "`auto` is human on a terminal and JSON, an object a line, otherwise.",
        ),
    }
}

fn access_log(section: &mut Section<'_>, directory: &Path) -> AccessLog {
    let defaults = AccessLog::default();
    let path = section.optional(
        "path",
        access_target(),
        "Where lines go: a file is appended to, and opened anew on `SIGUSR1`. Without it there are none. One that \
        cannot be opened is a fault of the start, and of a reload.",
    );
    let format = section.value(
        "format",
        one_of(AccessFormat::NAMES),
        defaults.format,
        "An object a line, or `key=value` with blanks between.",
    );
    let all = AccessField::NAMES.len();
    let fields = section.list(
        "fields",
        one_of(AccessField::NAMES),
        1..=all,
        AccessLog::FIELDS,
        "What is in a line, in this order.",
    );
    let fields = fields.unwrap_or_else(|| defaults.fields.into_iter().enumerate().collect());
    for (n, field) in &fields {
        if fields.iter().any(|(m, other)| m < n && other == field) {
            section.fault_in_list("fields", *n, "stands there twice");
        }
    }
    let sample = section.value(
        "sample",
        share(),
        defaults.sample,
        "The share of requests that get a line, picked at random as they begin.",
    );
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
    text("\"stderr\" or the path of a file", parse, ToString::to_string).matching(".+")
}
