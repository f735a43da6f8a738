//! `litequic get`: one HTTP/3 request, for health checks and scripts.

use super::{
    exit::{Exit, fail},
    run::control_runtime,
};
use crate::{
    config::CertificateFiles,
    http3::client::{self, ClientError, Piece},
    quic::{self, ConnectError},
    tls::{self, Trust, TrustError},
};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, Method, Request, Response, Uri};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// The port of https (RFC 9110 §4.2.2).
const HTTPS_PORT: u16 = 443;

/// Before the process ends, so that CONNECTION_CLOSE leaves: a server that does not get it keeps the connection until
/// its idle timeout.
const LINGER: Duration = Duration::from_millis(20);

/// What `litequic get` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// https://HOST[:PORT][/PATH]
    #[arg(value_name = "URL")]
    url: Uri,
    /// Ask for the header alone, with HEAD.
    #[arg(long)]
    head: bool,
    /// Write the body, and nothing else, to this file; - is standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
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
    #[arg(long, value_name = "HOST:PORT:ADDRESS", value_parser = resolve)]
    resolve: Vec<Resolve>,
    /// How long the whole request may take.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Write TLS secrets to the file that SSLKEYLOGFILE names.
    #[arg(long)]
    key_log: bool,
}

/// An address that a name is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Resolve {
    host: String,
    port: u16,
    address: IpAddr,
}

fn resolve(text: &str) -> Result<Resolve, String> {
    let wrong = || format!("{text:?} is not HOST:PORT:ADDRESS, such as example.com:443:127.0.0.1");
    let (host, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (port, address) = rest.split_once(':').ok_or_else(wrong)?;
    Ok(Resolve {
        host: host.to_ascii_lowercase(),
        port: port.parse().map_err(|_| wrong())?,
        address: address.trim_matches(['[', ']']).parse().map_err(|_| wrong())?,
    })
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error("{0:?} is not https://HOST[:PORT][/PATH]")]
    Url(String),
    #[error("cannot look {host} up: {source}")]
    Lookup { host: String, source: io::Error },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write {to}: {source}")]
    Output { to: String, source: io::Error },
    #[error("no whole response within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
}

impl From<&GetError> for Exit {
    fn from(error: &GetError) -> Self {
        match error {
            GetError::Url(_) => Self::Usage,
            GetError::Trust(_) => Self::Config,
            GetError::Lookup { .. } | GetError::NoAddress(_) | GetError::Connect(_) | GetError::Timeout(_) => {
                Self::Unavailable
            }
            GetError::Client(_) => Self::Protocol,
            GetError::Output { .. } => Self::Output,
        }
    }
}

/// Makes the request and writes the response.
pub fn run(arguments: Arguments) -> ExitCode {
    let runtime = match control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(Exit::Software, error),
    };
    let limit = arguments.timeout;
    let outcome = runtime.block_on(async {
        let outcome = timeout(limit, get(&arguments)).await.unwrap_or(Err(GetError::Timeout(limit)));
        sleep(LINGER).await;
        outcome
    });
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => fail(Exit::from(&error), error),
    }
}

async fn get(arguments: &Arguments) -> Result<Exit, GetError> {
    let url = &arguments.url;
    let wrong = || GetError::Url(url.to_string());
    if url.scheme_str() != Some("https") {
        return Err(wrong());
    }
    let host = url.host().ok_or_else(wrong)?.trim_matches(['[', ']']);
    let port = url.port_u16().unwrap_or(HTTPS_PORT);
    let trust = match (arguments.insecure, &arguments.ca) {
        (true, _) => Trust::Insecure,
        (false, Some(file)) => Trust::File(file.clone()),
        (false, None) => Trust::System,
    };
    let tls = match (&arguments.client_cert, &arguments.client_key) {
        (Some(cert), Some(key)) => {
            let files = CertificateFiles { cert: cert.clone(), key: key.clone() };
            tls::client_config_as(&files, &trust, arguments.key_log)?
        }
        _ => tls::client_config(&trust, arguments.key_log)?,
    };

    let mut outcome = Err(GetError::NoAddress(host.into()));
    let addresses = addresses(host, port, &arguments.resolve).await?;
    // One that never answers does not keep the others from being tried.
    let share = arguments.timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in addresses {
        outcome = quic::connect(address, host, tls.clone(), share).await.map_err(GetError::Connect);
        if outcome.is_ok() {
            break;
        }
    }
    // The file is emptied only for a server that is there, and before it is asked for anything.
    let connection = outcome?;
    let mut out = Output::open(arguments.output.as_ref())?;
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = if arguments.head { Method::HEAD } else { Method::GET };
    *request.uri_mut() = url.clone();
    let mut interim = Vec::new();
    let (head, mut body) = client::send(connection, request, |response| interim.push(response)).await?.into_parts();
    for response in interim {
        out.head(&response)?;
    }
    let status = head.status;
    out.head(&Response::from_parts(head, ()))?;
    while let Some(piece) = body.next().await? {
        match piece {
            Piece::Data(data) => out.body(&data)?,
            Piece::Trailers(trailers) => out.trailers(&trailers)?,
        }
    }
    out.flush()?;
    body.close();
    Ok(if status.is_client_error() || status.is_server_error() { Exit::Status } else { Exit::Success })
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

/// Where the response goes: header and body to standard output, or the body alone to a file.
struct Output {
    to: Box<dyn Write>,
    name: String,
    body_alone: bool,
}

impl Output {
    fn open(file: Option<&PathBuf>) -> Result<Self, GetError> {
        Ok(match file {
            Some(file) if file.as_os_str() != "-" => {
                let name = file.display().to_string();
                let opened = File::create(file).map_err(|source| GetError::Output { to: name.clone(), source })?;
                Self { to: Box::new(BufWriter::new(opened)), name, body_alone: true }
            }
            given => Self {
                to: Box::new(BufWriter::new(io::stdout())),
                name: "standard output".into(),
                body_alone: given.is_some(),
            },
        })
    }

    fn head(&mut self, response: &Response<()>) -> Result<(), GetError> {
        if self.body_alone {
            return Ok(());
        }
        self.write(format!("HTTP/3 {}\n", response.status()).as_bytes())?;
        self.fields(response.headers())?;
        self.write(b"\n")
    }

    fn body(&mut self, data: &[u8]) -> Result<(), GetError> {
        self.write(data)
    }

    fn trailers(&mut self, trailers: &HeaderMap) -> Result<(), GetError> {
        if self.body_alone {
            return Ok(());
        }
        self.write(b"\n")?;
        self.fields(trailers)
    }

    fn fields(&mut self, fields: &HeaderMap) -> Result<(), GetError> {
        for (name, value) in fields {
            self.write(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat())?;
        }
        Ok(())
    }

    fn write(&mut self, data: &[u8]) -> Result<(), GetError> {
        self.to.write_all(data).map_err(|source| GetError::Output { to: self.name.clone(), source })
    }

    fn flush(&mut self) -> Result<(), GetError> {
        self.to.flush().map_err(|source| GetError::Output { to: self.name.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_given_as_curl_takes_it() {
        let given =
            |host: &str, address: &str| Resolve { host: host.into(), port: 443, address: address.parse().unwrap() };
        assert_eq!(resolve("Example.com:443:127.0.0.1"), Ok(given("example.com", "127.0.0.1")));
        assert_eq!(resolve("example.com:443:[::1]"), Ok(given("example.com", "::1")));
        for wrong in ["example.com", "example.com:443", "example.com:https:127.0.0.1", "example.com:443:localhost"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }
}
