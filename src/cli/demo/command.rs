//! Runs the demo: its origin, its certificate, litequic in front of it, and what is printed.

use super::{meter::Meter, origin::DemoOrigin, printer::Printer};
use crate::app::{self, OpenFiles, Options};
use crate::cli::{
    advice::{Command, with_advice},
    exit::{Exit, fail},
    run::{LogArguments, Signals, control_runtime, origin as origin_address, raise_limit, serve},
};
use clap::Args;
use litequic_config::{Config, Level, Log, LogFormat, OriginAddress, listen_address};
use litequic_tls::{CertificateStore, SelfSigned, self_signed};
use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
};

/// Arguments of `litequic demo`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to listen, UDP and TCP; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443", value_parser = listen_address)]
    listen: SocketAddr,
    /// Proxy this origin instead of a small one of its own: http://HOST[:PORT], https://HOST[:PORT], HOST:PORT or
    /// unix:/PATH.
    #[arg(long, value_name = "URL", value_parser = origin_address)]
    origin: Option<OriginAddress>,
    #[command(flatten)]
    log: LogArguments,
}

/// Serves until Ctrl-C.
pub fn run(arguments: Arguments) -> ExitCode {
    let log = Log { level: Level::Warn, format: LogFormat::Auto };
    let log = match arguments.log.start(&log) {
        Ok(log) => log,
        Err(error) => return fail(Exit::from(&error), error),
    };
    raise_limit();
    let options = Options { log: log.metrics(), ..Options::default() };
    match control_runtime() {
        Ok(runtime) => runtime.block_on(demonstrate(arguments, options)),
        Err(error) => fail(Exit::Software, error),
    }
}

async fn demonstrate(arguments: Arguments, options: Options) -> ExitCode {
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return fail(Exit::Software, error),
    };
    let (origin, embedded) = match arguments.origin {
        Some(origin) => (origin, None),
        None => match DemoOrigin::bind((Ipv4Addr::LOCALHOST, 0).into()).await {
            Ok((address, serving)) => {
                let host = address.ip().to_string();
                (OriginAddress::Tcp { host, port: address.port() }, Some(tokio::spawn(serving)))
            }
            Err(error) => return fail(Exit::Unavailable, format!("cannot start the demo's origin: {error}")),
        },
    };
    let certificate = match self_signed(["localhost", "127.0.0.1", "::1"]) {
        Ok(certificate) => certificate,
        Err(error) => return fail(Exit::Software, format!("cannot create a certificate: {error}")),
    };
    let store = match certificate.certificate() {
        Ok(certificate) => CertificateStore::new(certificate, []),
        Err(error) => return fail(Exit::Software, error),
    };
    let mut config = Config::simple(arguments.listen, origin.clone(), PathBuf::new(), PathBuf::new());
    // The status page, at a free port.
    config.admin.listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    // The embedded origin has the other ends of the connections.
    let open_files = if embedded.is_some() { OpenFiles::Shared } else { OpenFiles::InForce };
    let options = Options { open_files, ..options };
    let printer = match Printer::start() {
        Ok(printer) => printer,
        Err(error) => return fail(Exit::Software, format!("cannot start a thread: {error}")),
    };
    let metered = printer.clone();
    let running = match app::start(&config, store, options, move |proxy| Meter::new(proxy, metered.clone())).await {
        Ok(running) => running,
        Err(error) => return fail(Exit::from(&error), with_advice(&error, &config, Command::Demo)),
    };
    let address = running.addresses.first().copied().unwrap_or(arguments.listen);
    printer.print(
        welcome(address, &origin, embedded.is_some(), &certificate) + &next_steps(embedded.is_some(), running.admin),
    );
    let exit = serve(running, signals).await;
    printer.finish();
    if let Some(serving) = embedded {
        serving.abort();
    }
    exit
}

/// What to try, ready to be copied.
fn welcome(address: SocketAddr, origin: &OriginAddress, embedded: bool, certificate: &SelfSigned) -> String {
    let port = address.port();
    let reached = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    let url = format!("https://{}/", SocketAddr::new(reached, port));
    let litequic = std::env::current_exe().map_or_else(|_| "litequic".into(), |path| path.display().to_string());
    let mut text = format!(
        "litequic serves HTTP/3, HTTP/2 and HTTP/1.1 at {url}\nin front of {} at {origin}\n\n\
         litequic's own client:\n  {litequic} get --insecure {url}\n\n\
         curl, where it was built with HTTP/3, and any other, by TCP:\n  curl --http3-only --insecure {url}\n  \
         curl --insecure {url}\n\n\
         Chromium, with this certificate trusted and HTTP/3 from the first request:\n  \
         chromium --user-data-dir=\"$(mktemp -d)\" --enable-quic --origin-to-force-quic-on=localhost:{port} \
         --ignore-certificate-errors-spki-list={} --host-resolver-rules=\"MAP localhost {reached}\" \
         https://localhost:{port}/\n\n",
        if embedded { "a small origin of its own" } else { "your origin" },
        certificate.spki_sha256,
    );
    if embedded {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "The origin has /bytes/N (say /bytes/100M), /echo and /sink for uploads, /slow/MS, /drip/N/MS, /headers,\n\
             /status/CODE, /early-hints, /trailers, and /fail/close, /fail/truncate, /fail/garbage.\n"
        );
    }
    text
}

/// What to do after the demo, and what follows on the screen.
fn next_steps(embedded: bool, admin: Option<SocketAddr>) -> String {
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
