//! The origin: bodies by their seed, and digests of what it is sent. A process of its own (`soak origin ADDRESS…`), so
//! that litequic's is the only work that its clients' thread shares a core with by chance alone.
//!
//! | path, with or without `/steady` before it | answer |
//! |---|---|
//! | `/bytes/SEED/LENGTH`, `/files/SEED/LENGTH` | that body, with its length |
//! | `/chunks/SEED/LENGTH` | the same in chunks |
//! | `/digest` (POST) | how many bytes came, and their SHA-256 |

use crate::content::Content;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use std::{convert::Infallible, fmt::Write as _, io::Read as _, net::SocketAddr};
use tokio::{net::TcpListener, task::JoinSet};

/// Before the path when the request came by the route of the origin that is never restarted.
pub(crate) const STEADY: &str = "/steady";
/// How many bytes the client is about to send, so that an upload that was cut is not taken for whole.
pub(crate) const LENGTH_DUE: &str = "x-length-due";
/// How an upload begins in this program's standard output that was taken for whole and is not.
pub(crate) const SHORT: &str = "short upload";
/// Of a body at a time.
const PIECE: usize = 64 << 10;

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Serves at `addresses` until standard input ends, which it does with the process that started this one.
///
/// # Errors
///
/// The kernel's, when an address cannot be bound.
pub(crate) async fn serve(addresses: Vec<SocketAddr>) -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut listeners = JoinSet::new();
    for address in addresses {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot bind {address}"))?;
        listeners.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                // Ends with its client.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
            }
        });
    }
    listeners.join_next().await;
    Ok(())
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    let path = request.uri().path();
    let path = path.strip_prefix(STEADY).unwrap_or(path).to_owned();
    let content = |seed: &str, length: &str| Some(Content { seed: seed.parse().ok()?, length: length.parse().ok()? });
    let segments: Vec<_> = path.split('/').skip(1).collect();
    Ok(match *segments {
        ["digest"] => digest(request).await?,
        [how @ ("bytes" | "files" | "chunks"), seed, length] => match content(seed, length) {
            Some(content) => body(content, how != "chunks"),
            None => text(StatusCode::BAD_REQUEST, "seed and length are numbers".into()),
        },
        _ => text(StatusCode::NOT_FOUND, "not found".into()),
    })
}

fn body(content: Content, with_length: bool) -> Response<Body> {
    let pieces = stream::unfold(0, move |offset| async move {
        let piece = content.piece(offset, PIECE);
        (!piece.is_empty()).then(|| {
            let next = offset + piece.len() as u64;
            (Ok::<_, Infallible>(Frame::data(piece)), next)
        })
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    if with_length {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(content.length));
    }
    response
}

#[expect(clippy::print_stdout, reason = "its parent reads it")]
async fn digest(request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    let due = request.headers().get(LENGTH_DUE).and_then(|due| due.to_str().ok()?.parse::<u64>().ok());
    let mut body = request.into_body();
    let (mut digest, mut count) = (Sha256::new(), 0);
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            count += piece.len() as u64;
            digest.update(&piece);
        }
    }
    if due.is_some_and(|due| due != count) {
        println!("{SHORT}: {count} bytes of {due:?}");
    }
    Ok(text(StatusCode::OK, format!("{count} {}", hex(&digest.finalize()))))
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// In lower case.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
