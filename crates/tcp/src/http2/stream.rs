//! One stream: its request goes to the handler, interim responses and the response to h2, as fast as the client takes
//! it.

use super::{body::Http2Received, tasks::StreamTasks, tunnel::Connected, window::poll_capacity};
use crate::{
    answer::Answer, body::TcpResponseBody, connection::Connection, io::WriteTimeout, priorities::ResponseTurn,
    share::SharedPiece, tunnel::TunnelHandoff, writes::Writes,
};
use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, response};
use http_body::{Body as _, Frame};
use litequic_exchange::{ClientDeadline, Handler, Interim, MinimumRate, TimeoutCause};
use litequic_resources::{connections::Motion, receive::ReceiveAccount, send::INITIAL};
use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::ControlFlow,
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
    tasks: Weak<StreamTasks>,
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
        (Some(Ok(Answer::Response(response))), _) => send(&connection, response, &mut respond, id).await,
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
        let stream = Connected::new(send, stream, account);
        // The connection's own stream counts its bytes.
        handoff.join(WriteTimeout::new(stream, pace, writes, Motion::default(), metrics)).await;
    }
}

/// Sends a response on the stream `id`.
async fn send<H: Handler>(
    connection: &Connection<H>,
    response: Response<TcpResponseBody<H>>,
    respond: &mut SendResponse<SharedPiece>,
    id: u32,
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
    let turn = connection.priorities.get().zip(body.priority()).map(|(priorities, own)| priorities.turn(id, own));
    let mut sending = Sending {
        connection,
        body,
        stream,
        piece: None,
        ahead: None,
        turn,
        patience: ClientDeadline::new(connection.terms.download_pace()),
    };
    poll_fn(|cx| sending.poll(cx)).await;
}

/// Sends a response's body and its trailers.
struct Sending<'a, H> {
    connection: &'a Connection<H>,
    body: TcpResponseBody<H>,
    stream: SendStream<SharedPiece>,
    /// The next piece, and whether it is the last one.
    piece: Option<(SharedPiece, bool)>,
    /// What was read behind it while it waits for its turn, if it has to.
    ahead: Option<Box<Ahead>>,
    /// The place in the order of the connection, if it has one.
    turn: Option<ResponseTurn>,
    patience: ClientDeadline,
}

/// What was read of a response that waits for its turn: a first share, as over HTTP/3, so that most responses free
/// their origin's connection.
#[derive(Default)]
struct Ahead {
    pieces: VecDeque<(SharedPiece, bool)>,
    bytes: usize,
    /// What comes behind the pieces.
    end: Option<End>,
}

/// The end of a response behind its last piece.
enum End {
    Trailers(HeaderMap),
    Nothing,
    Failure,
}

/// How far a body was sent.
enum Sent {
    /// The client has no room for more.
    ForClient,
    /// Another response is before it.
    ForTurn,
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
            // Neither is the client's time.
            Sent::ForOrigin | Sent::ForTurn => false,
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
            if let Some((piece, is_last)) = self.piece.take() {
                match self.hand_over(piece, is_last, cx) {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(Sent::ForTurn) => {
                        self.read_ahead(cx);
                        return Sent::ForTurn;
                    }
                    ControlFlow::Break(sent) => return sent,
                }
                continue;
            }
            if let Some(ahead) = &mut self.ahead {
                if let Some((piece, is_last)) = ahead.pieces.pop_front() {
                    ahead.bytes = ahead.bytes.saturating_sub(piece.remaining());
                    self.next_is(piece, is_last);
                    continue;
                }
                if let Some(end) = ahead.end.take() {
                    return self.end(end);
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
                        let is_last = self.body.is_end_stream();
                        self.next_is(piece, is_last);
                    }
                    Err(frame) => return self.end(End::Trailers(frame.into_trailers().unwrap_or_default())),
                },
                Poll::Ready(Some(Err(_))) => return self.end(End::Failure),
                Poll::Ready(None) => return self.end(End::Nothing),
            }
        }
    }

    /// Ends the response behind its last piece.
    fn end(&mut self, end: End) -> Sent {
        match end {
            End::Trailers(trailers) => {
                self.stream.reserve_capacity(0);
                // An error means that the stream is gone.
                let _ = self.stream.send_trailers(trailers);
            }
            End::Failure => self.stream.send_reset(Reason::INTERNAL_ERROR),
            End::Nothing => {
                // An error means that the stream is gone.
                let _ = self.stream.send_data(SharedPiece::uncounted(Bytes::new()), true);
            }
        }
        Sent::All
    }

    fn next_is(&mut self, piece: SharedPiece, is_last: bool) {
        if piece.has_remaining() {
            // What is reserved is taken from the connection's window, so no more than is sure to be used.
            self.stream.reserve_capacity(1);
        }
        self.piece = Some((piece, is_last));
    }

    /// Hands over to h2 as much of a piece as the client's window and the order allow.
    fn hand_over(&mut self, mut piece: SharedPiece, is_last: bool, cx: &mut Context<'_>) -> ControlFlow<Sent> {
        let length = piece.remaining();
        if length > 0 {
            match poll_capacity(&mut self.stream, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return ControlFlow::Break(Sent::All),
                Poll::Pending => {
                    if let Some(turn) = &self.turn {
                        turn.leave();
                    }
                    self.piece = Some((piece, is_last));
                    return ControlFlow::Break(Sent::ForClient);
                }
            }
        }
        let Some(turn) = self.turn.as_ref().filter(|_| length > 0) else {
            return if self.stream.send_data(piece, is_last).is_err() || is_last {
                ControlFlow::Break(Sent::All)
            } else {
                ControlFlow::Continue(())
            };
        };
        let Poll::Ready(granted) = turn.poll(length as u64, cx) else {
            self.piece = Some((piece, is_last));
            return ControlFlow::Break(Sent::ForTurn);
        };
        let mut bytes = usize::try_from(granted).unwrap_or(usize::MAX).min(length);
        if !turn.is_alone_or_short(granted, is_last && bytes == length) {
            // What the client's window has no room for would be sent out of turn.
            self.stream.reserve_capacity(bytes);
            bytes = bytes.min(self.stream.capacity()).max(1);
        }
        let is_end = is_last && bytes == length;
        let mut sent = if bytes == length { None } else { Some(piece.split_to(bytes)) };
        let part = sent.as_mut().unwrap_or(&mut piece);
        part.handed_over(turn.hand_over(bytes as u64, is_end));
        match sent {
            Some(part) => {
                if self.stream.send_data(part, false).is_err() {
                    return ControlFlow::Break(Sent::All);
                }
                self.next_is(piece, is_last);
                ControlFlow::Continue(())
            }
            None if self.stream.send_data(piece, is_last).is_err() || is_last => ControlFlow::Break(Sent::All),
            None => ControlFlow::Continue(()),
        }
    }

    /// Reads the response's first share while it waits for its turn.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        if self.piece.as_ref().is_some_and(|(_, is_last)| *is_last) {
            return;
        }
        let ahead = self.ahead.get_or_insert_default();
        let mut is_whole = ahead.end.is_some() || ahead.pieces.back().is_some_and(|(_, is_last)| *is_last);
        while !is_whole
            && (ahead.bytes as u64) < INITIAL
            && !self.body.has_failed()
            && self.body.poll_room(cx).is_ready()
            && let Poll::Ready(next) = self.body.poll_piece(cx)
        {
            match next.map(|next| next.map(Frame::into_data)) {
                Some(Ok(Ok(piece))) => {
                    is_whole = self.body.is_end_stream();
                    ahead.bytes = ahead.bytes.saturating_add(piece.remaining());
                    ahead.pieces.push_back((piece, is_whole));
                    continue;
                }
                Some(Ok(Err(frame))) => ahead.end = Some(End::Trailers(frame.into_trailers().unwrap_or_default())),
                Some(Err(_)) => ahead.end = Some(End::Failure),
                None => ahead.end = Some(End::Nothing),
            }
            is_whole = true;
        }
    }
}
