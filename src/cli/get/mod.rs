//! `litequic get`: HTTP/3 requests, for health checks, scripts, and debugging.

mod output;
mod request;
mod upload;
mod verbose;
mod write_out;

use super::{
    exit::{Exit, fail},
    run::control_runtime,
};
use clap::Args;
use futures_util::future::poll_immediate;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use litequic_config::CertificateFiles;
use litequic_http3::client::{Client, ClientError, Piece, ResponseStream};
use litequic_quic::{self as quic, ConnectError, Observer};
use litequic_tls::{self as tls, Distrust, Presented, Trust, TrustError};
use output::ResponseOutput;
use request::{Data, HeaderField, Resolve};
use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout, timeout_at};
use upload::{UploadBody, UploadSource};
use verbose::Verbose;
use write_out::{RequestFacts, WriteOutTemplate};

/// Before the process ends, so that CONNECTION_CLOSE is sent: a server that does not get it keeps the connection until
/// its idle timeout.
const LINGER: Duration = Duration::from_millis(20);

/// Timeout that stands for none: a year.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

const EXIT_CODES: &str = "Exit codes:\n  \
    0   every response has a status below 400\n  \
    1   a response has a status of 400 or above\n  \
    64  the command line makes no sense\n  \
    66  the file to be sent cannot be read\n  \
    69  the server cannot be reached, is not trusted, or is too slow\n  \
    74  the output cannot be written\n  \
    76  the server broke a rule of HTTP/3, or broke off\n  \
    78  a certificate file that is named cannot be used";

/// Arguments of `litequic get`.
#[derive(Debug, Args)]
#[command(after_long_help = format!("{}\n\n{EXIT_CODES}", write_out::help()))]
pub struct Arguments {
    /// https://HOST[:PORT][/PATH]; `https://` may be left out
    #[arg(value_name = "URL", value_parser = request::url)]
    url: Uri,
    /// The method; without it GET, HEAD with --head, POST with --data, PUT with --upload-file.
    #[arg(long, short = 'X', value_name = "METHOD", value_parser = request::method)]
    request: Option<Method>,
    /// A field of the request, such as "Accept: text/html"; Host replaces the URL's. May be given several times.
    #[arg(long, short = 'H', value_name = "FIELD", value_parser = request::field)]
    header: Vec<HeaderField>,
    /// Send this text, or the file FILE for @FILE, as it is. The type is a form's unless --header says another.
    #[arg(long, short = 'd', value_name = "DATA", value_parser = request::data, conflicts_with_all = ["upload_file", "head"])]
    data: Option<Data>,
    /// Send this file while it is read; - is standard input.
    #[arg(long, short = 'T', value_name = "FILE", conflicts_with = "head")]
    upload_file: Option<PathBuf>,
    /// Request the header only, with HEAD.
    #[arg(long, short = 'I')]
    head: bool,
    /// Write the header, too, if --output is given. Without --output it is always written.
    #[arg(long, short = 'i')]
    include: bool,
    /// Write the body, and nothing else, to this file; - is standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// After each request print this to standard output, with variables such as %{http_code} or %{time_total}, see
    /// below; @FILE is read from a file.
    #[arg(long, short = 'w', value_name = "FORMAT", value_parser = WriteOutTemplate::read)]
    write_out: Option<WriteOutTemplate>,
    /// Print on standard error what happens: handshake, certificate, transport parameters, packets, request and
    /// response.
    #[arg(long, short)]
    verbose: bool,
    /// Number of requests, one after the other, on one connection.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Accept any certificate: for tests, never across a network.
    #[arg(long, short = 'k', conflicts_with = "ca")]
    insecure: bool,
    /// Trust the certificates in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Show this certificate to a server that asks for one: PEM, with its chain.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The private key of --client-cert: PEM.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Reach HOST:PORT at this address, as curl's --resolve does.
    #[arg(long, value_name = "HOST:PORT:ADDRESS", value_parser = request::resolve)]
    resolve: Vec<Resolve>,
    /// How long lookup and handshake may take together, with all addresses of the name.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = request::duration)]
    connect_timeout: Duration,
    /// How long each request may take, the first with its connection; 0 is no limit.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = request::duration)]
    timeout: Duration,
    /// Write TLS secrets to the file that SSLKEYLOGFILE names.
    #[arg(long)]
    key_log: bool,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error("{0:?} is not https://HOST[:PORT][/PATH]")]
    Url(String),
    #[error("{0:?} is not a host")]
    Host(String),
    #[error("standard input can be sent once: --repeat needs a file")]
    Repeat,
    #[error("cannot resolve {host}: {source}")]
    Lookup { host: String, source: io::Error },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(
        "the certificate of {host} at {address} is not trusted: {reason}\n\
         --ca FILE trusts the certificates in FILE, --insecure accepts any"
    )]
    Certificate { host: String, address: SocketAddr, reason: Distrust },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot read {from}: {source}")]
    Input { from: String, source: io::Error },
    #[error("cannot write {to}: {source}")]
    Output { to: String, source: io::Error },
    #[error("no response within {}", humantime::format_duration(*.0))]
    NoResponse(Duration),
    #[error("no whole response within {}: {received} bytes of its body came", humantime::format_duration(*.limit))]
    NotWhole { limit: Duration, received: u64 },
}

impl From<&GetError> for Exit {
    fn from(error: &GetError) -> Self {
        match error {
            GetError::Url(_) | GetError::Host(_) | GetError::Repeat => Self::Usage,
            GetError::Trust(_) => Self::Config,
            GetError::Lookup { .. }
            | GetError::NoAddress(_)
            | GetError::Connect(_)
            | GetError::Certificate { .. }
            | GetError::NoResponse(_)
            | GetError::NotWhole { .. } => Self::Unavailable,
            GetError::Client(_) => Self::Protocol,
            GetError::Input { .. } => Self::Input,
            GetError::Output { .. } => Self::Output,
        }
    }
}

/// Makes the requests and writes the responses.
pub fn run(arguments: Arguments) -> ExitCode {
    let runtime = match control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(Exit::Software, error),
    };
    let mut output = None;
    let outcome = runtime.block_on(async {
        let outcome = get(&arguments, &mut output).await;
        sleep(LINGER).await;
        outcome
    });
    // A reader that pauses may delay this; the connection to the server is closed by now.
    let written = output.map_or(Ok(()), ResponseOutput::finish);
    match outcome.and_then(|exit| written.map(|()| exit)) {
        Ok(exit) => exit.into(),
        // The reader closed the pipe: only the exit code remains.
        Err(error) if output::reader_is_gone(&error) => Exit::from(&error).into(),
        Err(error) => fail(Exit::from(&error), error),
    }
}

/// Connects and makes each request. `output` is opened once the server is there.
async fn get(arguments: &Arguments, output: &mut Option<ResponseOutput>) -> Result<Exit, GetError> {
    let request = request::request(arguments)?;
    let source = request::source(arguments);
    if arguments.repeat > 1 && matches!(source, UploadSource::StandardInput) {
        return Err(GetError::Repeat);
    }
    let verbose = Verbose(arguments.verbose);
    // aws-lc gathers entropy at its first use, for some 40 ms, which belongs to no connection. What fails here fails in
    // the handshake, too.
    let _ = aws_lc_rs::rand::fill(&mut [0; 1]);
    let mut facts = RequestFacts::new(request.uri(), request.method());
    let opened = async {
        // First: no connection is opened for a file that does not exist.
        let first = source.open()?;
        let (connection, observer) = connect(arguments, verbose, &mut facts).await?;
        // The file is truncated only once connected, and before the first request.
        let output = output.insert(ResponseOutput::open(arguments.output.as_ref(), arguments.include)?);
        Ok::<_, GetError>((Client::start(connection).await?, observer, output, first))
    };
    let (client, observer, output, first) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            facts.end(&Err(&error), &Observer::default());
            if let Some(template) = &arguments.write_out {
                // This one's error would hide the request's.
                let _ = output::print(&template.render(&facts));
            }
            return Err(error);
        }
    };

    let limit = if arguments.timeout.is_zero() { NO_LIMIT } else { arguments.timeout };
    let (mut exit, mut body, mut before) = (Exit::Success, Some(first), quic::Counts::default());
    let mut watch = pin!(client.watch());
    for nth in 1..=arguments.repeat {
        let body = match body.take() {
            Some(body) => body,
            None => source.open()?,
        };
        let deadline = (facts.began + limit).into();
        let outcome = tokio::select! {
            biased;
            outcome = timeout_at(deadline, exchange(&client, &request, body, output, verbose, &mut facts)) => outcome,
            error = &mut watch => Ok(Err(error.into())),
        };
        let outcome = outcome.unwrap_or_else(|_| Err(too_late(limit, &facts)));
        facts.counts = observer.counts().since(&before);
        facts.end(&outcome.as_ref().copied(), &observer);
        // The part of a response that was cut off is written, too.
        let written = match (output.flush().await, &arguments.write_out) {
            (Ok(()), Some(template)) => write_out(&template.render(&facts), output).await,
            (written, _) => written,
        };
        if outcome? == Exit::Status {
            exit = Exit::Status;
        }
        written?;
        if nth < arguments.repeat {
            (facts, before) = (facts.next(), observer.counts());
        }
    }
    client.close();
    Ok(exit)
}

fn too_late(limit: Duration, facts: &RequestFacts) -> GetError {
    match facts.status {
        Some(_) => GetError::NotWhole { limit, received: facts.size_download },
        None => GetError::NoResponse(limit),
    }
}

/// Prints `text` behind the response, which may go to standard output, too.
async fn write_out(text: &str, output: &mut ResponseOutput) -> Result<(), GetError> {
    if output.is_file() {
        return output::print(text);
    }
    output.write(text.as_bytes()).await?;
    output.flush().await
}

/// Connects to the first address of the URL's host that answers.
async fn connect(
    arguments: &Arguments,
    verbose: Verbose,
    facts: &mut RequestFacts,
) -> Result<(s2n_quic::Connection, Observer), GetError> {
    let (host, port) = request::server(&arguments.url)?;
    let trust = match (arguments.insecure, &arguments.ca) {
        (true, _) => Trust::Insecure,
        (false, Some(file)) => Trust::File(file.clone()),
        (false, None) => Trust::System,
    };
    let own = match (&arguments.client_cert, &arguments.client_key) {
        (Some(cert), Some(key)) => Some(CertificateFiles { cert: cert.clone(), key: key.clone() }),
        _ => None,
    };
    let presented = Presented::default();
    let tls = tls::client_config_noting(own.as_ref(), &trust, arguments.key_log, &presented)?;

    let limit = [arguments.connect_timeout, arguments.timeout].into_iter().filter(|limit| !limit.is_zero()).min();
    let limit = limit.unwrap_or(NO_LIMIT);
    let addresses = match timeout(limit, addresses(host, port, &arguments.resolve)).await {
        Ok(addresses) => addresses?,
        Err(_) => return Err(GetError::Lookup { host: host.into(), source: io::ErrorKind::TimedOut.into() }),
    };
    facts.looked_up = Some(Instant::now());
    let mut last = GetError::NoAddress(host.into());
    // One that never answers does not prevent trying the others.
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in addresses {
        verbose.say(|| format!("Trying {address}"));
        let (observer, began) = (Observer::new(arguments.verbose), Instant::now());
        presented.clear();
        let outcome = quic::connect(address, host, tls.clone(), share, &observer).await;
        let seen = observer.now();
        facts.first_packet = seen.first_received;
        match outcome {
            Ok(connection) => {
                facts.connected = Some(Instant::now());
                facts.connections = 1;
                (facts.local, facts.remote) = (connection.local_addr().ok(), connection.remote_addr().ok());
                let certificate = || verbose::certificate(&presented, arguments.insecure);
                let (local, remote) = (facts.local, facts.remote);
                verbose.all(|| verbose::connected(&seen, local, remote, began.elapsed(), certificate()));
                return Ok((connection, observer));
            }
            Err(error) => {
                last = match presented.distrust() {
                    Some(reason) => GetError::Certificate { host: host.into(), address, reason },
                    None => error.into(),
                };
                verbose.all(|| verbose::certificate(&presented, arguments.insecure));
                verbose.all(|| verbose::packets(&seen));
                verbose.say(|| format!("Connection failed: {}", last.to_string().lines().next().unwrap_or_default()));
            }
        }
    }
    Err(last)
}

async fn addresses(host: &str, port: u16, resolve: &[Resolve]) -> Result<Vec<SocketAddr>, GetError> {
    let given: Vec<_> = resolve
        .iter()
        .filter(|given| given.port == port && given.host.eq_ignore_ascii_case(host))
        .map(|given| SocketAddr::new(given.address, port))
        .collect();
    if !given.is_empty() {
        return Ok(given);
    }
    let found = tokio::net::lookup_host((host, port)).await;
    Ok(found.map_err(|source| GetError::Lookup { host: host.into(), source })?.collect())
}

/// One request and its response. The body is sent while the response comes: a server may answer before it has read all.
async fn exchange(
    client: &Client,
    request: &Request<()>,
    body: UploadBody,
    output: &mut ResponseOutput,
    verbose: Verbose,
    facts: &mut RequestFacts,
) -> Result<Exit, GetError> {
    let mut request = request.clone();
    if let Some(length) = body.length {
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    verbose.request(&request);
    let (out, mut response) = client.send(&request).await?;
    facts.sending = Some(Instant::now());
    let sent = Cell::new(0);
    let outcome = {
        let mut upload = pin!(body.send(out, &sent));
        let mut respond = pin!(respond(&mut response, client, output, verbose, facts));
        let mut uploading = true;
        loop {
            tokio::select! {
                outcome = &mut respond => break outcome,
                outcome = &mut upload, if uploading => match outcome {
                    Ok(()) => uploading = false,
                    Err(error) => break Err(error),
                },
            }
        }
    };
    facts.size_upload = sent.get();
    outcome
}

/// Writes the response as it comes.
async fn respond(
    response: &mut ResponseStream,
    client: &Client,
    output: &mut ResponseOutput,
    verbose: Verbose,
    facts: &mut RequestFacts,
) -> Result<Exit, GetError> {
    let status = loop {
        let head = response.head().await?;
        facts.responded(&head);
        if let (Some(settings), true) = (client.server_settings(), verbose.0) {
            verbose.say(|| verbose::settings(&settings));
        }
        verbose.response(&head);
        output.head(&head).await?;
        if !head.status().is_informational() {
            break head.status();
        }
        output.flush().await?;
    };
    loop {
        let piece = {
            let mut next = pin!(response.next());
            match poll_immediate(&mut next).await {
                Some(piece) => piece?,
                // The reader gets what has come by now.
                None => {
                    output.flush().await?;
                    next.await?
                }
            }
        };
        match piece {
            Some(Piece::Data(data)) => {
                facts.size_download += data.len() as u64;
                output.write(&data).await?;
            }
            Some(Piece::Trailers(trailers)) => {
                let trailers = HeaderMap::from(trailers);
                verbose.trailers(&trailers);
                output.trailers(&trailers).await?;
            }
            None => break,
        }
    }
    Ok(if status.is_client_error() || status.is_server_error() { Exit::Status } else { Exit::Success })
}
