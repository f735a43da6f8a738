//! The origin of uploads: reads each request's body to its end and answers with its length, so that the client can
//! check that every byte came through. To a GET of `/bN` it answers N zeros, of `/wN` nothing after N milliseconds, of
//! `/dM-N` N zeros after M milliseconds, of `/events` with an event stream that does not end. HTTP/1.1, plain
//! and, at another port, over TLS.

use crate::client::raise_limits;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Args;
use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, Response,
    body::{Body, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

/// Zeros, written at a time.
const ZEROS: &[u8] = &[0; 64 * 1024];

/// The only event of an event stream.
const EVENT: &str = "data: hello\n\n";
/// Connections that wait for `accept`: a proxy opens thousands at once.
const BACKLOG: u32 = 16_384;

/// Where it listens.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where it listens.
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Where it listens with TLS.
    #[arg(long, value_name = "IP:PORT", requires_all = ["cert", "key"])]
    tls: Option<SocketAddr>,
    /// The certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls")]
    cert: Option<PathBuf>,
    /// The certificate's key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls")]
    key: Option<PathBuf>,
}

/// What answers an upload of so many bytes.
pub(crate) fn answer_to(bytes: u64) -> String {
    format!("{bytes} bytes\n")
}

/// The CRC-32 of a body of so many bytes.
pub(crate) fn crc32_of(bytes: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
        hasher.update(ZEROS.get(..length).unwrap_or_default());
        left -= length as u64;
    }
    hasher.finalize()
}

/// Serves until it is killed.
pub(crate) fn serve(arguments: &Arguments) -> Result<()> {
    raise_limits()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if let Arguments { tls: Some(address), cert: Some(cert), key: Some(key), .. } = arguments {
            // Ends with the process.
            tokio::spawn(accept(listen(*address)?, Some(acceptor(cert, key)?)));
        }
        accept(listen(arguments.listen)?, None).await
    })
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    let listener = socket.bind(address).and_then(|()| socket.listen(BACKLOG));
    listener.with_context(|| format!("cannot listen on {address}"))
}

/// TLS 1.3 with the one cipher suite that all of the laboratory has.
fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor> {
    let suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider = CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() };
    let chain = CertificateDer::pem_file_iter(cert).with_context(|| format!("reading {}", cert.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain.collect::<Result<_, _>>()?, PrivateKeyDer::from_pem_file(key)?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        // Ends with its connection, or with the process: nothing is lost.
        match tls.clone() {
            None => {
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(swallow)));
            }
            Some(tls) => {
                tokio::spawn(async move {
                    // A connection without TLS, or that its client closes: the client reports it.
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(swallow)).await;
                });
            }
        }
    }
}

async fn swallow(request: Request<Incoming>) -> Result<Response<Answer>, hyper::Error> {
    match Wanted::by(request.method(), request.uri().path()) {
        Some(Wanted::Zeros(zeros)) => return Ok(Response::new(Answer { zeros, ..Answer::default() })),
        Some(Wanted::Late(delay, zeros)) => {
            sleep(delay).await;
            return Ok(Response::new(Answer { zeros, ..Answer::default() }));
        }
        Some(Wanted::Events) => return Ok(Response::new(Answer { text: EVENT.into(), zeros: 0, is_endless: true })),
        None => {}
    }
    let mut body = request.into_body();
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        count += frame?.data_ref().map_or(0, Bytes::len) as u64;
    }
    Ok(Response::new(Answer { text: answer_to(count).into(), ..Answer::default() }))
}

/// What a request without a body is for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// A body of so many zeros.
    Zeros(u64),
    /// A body of zeros after a delay.
    Late(Duration, u64),
    /// An event stream.
    Events,
}

impl Wanted {
    fn by(method: &Method, path: &str) -> Option<Self> {
        let number = |prefix: &str| path.strip_prefix(prefix)?.parse().ok();
        let wanted = match path {
            "/events" => Some(Self::Events),
            _ if path.starts_with("/d") => {
                let (delay, zeros) = path.strip_prefix("/d")?.split_once('-')?;
                Some(Self::Late(Duration::from_millis(delay.parse().ok()?), zeros.parse().ok()?))
            }
            _ => number("/b").map(Self::Zeros).or_else(|| Some(Self::Late(Duration::from_millis(number("/w")?), 0))),
        };
        wanted.filter(|_| method == Method::GET)
    }
}

/// A response's body: a text, and zeros behind it.
#[derive(Default)]
struct Answer {
    text: Bytes,
    zeros: u64,
    /// Whether the body has no end.
    is_endless: bool,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        let length = usize::try_from(self.zeros).unwrap_or(usize::MAX).min(ZEROS.len());
        self.zeros -= length as u64;
        let piece = Bytes::from_static(ZEROS.get(..length).unwrap_or_default());
        if length == 0 && self.is_endless {
            // Never woken: hyper sees the connection's end.
            return Poll::Pending;
        }
        Poll::Ready((length > 0).then(|| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_endless {
            return SizeHint::default();
        }
        SizeHint::with_exact(self.text.len() as u64 + self.zeros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    #[test]
    fn zeros_have_the_checksum_that_any_tool_computes() {
        assert_eq!((crc32_of(0), crc32_of(200_000)), (0, crc32fast::hash(&[0; 200_000])));
    }

    #[tokio::test]
    async fn the_answer_is_the_length_of_what_came() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, None));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("\r\n\r\n8 bytes\n"), "{answer}");
    }

    #[test]
    fn a_path_says_what_is_wanted() {
        let by = |path| Wanted::by(&Method::GET, path);
        assert_eq!((by("/b5"), by("/events"), by("/upload")), (Some(Wanted::Zeros(5)), Some(Wanted::Events), None));
        assert_eq!((by("/w8000"), by("/bx")), (Some(Wanted::Late(Duration::from_secs(8), 0)), None));
        assert_eq!((by("/d2-500"), by("/d2")), (Some(Wanted::Late(Duration::from_millis(2), 500)), None));
        assert_eq!(Wanted::by(&Method::POST, "/events"), None);
    }

    #[tokio::test]
    async fn an_event_stream_has_an_event_and_no_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, None));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let wanted = format!("{:X}\r\n{EVENT}\r\n", EVENT.len());
        while !answer.ends_with(wanted.as_bytes()) {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
        }
        assert!(stream.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    }

    #[tokio::test]
    async fn a_get_is_answered_with_as_many_zeros_as_it_names() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, None));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /b100000 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert!(String::from_utf8_lossy(&answer[..head]).contains("content-length: 100000\r\n"));
        assert_eq!(answer[head..], [0; 100_000]);
    }
}
