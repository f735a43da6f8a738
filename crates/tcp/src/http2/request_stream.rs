//! Serves one stream: passes its request to the handler, and interim responses and the response to h2, as fast as the
//! client takes them.

use super::{
    body::Http2IncomingBody, send_capacity::poll_send_capacity, stream_tasks::StreamTasks,
    tunnel_stream::Http2TunnelStream, unread_frames::StreamFrames,
};
use crate::{
    connection_writes::ConnectionWrites, priorities::ResponseTurn, request_answer::RequestAnswer,
    response_buffer::QueuedPiece, tcp_body::TcpResponseBody, tcp_connection::TcpConnection,
    tunnel_handoff::TunnelHandoff, write_timeout::WriteTimeout,
};
use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, response};
use http_body::{Body as _, Frame};
use litequic_exchange::{ClientDeadline, Handler, InterimSender, MinimumRate, TimeoutCause};
use litequic_resources::{connections::TrafficCounter, receive::ReceiveAccount, send::FIRST_SHARE_BYTES};
use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::ControlFlow,
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Serves the request on a stream. Returns the sender of a response that is not sent yet, which is to be polled: a
/// response that lasts for long holds no memory of the way to its header. Dropping the future cancels the exchange and
/// resets the stream.
pub(super) async fn serve_stream<H: Handler>(
    connection: Rc<TcpConnection<H>>,
    request: Request<RecvStream>,
    mut respond: SendResponse<QueuedPiece>,
    account: ReceiveAccount,
    frames: StreamFrames,
    tasks: Weak<StreamTasks>,
) -> Option<Box<BodySender<H>>> {
    let id = respond.stream_id().as_u32();
    let (head, stream) = request.into_parts();
    // The bytes behind a CONNECT are no body.
    let (body, tunnel) = match stream {
        stream if head.method == Method::CONNECT => (None, Some((stream, account, frames))),
        stream if stream.is_end_stream() => (None, None),
        stream => (Some(Http2IncomingBody::new(stream, &head.headers, account, frames, tasks)), None),
    };
    let (interim, queue) = InterimSender::open_channel();
    let answer = {
        let mut answer = pin!(connection.answer_tcp_request(head, body, interim, id));
        poll_fn(|cx| {
            // The client has cancelled the request, perhaps before this task began.
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            let answer = answer.as_mut().poll(cx);
            // Interim responses of the origin are sent before its final one.
            while let Poll::Ready((status, fields)) = queue.poll_interim(cx) {
                // Interim responses are advisory, and h2 queues them without a limit. 100 is sent at most once.
                if connection.writes.is_blocked() && status != StatusCode::CONTINUE {
                    connection.worker.metrics.limit_interim.increment();
                    continue;
                }
                let mut interim = Response::new(());
                (*interim.status_mut(), *interim.headers_mut()) = (status, fields.into());
                if respond.send_informational(interim).is_ok() {
                    connection.writes.queue_interim_head(id, status);
                }
            }
            answer.map(Some)
        })
        .await
    };
    match (answer, tunnel) {
        (None, _) => {}
        (Some(Ok(RequestAnswer::Response(response))), _) => {
            let mut sending = begin_http2_response(connection, response, &mut respond, id)?;
            let is_sent = poll_fn(|cx| Poll::Ready(sending.poll_sending(cx).is_ready())).await;
            return (!is_sent).then(|| Box::new(sending));
        }
        (Some(Ok(RequestAnswer::Tunnel(head, handoff))), Some((stream, account, frames))) => {
            join_tunnel(&connection, head, handoff, &mut respond, stream, account, frames).await;
        }
        (Some(Ok(RequestAnswer::Tunnel(..)) | Err(_)), _) => respond.send_reset(Reason::INTERNAL_ERROR),
    }
    None
}

/// Sends the response that the protocol is switched, which is 200 here, and joins the tunnel with the client's bytes.
async fn join_tunnel<H: Handler>(
    connection: &TcpConnection<H>,
    mut head: response::Parts,
    handoff: TunnelHandoff<H>,
    respond: &mut SendResponse<QueuedPiece>,
    stream: RecvStream,
    account: ReceiveAccount,
    frames: StreamFrames,
) {
    head.status = StatusCode::OK;
    handoff.request.begin_response_head(head.status);
    // An error means that the client was gone before the response.
    if let Ok(send) = respond.send_response(Response::from_parts(head, ()), false) {
        let (pace, metrics) =
            (MinimumRate::without_rate(connection.terms.timeouts.send), Arc::clone(&connection.worker.metrics));
        // A tunnel that stalls ends alone, and its connection continues.
        let writes = Rc::new(ConnectionWrites::<()>::new(Arc::clone(&metrics)));
        let stream = Http2TunnelStream { send, receive: stream, ahead: Bytes::new(), account, frames };
        // The connection's own stream counts the bytes.
        handoff.join_until_end(WriteTimeout::new(stream, pace, writes, TrafficCounter::default(), metrics)).await;
    }
}

/// Sends a response's header. Returns the sender of its body, unless it has none.
fn begin_http2_response<H: Handler>(
    connection: Rc<TcpConnection<H>>,
    response: Response<TcpResponseBody<H>>,
    respond: &mut SendResponse<QueuedPiece>,
    id: u32,
) -> Option<BodySender<H>> {
    let (mut head, body) = response.into_parts();
    let ends = body.is_end_stream();
    if !ends && let Some(length) = body.size_hint().exact() {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    let stream = match respond.send_response(Response::from_parts(head, ()), ends) {
        Ok(stream) if !ends => stream,
        Ok(_) => return None,
        Err(_) => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return None;
        }
    };
    let turn = connection
        .priorities
        .get()
        .zip(body.body_priority())
        .map(|(priorities, own)| ResponseTurn::new(&priorities.short, id.into(), own));
    let deadline = ClientDeadline::new(connection.terms.minimum_download_rate());
    Some(BodySender { connection, body, stream, piece: None, ahead: None, turn, deadline })
}

/// Sender of a response's body and trailers.
pub(super) struct BodySender<H: Handler> {
    connection: Rc<TcpConnection<H>>,
    body: TcpResponseBody<H>,
    stream: SendStream<QueuedPiece>,
    /// The next piece, and whether it is the last one.
    piece: Option<(QueuedPiece, bool)>,
    /// Pieces read ahead while the next one waits for its turn.
    ahead: Option<Box<PiecesAhead>>,
    /// The place in the connection's order, if there is one.
    turn: Option<ResponseTurn>,
    deadline: ClientDeadline,
}

/// Pieces read ahead of a response that waits for its turn: a first share, as over HTTP/3, so that most responses free
/// their origin's connection.
#[derive(Default)]
struct PiecesAhead {
    pieces: VecDeque<(QueuedPiece, bool)>,
    bytes: usize,
    /// The end behind the pieces.
    end: Option<ResponseEnding>,
}

/// The end of a response behind its last piece.
enum ResponseEnding {
    Trailers(HeaderMap),
    Nothing,
    Failure,
}

/// The progress of sending a body.
enum SendProgress {
    /// The client's window, or h2's buffer, has no room.
    WaitsForClient,
    /// Another response precedes this one.
    WaitsForTurn,
    /// The origin has delivered no more data.
    WaitsForOrigin,
    /// Everything was sent, or the response failed.
    All,
}

impl<H: Handler> BodySender<H> {
    /// Ready when sending is over: h2 has all bytes, the stream was reset, or the client is too slow.
    pub(super) fn poll_sending(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waits = match self.send_pieces(cx) {
            SendProgress::All => return Poll::Ready(()),
            SendProgress::WaitsForClient => true,
            // These waits are not counted as the client's.
            SendProgress::WaitsForOrigin | SendProgress::WaitsForTurn => false,
        };
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(());
        }
        let moved = self.body.take_client_progress();
        if moved.is_some() || !waits {
            self.deadline.on_progress(moved.unwrap_or(0));
        }
        if !waits {
            return Poll::Pending;
        }
        let mut late = ready!(self.deadline.poll_wait(cx));
        // All streams of a slow connection are slow, and the connection has its own timeout.
        while late == TimeoutCause::Slow && self.connection.writes.is_blocked() {
            self.deadline.reset_wait();
            late = ready!(self.deadline.poll_wait(cx));
        }
        match late {
            TimeoutCause::Idle => self.connection.worker.metrics.shared.timeout_send.increment(),
            TimeoutCause::Slow => self.connection.worker.metrics.shared.limit_download_rate.increment(),
        }
        self.body.stall_response();
        Poll::Ready(())
    }

    fn send_pieces(&mut self, cx: &mut Context<'_>) -> SendProgress {
        loop {
            if let Some((piece, is_last)) = self.piece.take() {
                match self.hand_over_piece(piece, is_last, cx) {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(SendProgress::WaitsForTurn) => {
                        self.read_first_share(cx);
                        return SendProgress::WaitsForTurn;
                    }
                    ControlFlow::Break(sent) => return sent,
                }
                continue;
            }
            if let Some(ahead) = &mut self.ahead {
                if let Some((piece, is_last)) = ahead.pieces.pop_front() {
                    ahead.bytes = ahead.bytes.saturating_sub(piece.remaining());
                    self.set_next_piece(piece, is_last);
                    continue;
                }
                if let Some(end) = ahead.end.take() {
                    return self.end_response(end);
                }
            }
            if self.body.poll_may_read_more(cx).is_pending() {
                return SendProgress::WaitsForClient;
            }
            match self.body.poll_piece(cx) {
                // An error waits until earlier bytes are written: on a reset h2 discards its queue, the response's
                // header as well.
                Poll::Pending if self.body.has_failed() => return SendProgress::WaitsForClient,
                Poll::Pending => return SendProgress::WaitsForOrigin,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        let is_last = self.body.is_end_stream();
                        self.set_next_piece(piece, is_last);
                    }
                    Err(frame) => {
                        return self.end_response(ResponseEnding::Trailers(frame.into_trailers().unwrap_or_default()));
                    }
                },
                Poll::Ready(Some(Err(_))) => return self.end_response(ResponseEnding::Failure),
                Poll::Ready(None) => return self.end_response(ResponseEnding::Nothing),
            }
        }
    }

    /// Ends the response after the last piece of the body.
    fn end_response(&mut self, end: ResponseEnding) -> SendProgress {
        match end {
            ResponseEnding::Trailers(trailers) => {
                self.stream.reserve_capacity(0);
                // An error means that the stream is gone.
                let _ = self.stream.send_trailers(trailers);
            }
            ResponseEnding::Failure => self.stream.send_reset(Reason::INTERNAL_ERROR),
            ResponseEnding::Nothing => {
                // An error means that the stream is gone.
                let _ = self.stream.send_data(QueuedPiece::without_budget(Bytes::new()), true);
            }
        }
        SendProgress::All
    }

    fn set_next_piece(&mut self, piece: QueuedPiece, is_last: bool) {
        if piece.has_remaining() {
            // Reserved bytes are taken from the connection's window, so only one byte is reserved, which is sure to be
            // used.
            self.stream.reserve_capacity(1);
        }
        self.piece = Some((piece, is_last));
    }

    /// Passes as much of a piece to h2 as the client's window and the order allow.
    fn hand_over_piece(
        &mut self,
        mut piece: QueuedPiece,
        is_last: bool,
        cx: &mut Context<'_>,
    ) -> ControlFlow<SendProgress> {
        let length = piece.remaining();
        if length > 0 {
            match poll_send_capacity(&mut self.stream, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return ControlFlow::Break(SendProgress::All),
                Poll::Pending => {
                    if let Some(turn) = &self.turn {
                        turn.leave_response_order();
                    }
                    self.piece = Some((piece, is_last));
                    return ControlFlow::Break(SendProgress::WaitsForClient);
                }
            }
        }
        let Some(turn) = self.turn.as_ref().filter(|_| length > 0) else {
            return if self.stream.send_data(piece, is_last).is_err() || is_last {
                ControlFlow::Break(SendProgress::All)
            } else {
                ControlFlow::Continue(())
            };
        };
        let Poll::Ready(granted) = turn.poll_turn_bytes(length as u64, cx) else {
            self.piece = Some((piece, is_last));
            return ControlFlow::Break(SendProgress::WaitsForTurn);
        };
        let mut bytes = usize::try_from(granted).unwrap_or(usize::MAX).min(length);
        if !turn.is_alone_or_short(granted, is_last && bytes == length) {
            // Bytes beyond the client's window would be sent out of turn.
            self.stream.reserve_capacity(bytes);
            bytes = bytes.min(self.stream.capacity()).max(1);
        }
        let is_end = is_last && bytes == length;
        let mut sent = if bytes == length { None } else { Some(piece.split_to(bytes)) };
        let part = sent.as_mut().unwrap_or(&mut piece);
        part.set_turn(turn.count_handed_over(bytes as u64, is_end));
        match sent {
            Some(part) => {
                if self.stream.send_data(part, false).is_err() {
                    return ControlFlow::Break(SendProgress::All);
                }
                self.set_next_piece(piece, is_last);
                ControlFlow::Continue(())
            }
            None if self.stream.send_data(piece, is_last).is_err() || is_last => ControlFlow::Break(SendProgress::All),
            None => ControlFlow::Continue(()),
        }
    }

    /// Reads the response's first share while it waits for its turn.
    fn read_first_share(&mut self, cx: &mut Context<'_>) {
        if self.piece.as_ref().is_some_and(|(_, is_last)| *is_last) {
            return;
        }
        let ahead = self.ahead.get_or_insert_default();
        let mut is_whole = ahead.end.is_some() || ahead.pieces.back().is_some_and(|(_, is_last)| *is_last);
        while !is_whole
            && (ahead.bytes as u64) < FIRST_SHARE_BYTES
            && !self.body.has_failed()
            && self.body.poll_may_read_more(cx).is_ready()
            && let Poll::Ready(next) = self.body.poll_piece(cx)
        {
            match next.map(|next| next.map(Frame::into_data)) {
                Some(Ok(Ok(piece))) => {
                    is_whole = self.body.is_end_stream();
                    ahead.bytes = ahead.bytes.saturating_add(piece.remaining());
                    ahead.pieces.push_back((piece, is_whole));
                    continue;
                }
                Some(Ok(Err(frame))) => {
                    ahead.end = Some(ResponseEnding::Trailers(frame.into_trailers().unwrap_or_default()));
                }
                Some(Err(_)) => ahead.end = Some(ResponseEnding::Failure),
                None => ahead.end = Some(ResponseEnding::Nothing),
            }
            is_whole = true;
        }
    }
}
