//! A collector of a test's own: what it got, decoded by the messages that others have compiled, and answers as a test
//! likes them. Over HTTP/1.1 it is written by hand, over HTTP/2 (gRPC) it is h2's.

use super::prelude::*;
use http::{HeaderMap, Response};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;
use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// What a collector does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Manner {
    /// 200, or grpc-status 0.
    Accept,
    /// These bytes, and then the connection goes on.
    Say(Vec<u8>),
    /// These bytes, and then the connection closes.
    Break(Vec<u8>),
    /// Never an answer.
    Hang,
    /// 200 with a body that does not end.
    Gigabyte,
    /// Of gRPC: this status, message and details.
    Status(u32, &'static str, Option<String>),
}

/// A connection, over TLS or not.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<ExportTraceServiceRequest>,
    heads: Vec<String>,
    connections: usize,
    /// For the next requests; those after it are accepted.
    script: VecDeque<Manner>,
}

/// A collector, which ends with the test's runtime.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    is_grpc: bool,
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<usize>,
    _server: Server,
}

impl Collector {
    /// Accepts everything over HTTP/1.1.
    pub(crate) async fn http() -> Self {
        Self::start(false, []).await
    }

    /// Accepts everything over gRPC.
    pub(crate) async fn grpc() -> Self {
        Self::start(true, []).await
    }

    /// Treats the first requests as `script` says, and accepts those after them.
    pub(crate) async fn start(is_grpc: bool, script: impl IntoIterator<Item = Manner>) -> Self {
        Self::start_with(is_grpc, script, None).await
    }

    /// Accepts everything, over TLS.
    pub(crate) async fn secure(is_grpc: bool, tls: TlsAcceptor) -> Self {
        Self::start_with(is_grpc, [], Some(tls)).await
    }

    async fn start_with(is_grpc: bool, script: impl IntoIterator<Item = Manner>, tls: Option<TlsAcceptor>) -> Self {
        let seen = Arc::new(Mutex::new(Seen { script: script.into_iter().collect(), ..Seen::default() }));
        let (change, changed) = watch::channel(0);
        let (shared, change) = (Arc::clone(&seen), Arc::new(change));
        let server = Server::start(move |stream| {
            shared.lock().unwrap().connections += 1;
            let (seen, change, tls) = (Arc::clone(&shared), Arc::clone(&change), tls.clone());
            async move {
                let stream: Box<dyn Stream> = match tls {
                    None => Box::new(stream),
                    // A client that does not trust it goes.
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => return,
                    },
                };
                // A connection's end is the client's.
                let _ = match is_grpc {
                    true => grpc(stream, &seen, &change).await.is_some(),
                    false => http(stream, &seen, &change).await.is_some(),
                };
            }
        })
        .await;
        Self { address: server.address, is_grpc, seen, changed, _server: server }
    }

    /// The URL for `traces.endpoint`.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.is_grpc { "grpc" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.seen.lock().unwrap().heads.len()
    }

    /// Heads of requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.seen.lock().unwrap().heads.clone()
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// Waits until there were `count` requests.
    pub(crate) async fn asked(&self, count: usize) {
        let mut changed = self.changed.clone();
        let enough = within(&format!("{count} exports"), changed.wait_for(|seen| *seen >= count)).await;
        enough.unwrap();
    }

    /// All spans of requests that were accepted, once there are `count`.
    pub(crate) async fn spans(&self, count: usize) -> Vec<SeenSpan> {
        let mut changed = self.changed.clone();
        let enough = async {
            loop {
                changed.mark_unchanged();
                let spans = self.all();
                if spans.len() >= count {
                    return spans;
                }
                changed.changed().await.unwrap();
            }
        };
        match timeout(DEADLINE, enough).await {
            Ok(spans) => {
                assert_eq!(spans.len(), count, "{spans:#?}");
                spans
            }
            Err(_) => panic!("{count} spans: there are {:#?}", self.all()),
        }
    }

    /// All spans of requests that were accepted.
    pub(crate) fn all(&self) -> Vec<SeenSpan> {
        let seen = self.seen.lock().unwrap();
        let resources = seen.requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.iter().cloned().map(SeenSpan::new)).collect()
    }

    /// Attributes of the resource of the last request.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        let seen = self.seen.lock().unwrap();
        let resource = seen.requests.last().unwrap().resource_spans[0].resource.clone();
        attributes(&resource.unwrap().attributes)
    }
}

/// Takes note of a request with `body`, whose message begins at `at`; returns what becomes of it.
fn note(seen: &Mutex<Seen>, change: &watch::Sender<usize>, head: String, body: &[u8], at: usize) -> Manner {
    let request = ExportTraceServiceRequest::decode(&body[at..]).unwrap();
    let mut seen = seen.lock().unwrap();
    let manner = seen.script.pop_front().unwrap_or(Manner::Accept);
    seen.heads.push(head);
    if matches!(manner, Manner::Accept) {
        seen.requests.push(request);
    }
    change.send_replace(seen.heads.len());
    manner
}

async fn http(mut stream: impl Stream, seen: &Mutex<Seen>, change: &watch::Sender<usize>) -> Option<()> {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(read[..end].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let length: usize = length.unwrap();
        while read.len() < end + length {
            if stream.read_buf(&mut read).await.ok()? == 0 {
                return None;
            }
        }
        let body: Vec<u8> = read.drain(..end + length).skip(end).collect();
        match note(seen, change, head, &body, 0) {
            Manner::Accept => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.ok()?;
            }
            Manner::Say(bytes) => stream.write_all(&bytes).await.ok()?,
            Manner::Break(bytes) => {
                stream.write_all(&bytes).await.ok()?;
                return Some(());
            }
            Manner::Gigabyte => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n").await.ok()?;
                loop {
                    stream.write_all(&[0; 65_536]).await.ok()?;
                }
            }
            Manner::Hang | Manner::Status(..) => pending().await,
        }
    }
}

async fn grpc(stream: impl Stream, seen: &Mutex<Seen>, change: &watch::Sender<usize>) -> Option<()> {
    let mut connection = h2::server::handshake(stream).await.ok()?;
    // Streams are served one after another: the exporter has one at a time.
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (head, mut body) = request.into_parts();
        let mut bytes = Vec::new();
        // The connection has to be polled meanwhile.
        let mut next = JoinSet::from_iter([async move {
            while let Some(Ok(piece)) = body.data().await {
                let _ = body.flow_control().release_capacity(piece.len());
                bytes.extend_from_slice(&piece);
            }
            bytes
        }]);
        let bytes = tokio::select! {
            bytes = next.join_next() => bytes?.ok()?,
            _ = connection.accept() => return None,
        };
        assert_eq!(bytes[0], 0, "not compressed");
        assert_eq!(u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize, bytes.len() - 5);
        let written = format!("{} {} {:?}", head.method, head.uri, head.headers);
        let manner = note(seen, change, written, &bytes, 5);
        let header = Response::builder().header("content-type", "application/grpc");
        match manner {
            Manner::Accept => {
                let mut send = respond.send_response(header.body(()).unwrap(), false).ok()?;
                send.send_data(Bytes::from_static(&[0; 5]), false).ok()?;
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                send.send_trailers(trailers).ok()?;
            }
            // In the header alone.
            Manner::Status(status, message, details) => {
                let mut header = header.header("grpc-status", status).header("grpc-message", message);
                if let Some(details) = details {
                    header = header.header("grpc-status-details-bin", details);
                }
                respond.send_response(header.body(()).unwrap(), true).ok()?;
            }
            other => {
                assert!(matches!(other, Manner::Hang), "{other:?}");
                // The stream stays open.
                std::mem::forget(respond);
            }
        }
    }
    Some(())
}

/// A span as a test looks at it.
#[derive(Debug, Clone)]
pub(crate) struct SeenSpan {
    pub(crate) name: String,
    pub(crate) is_server: bool,
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    pub(crate) parent_id: String,
    pub(crate) is_error: bool,
    pub(crate) attributes: BTreeMap<String, String>,
    /// Trace IDs.
    pub(crate) links: Vec<String>,
}

impl SeenSpan {
    fn new(span: Span) -> Self {
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
        Self {
            is_server: span.kind == SpanKind::Server as i32,
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_id: hex(&span.parent_span_id),
            is_error: span.status.is_some_and(|status| status.code == StatusCode::Error as i32),
            attributes: attributes(&span.attributes),
            links: span.links.iter().map(|link| hex(&link.trace_id)).collect(),
            name: span.name,
        }
    }

    /// An attribute's value, or nothing.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |one: &KeyValue| match one.value.as_ref().and_then(|value| value.value.clone()).unwrap() {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(is) => is.to_string(),
        other => panic!("{other:?}"),
    };
    all.iter().map(|one| (one.key.clone(), value(one))).collect()
}
