//! One stream: its request goes to the handler, interim responses and the response to h2, as fast as the client takes
//! it.

use super::{Tasks, body::Http2Received, tunnel::Connected, window::poll_capacity};
use crate::{
    exchange::{ClientDeadline, Handler, Interim, MinimumRate, TimeoutCause},
    receive_budget::ReceiveAccount,
    tcp::{
        answer::Answer, body::TcpResponseBody, connection::Connection, io::WriteTimeout, share::SharedPiece,
        tunnel::TunnelHandoff, writes::Writes,
    },
};
use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderValue, Method, Request, Response, StatusCode, header, response};
use http_body::Body as _;
use std::{
    future::poll_fn,
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Serves the request on a stream. Dropped before its end, it cancels the exchange and resets the stream.
pub(super) async fn serve<H: Handler>(
    connection: Rc<Connection<H>>,
    request: Request<RecvStream>,
    mut respond: SendResponse<SharedPiece>,
    account: ReceiveAccount,
    tasks: Weak<Tasks>,
) {
    let id = respond.stream_id().as_u32();
    let (head, stream) = request.into_parts();
    // What follows a CONNECT is not a body.
    let (body, tunnel) = match stream {
        stream if head.method == Method::CONNECT => (None, Some((stream, account))),
        stream if stream.is_end_stream() => (None, None),
        stream => (Some(Http2Received::new(stream, &head.headers, account, tasks)), None),
    };
    let (interim, queue) = Interim::channel();
    let answer = {
        let mut answer = pin!(connection.answer(Ok((head, body)), interim, id));
        poll_fn(|cx| {
            // The client has cancelled the request, maybe before this task began.
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            let answer = answer.as_mut().poll(cx);
            // Interim responses of the origin are sent before its final one.
            while let Poll::Ready((status, fields)) = queue.poll_next(cx) {
                // They are advisory, and h2 queues them without a limit. 100 comes once.
                if connection.writes.is_blocked() && status != StatusCode::CONTINUE {
                    connection.metrics().limit_interim.increment();
                    continue;
                }
                let mut interim = Response::new(());
                (*interim.status_mut(), *interim.headers_mut()) = (status, fields.into());
                if respond.send_informational(interim).is_ok() {
                    connection.writes.begin_interim(id, status);
                }
            }
            answer.map(Some)
        })
        .await
    };
    match (answer, tunnel) {
        (None, _) => {}
        (Some(Ok(Answer::Response(response))), _) => send(&connection, response, &mut respond).await,
        (Some(Ok(Answer::Tunnel(head, handoff))), Some((stream, account))) => {
            join(&connection, head, handoff, &mut respond, stream, account).await;
        }
        (Some(Ok(Answer::Tunnel(..)) | Err(_)), _) => respond.send_reset(Reason::INTERNAL_ERROR),
    }
}

/// Sends the answer that the protocol is switched, which is 200 here, and joins the tunnel with the client's bytes.
async fn join<H: Handler>(
    connection: &Connection<H>,
    mut head: response::Parts,
    handoff: TunnelHandoff<H>,
    respond: &mut SendResponse<SharedPiece>,
    stream: RecvStream,
    account: ReceiveAccount,
) {
    head.status = StatusCode::OK;
    handoff.open.begin(head.status);
    // An error means that the client has gone before the answer.
    if let Ok(send) = respond.send_response(Response::from_parts(head, ()), false) {
        let (pace, metrics) = (MinimumRate::any(connection.terms.timeouts.send), Arc::clone(connection.metrics()));
        // A tunnel that stalls ends alone: its connection continues.
        let writes = Rc::new(Writes::<()>::new(Arc::clone(&metrics)));
        let motion = connection.admitted.holder.motion();
        let stream = Connected::new(send, stream, account);
        handoff.join(WriteTimeout::new(stream, pace, writes, motion, metrics)).await;
    }
}

/// Sends a response.
async fn send<H: Handler>(
    connection: &Connection<H>,
    response: Response<TcpResponseBody<H>>,
    respond: &mut SendResponse<SharedPiece>,
) {
    let (mut head, body) = response.into_parts();
    let ends = body.is_end_stream();
    if !ends && let Some(length) = body.size_hint().exact() {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    let stream = match respond.send_response(Response::from_parts(head, ()), ends) {
        Ok(stream) if !ends => stream,
        Ok(_) => return,
        Err(_) => return respond.send_reset(Reason::INTERNAL_ERROR),
    };
    let mut sending = Sending {
        connection,
        body,
        stream,
        piece: None,
        patience: ClientDeadline::new(connection.terms.download_pace()),
    };
    poll_fn(|cx| sending.poll(cx)).await;
}

/// Sends a response's body and its trailers.
struct Sending<'a, H> {
    connection: &'a Connection<H>,
    body: TcpResponseBody<H>,
    stream: SendStream<SharedPiece>,
    /// The piece that waits for room in the client's window, and whether it is the last one.
    piece: Option<(SharedPiece, bool)>,
    patience: ClientDeadline,
}

/// How far a body was sent.
enum Sent {
    /// The client has no room for more.
    ForClient,
    /// The origin has delivered no more.
    ForOrigin,
    /// Everything was sent, or the response failed.
    All,
}

impl<H: Handler> Sending<'_, H> {
    /// Ready when nothing more is to be sent: all was passed to h2, the stream was reset, or its client is too slow.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waits = match self.send(cx) {
            Sent::All => return Poll::Ready(()),
            Sent::ForClient => true,
            Sent::ForOrigin => false,
        };
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(());
        }
        let moved = self.body.take_moved();
        if moved.is_some() || !waits {
            self.patience.rest(moved.unwrap_or(0));
        }
        if !waits {
            return Poll::Pending;
        }
        let mut late = ready!(self.patience.poll_wait(cx));
        // All streams of a slow connection are slow, and the connection has a timeout of its own.
        while late == TimeoutCause::Slow && self.connection.writes.is_blocked() {
            self.patience.forgive();
            late = ready!(self.patience.poll_wait(cx));
        }
        match late {
            TimeoutCause::Idle => self.connection.metrics().shared.timeout_send.increment(),
            TimeoutCause::Slow => self.connection.metrics().shared.limit_download_rate.increment(),
        }
        self.body.stall();
        Poll::Ready(())
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Sent {
        loop {
            if let Some((piece, last)) = self.piece.take() {
                if piece.has_remaining() {
                    match poll_capacity(&mut self.stream, cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Sent::All,
                        Poll::Pending => {
                            self.piece = Some((piece, last));
                            return Sent::ForClient;
                        }
                    }
                }
                if self.stream.send_data(piece, last).is_err() || last {
                    return Sent::All;
                }
            }
            if self.body.poll_room(cx).is_pending() {
                return Sent::ForClient;
            }
            match self.body.poll_piece(cx) {
                // An error follows what was sent before it: h2 discards what it has queued at a reset, the header too.
                Poll::Pending if self.body.has_failed() => return Sent::ForClient,
                Poll::Pending => return Sent::ForOrigin,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        if piece.has_remaining() {
                            // What is reserved is taken from the connection's window, so no more than is sure to be
                            // used.
                            self.stream.reserve_capacity(1);
                        }
                        self.piece = Some((piece, self.body.is_end_stream()));
                    }
                    Err(frame) => {
                        self.stream.reserve_capacity(0);
                        // An error means that the stream is gone.
                        let _ = self.stream.send_trailers(frame.into_trailers().unwrap_or_default());
                        return Sent::All;
                    }
                },
                Poll::Ready(Some(Err(_))) => {
                    self.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Sent::All;
                }
                Poll::Ready(None) => {
                    // An error means that the stream is gone.
                    let _ = self.stream.send_data(SharedPiece::uncounted(Bytes::new()), true);
                    return Sent::All;
                }
            }
        }
    }
}
