//! The clients' end: h3 on quinn. Each connection has a socket of its own, so that any worker may get it.

use crate::{
    account::{End, Failure},
    cable::Cable,
    content::Content,
    origin::{LENGTH_DUE, hex},
};
use anyhow::{Context as _, Result};
use bytes::{Buf as _, Bytes};
use h3::{
    client::{RequestStream, SendRequest},
    error::{Code, StreamError},
};
use h3_quinn::{BidiStream, OpenStreams};
use http::{Request, StatusCode, header};
use litequic_tls::{self as tls, ServerTrust};
use quinn::{Runtime as _, TokioRuntime, TransportConfig, VarInt, crypto::rustls::QuicClientConfig};
use sha2::{Digest as _, Sha256};
use std::{
    cell::Cell,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Nothing that litequic does takes that long without a byte, the origin being there.
const STALL: Duration = Duration::from_secs(45);
/// s2n-quic follows a client to four other addresses at most (its path manager has room for five).
const MAX_REBINDS: u8 = 3;

const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Below the three seconds of a path's validation, and every idle timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// What every connection is made with.
pub(crate) struct Connector {
    server: SocketAddr,
    /// Keeps the tickets of earlier connections.
    resuming: Arc<QuicClientConfig>,
    fresh: Arc<QuicClientConfig>,
}

impl Connector {
    pub(crate) fn new(server: SocketAddr) -> Result<Self> {
        let resuming = tls::client_config(&ServerTrust::Insecure)?;
        let mut fresh = resuming.clone();
        fresh.resumption = rustls::client::Resumption::disabled();
        Ok(Self { server, resuming: Arc::new(resuming.try_into()?), fresh: Arc::new(fresh.try_into()?) })
    }

    /// Connects; a stream takes `window` bytes ahead, if that is given.
    pub(crate) async fn connect(&self, resume: bool, window: Option<u32>) -> Result<Client> {
        let crypto = if resume { &self.resuming } else { &self.fresh };
        let mut config = quinn::ClientConfig::new(Arc::clone(crypto) as _);
        let mut transport = TransportConfig::default();
        // s2n-quic challenges a new address twice and no more: if the answer is lost, it goes back to the old one after
        // three seconds. A client that only reads finds its way again by something to send.
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        if let Some(window) = window {
            transport.stream_receive_window(window.into()).receive_window(VarInt::from_u32(window).max(MIN_WINDOW));
        }
        config.transport_config(Arc::new(transport));
        let cut = Arc::new(AtomicBool::new(false));
        let inner = TokioRuntime.wrap_udp_socket(socket()?)?;
        let socket = Arc::new(Cable::new(inner, Arc::clone(&cut), false));
        let runtime = Arc::new(TokioRuntime);
        let endpoint = quinn::Endpoint::new_with_abstract_socket(Default::default(), None, socket, runtime)?;
        let connecting = endpoint.connect_with(config, self.server, "localhost")?;
        let quic = timeout(STALL, connecting).await.context("no handshake")?.context("no connection")?;
        let connection = h3_quinn::Connection::new(quic.clone());
        let (mut driver, requests) = h3::client::new(connection).await.context("no HTTP/3")?;
        // Ends with the connection.
        tokio::task::spawn_local(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        let base = format!("https://localhost:{}", self.server.port());
        Ok(Client { endpoint, quic, requests, cut, base, rebinds: Cell::new(0) })
    }
}

/// HTTP/3's own streams need some.
const MIN_WINDOW: VarInt = VarInt::from_u32(16 << 10);

/// A connection. Dropped, it is closed.
pub(crate) struct Client {
    endpoint: quinn::Endpoint,
    quic: quinn::Connection,
    requests: SendRequest<OpenStreams, Bytes>,
    cut: Arc<AtomicBool>,
    base: String,
    rebinds: Cell<u8>,
}

/// What to do after some bytes of a body.
pub(crate) enum Next {
    More,
    Pause(Duration),
    /// The rest is not wanted.
    Enough,
}

/// What was cancelled on request, and after how many bytes.
pub(crate) struct Broken {
    stream: Stream,
    pub(crate) bytes: u64,
}

impl Broken {
    /// RESET_STREAM.
    pub(crate) fn reset(mut self) -> u64 {
        self.stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        self.bytes
    }

    /// STOP_SENDING, which quinn sends for a stream that is dropped. (h3-quinn 0.0.10 panics in `stop_sending` while
    /// more of the stream is being read ahead.)
    pub(crate) fn stop(self) -> u64 {
        drop(self.stream);
        self.bytes
    }
}

impl Client {
    /// Reads the body at `path`, or a part of it, and compares it. `next` gets the number of bytes so far, 0 at first.
    /// Cancels if it returns so.
    pub(crate) async fn download(
        &self,
        path: &str,
        content: Content,
        part: Option<(u64, u64)>,
        mut next: impl FnMut(u64) -> Next,
    ) -> Result<Broken, End> {
        let mut request = Request::get(format!("{}{path}", self.base));
        let (first, end) = part.unwrap_or((0, content.length));
        if part.is_some() {
            request = request.header(header::RANGE, format!("bytes={first}-{}", end - 1));
        }
        let mut stream = self.send(request).await?;
        moving(stream.finish()).await?;
        if pace(&mut next, 0).await {
            return Ok(Broken { stream, bytes: 0 });
        }
        let status = moving(stream.recv_response()).await?.status();
        let due = if part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        if status != due {
            return Err(End::Failed(Failure::Status(status.as_u16())));
        }
        let mut bytes = 0;
        while let Some(mut piece) = moving(stream.recv_data()).await? {
            while piece.has_remaining() {
                let chunk = piece.chunk();
                let whole = Content { length: end, ..content };
                if let Err(place) = whole.check(first + bytes, chunk) {
                    return Err(End::Wrong(format!("byte {place} of {end} is not the one that stands there")));
                }
                bytes += chunk.len() as u64;
                piece.advance(chunk.len());
            }
            if pace(&mut next, bytes).await {
                return Ok(Broken { stream, bytes });
            }
        }
        if first + bytes != end {
            return Err(End::Wrong(format!("{bytes} bytes for a whole body of {}", end - first)));
        }
        Err(End::Whole(bytes))
    }

    /// Sends `content` in pieces of `piece` bytes, and compares the digest that comes back. `next` gets how many were
    /// sent out.
    pub(crate) async fn upload(
        &self,
        path: &str,
        content: Content,
        chunked: bool,
        piece: usize,
        mut next: impl FnMut(u64) -> Next,
    ) -> Result<Broken, End> {
        let mut request = Request::post(format!("{}{path}", self.base)).header(LENGTH_DUE, content.length);
        if !chunked {
            request = request.header(header::CONTENT_LENGTH, content.length);
        }
        let mut stream = self.send(request).await?;
        let (mut digest, mut bytes, mut refused) = (Sha256::new(), 0, None);
        while bytes < content.length {
            if pace(&mut next, bytes).await {
                return Ok(Broken { stream, bytes });
            }
            let piece = content.piece(bytes, piece);
            digest.update(&piece);
            bytes += piece.len() as u64;
            if let Err(error) = moving(stream.send_data(piece)).await {
                // The answer has the reason.
                refused = Some(error);
                break;
            }
        }
        if refused.is_none() {
            refused = moving(stream.finish()).await.err();
        }
        let status = moving(stream.recv_response()).await?.status();
        if status != StatusCode::OK {
            return Err(End::Failed(Failure::Status(status.as_u16())));
        }
        let mut answer = Vec::new();
        while let Some(mut piece) = moving(stream.recv_data()).await? {
            answer.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        let (found, due) =
            (String::from_utf8_lossy(&answer), format!("{} {}", content.length, hex(&digest.finalize())));
        match refused {
            None if found == due => Err(End::Whole(bytes)),
            None => Err(End::Wrong(format!("the origin got {found}, sent was {due}"))),
            Some(error) => Err(End::Wrong(format!("answered {found} after {bytes} bytes of {due}: {error:?}"))),
        }
    }

    async fn send(&self, request: http::request::Builder) -> Result<Stream, End> {
        let request = request.body(()).map_err(|error| End::Wrong(error.to_string()))?;
        Ok(moving(self.requests.clone().send_request(request)).await?)
    }

    /// Goes on from another port, as behind a NAT that forgot the old one; so often as s2n-quic takes it.
    pub(crate) fn rebind(&self) {
        if self.rebinds.get() < MAX_REBINDS {
            self.rebinds.set(self.rebinds.get() + 1);
            // Without another socket the old one stays.
            if let Ok(socket) = socket() {
                let _ = self.endpoint.rebind(socket);
            }
        }
    }

    /// How the connection fares, for a complaint.
    pub(crate) fn state(&self) -> String {
        let stats = self.quic.stats();
        format!(
            "port {}, {} datagrams out, {} in, {} packets lost, {} rebinds, {:?}",
            self.endpoint.local_addr().map(|address| address.port()).unwrap_or_default(),
            stats.udp_tx.datagrams,
            stats.udp_rx.datagrams,
            stats.path.lost_packets,
            self.rebinds.get(),
            stats.frame_rx,
        )
    }

    /// CONNECTION_CLOSE, even with requests in flight.
    pub(crate) fn close(&self) {
        self.quic.close(VarInt::from_u32(0x100), b"");
    }

    /// Nothing goes out any more, not even a close.
    pub(crate) fn vanish(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }
}

/// On a port of its own, with room for what comes while other players have the thread: lost packets are not the point.
fn socket() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    // As much as net.core.rmem_max allows.
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}

/// True if it was enough.
async fn pace(next: &mut impl FnMut(u64) -> Next, bytes: u64) -> bool {
    match next(bytes) {
        Next::More => false,
        Next::Pause(pause) => {
            sleep(pause).await;
            false
        }
        Next::Enough => true,
    }
}

async fn moving<T>(step: impl Future<Output = Result<T, StreamError>>) -> Result<T, Failure> {
    match timeout(STALL, step).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(StreamError::RemoteTerminate { code, .. })) => Err(Failure::StreamReset(code.value())),
        Ok(Err(error)) => Err(Failure::Other(error.to_string())),
        Err(_) => Err(Failure::Other(format!("nothing moved for {STALL:?}"))),
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
