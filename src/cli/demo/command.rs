//! Runs the demo: its origin, its certificate, litequic in front of it, and its output.

use super::{meter::Meter, origin::DemoOrigin, printer::Printer};
use crate::app::{self, OpenFilesLimit, StartOptions};
use crate::cli::{
    advice::{AdvisedCommand, with_advice},
    exit::{CommandResult, Exit, exit_with_error},
    run::{
        LogArguments, ProcessSignals, control_runtime, parse_origin as origin_address, serve_until_signal,
        try_raise_open_files,
    },
};
use clap::Args;
use litequic_config::{Config, LogConfig, LogFormat, LogSeverity, OriginAddress, parse_listen_address};
use litequic_tls::{CertificateStore, SelfSigned, make_self_signed};
use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// Arguments of `litequic demo`.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Address to listen on, UDP and TCP; port 0 selects a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443", value_parser = parse_listen_address)]
    listen: SocketAddr,
    /// Proxy this origin instead of the built-in one: http://HOST[:PORT], https://HOST[:PORT], HOST:PORT or unix:/PATH.
    #[arg(long, value_name = "URL", value_parser = origin_address)]
    origin: Option<OriginAddress>,
    #[command(flatten)]
    log: LogArguments,
}

/// Serves the demo until Ctrl-C.
pub fn run_demo(arguments: DemoArguments) -> CommandResult {
    let log = LogConfig { level: LogSeverity::Warn, format: LogFormat::Auto };
    let log = arguments.log.start_log(&log).map_err(|error| exit_with_error(Exit::from(&error), error))?;
    try_raise_open_files();
    let options = StartOptions { log: log.log_metrics(), ..StartOptions::default() };
    control_runtime()?.block_on(serve_demo(arguments, options))
}

async fn serve_demo(arguments: DemoArguments, options: StartOptions) -> CommandResult {
    let software = |problem: String| exit_with_error(Exit::Software, problem);
    let signals = ProcessSignals::new().map_err(|error| software(error.to_string()))?;
    let (origin, embedded) = match arguments.origin {
        Some(origin) => (origin, None),
        None => {
            let bound = DemoOrigin::bind_origin((Ipv4Addr::LOCALHOST, 0).into()).await;
            let (address, serving) = bound.map_err(|error| {
                exit_with_error(Exit::Unavailable, format!("cannot start the demo's origin: {error}"))
            })?;
            let host = address.ip().to_string();
            (OriginAddress::Tcp { host, port: address.port() }, Some(tokio::spawn(serving)))
        }
    };
    let certificate = make_self_signed(["localhost", "127.0.0.1", "::1"])
        .map_err(|error| software(format!("cannot create a certificate: {error}")))?;
    let loaded = certificate.to_loaded_certificate().map_err(|error| software(error.to_string()))?;
    let store = CertificateStore::new(loaded, []);
    let mut config = Config::with_defaults(arguments.listen, origin.clone(), PathBuf::new(), PathBuf::new());
    // The status page is served at a free port.
    config.admin.listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    // The embedded origin has the other ends of the connections.
    let open_files = if embedded.is_some() { OpenFilesLimit::Shared } else { OpenFilesLimit::InForce };
    let options = StartOptions { open_files, ..options };
    let printer = Printer::start_printer().map_err(|error| software(format!("cannot start a thread: {error}")))?;
    let metered = printer.clone();
    let started = app::start_litequic(&config, store, options, move |proxy| Meter::new(proxy, metered.clone())).await;
    let running = started
        .map_err(|error| exit_with_error(Exit::from(&error), with_advice(&error, &config, AdvisedCommand::Demo)))?;
    let address = running.addresses.first().copied().unwrap_or(arguments.listen);
    printer.print_text(
        welcome_text(address, &origin, embedded.is_some(), &certificate)
            + &next_steps_text(embedded.is_some(), running.admin),
    );
    let served = serve_until_signal(running, signals).await;
    printer.wait_until_printed();
    if let Some(serving) = embedded {
        serving.abort();
    }
    served
}

/// Text with commands to try, ready to be copied.
fn welcome_text(address: SocketAddr, origin: &OriginAddress, embedded: bool, certificate: &SelfSigned) -> String {
    let port = address.port();
    let reached = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    let url = format!("https://{}/", SocketAddr::new(reached, port));
    let litequic = std::env::current_exe().map_or_else(|_| "litequic".into(), |path| path.display().to_string());
    let mut text = format!(
        "litequic serves HTTP/3, HTTP/2 and HTTP/1.1 at {url}\nin front of {} at {origin}\n\n\
         The client of litequic:\n  {litequic} get --insecure {url}\n\n\
         curl, over HTTP/3 if it was built with it, and over TCP:\n  curl --http3-only --insecure {url}\n  \
         curl --insecure {url}\n\n\
         Chromium, with this certificate trusted and HTTP/3 from the first request:\n  \
         chromium --user-data-dir=\"$(mktemp -d)\" --enable-quic --origin-to-force-quic-on=localhost:{port} \
         --ignore-certificate-errors-spki-list={} --host-resolver-rules=\"MAP localhost {reached}\" \
         https://localhost:{port}/\n\n",
        if embedded { "its built-in origin" } else { "your origin" },
        certificate.spki_sha256,
    );
    if embedded {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "The origin has /bytes/N (say /bytes/100M), /echo and /sink for uploads, /slow/MS, /headers,\n\
             /status/CODE and /early-hints.\n"
        );
    }
    text
}

/// Text with the steps after the demo, and an explanation of the lines that follow.
fn next_steps_text(embedded: bool, admin: Option<SocketAddr>) -> String {
    let mut text = "Next steps:\n".to_owned();
    if embedded {
        text += "  your own server:     litequic demo --origin http://127.0.0.1:8080\n";
    }
    text += "  a configuration:     litequic example edge > litequic.toml\n";
    if let Some(admin) = admin {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  the status page:     http://{admin}/");
    }
    text + "\nThe CPU cost of requests follows; Ctrl-C ends the demo.\n"
}
