//! HTTP/3 over tokio-quiche in front of an HTTP/1.1 origin: what a proxy needs and no more, on one thread. No limit,
//! rule or timeout of its own: the least that such a proxy costs.

use bytes::Bytes;
use clap::Parser;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Empty, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{convert::Infallible, error::Error, net::SocketAddr};
use tokio_quiche::{
    ConnectionParams, ServerH3Driver,
    http3::{
        driver::{
            InboundFrame, InboundFrameStream, IncomingH3Headers, OutboundFrame, OutboundFrameSender, ServerH3Event,
        },
        settings::Http3Settings,
    },
    metrics::DefaultMetrics,
    quiche::h3::{Header, NameValue as _},
    settings::{CertificateKind, Hooks, QuicSettings, TlsCertificatePaths},
};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Origin = Client<HttpConnector, Body>;

/// Streams of a connection at a time: what the laboratory's other contenders allow.
const STREAMS: u64 = 256;
/// Fields of one connection, which HTTP/3 does not have (RFC 9114 §4.2).
const HOP_BY_HOP: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, HeaderName::from_static("keep-alive")];

/// tokio-quiche as a proxy.
#[derive(Parser)]
#[command(version = concat!(env!("CARGO_PKG_VERSION"), " over tokio-quiche 0.20"))]
struct Arguments {
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    #[arg(long, value_name = "IP:PORT")]
    origin: SocketAddr,
    #[arg(long, value_name = "FILE")]
    cert: String,
    #[arg(long, value_name = "FILE")]
    key: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let Arguments { listen, origin, cert, key } = Arguments::parse();
    let mut settings = QuicSettings::default();
    settings.initial_max_streams_bidi = STREAMS;
    settings.disable_client_ip_validation = true;
    let certificate = TlsCertificatePaths { cert: &cert, private_key: &key, kind: CertificateKind::X509 };
    let params = ConnectionParams::new_server(settings, certificate, Hooks::default());
    let socket = tokio::net::UdpSocket::bind(listen).await?;
    let mut connections = tokio_quiche::listen([socket], params, DefaultMetrics)?.remove(0);
    let client: Origin = Client::builder(TokioExecutor::new()).build_http();
    while let Some(connection) = connections.next().await {
        let Ok(connection) = connection else { continue };
        let (driver, mut controller) = ServerH3Driver::new(Http3Settings::default());
        connection.start(driver);
        let client = client.clone();
        tokio::spawn(async move {
            while let Some(event) = controller.event_receiver_mut().recv().await {
                if let ServerH3Event::Headers { incoming_headers, .. } = event {
                    tokio::spawn(serve(incoming_headers, client.clone(), origin));
                }
            }
        });
    }
    Ok(())
}

/// Forwards a request, and its response.
async fn serve(incoming: IncomingH3Headers, client: Origin, origin: SocketAddr) {
    let IncomingH3Headers { headers, mut send, recv, read_fin, .. } = incoming;
    let response = match request(&headers, origin, (!read_fin).then_some(recv)) {
        Some(request) => client.request(request).await.ok(),
        None => None,
    };
    let sent = match response {
        Some(response) => answer(response, &mut send).await,
        None => send.send(OutboundFrame::Headers(vec![Header::new(b":status", b"502")], None)).await.is_ok(),
    };
    if !sent {
        let _ = send.send(OutboundFrame::PeerStreamError).await;
    }
}

fn request(headers: &[Header], origin: SocketAddr, body: Option<InboundFrameStream>) -> Option<Request<Body>> {
    let pseudo = |name: &[u8]| headers.iter().find(|header| header.name() == name).map(|header| header.value());
    let path = std::str::from_utf8(pseudo(b":path")?).ok()?;
    let mut request = Request::builder()
        .method(pseudo(b":method")?)
        .uri(format!("http://{origin}{path}"))
        .header(header::HOST, pseudo(b":authority")?);
    for field in headers.iter().filter(|field| !field.name().starts_with(b":")) {
        request = request.header(field.name(), HeaderValue::from_bytes(field.value()).ok()?);
    }
    let Some(recv) = body else { return request.body(Empty::new().boxed_unsync()).ok() };
    let frames = stream::unfold(Some(recv), |recv| async {
        let mut recv = recv?;
        match recv.recv().await? {
            InboundFrame::Body(bytes, fin) => Some((Ok(Frame::data(bytes.freeze())), (!fin).then_some(recv))),
            InboundFrame::Datagram(_) => None,
        }
    });
    request.body(StreamBody::new(Box::pin(frames)).boxed_unsync()).ok()
}

/// Whether all of the response was sent.
async fn answer(response: Response<Incoming>, send: &mut OutboundFrameSender) -> bool {
    let (head, mut body) = response.into_parts();
    let mut headers = vec![Header::new(b":status", head.status.as_str().as_bytes())];
    let end_to_end = head.headers.iter().filter(|(name, _)| !HOP_BY_HOP.contains(name));
    headers.extend(end_to_end.map(|(name, value)| Header::new(name.as_ref(), value.as_bytes())));
    if send.send(OutboundFrame::Headers(headers, None)).await.is_err() {
        return false;
    }
    while let Some(frame) = body.frame().await {
        let Some(data) = frame.ok().and_then(|frame| frame.into_data().ok()) else { return false };
        let fin = body.is_end_stream();
        if send.send(OutboundFrame::Body(data, fin)).await.is_err() || fin {
            return fin;
        }
    }
    send.send(OutboundFrame::Body(Bytes::new(), true)).await.is_ok()
}
