//! What stands for the proxy where a client is fuzzed.

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame};
use litequic_exchange::{Abort, Body, BodyError, Exchange, Fields, Handler, Response};
use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::sleep;

/// Bytes of a large response: more than a stream's window.
const LARGE: usize = 100_000;
/// The default of `timeouts.response_header`.
const RESPONSE_HEADER: Duration = Duration::from_secs(60);

/// Answers in as many ways as a proxy does, by the last byte of the path.
pub struct Answers;

impl Handler for Answers {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let Exchange { mut request, interim, .. } = exchange;
        let answer = |status, body: Body| Ok(Response::new(status, body));
        let kind = request.head.path_without_query().bytes().last().unwrap_or_default();
        if request.head.upgrade.is_some() {
            return answer(StatusCode::NOT_IMPLEMENTED, Body::empty());
        }
        match kind {
            b'a' => answer(StatusCode::NO_CONTENT, Body::empty()),
            b'b' => answer(StatusCode::OK, Bytes::from(vec![b'x'; LARGE]).into()),
            b'c' => {
                sleep(RESPONSE_HEADER).await;
                answer(StatusCode::GATEWAY_TIMEOUT, Body::empty())
            }
            b'd' => Err(Abort::Internal),
            b'e' => answer(StatusCode::OK, Pieces::body(&[Ok("some"), Err(BodyError::Truncated)], Some(100))),
            b'f' => answer(StatusCode::OK, Pieces::body(&[Ok("some"), Ok("more")], None)),
            b'g' => answer(StatusCode::OK, request.body),
            b'h' => {
                interim.send_interim(StatusCode::EARLY_HINTS, Fields::new());
                answer(StatusCode::OK, "hinted".into())
            }
            b'i' => answer(StatusCode::NOT_MODIFIED, Body::empty()),
            _ => {
                // As the proxy does after a second: a client may wait for it.
                interim.send_interim(StatusCode::CONTINUE, Fields::new());
                let body = &mut request.body;
                let mut length = 0;
                while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
                    match frame {
                        Ok(frame) => length += frame.into_data().map_or(0, |data| data.len()),
                        Err(_) => return Err(Abort::Request),
                    }
                }
                answer(StatusCode::OK, format!("{length}").into())
            }
        }
    }
}

/// A body of pieces.
struct Pieces(VecDeque<Result<&'static str, BodyError>>, Option<u64>);

impl Pieces {
    fn body(pieces: &[Result<&'static str, BodyError>], length: Option<u64>) -> Body {
        Body::from_stream(Self(pieces.iter().copied().collect(), length))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = self.0.pop_front();
        Poll::Ready(piece.map(|piece| piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.1.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}
