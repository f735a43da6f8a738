//! Origins that a test plays itself, byte for byte, and one that answers by itself.

use super::{faults::serve_faults, ports::free_tcp_port, prelude::*};
use futures_util::FutureExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::{net::TcpListener, task::JoinSet};

/// A server that ends, with its connections, when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    serving: JoinSet<()>,
}

impl Server {
    /// Has each connection to a free port served by `serve`.
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnMut(TcpStream) -> F + Send + 'static,
    ) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0), serve).await
    }

    /// Has each connection to `address` served by `serve`.
    pub(crate) async fn at<F: Future<Output = ()> + Send + 'static>(
        address: impl Into<SocketAddr>,
        mut serve: impl FnMut(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address.into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        Self { address, serving }
    }

    /// Has it end with the test's runtime instead, and returns its address.
    pub(crate) fn detach(mut self) -> SocketAddr {
        self.serving.detach_all();
        self.address
    }
}

/// Answers each head on `stream` with `answer`.
pub(crate) async fn answer_heads(mut stream: TcpStream, answer: impl AsRef<[u8]>) {
    let mut seen = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut seen).await {
        if seen.ends_with(b"\r\n\r\n") {
            seen.clear();
            stream.write_all(answer.as_ref()).await.unwrap();
        }
    }
}

/// The demo's origin with faults: `/bytes/N`, `/echo`, `/sink`, `/drip/N/MS`, `/status/CODE` and so on. Ends with the
/// test's runtime.
pub(crate) async fn demo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_faults(listener));
    address
}

/// An address without a listener, which no other test is given.
pub(crate) fn closed_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_tcp_port()).into()
}

/// An origin whose connections the test plays.
pub(crate) struct Script {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Script {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    /// Starts one, and a litequic before it whose configuration `edit` has changed.
    pub(crate) async fn behind_litequic(edit: impl FnOnce(&mut Config)) -> (Self, Litequic) {
        let script = Self::new().await;
        let litequic = Litequic::start(script.address, edit).await;
        (script, litequic)
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) = within("a connection to the origin", self.listener.accept()).await.unwrap();
        Peer { stream, seen: Vec::new() }
    }

    /// The next connection, of whose request the head was read.
    pub(crate) async fn accept_request(&self) -> Peer {
        let mut peer = self.accept().await;
        peer.head().await;
        peer
    }

    /// Fails if there is a connection that was not accepted yet.
    pub(crate) fn saw_no_connection(&self) {
        assert!(self.listener.accept().now_or_never().is_none(), "there was a connection to the origin");
    }
}

/// The origin's end of a connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    seen: Vec<u8>,
}

impl Peer {
    /// Reads on until what was read ends with `end`, and returns it all.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        while !self.seen.ends_with(end.as_bytes()) {
            let read = within(&format!("{end:?} at the origin"), self.stream.read_buf(&mut self.seen)).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&self.seen));
        }
        String::from_utf8(std::mem::take(&mut self.seen)).unwrap()
    }

    /// A request's head; what came with it of the body is read next.
    pub(crate) async fn head(&mut self) -> Head {
        loop {
            if let Some(end) = self.seen.windows(4).position(|four| four == b"\r\n\r\n") {
                let body = self.seen.split_off(end + 4);
                return Head(String::from_utf8(std::mem::replace(&mut self.seen, body)).unwrap());
            }
            let read = within("a request's head at the origin", self.stream.read_buf(&mut self.seen)).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&self.seen));
        }
    }

    /// Exactly `length` bytes.
    pub(crate) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.seen);
        let before = bytes.len();
        assert!(before <= length);
        bytes.resize(length, 0);
        within("a request's body", self.stream.read_exact(&mut bytes[before..])).await.unwrap();
        bytes
    }

    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Everything until litequic closes or resets the connection.
    pub(crate) async fn rest(&mut self) -> String {
        while let Ok(read) = within("the connection's end", self.stream.read_buf(&mut self.seen)).await {
            if read == 0 {
                break;
            }
        }
        String::from_utf8(std::mem::take(&mut self.seen)).unwrap()
    }

    /// True if bytes wait to be read.
    pub(crate) fn has_more(&mut self) -> bool {
        self.stream.read_buf(&mut self.seen).now_or_never().is_some()
    }
}

/// The head of a request as the origin got it.
#[derive(Debug)]
pub(crate) struct Head(pub(crate) String);

impl Head {
    /// The request line.
    pub(crate) fn line(&self) -> &str {
        self.0.lines().next().unwrap()
    }

    /// The values of the lines named `name`, in lower case.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.0.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    /// The one value of `name`.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} stands several times: {all:?}");
        all.first().copied()
    }
}

/// An origin that gives every request the same answer, byte for byte, and records what it got. It takes a request for
/// whole when its head is.
pub(crate) struct Always {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<u8>>>,
    _server: Server,
}

impl Always {
    /// An empty 200 and its connection kept.
    pub(crate) const EMPTY_200: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

    pub(crate) async fn new(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        let (connections, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counter, record) = (Arc::clone(&connections), Arc::clone(&seen));
        let server = Server::start(move |stream| {
            counter.fetch_add(1, Ordering::Relaxed);
            Self::serve(stream, Arc::clone(&answer), Arc::clone(&record))
        })
        .await;
        Self { address: server.address, connections, seen, _server: server }
    }

    /// Starts one, and a litequic before it whose configuration `edit` has changed.
    pub(crate) async fn behind_litequic(
        answer: impl Into<Vec<u8>>,
        edit: impl FnOnce(&mut Config),
    ) -> (Self, Litequic) {
        let origin = Self::new(answer).await;
        let litequic = Litequic::start(origin.address, edit).await;
        (origin, litequic)
    }

    async fn serve(mut stream: TcpStream, answer: Arc<[u8]>, record: Arc<Mutex<Vec<u8>>>) {
        let mut seen = Vec::new();
        while let Ok(read @ 1..) = stream.read_buf(&mut seen).await {
            record.lock().unwrap().extend_from_slice(&seen[seen.len() - read..]);
            while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
                seen.drain(..end + 4);
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        }
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Every byte that came, over all connections.
    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }
}
