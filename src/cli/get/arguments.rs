//! Defines the arguments of `litequic get`.

use super::values::{self, AddressOverride, HeaderField};
use clap::Args;
use http::{Method, Uri};
use std::{path::PathBuf, time::Duration};

const EXIT_CODES: &str = "Exit codes:\n  \
    0   the response has a status below 400\n  \
    1   the response has a status of 400 or above\n  \
    64  the command line is invalid\n  \
    69  the server cannot be reached, is not trusted, or is too slow\n  \
    74  the output cannot be written\n  \
    76  the server violated HTTP/3, or truncated its response\n  \
    78  a certificate file that is named cannot be used";

/// Arguments of `litequic get`.
#[derive(Debug, Args)]
#[command(after_long_help = EXIT_CODES)]
pub struct GetArguments {
    /// https://HOST[:PORT][/PATH]; `https://` may be left out
    #[arg(value_name = "URL", value_parser = values::parse_url)]
    pub(super) url: Uri,
    /// The method; without it GET, HEAD with --head, POST with --data.
    #[arg(long, short = 'X', value_name = "METHOD", value_parser = values::parse_method)]
    pub(super) request: Option<Method>,
    /// A field of the request, such as "Accept: text/html"; Host replaces the URL's. May be given several times.
    #[arg(long, short = 'H', value_name = "FIELD", value_parser = values::parse_header_field)]
    pub(super) header: Vec<HeaderField>,
    /// Send this text as the body. Content-Type is that of a form unless --header sets another.
    #[arg(long, short = 'd', value_name = "TEXT", conflicts_with = "head")]
    pub(super) data: Option<String>,
    /// Request the header only, with HEAD.
    #[arg(long, short = 'I')]
    pub(super) head: bool,
    /// Write the header, too, if --output is given. Without --output it is always written.
    #[arg(long, short = 'i')]
    pub(super) include: bool,
    /// Write the body, and nothing else, to this file; - is standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// After the response, print this text to standard output: %{http_code} is the status, \n a new line.
    #[arg(long, short = 'w', value_name = "FORMAT", value_parser = values::parse_write_out)]
    pub(super) write_out: Option<String>,
    /// Print details to standard error: handshake, certificate, transport parameters, request and response.
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Accept any certificate: for tests, never across a network.
    #[arg(long, short = 'k', conflicts_with = "ca")]
    pub(super) insecure: bool,
    /// Trust the certificates in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Present this certificate to a server that requests one: PEM, with its chain.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub(super) client_cert: Option<PathBuf>,
    /// The private key of --client-cert: PEM.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub(super) client_key: Option<PathBuf>,
    /// Connect to this address for HOST:PORT, as curl's --resolve does.
    #[arg(long, value_name = "HOST:PORT:ADDRESS", value_parser = values::parse_resolve)]
    pub(super) resolve: Vec<AddressOverride>,
    /// Time limit of lookup and handshake together, over all addresses of the name.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = values::parse_timeout)]
    pub(super) connect_timeout: Duration,
    /// Time limit of the request, including the connection; 0 is no limit.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = values::parse_timeout)]
    pub(super) timeout: Duration,
}
