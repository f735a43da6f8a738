//! What a reload changes: two configurations compared, key by key, and which of the keys a running litequic can follow.
//! Pure. The structures are taken apart in full, so that a new key that is not compared does not compile.

use super::{
    AccessField, AccessFormat, AccessLog, AccessTarget, AckFrequency, Admin, CertificateFiles, ClientCertificates,
    Config, Io, Level, Limits, Listen, LiteQuic, Log, LogFormat, Network, Origin, Route, Share, Timeouts, Verify,
    Workers, values::show_size,
};
use std::{fmt, net::SocketAddr, num::NonZeroU16, time::Duration};

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
    "litequic.ack_frequency",
    "admin.listen",
    "admin.probes",
    "admin.token_file",
    "admin.token_env",
    "log.format",
    "access_log.path",
    "access_log.format",
    "access_log.fields",
    "access_log.sample",
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

    fn compare(&self, next: &Self, mut changes: Changes) -> Vec<Change> {
        let Self {
            listen,
            certificates,
            client_certificates,
            routes,
            origins,
            limits,
            timeouts,
            litequic,
            admin,
            log,
            access_log,
            trusted_proxies,
        } = self;
        changes.listen(listen, &next.listen);
        changes.value("trusted_proxies", trusted_proxies, &next.trusted_proxies, |all| list(all, network));
        changes.list("certificates", certificates, &next.certificates, Changes::certificate);
        changes.client_certificates(client_certificates, &next.client_certificates);
        let names = origins.keys().chain(next.origins.keys().filter(|name| !origins.contains_key(*name)));
        for name in names {
            let key = if name == Self::ORIGIN { name.clone() } else { format!("origins.{name}") };
            match (origins.get(name), next.origins.get(name)) {
                (Some(old), Some(new)) => changes.origin(&key, old, new),
                (None, Some(new)) => changes.push(&key, format!("added, {}", new.address)),
                (Some(_), None) => changes.push(&key, "removed".into()),
                (None, None) => {}
            }
        }
        changes.list("routes", routes, &next.routes, Changes::route);
        changes.limits(limits, &next.limits);
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
            listen: self.listen.clone(),
            litequic: self.litequic,
            admin: Admin { ready_needs_origin: next.admin.ready_needs_origin, ..self.admin.clone() },
            log: Log { format: self.log.format, ..next.log },
            access_log: self.access_log.clone(),
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
            self.push(key, format!("{} → {}", cut(&show(old)), cut(&show(new))));
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
            advertised_port: |port| option(port, "that of listen.udp", NonZeroU16::to_string),
            workers: |workers| match workers {
                Workers::Auto => "auto".into(),
                Workers::Count(count) => count.to_string(),
            },
            secret_file: |path| option(path, "none", |path| path.display().to_string()),
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
        compare!(self, key, Route, old, new, {
            host: |host| option(host, "any", String::clone),
            path_prefix: String::clone,
            origin: String::clone,
            rewrite_host: |host| option(host, "the client's", String::clone),
            max_body_bytes: |bytes| option(bytes, "limits.max_body_bytes", bytes_of),
            client_certificate: |given| option(given, "client_certificates.verify", word),
        });
    }

    fn origin(&mut self, key: &str, old: &Origin, new: &Origin) {
        // The one key that has another name than its field.
        self.value(&format!("{key}.url"), &old.address, &new.address, ToString::to_string);
        let Origin { address: _, max_connections, max_queue, idle_timeout, max_age, dns_interval } = old;
        self.value(&format!("{key}.max_connections"), max_connections, &new.max_connections, u32::to_string);
        self.value(&format!("{key}.max_queue"), max_queue, &new.max_queue, u32::to_string);
        self.value(&format!("{key}.idle_timeout"), idle_timeout, &new.idle_timeout, time);
        self.value(&format!("{key}.max_age"), max_age, &new.max_age, |age| option(age, "none", time));
        self.value(&format!("{key}.dns_interval"), dns_interval, &new.dns_interval, time);
    }

    fn limits(&mut self, old: &Limits, new: &Limits) {
        compare!(self, "limits", Limits, old, new, {
            max_connections: u32::to_string,
            retry_handshakes: u32::to_string,
            max_handshakes: u32::to_string,
            max_streams: u32::to_string,
            max_requests: u64::to_string,
            max_resets: u32::to_string,
            max_control_frames: u32::to_string,
            max_small_frames: u32::to_string,
            max_header_bytes: bytes_of,
            max_headers: u32::to_string,
            max_body_bytes: |bytes| option(bytes, "none", bytes_of),
            stream_receive_buffer: bytes_of,
            connection_receive_buffer: bytes_of,
            worker_receive_buffer: bytes_of,
            stream_send_buffer: bytes_of,
            connection_send_buffer: bytes_of,
            worker_send_buffer: bytes_of,
        });
    }

    fn timeouts(&mut self, old: &Timeouts, new: &Timeouts) {
        compare!(self, "timeouts", Timeouts, old, new, {
            handshake: time,
            idle: time,
            request_header: time,
            request_body: time,
            send: time,
            connect: time,
            response_header: time,
            response_body: time,
            request: |limit| option(limit, "none", time),
            queue: time,
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
            ack_frequency: AckFrequency::to_string,
        });
    }

    fn admin(&mut self, old: &Admin, new: &Admin) {
        compare!(self, "admin", Admin, old, new, {
            listen: |address| option(address, "none", SocketAddr::to_string),
            probes: |address| option(address, "none", SocketAddr::to_string),
            ready_needs_origin: bool::to_string,
            token_file: |path| option(path, "none", |path| path.display().to_string()),
            token_env: |name| option(name, "none", String::clone),
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
            sample: |sample: &Share| format!("{} %", f64::from(sample.0) / 10_000.0),
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

fn bytes_of<T: Copy + Into<u64>>(bytes: &T) -> String {
    show_size((*bytes).into())
}

fn time(duration: &Duration) -> String {
    humantime::format_duration(*duration).to_string()
}

fn network(network: &Network) -> String {
    format!("{}/{}", network.address, network.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::simple(
            Listen::UDP,
            "http://127.0.0.1:8080".parse().unwrap(),
            "tls/tls.crt".into(),
            "tls/tls.key".into(),
        );
        config.origins.insert("packager".into(), Origin::new("unix:/run/a.sock".parse().unwrap()));
        config
    }

    fn said(old: &Config, new: &Config) -> Vec<String> {
        old.changes(new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_is_said_of_what_is_the_same() {
        assert_eq!(config().changes(&config()), []);
    }

    #[test]
    fn every_change_is_said_with_its_key() {
        type Edit = fn(&mut Config);
        let table: &[(Edit, &[&str])] = &[
            (
                |config| config.listen.udp.push(([127, 0, 0, 1], 1).into()),
                &["listen.udp: [::]:8443 → [::]:8443, 127.0.0.1:1 (needs a restart)"],
            ),
            (
                |config| config.listen.workers = Workers::Count(2.try_into().unwrap()),
                &["listen.workers: auto → 2 (needs a restart)"],
            ),
            (
                |config| config.listen.secret_file = Some("secret".into()),
                &["listen.secret_file: none → secret (needs a restart)"],
            ),
            (
                |config| config.trusted_proxies.push(Network { address: [10, 0, 0, 0].into(), prefix: 8 }),
                &["trusted_proxies: none → 10.0.0.0/8"],
            ),
            (|config| config.certificates[0].key = "b.key".into(), &["certificates[0].key: tls/tls.key → b.key"]),
            (|config| config.certificates.push(config.certificates[0].clone()), &["certificates: 1 → 2"]),
            (
                |config| {
                    config.origins.get_mut("packager").unwrap().address = "http://b".parse().unwrap();
                    config.origins.get_mut("origin").unwrap().max_age = None;
                },
                &["origin.max_age: 1h → none", "origins.packager.url: unix:/run/a.sock → http://b:80"],
            ),
            (
                |config| {
                    config.origins.remove("packager");
                    config.origins.insert("video".into(), Origin::new("http://video:81".parse().unwrap()));
                },
                &["origins.packager: removed", "origins.video: added, http://video:81"],
            ),
            (|config| config.routes.push(Route::catch_all("packager")), &["routes: 1 → 2"]),
            (
                |config| {
                    config.routes[0].origin = "packager".into();
                    config.routes[0].host = Some("a.test".into());
                    config.routes[0].max_body_bytes = Some(1024);
                    config.routes[0].client_certificate = Some(Verify::Optional);
                },
                &[
                    "routes[0].host: any → a.test",
                    "routes[0].origin: origin → packager",
                    "routes[0].max_body_bytes: limits.max_body_bytes → 1 KiB",
                    "routes[0].client_certificate: client_certificates.verify → optional",
                ],
            ),
            (
                |config| {
                    let clients = &mut config.client_certificates;
                    (clients.ca, clients.verify) = (Some("ca.crt".into()), Verify::Required);
                },
                &["client_certificates.ca: none → ca.crt", "client_certificates.verify: none → required"],
            ),
            (
                |config| {
                    config.limits.max_headers = 7;
                    config.limits.max_body_bytes = Some(5 << 20);
                },
                &["limits.max_headers: 100 → 7", "limits.max_body_bytes: none → 5 MiB"],
            ),
            (
                |config| {
                    config.timeouts.idle = Duration::from_millis(1500);
                    config.timeouts.request = Some(Duration::from_secs(60));
                },
                &["timeouts.idle: 30s → 1s 500ms", "timeouts.request: none → 1m"],
            ),
            (
                |config| {
                    let ack_frequency = AckFrequency::Fixed(10);
                    config.litequic = LiteQuic {
                        io: Io::S2nQuic,
                        receive_batch: 7,
                        gso: false,
                        gro: false,
                        ack_merge: false,
                        ack_frequency,
                    };
                },
                &[
                    "litequic.io: auto → s2n-quic (needs a restart)",
                    "litequic.receive_batch: 128 → 7 (needs a restart)",
                    "litequic.gso: true → false (needs a restart)",
                    "litequic.gro: true → false (needs a restart)",
                    "litequic.ack_merge: true → false (needs a restart)",
                    "litequic.ack_frequency: adaptive → 10 (needs a restart)",
                ],
            ),
            (
                |config| {
                    config.admin.listen = Some(([127, 0, 0, 1], 9443).into());
                    config.admin.ready_needs_origin = true;
                    config.admin.token_file = Some("token".into());
                    config.admin.token_env = Some("TOKEN".into());
                },
                &[
                    "admin.listen: none → 127.0.0.1:9443 (needs a restart)",
                    "admin.ready_needs_origin: false → true",
                    "admin.token_file: none → token (needs a restart)",
                    "admin.token_env: none → TOKEN (needs a restart)",
                ],
            ),
            (
                |config| config.log = Log { level: Level::Debug, format: LogFormat::Json },
                &["log.level: info → debug", "log.format: auto → json (needs a restart)"],
            ),
            (
                |config| {
                    config.access_log = AccessLog {
                        path: Some(AccessTarget::File("/var/log/a".into())),
                        format: AccessFormat::Logfmt,
                        fields: vec![AccessField::Time, AccessField::Status],
                        sample: Share(12_500),
                    };
                },
                &[
                    "access_log.path: none → /var/log/a (needs a restart)",
                    "access_log.format: json → logfmt (needs a restart)",
                    "access_log.fields: time, request_id, client, protocol, and 13 more → time, status (needs a restart)",
                    "access_log.sample: 100 % → 1.25 % (needs a restart)",
                ],
            ),
        ];
        for (edit, expected) in table {
            let mut new = config();
            edit(&mut new);
            assert_eq!(said(&config(), &new), *expected);
        }
    }

    #[test]
    fn what_cannot_be_followed_is_named_until_it_can() {
        let mut new = config();
        new.listen.workers = Workers::Count(2.try_into().unwrap());
        new.admin = Admin { probes: Some(([0, 0, 0, 0], 9444).into()), ready_needs_origin: true, ..Admin::default() };
        new.log = Log { level: Level::Warn, format: LogFormat::Human };
        new.limits.max_streams = 1;
        new.litequic.gso = false;
        let running = config().follow(new.clone());
        let left = running.changes(&new);
        assert!(left.iter().all(Change::needs_restart));
        let keys: Vec<&str> = left.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(keys, ["listen.workers", "litequic.gso", "admin.probes", "log.format"]);
    }

    #[test]
    fn a_long_list_is_cut() {
        assert_eq!(cut(&list(&[1, 2, 3, 4, 5, 6], i32::to_string)), "1, 2, 3, 4, and 2 more");
        assert_eq!(cut(&list(&[1, 2, 3, 4], i32::to_string)), "1, 2, 3, 4");
    }

    #[test]
    fn the_list_has_every_key_with_its_value() {
        let list: std::collections::BTreeMap<_, _> = config().list().into_iter().collect();
        for (key, value) in [
            ("listen.udp", "[::]:8443"),
            ("certificates[0].key", "tls/tls.key"),
            ("origins.packager.url", "unix:/run/a.sock"),
            ("routes[0].origin", "origin"),
            ("timeouts.request", "none"),
            ("access_log.sample", "100 %"),
        ] {
            assert_eq!(list[key], value, "{key}");
        }
        assert!(list.len() > 60 && list["access_log.fields"].ends_with(", end, error"));
    }
}
