//! A viewer's connection: segments over HTTP/1.1 or HTTP/2 (hyper) or HTTP/3 (h3 over quinn), one request at a time.

use super::socket::OneByOne;
use crate::client::tls;
use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, Bytes};
use clap::ValueEnum;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, Response, body::Incoming, client::conn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::Runtime as _;
use std::{
    cell::RefCell,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpStream, task::spawn_local, time::timeout};
use tokio_rustls::TlsConnector;

/// For a connection, and for each piece of a body.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a browser offers, so that a server is not held back: Chromium's are 6 and 15 MB.
const STREAM_WINDOW: u32 = 6 << 20; // bytes
const CONNECTION_WINDOW: u32 = 15 << 20; // bytes

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    H1,
    H2,
    H3,
}

/// An open connection. What drives it ends with it.
pub(super) enum Connection {
    H1(conn::http1::SendRequest<Empty<Bytes>>),
    H2(conn::http2::SendRequest<Empty<Bytes>>),
    H3 { requests: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>, _endpoint: quinn::Endpoint },
}

/// Whether a body is wanted on.
pub(super) enum Flow {
    Continue,
    GiveUp,
}

impl Connection {
    pub(super) async fn open(protocol: Protocol, address: SocketAddr, configs: &RefCell<tls::Configs>) -> Result<Self> {
        timeout(PATIENCE, Self::connect(protocol, address, configs)).await.context("no connection in time")?
    }

    async fn connect(protocol: Protocol, address: SocketAddr, configs: &RefCell<tls::Configs>) -> Result<Self> {
        let alpn = match protocol {
            Protocol::H1 => "http/1.1",
            Protocol::H2 => "h2",
            Protocol::H3 => return Self::connect_h3(address, configs).await,
        };
        let config = configs.borrow_mut().of(alpn)?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(TlsConnector::from(config).connect(tls::name()?, stream).await?);
        if protocol == Protocol::H1 {
            let (requests, connection) = conn::http1::handshake(stream).await?;
            spawn_local(connection);
            return Ok(Self::H1(requests));
        }
        let mut builder = conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let (requests, connection) = builder.handshake(stream).await?;
        spawn_local(connection);
        Ok(Self::H2(requests))
    }

    async fn connect_h3(address: SocketAddr, configs: &RefCell<tls::Configs>) -> Result<Self> {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(STREAM_WINDOW.into()).receive_window(CONNECTION_WINDOW.into());
        let mut config = quinn::ClientConfig::new(configs.borrow_mut().quic()?);
        config.transport_config(Arc::new(transport));
        let any = SocketAddr::new(if address.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() }, 0);
        let runtime = Arc::new(quinn::TokioRuntime);
        let socket = OneByOne::new(runtime.wrap_udp_socket(UdpSocket::bind(any)?)?);
        let endpoint =
            quinn::Endpoint::new_with_abstract_socket(quinn::EndpointConfig::default(), None, socket, runtime)?;
        let connection = endpoint.connect_with(config, address, tls::NAME)?.await?;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
        spawn_local(async move {
            // Until the connection ends: why, the requests say.
            let _ = std::future::poll_fn(|cx| driver.poll_close(cx)).await;
        });
        Ok(Self::H3 { requests, _endpoint: endpoint })
    }

    /// Requests `path`, and reports each piece that comes to `progress`: its bytes, and those of the whole body.
    /// `false`: it was given up.
    pub(super) async fn get(&mut self, path: &str, progress: impl FnMut(u64, u64) -> Flow) -> Result<bool> {
        let request = || Request::get(format!("https://{}{path}", tls::NAME));
        let empty = Empty::<Bytes>::new();
        match self {
            Self::H1(requests) => {
                timeout(PATIENCE, requests.ready()).await.context("the connection is busy")??;
                let request = Request::get(path).header("host", tls::NAME).body(empty)?;
                read(patient(requests.send_request(request)).await?, progress).await
            }
            Self::H2(requests) => {
                timeout(PATIENCE, requests.ready()).await.context("the connection is busy")??;
                read(patient(requests.send_request(request().body(empty)?)).await?, progress).await
            }
            Self::H3 { requests, .. } => {
                let mut stream = patient(requests.send_request(request().body(())?)).await?;
                patient(stream.finish()).await?;
                let head = patient(stream.recv_response()).await?;
                let (total, mut progress) = (total(&head)?, progress);
                while let Some(piece) = patient(stream.recv_data()).await? {
                    if let Flow::GiveUp = progress(piece.remaining() as u64, total) {
                        // Dropped, it sends STOP_SENDING. h3-quinn 0.0.10 panics on that while a read is pending.
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Whether another request can be sent after one was given up: over HTTP/1.1 its rest would have to be read.
    pub(super) fn survives_giving_up(&self) -> bool {
        !matches!(self, Self::H1(_))
    }
}

async fn patient<T, E: Into<anyhow::Error>>(future: impl Future<Output = Result<T, E>>) -> Result<T> {
    timeout(PATIENCE, future).await.context("nothing came for 30 s")?.map_err(Into::into)
}

async fn read(response: Response<Incoming>, mut progress: impl FnMut(u64, u64) -> Flow) -> Result<bool> {
    let total = total(&response)?;
    let mut body = response.into_body();
    while let Some(frame) = timeout(PATIENCE, body.frame()).await.context("nothing came for 30 s")? {
        let Ok(piece) = frame?.into_data() else { continue };
        if let Flow::GiveUp = progress(piece.len() as u64, total) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes of the whole body.
fn total<B>(response: &Response<B>) -> Result<u64> {
    ensure!(response.status() == 200, "status {}", response.status());
    match response.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse().ok()) {
        Some(length) => Ok(length),
        None => bail!("no Content-Length"),
    }
}
