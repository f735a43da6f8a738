//! Runs `litequic run`: serves until the process is stopped.

use super::advice::{AdvisedCommand, with_advice};
use super::confinement::{forbid_core_dumps, log_confinement};
use super::exit::{CommandResult, Exit, exit_with_error, exit_with_faults};
use super::reexec::{PREDECESSOR_VARIABLE, Reexec};
use super::user::user_name;
use crate::app::{
    self, InheritedSockets, RunningProcess, StartError, StartOptions,
    reload::{self, ConfigOrigin, Reloader},
};
use clap::{
    ArgGroup, Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use listenfd::ListenFd;
use litequic_admin::{DefaultSocket, ProcessIdentity};
use litequic_base::lifecycle::{Lifecycle, ProcessPhase, panic_if_requested};
use litequic_config::{self as config, Acme, Config, LogFormat, LogSeverity, OriginAddress, ParsedConfig};
use litequic_telemetry::{access_log::AccessLogger, log};
use rustix::process::geteuid;
use std::{
    env,
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Arguments that replace the configuration. Each requires the next, so that one requires all.
const WITHOUT_FILE: [&str; 5] = ["listen", "origin", "cert", "key", "host"];
/// Arguments that replace FILE: those of [`WITHOUT_FILE`], and the option that names the configuration.
const INSTEAD_OF_FILE: [&str; 6] = ["config", "listen", "origin", "cert", "key", "host"];

/// Arguments of `litequic run`.
#[derive(Debug, Args)]
#[command(override_usage = "litequic run <FILE> [OPTIONS]\n       litequic run --config <FILE> [OPTIONS]\n       \
                            litequic run --listen <ADDR> --origin <URL> --cert <FILE> --key <FILE> [OPTIONS]\n       \
                            litequic run --host <HOST>... --origin <URL> --agree-tos [OPTIONS]")]
#[command(group(ArgGroup::new("identity").args(["cert", "host"])))]
pub struct RunArguments {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = WITHOUT_FILE)]
    config: Option<PathBuf>,
    /// The configuration file, without the option.
    #[arg(value_name = "FILE", conflicts_with_all = INSTEAD_OF_FILE, required_unless_present_any = INSTEAD_OF_FILE)]
    file: Option<PathBuf>,
    /// Without a configuration: the address to listen on, UDP for HTTP/3 and TCP for HTTP/1.1 and HTTP/2, such as
    /// '[::]:8443'.
    #[arg(long, value_name = "ADDR", requires = "origin", value_parser = config::parse_listen_address)]
    listen: Option<SocketAddr>,
    /// Without a configuration: the origin, http://HOST[:PORT], https://HOST[:PORT], HOST:PORT or unix:/PATH.
    #[arg(long, value_name = "URL", requires = "identity", value_parser = parse_origin)]
    origin: Option<OriginAddress>,
    /// Without a configuration: the certificate chain, PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Without a configuration: the certificate's private key, PEM.
    #[arg(long, value_name = "FILE", requires = "listen")]
    key: Option<PathBuf>,
    /// Without a configuration: a public host whose certificate is obtained by ACME and renewed. Serves UDP and TCP
    /// port 443, and redirects port 80. May be given several times.
    #[arg(long, value_name = "HOST", requires_all = ["origin", "agree_tos"], conflicts_with_all = ["listen", "cert", "key"])]
    host: Vec<String>,
    /// With --host: you agree to the terms of service of the CA, which is Let's Encrypt unless --acme-directory names
    /// another.
    #[arg(long, requires = "host")]
    agree_tos: bool,
    /// With --host: the folder of keys and certificates. Without it $STATE_DIRECTORY/acme, or
    /// $XDG_STATE_HOME/litequic/acme.
    #[arg(long, value_name = "DIR", requires = "host")]
    state: Option<PathBuf>,
    /// With --host: letsencrypt, letsencrypt-staging, or the https URL of another CA's directory.
    #[arg(long, value_name = "URL", requires = "host", value_parser = Acme::parse_directory_argument)]
    acme_directory: Option<String>,
    /// With --host: the roots that verify the directory's own certificate, PEM, in place of the system's.
    #[arg(long, value_name = "FILE", requires = "host")]
    acme_ca: Option<PathBuf>,
    /// Write TLS secrets to the file that SSLKEYLOGFILE names: for Wireshark, never in production.
    #[arg(long)]
    pub(super) key_log: bool,
    #[command(flatten)]
    log: LogArguments,
}

/// How to log, instead of what the configuration has.
#[derive(Debug, Clone, Copy, Args)]
pub struct LogArguments {
    /// The lowest level that is logged.
    #[arg(long, value_parser = one_of_names(LogSeverity::NAMES), value_name = "LEVEL")]
    log_level: Option<LogSeverity>,
    /// Format of the log: text, or a JSON object per line. The default is text on a terminal, and JSON otherwise.
    #[arg(long, value_parser = one_of_names(LogFormat::NAMES), value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// Parser of one of `names`.
pub(super) fn one_of_names<T: Clone + Send + Sync + 'static>(
    names: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let value = |given: String| names.iter().find(|(name, _)| *name == given).map(|(_, value)| value.clone());
    PossibleValuesParser::new(names.iter().map(|(name, _)| *name))
        .try_map(move |given| value(given).ok_or("is not one of the names"))
}

/// Parses an origin of the command line: `http://` may be omitted.
pub(super) fn parse_origin(text: &str) -> Result<OriginAddress, config::OriginAddressError> {
    if text.contains("://") || text.starts_with("unix:") { text.parse() } else { format!("http://{text}").parse() }
}

impl LogArguments {
    /// Starts the log.
    pub(super) fn start_log(self, config: &config::LogConfig) -> Result<log::LogHandle, log::LogError> {
        let format = self.log_format.unwrap_or(config.format);
        log::init_log(self.effective_level(config), format, &[reload::LOG_TARGET], || panic_if_requested("log"))
    }

    /// Level of the command line, or else of the configuration.
    fn effective_level(self, config: &config::LogConfig) -> tracing::Level {
        match self.log_level.unwrap_or(config.level) {
            LogSeverity::Error => tracing::Level::ERROR,
            LogSeverity::Warn => tracing::Level::WARN,
            LogSeverity::Info => tracing::Level::INFO,
            LogSeverity::Debug => tracing::Level::DEBUG,
            LogSeverity::Trace => tracing::Level::TRACE,
        }
    }
}

/// Serves until a signal or `POST /drain` stops the process.
pub fn run_server(arguments: RunArguments) -> CommandResult {
    let arguments = RunArguments { config: arguments.config.clone().or(arguments.file.clone()), ..arguments };
    // The secrets of a key log are for others to read.
    if !arguments.key_log {
        forbid_core_dumps();
    }
    // This changes the environment, which is only safe before there are threads.
    let passed = ListenFd::from_env();
    let reexec = Reexec::new();
    let app::LoadedConfig { config, certificates, warnings, .. } =
        config_from_arguments(&arguments).and_then(app::load_files).map_err(|faults| exit_with_faults(&faults))?;
    let log = arguments.log.start_log(&config.log).map_err(|error| exit_with_error(Exit::from(&error), error))?;
    let identity = log_process_start(arguments.config.as_deref());
    log_confinement();
    try_raise_open_files();
    reload::log_warnings(&warnings);
    let log_metrics = log.log_metrics();
    control_runtime()?.block_on(async {
        let signals = ProcessSignals::new().and_then(|signals| Ok((signals, signal(SignalKind::hangup())?)));
        let (signals, hangup) = signals.map_err(|error| exit_with_error(Exit::Software, error))?;
        let (reload, requests) = reload::reload_channel();
        let start = async {
            let inherited = passed_sockets(passed)?;
            let options = StartOptions {
                key_log: arguments.key_log,
                reload: Some(reload),
                admin_socket: default_admin_socket(),
                identity,
                predecessor: env::var_os(PREDECESSOR_VARIABLE).map(PathBuf::from),
                inherited,
                log: log_metrics,
                ..StartOptions::default()
            };
            app::start_litequic(&config, certificates, options, |proxy| proxy).await
        };
        let running = start
            .await
            .map_err(|error| exit_with_error(Exit::from(&error), with_advice(&error, &config, AdvisedCommand::Run)))?;
        panic_if_requested("control");
        let reexec = running.handover_socket.clone().map(|socket| (reexec, socket));
        let source = match arguments.config {
            Some(file) => ConfigOrigin::File(file),
            None => ConfigOrigin::Given(Box::new(config)),
        };
        let follow = move |config: &config::LogConfig| log.set_level(arguments.log.effective_level(config));
        let reloader = Reloader::new(source, &running, follow);
        tokio::select! {
            exit = serve_until_signal(running, ProcessSignals { reexec, ..signals }) => exit,
            never = reloader.run_reloads(hangup, requests) => match never {},
        }
    })
}

/// Admin socket of a configuration that names none, by the environment and the user of this process.
fn default_admin_socket() -> DefaultSocket {
    let owner = |directory: &Path| fs::metadata(directory).ok().filter(fs::Metadata::is_dir).map(|found| found.uid());
    DefaultSocket::find_default_socket(|name| env::var_os(name), geteuid().as_raw(), owner)
}

/// Logs the first line: version, configuration, process and user. Returns the description of the process.
fn log_process_start(config: Option<&Path>) -> ProcessIdentity {
    let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.into());
    let config = config.map_or_else(|| "the command line".to_owned(), |file| absolute(file).display().to_string());
    let (process, user) = (std::process::id(), user_name(geteuid().as_raw()));
    tracing::info!(config, process, user, "litequic {}", env!("CARGO_PKG_VERSION"));
    ProcessIdentity { config, user }
}

/// Takes the sockets that a service manager has passed (sd_listen_fds(3)).
fn passed_sockets(mut passed: ListenFd) -> Result<InheritedSockets, StartError> {
    let (mut udp, mut tcp) = (Vec::new(), Vec::new());
    for place in 0..passed.len() {
        // A socket of another kind is an error, which names it.
        match passed.take_udp_socket(place) {
            Ok(socket) => udp.extend(socket),
            Err(_) => tcp.extend(passed.take_tcp_listener(place).map_err(StartError::Passed)?),
        }
    }
    InheritedSockets::from_service_manager(udp, tcp)
}

fn config_from_arguments(arguments: &RunArguments) -> Result<ParsedConfig, config::ConfigFaults> {
    match arguments {
        RunArguments { config: Some(file), .. } => Ok(ParsedConfig::load_file(file)),
        RunArguments { listen: Some(listen), origin: Some(origin), cert: Some(cert), key: Some(key), .. } => {
            Ok(ParsedConfig::from_options(Config::with_defaults(*listen, origin.clone(), cert.clone(), key.clone())))
        }
        RunArguments { host, origin: Some(origin), agree_tos: true, .. } if !host.is_empty() => {
            Ok(ParsedConfig::from_options(Config::for_site(acme_from_arguments(arguments)?, origin.clone())))
        }
        // clap requires one of the combinations above.
        _ => Err(config::ConfigFaults(Vec::new())),
    }
}

/// ACME table that the command line stands for.
fn acme_from_arguments(arguments: &RunArguments) -> Result<Acme, config::ConfigFaults> {
    let fault =
        |key: &str, problem: &str| config::ConfigFaults(vec![config::ConfigFault::from_command_line(key, problem)]);
    let hosts =
        arguments.host.iter().map(|host| Acme::parse_host_argument(host).map_err(|problem| fault("--host", &problem)));
    let folder = arguments.state.clone().or_else(|| state_folder(|name| env::var_os(name)));
    let folder = folder.ok_or_else(|| fault("--state", "is needed: neither STATE_DIRECTORY nor HOME is set"))?;
    let mut acme = Acme {
        hosts: hosts.collect::<Result<_, _>>()?,
        folder: std::path::absolute(&folder).unwrap_or(folder),
        terms_agreed: arguments.agree_tos,
        ca: arguments.acme_ca.clone(),
        ..Acme::default()
    };
    if let Some(directory) = &arguments.acme_directory {
        acme.directory.clone_from(directory);
    }
    if acme.hosts.iter().any(|host| acme.challenges_for_host(host).next().is_none()) {
        return Err(fault("--host", "a wildcard needs a DNS challenge, and so a configuration with [[acme]]"));
    }
    Ok(acme)
}

/// Folder for certificates by the environment: systemd's (StateDirectory=), else the user's (XDG Base Directory).
fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| Some(PathBuf::from(variable(name)?)).filter(|path| path.is_absolute());
    if let Some(folders) = variable("STATE_DIRECTORY") {
        // Several folders are separated by colons.
        return env::split_paths(&folders).next().map(|first| first.join("acme"));
    }
    let state = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")))?;
    Some(state.join("litequic/acme"))
}

/// Raises the limit of open files, or logs the reason of a failure.
pub(super) fn try_raise_open_files() {
    if let Err(error) = app::raise_open_files() {
        tracing::warn!("{error}");
    }
}

/// Creates the control thread's runtime: admin listeners, signals.
pub(super) fn control_runtime() -> Result<tokio::runtime::Runtime, ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| exit_with_error(Exit::Software, error))
}

/// Serves until a signal or `POST /drain`, and through the drain after it.
pub(super) async fn serve_until_signal(running: RunningProcess, signals: ProcessSignals) -> CommandResult {
    let (lifecycle, access_log) = (running.lifecycle.clone(), Arc::clone(&running.access_log));
    let outcome = tokio::select! {
        outcome = running.wait_for_end() => outcome,
        never = signals.handle_signals(lifecycle, access_log) => match never {},
    };
    outcome.map(|()| ExitCode::SUCCESS).map_err(|died| exit_with_error(Exit::Software, died))
}

/// Signals of the process: SIGTERM and SIGINT drain at first and stop at once if repeated, SIGUSR1 reopens the access
/// log's file, SIGUSR2 starts a successor. Installed before litequic logs that it listens: a script that reads that
/// line may send a signal at once.
pub(super) struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    rotate: Signal,
    upgrade: Signal,
    /// Start of a successor, and the socket at which it takes over.
    reexec: Option<(Reexec, PathBuf)>,
}

impl ProcessSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            rotate: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
            reexec: None,
        })
    }

    async fn handle_signals(mut self, lifecycle: Lifecycle, access_log: Arc<AccessLogger>) -> std::convert::Infallible {
        // The second signal stops, not the first one in a drain: Kubernetes drains a sidecar by its preStop hook, and
        // sends SIGTERM once the application has ended.
        let mut told = false;
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.rotate.recv() => {
                    // Without an access log there is nothing to reopen, and no reason to end.
                    access_log.reopen_access_log();
                    continue;
                }
                _ = self.upgrade.recv() => {
                    match &self.reexec {
                        Some((reexec, socket)) => reexec.start_new_process(socket),
                        None => tracing::warn!("SIGUSR2: no process can take over from this one: set admin.handover"),
                    }
                    continue;
                }
            };
            let next = if told { ProcessPhase::Stopping } else { ProcessPhase::Leaving };
            tracing::info!(signal = name, "received a signal to {}", if told { "stop now" } else { "drain" });
            lifecycle.advance_phase(next);
            told = true;
        }
    }
}
