//! What a reload changes: two configurations compared, key by key, and which of the keys a running litequic can follow.
//! Pure. The structures are taken apart in full, so that a new key that is not compared does not compile.

use super::{
    AccessField, AccessFormat, AccessLog, AccessTarget, AckFrequency, Admin, CertificateFiles, ClientCertificates,
    Config, Congestion, ErrorPages, HeaderRules, Health, Io, Level, Limits, Listen, LiteQuic, Log, LogFormat,
    MemoryLimit, Network, Origin, RateLimit, RateLimitBy, Redirect, Route, RouteTimeouts, Share, Sources, Target,
    Timeouts, Verify, Workers, values::show_size,
};
use aws_lc_rs::digest;
use std::{fmt, net::SocketAddr, num::NonZeroU16, time::Duration};

/// Bytes of a version: as many as tell apart whatever one fleet has run, and a person compares.
const VERSION: usize = 6;

/// The keys whose change waits for a restart: sockets, threads and token keys are made once, and the log's form is what collectors
/// have been told.
pub const NEEDS_RESTART: &[&str] = &[
    "listen.udp",
    "listen.tcp",
    "listen.redirect",
    "listen.advertised_port",
    "listen.workers",
    "listen.secret_file",
    "litequic.io",
    "litequic.receive_batch",
    "litequic.gso",
    "litequic.gro",
    "litequic.ack_merge",
    "litequic.receive_moderation",
    "litequic.ack_frequency",
    "admin.listen",
    "admin.probes",
    "admin.token_file",
    "admin.token_env",
    "admin.names",
    "admin.handover",
    "log.format",
];

/// One change. Its `Display` is one line: `KEY: OLD → NEW`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The path of the key, such as `routes[1].origin`.
    pub key: String,
    /// From what to what, in words.
    pub what: String,
}

impl Change {
    /// Whether it waits for a restart.
    pub fn needs_restart(&self) -> bool {
        NEEDS_RESTART.contains(&self.key.as_str())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)?;
        if self.needs_restart() { f.write_str(" (needs a restart)") } else { Ok(()) }
    }
}

impl Config {
    /// What `next` changes, in the order of the reference; also what waits for a restart.
    pub fn changes(&self, next: &Self) -> Vec<Change> {
        self.compare(next, Changes::default())
    }

    /// Every key with its value, in the order of the reference. There are no secrets among them: those have files.
    pub fn list(&self) -> Vec<(String, String)> {
        let all = self.compare(self, Changes { all: true, ..Changes::default() });
        all.into_iter().map(|Change { key, what }| (key, what)).collect()
    }

    /// Tells this configuration from others: the first half of a hash of [`Config::list`], in hexadecimal digits. The same
    /// keys and values have the same one, in whichever file and process.
    pub fn version(&self) -> String {
        let mut hash = digest::Context::new(&digest::SHA256);
        for (key, value) in self.list() {
            // No key has the one, and no value the other.
            hash.update(format!("{key} {value}\0").as_bytes());
        }
        let hash = hash.finish();
        hash.as_ref().iter().take(VERSION).map(|byte| format!("{byte:02x}")).collect()
    }

    fn compare(&self, next: &Self, mut changes: Changes) -> Vec<Change> {
        let Self {
            listen,
            certificates,
            client_certificates,
            routes,
            error_pages,
            origins,
            limits,
            sources,
            timeouts,
            litequic,
            admin,
            log,
            access_log,
            trusted_proxies,
        } = self;
        changes.listen(listen, &next.listen);
        changes.value("trusted_proxies", trusted_proxies, &next.trusted_proxies, |all| list(all, Network::to_string));
        changes.list("certificates", certificates, &next.certificates, Changes::certificate);
        changes.client_certificates(client_certificates, &next.client_certificates);
        let names = origins.keys().chain(next.origins.keys().filter(|name| !origins.contains_key(*name)));
        for name in names {
            let key = if name == Self::ORIGIN { name.clone() } else { format!("origins.{name}") };
            match (origins.get(name), next.origins.get(name)) {
                (Some(old), Some(new)) => changes.origin(&key, old, new),
                (None, Some(new)) => changes.push(&key, format!("added, {}", list(&new.servers, ToString::to_string))),
                (Some(_), None) => changes.push(&key, "removed".into()),
                (None, None) => {}
            }
        }
        changes.list("routes", routes, &next.routes, Changes::route);
        changes.value("error_pages", error_pages, &next.error_pages, pages);
        changes.limits(limits, &next.limits);
        changes.sources(sources, &next.sources);
        changes.timeouts(timeouts, &next.timeouts);
        changes.litequic(litequic, &next.litequic);
        changes.admin(admin, &next.admin);
        changes.log(log, &next.log);
        changes.access_log(access_log, &next.access_log);
        changes.found
    }

    /// `next` as far as it can be followed without a restart.
    pub fn follow(&self, next: Self) -> Self {
        Self {
            listen: Listen { proxy_protocol_from: next.listen.proxy_protocol_from, ..self.listen.clone() },
            litequic: self.litequic,
            admin: Admin { ready_needs_origin: next.admin.ready_needs_origin, ..self.admin.clone() },
            log: Log { format: self.log.format, ..next.log },
            ..next
        }
    }
}

#[derive(Default)]
struct Changes {
    /// What is the same too, with its value.
    all: bool,
    found: Vec<Change>,
}

/// Compares the fields of two structures of one kind, each shown by the function beside it. All fields must be named.
macro_rules! compare {
    ($changes:ident, $path:expr, $kind:ident, $old:expr, $new:expr, { $($field:ident: $show:expr,)+ }) => {{
        // First, as a field may have its name.
        let path: &str = $path;
        let $kind { $($field),+ } = $old;
        $($changes.value(&format!("{path}.{}", stringify!($field)), $field, &$new.$field, $show);)+
    }};
}

impl Changes {
    fn push(&mut self, key: &str, what: String) {
        self.found.push(Change { key: key.into(), what });
    }

    fn value<T: PartialEq>(&mut self, key: &str, old: &T, new: &T, show: impl Fn(&T) -> String) {
        if self.all {
            self.push(key, show(new));
        } else if old != new {
            let (old, new) = (cut(&show(old)), cut(&show(new)));
            // What is not shown, or was cut off.
            self.push(key, if old == new { format!("{new}, with other values") } else { format!("{old} → {new}") });
        }
    }

    /// Entries with a number: compared one by one unless some came or went.
    fn list<T: PartialEq>(&mut self, key: &str, old: &[T], new: &[T], compare: impl Fn(&mut Self, &str, &T, &T)) {
        if old.len() != new.len() {
            self.push(key, format!("{} → {}", old.len(), new.len()));
            return;
        }
        for (n, (old, new)) in old.iter().zip(new).enumerate() {
            compare(self, &format!("{key}[{n}]"), old, new);
        }
    }

    fn listen(&mut self, old: &Listen, new: &Listen) {
        compare!(self, "listen", Listen, old, new, {
            udp: |all| list(all, SocketAddr::to_string),
            tcp: |all| list(all, SocketAddr::to_string),
            redirect: |all| list(all, SocketAddr::to_string),
            proxy_protocol_from: |all| list(all, Network::to_string),
            advertised_port: |port| option(port, "that of listen.udp", NonZeroU16::to_string),
            workers: |workers| match workers {
                Workers::Auto => "auto".into(),
                Workers::Count(count) => count.to_string(),
            },
            secret_file: |path| option(path, "none", |path| path.display().to_string()),
            congestion: |all| list(all, |(address, congestion)| format!("{address} {}", congestion.name())),
        });
    }

    fn certificate(&mut self, key: &str, old: &CertificateFiles, new: &CertificateFiles) {
        compare!(self, key, CertificateFiles, old, new, {
            cert: |path| path.display().to_string(),
            key: |path| path.display().to_string(),
        });
    }

    fn client_certificates(&mut self, old: &ClientCertificates, new: &ClientCertificates) {
        compare!(self, "client_certificates", ClientCertificates, old, new, {
            ca: |path| option(path, "none", |path| path.display().to_string()),
            crl: |path| option(path, "none", |path| path.display().to_string()),
            verify: word,
            chain: bool::to_string,
        });
    }

    fn route(&mut self, key: &str, old: &Route, new: &Route) {
        // What two keys say of one field, and the tables.
        let Route {
            host,
            path_prefix,
            target,
            rewrite_prefix,
            rewrite_host,
            max_body_bytes,
            client_certificate,
            request_headers,
            response_headers,
            timeouts,
            rate_limit,
            error_pages,
            intercept_errors,
            upgrade,
            path_reading,
        } = old;
        let path = |name: &str| format!("{key}.{name}");
        self.value(&path("host"), host, &new.host, |host| option(host, "any", String::clone));
        self.value(&path("path_prefix"), path_prefix, &new.path_prefix, String::clone);
        self.value(&path("origin"), &old.origin(), &new.origin(), |name| option(name, "none", ToString::to_string));
        let redirect = |target: &Target| match target {
            Target::Redirect(redirect) => Some(redirect.clone()),
            Target::Origin(_) => None,
        };
        self.value(&path("redirect"), &redirect(target), &redirect(&new.target), |given| {
            option(given, "none", |Redirect { to, status }| format!("{} {to}", status.as_u16()))
        });
        self.value(&path("path_reading"), path_reading, &new.path_reading, |reading| reading.name().into());
        self.value(&path("rewrite_prefix"), rewrite_prefix, &new.rewrite_prefix, |prefix| {
            option(prefix, "none", String::clone)
        });
        self.value(&path("rewrite_host"), rewrite_host, &new.rewrite_host, |host| {
            option(host, "the client's", String::clone)
        });
        self.value(&path("max_body_bytes"), max_body_bytes, &new.max_body_bytes, |bytes| {
            option(bytes, "limits.max_body_bytes", bytes_of)
        });
        self.value(&path("client_certificate"), client_certificate, &new.client_certificate, |given| {
            option(given, "client_certificates.verify", word)
        });
        self.value(&path("request_headers"), request_headers, &new.request_headers, header_rules);
        self.value(&path("response_headers"), response_headers, &new.response_headers, header_rules);
        compare!(self, &path("timeouts"), RouteTimeouts, timeouts, &new.timeouts, {
            request: |given| option(given, "timeouts.request", |limit| option(limit, "none", time)),
            response_header: |given| option(given, "timeouts.response_header", time),
            response_body: |given| option(given, "timeouts.response_body", time),
        });
        self.value(&path("rate_limit"), rate_limit, &new.rate_limit, |limit| option(limit, "none", rate));
        self.value(&path("error_pages"), error_pages, &new.error_pages, pages);
        self.value(&path("intercept_errors"), intercept_errors, &new.intercept_errors, bool::to_string);
        self.value(&path("upgrade"), upgrade, &new.upgrade, |all| list(all, String::clone));
    }

    fn origin(&mut self, key: &str, old: &Origin, new: &Origin) {
        // The one key that has another name than its field.
        self.value(&format!("{key}.url"), &old.servers, &new.servers, |servers| list(servers, ToString::to_string));
        let Origin {
            servers: _,
            balance,
            eject_after,
            eject_time,
            eject_statuses,
            max_ejected,
            retry_share,
            retry_minimum,
            proxy_protocol,
            health,
            max_connections,
            max_queue,
            request_buffer,
            idle_timeout,
            max_age,
            dns_interval,
            ambiguous_fields,
        } = old;
        self.value(&format!("{key}.balance"), balance, &new.balance, |balance| balance.name().into());
        self.value(&format!("{key}.eject_after"), eject_after, &new.eject_after, |after| {
            option(after, "none", u32::to_string)
        });
        self.value(&format!("{key}.eject_time"), eject_time, &new.eject_time, time);
        self.value(&format!("{key}.eject_statuses"), eject_statuses, &new.eject_statuses, |all| {
            list(all, ToString::to_string)
        });
        self.value(&format!("{key}.max_ejected"), max_ejected, &new.max_ejected, share);
        self.value(&format!("{key}.retry_share"), retry_share, &new.retry_share, |given| option(given, "none", share));
        self.value(&format!("{key}.retry_minimum"), retry_minimum, &new.retry_minimum, u32::to_string);
        self.value(&format!("{key}.proxy_protocol"), proxy_protocol, &new.proxy_protocol, bool::to_string);
        match (health, &new.health) {
            (Some(old), Some(new)) => self.health(&format!("{key}.health"), old, new),
            (old, new) => self.value(&format!("{key}.health"), old, new, |health| {
                option(health, "none", |health| health.path.clone())
            }),
        }
        self.value(&format!("{key}.max_connections"), max_connections, &new.max_connections, u32::to_string);
        self.value(&format!("{key}.max_queue"), max_queue, &new.max_queue, u32::to_string);
        self.value(&format!("{key}.request_buffer"), request_buffer, &new.request_buffer, bytes_of);
        self.value(&format!("{key}.idle_timeout"), idle_timeout, &new.idle_timeout, time);
        self.value(&format!("{key}.max_age"), max_age, &new.max_age, |age| option(age, "none", time));
        self.value(&format!("{key}.dns_interval"), dns_interval, &new.dns_interval, time);
        self.value(&format!("{key}.ambiguous_fields"), ambiguous_fields, &new.ambiguous_fields, |given| {
            given.name().into()
        });
    }

    fn health(&mut self, key: &str, old: &Health, new: &Health) {
        compare!(self, key, Health, old, new, {
            path: String::clone,
            host: |host| option(host, "the server's", String::clone),
            interval: time,
            timeout: time,
            healthy: u32::to_string,
            unhealthy: u32::to_string,
            statuses: |all| list(all, ToString::to_string),
        });
    }

    fn limits(&mut self, old: &Limits, new: &Limits) {
        compare!(self, "limits", Limits, old, new, {
            max_connections: u32::to_string,
            retry_handshakes: u32::to_string,
            max_handshakes: u32::to_string,
            max_streams: u32::to_string,
            max_tunnels: u32::to_string,
            max_requests: u64::to_string,
            max_resets: u32::to_string,
            max_control_frames: u32::to_string,
            max_small_frames: u32::to_string,
            max_header_bytes: bytes_of,
            max_headers: u32::to_string,
            max_body_bytes: |bytes| option(bytes, "none", bytes_of),
            min_upload_rate: u64::to_string,
            min_download_rate: u64::to_string,
            rate_grace: time,
            max_lingering_bytes: bytes_of,
            stream_receive_buffer: bytes_of,
            connection_receive_buffer: bytes_of,
            worker_receive_buffer: bytes_of,
            stream_send_buffer: bytes_of,
            connection_send_buffer: bytes_of,
            worker_send_buffer: bytes_of,
            memory: |limit| match limit {
                MemoryLimit::Cgroup => "cgroup".into(),
                MemoryLimit::Bytes(bytes) => bytes_of(bytes),
                MemoryLimit::None => "none".into(),
            },
        });
    }

    fn sources(&mut self, old: &Sources, new: &Sources) {
        let Sources { limited, ipv4_prefix, ipv6_prefix, exempt } = old;
        self.value("limits.by_source", limited, &new.limited, bool::to_string);
        self.value("limits.source_ipv4_prefix", ipv4_prefix, &new.ipv4_prefix, u8::to_string);
        self.value("limits.source_ipv6_prefix", ipv6_prefix, &new.ipv6_prefix, u8::to_string);
        self.value("limits.source_exempt", exempt, &new.exempt, |all| list(all, Network::to_string));
    }

    fn timeouts(&mut self, old: &Timeouts, new: &Timeouts) {
        compare!(self, "timeouts", Timeouts, old, new, {
            handshake: time,
            idle: time,
            request_header: time,
            request_body: time,
            lingering: time,
            send: time,
            connect: time,
            response_header: time,
            response_body: time,
            request: |limit| option(limit, "none", time),
            queue: time,
            tunnel: time,
            drain_grace: time,
            drain: time,
        });
    }

    fn litequic(&mut self, old: &LiteQuic, new: &LiteQuic) {
        compare!(self, "litequic", LiteQuic, old, new, {
            io: |io: &Io| io.name().into(),
            receive_batch: u16::to_string,
            gso: bool::to_string,
            gro: bool::to_string,
            ack_merge: bool::to_string,
            receive_moderation: bool::to_string,
            ack_frequency: AckFrequency::to_string,
            congestion: |congestion: &Congestion| congestion.name().into(),
            initial_window: u16::to_string,
        });
    }

    fn admin(&mut self, old: &Admin, new: &Admin) {
        compare!(self, "admin", Admin, old, new, {
            listen: |address| option(address, "none", SocketAddr::to_string),
            probes: |address| option(address, "none", SocketAddr::to_string),
            ready_needs_origin: bool::to_string,
            token_file: |path| option(path, "none", |path| path.display().to_string()),
            token_env: |name| option(name, "none", String::clone),
            names: |all| list(all, String::clone),
            handover: |path| option(path, "none", |path| path.display().to_string()),
        });
    }

    fn log(&mut self, old: &Log, new: &Log) {
        compare!(self, "log", Log, old, new, {
            level: |level| match level {
                Level::Error => "error".into(),
                Level::Warn => "warn".into(),
                Level::Info => "info".into(),
                Level::Debug => "debug".into(),
                Level::Trace => "trace".into(),
            },
            format: |format| match format {
                LogFormat::Auto => "auto".into(),
                LogFormat::Human => "human".into(),
                LogFormat::Json => "json".into(),
            },
        });
    }

    fn access_log(&mut self, old: &AccessLog, new: &AccessLog) {
        compare!(self, "access_log", AccessLog, old, new, {
            path: |path| option(path, "none", AccessTarget::to_string),
            format: |format| match format {
                AccessFormat::Json => "json".into(),
                AccessFormat::Logfmt => "logfmt".into(),
            },
            fields: |fields| list(fields, |field: &AccessField| field.name().into()),
            sample: share,
        });
    }
}

fn word(verify: &Verify) -> String {
    match verify {
        Verify::None => "none".into(),
        Verify::Optional => "optional".into(),
        Verify::Required => "required".into(),
    }
}

fn option<T>(value: &Option<T>, none: &str, show: impl Fn(&T) -> String) -> String {
    value.as_ref().map_or_else(|| none.into(), show)
}

fn list<T>(values: &[T], show: impl Fn(&T) -> String) -> String {
    if values.is_empty() { "none".into() } else { values.iter().map(show).collect::<Vec<_>>().join(", ") }
}

/// The beginning of a long list: a line of the log has an end.
fn cut(shown: &str) -> String {
    const SHOWN: usize = 4;
    let values: Vec<&str> = shown.split(", ").collect();
    match values.get(..SHOWN) {
        Some(first) if values.len() > SHOWN => format!("{}, and {} more", first.join(", "), values.len() - SHOWN),
        _ => shown.into(),
    }
}

fn share(share: &Share) -> String {
    format!("{} %", f64::from(share.0) / 10_000.0)
}

fn bytes_of<T: Copy + Into<u64>>(bytes: &T) -> String {
    show_size((*bytes).into())
}

fn time(duration: &Duration) -> String {
    humantime::format_duration(*duration).to_string()
}

/// Names alone: a value may be a secret.
fn header_rules(rules: &HeaderRules) -> String {
    let HeaderRules { remove, set, add } = rules;
    let removed = remove.iter().map(|name| format!("remove {name}"));
    let set = set.iter().map(|(name, _)| format!("set {name}"));
    let added = add.iter().map(|(name, _)| format!("add {name}"));
    list(&removed.chain(set).chain(added).collect::<Vec<_>>(), String::clone)
}

fn rate(limit: &RateLimit) -> String {
    let RateLimit { requests, per, burst, by } = limit;
    let by = RateLimitBy::NAMES.iter().find(|(_, known)| known == by).map(|(name, _)| *name);
    format!("{requests} in {}; {burst} at once; by {}", time(per), by.unwrap_or_default())
}

fn pages(pages: &ErrorPages) -> String {
    list(&pages.iter().collect::<Vec<_>>(), |(errors, path)| format!("{errors} {}", path.display()))
}

#[cfg(test)]
mod tests;
