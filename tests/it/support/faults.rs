//! An origin with every way to fail, and the demo's paths beside.
//!
//! | path | answer |
//! |---|---|
//! | `/drip/N/MS` | N chunks, one each MS milliseconds |
//! | `/trailers` | a body with a trailer, for clients that send `TE: trailers` |
//! | `/fail/close` | none: the connection is closed |
//! | `/fail/truncate` | a body shorter than its `Content-Length` |
//! | `/fail/garbage` | bytes that are not HTTP |

use super::prelude::*;
use futures_util::stream;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRAILER},
};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use litequic::cli::demo::origin::{DemoAnswer, DemoBody, DemoFailure, RawSocket, answer_request, duplicate_socket};
use std::io::{self, Write as _};
use tokio::net::TcpListener;

/// Serves each connection of `listener`.
pub(crate) async fn serve_faults(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve_client(stream));
    }
}

async fn serve_client(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = duplicate_socket(&stream).unwrap();
    let service = service_fn(move |request| answer(request, Arc::clone(&socket)));
    // An error is a fault that a test wanted.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, socket: RawSocket) -> Result<DemoAnswer, DemoFailure> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    Ok(match *segments {
        ["drip", drops, wait] => dripping_answer(drops, wait),
        ["trailers"] => trailers_answer(),
        ["fail", "close"] => return Err("closed as asked".into()),
        ["fail", "truncate"] => truncated_answer(),
        ["fail", "garbage"] => {
            (&*socket).write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n")?;
            let mut answer = streamed(Empty::new().map_err(|never| match never {}).boxed_unsync());
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            answer
        }
        _ => return answer_request(request, socket).await,
    })
}

fn streamed(body: DemoBody) -> DemoAnswer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn dripping_answer(drops: &str, wait: &str) -> DemoAnswer {
    let (drops, wait): (u64, _) = (drops.parse().unwrap(), Duration::from_millis(wait.parse().unwrap()));
    let drops = stream::unfold(0, move |drop| async move {
        if drop == drops {
            return None;
        }
        sleep(wait).await;
        Some((Ok::<_, DemoFailure>(Frame::data(format!("drop {drop}\n").into())), drop + 1))
    });
    streamed(StreamBody::new(drops).boxed_unsync())
}

/// Answers with a trailer. hyper sends an announced trailer to a client that sent `TE: trailers` (RFC 9110 §6.5.1).
fn trailers_answer() -> DemoAnswer {
    let trailer = HeaderName::from_static("x-demo-trailer");
    let mut fields = HeaderMap::new();
    fields.insert(trailer.clone(), HeaderValue::from_static("the end"));
    let frames = [Frame::data(Bytes::from_static(b"a trailer follows\n")), Frame::trailers(fields)];
    let mut answer = streamed(StreamBody::new(stream::iter(frames.map(Ok))).boxed_unsync());
    answer.headers_mut().insert(TRAILER, trailer.into());
    answer
}

/// Sends 10 of 1000 bytes, and then closes the connection.
fn truncated_answer() -> DemoAnswer {
    let pieces = stream::unfold(0, |piece| async move {
        match piece {
            0 => Some((Ok(Frame::data(Bytes::from_static(b"truncated\n"))), 1)),
            // hyper writes the first piece before the connection closes.
            1 => {
                sleep(Duration::from_millis(20)).await;
                Some((Err(DemoFailure::from(io::Error::other("truncated as asked"))), 2))
            }
            _ => None,
        }
    });
    let mut answer = streamed(StreamBody::new(pieces).boxed_unsync());
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(1000));
    answer
}
