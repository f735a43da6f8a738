//! Runs a whole connection against the h2 crate's server, with random exchanges, windows and splits of bytes. Each
//! request must get what the server sent, and the server what the request was.

use super::{ClientConnection, Http2ErrorCode, StreamFailure, tests::run};
use crate::{Authority, FieldNameRef, Fields, Head, terms::FieldLimits};
use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{Method, Request, Response};
use proptest::prelude::*;
use std::{
    cell::RefCell,
    future::poll_fn,
    io::IoSlice,
    iter,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex},
    task::{LocalSet, spawn_local},
};

/// One exchange, as client and server are to perform it.
#[derive(Debug, Clone)]
struct Plan {
    /// Lengths of the pieces of the request's body, if it has one, and whether trailers follow.
    upload: Option<(Vec<usize>, bool)>,
    interims: usize,
    /// Lengths of the pieces of the response's body, and whether trailers follow.
    response: (Vec<usize>, bool),
    reads: ServerReads,
    reset: ServerReset,
    /// Bytes of the response behind which the client cancels the request.
    cancel: Option<usize>,
}

/// Time at which the server reads the request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerReads {
    First,
    Behind,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerReset {
    None,
    /// Before the response.
    Refused,
    Early(u32),
    /// Behind this number of pieces of the response, without its end.
    Behind(usize),
}

/// The server's SETTINGS and GOAWAY, and how bytes are split.
#[derive(Debug, Clone)]
struct Transport {
    stream_window: u32,
    connection_window: u32,
    max_streams: u32,
    go_away_at: Option<usize>,
    pipe: usize,
    reads: Vec<usize>,
    writes: Vec<usize>,
    capacity: usize,
}

/// The part of an exchange that one side has received.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Received {
    interims: usize,
    status: u16,
    content: Vec<u8>,
    trailers: bool,
    ended: bool,
    failure: Option<StreamFailure>,
}

/// Content of this length, which differs by exchange and position.
fn content(number: usize, pieces: &[usize]) -> Vec<u8> {
    (0..pieces.iter().sum()).map(|at: usize| (at.wrapping_mul(7) ^ (at >> 8) ^ number).to_le_bytes()[0]).collect()
}

fn end_trailers() -> Fields {
    Fields::from_iter([(FieldNameRef::from_lower_case_token("x-end"), &b"1"[..])])
}

/// The content in its pieces.
fn pieces(number: usize, lengths: &[usize]) -> Vec<Bytes> {
    let mut all = Bytes::from(content(number, lengths));
    lengths.iter().map(|length| all.split_to(*length)).collect()
}

/// Serves each exchange by its plan, whose number is the path.
async fn serve_plans(io: DuplexStream, plans: Vec<Plan>, transport: Transport, seen: Rc<RefCell<Vec<Received>>>) {
    let mut server = h2::server::Builder::new()
        .initial_window_size(transport.stream_window)
        .initial_connection_window_size(transport.connection_window)
        .max_concurrent_streams(transport.max_streams)
        .handshake::<_, Bytes>(io)
        .await
        .unwrap();
    let mut accepted = 0;
    while let Some(Ok((request, respond))) = server.accept().await {
        accepted += 1;
        if transport.go_away_at == Some(accepted) {
            server.graceful_shutdown();
        }
        let number: usize = request.uri().path()[1..].parse().unwrap();
        spawn_local(serve_plan(number, plans[number].clone(), request, respond, Rc::clone(&seen)));
    }
}

async fn serve_plan(
    number: usize,
    plan: Plan,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    seen: Rc<RefCell<Vec<Received>>>,
) {
    let mut body = request.into_body();
    match plan.reset {
        ServerReset::Refused => return respond.send_reset(Reason::REFUSED_STREAM),
        ServerReset::Early(code) => return respond.send_reset(code.into()),
        ServerReset::None | ServerReset::Behind(_) => {}
    }
    let read = async {
        while let Some(Ok(piece)) = body.data().await {
            seen.borrow_mut()[number].content.extend_from_slice(&piece);
            let _ = body.flow_control().release_capacity(piece.len());
        }
        if let Ok(trailers) = body.trailers().await {
            let seen = &mut seen.borrow_mut()[number];
            (seen.trailers, seen.ended) = (trailers.is_some(), true);
        }
    };
    let mut read = Some(read);
    if plan.reads == ServerReads::First {
        read.take().unwrap().await;
    }
    for _ in 0..plan.interims {
        let _ = respond.send_informational(Response::builder().status(103).body(()).unwrap());
    }
    let (lengths, has_trailers) = &plan.response;
    let is_end = lengths.is_empty() && !has_trailers && plan.reset == ServerReset::None;
    // A client that has cancelled the request is no fault.
    let Ok(mut send) = respond.send_response(Response::builder().status(299).body(()).unwrap(), is_end) else { return };
    for (at, piece) in pieces(number, lengths).into_iter().enumerate() {
        if plan.reset == ServerReset::Behind(at) {
            return send.send_reset(Reason::INTERNAL_ERROR);
        }
        let is_last = at + 1 == lengths.len() && !has_trailers && plan.reset == ServerReset::None;
        let _ = send.send_data(piece, is_last);
    }
    if plan.reset != ServerReset::None {
        return send.send_reset(Reason::INTERNAL_ERROR);
    }
    if *has_trailers {
        let _ = send.send_trailers(end_trailers().into());
    }
    if plan.reads == ServerReads::Behind {
        read.take().unwrap().await;
    }
}

/// The client's side of one exchange.
struct Call {
    number: usize,
    plan: Plan,
    id: Option<u32>,
    upload: Vec<Bytes>,
    received: Received,
    is_over: bool,
}

impl Call {
    fn new(number: usize, plan: &Plan) -> Self {
        let upload = plan.upload.as_ref().map_or_else(Vec::new, |(lengths, _)| pieces(number, lengths));
        Self { number, plan: plan.clone(), id: None, upload, received: Received::default(), is_over: false }
    }

    /// Sends and receives what is possible; returns whether there was something.
    fn advance(&mut self, client: &mut ClientConnection, capacity: usize, cx: &Context<'_>) -> bool {
        let Some(id) = self.id.filter(|_| !self.is_over) else { return false };
        let mut moves = false;
        while let Some(piece) = self.upload.first_mut() {
            if !piece.is_empty() {
                if client.is_request_sent(id) || client.poll_upload_window(id, cx) == 0 {
                    break;
                }
                client.send_piece(id, piece);
                moves = true;
            }
            if piece.is_empty() {
                self.upload.remove(0);
            }
        }
        if self.upload.is_empty() && !client.is_request_sent(id) {
            let trailers = end_trailers();
            client.finish_request(
                id,
                Some(&trailers).filter(|_| self.plan.upload.as_ref().is_some_and(|upload| upload.1)),
            );
            moves = true;
        }
        let received = &mut self.received;
        while received.status == 0 && received.failure.is_none() {
            match client.poll_message(id, cx) {
                Poll::Ready(Ok((status, _))) if status.is_informational() => received.interims += 1,
                Poll::Ready(Ok((status, _))) => received.status = status.as_u16(),
                Poll::Ready(Err(failure)) => received.failure = Some(failure),
                Poll::Pending => break,
            }
            moves = true;
        }
        while received.status != 0 && received.failure.is_none() && !received.ended {
            match client.poll_content(id, capacity, cx) {
                Poll::Ready(Some(Ok(piece))) => received.content.extend_from_slice(&piece),
                Poll::Ready(Some(Err(failure))) => received.failure = Some(failure),
                Poll::Ready(None) => {
                    received.trailers = client.take_response_trailers(id).is_some();
                    received.ended = true;
                }
                Poll::Pending => break,
            }
            moves = true;
        }
        if received.failure == Some(StreamFailure::Unprocessed) && self.plan.reset != ServerReset::Refused {
            // Above the last stream of GOAWAY, or refused because the crate counts a stream until its RST_STREAM(NO_ERROR)
            // is written. The request is sent again; a server that had read it would have its content twice.
            client.remove_stream(id);
            *self = Self::new(self.number, &self.plan);
            return true;
        }
        let is_cancelled = self.plan.cancel.is_some_and(|bytes| received.content.len() >= bytes);
        if is_cancelled || received.failure.is_some() || received.ended && client.is_request_sent(id) {
            self.is_over = true;
            client.remove_stream(id);
            moves = true;
        }
        moves
    }
}

/// Performs all exchanges over one connection. Returns the calls, and what the server has received.
async fn perform_plans(plans: &[Plan], transport: &Transport) -> (Vec<Call>, Vec<Received>) {
    let (mut io, theirs) = duplex(transport.pipe);
    let seen = Rc::new(RefCell::new(vec![Received::default(); plans.len()]));
    spawn_local(serve_plans(theirs, plans.to_vec(), transport.clone(), Rc::clone(&seen)));
    let mut client = ClientConnection::new(FieldLimits::NONE);
    let mut calls: Vec<Call> = plans.iter().enumerate().map(|(number, plan)| Call::new(number, plan)).collect();
    let (mut reads, mut writes) = (transport.reads.iter().cycle(), transport.writes.iter().cycle());
    let mut scratch = vec![0; 100_000];
    let mut is_closed = false;
    poll_fn(|cx| {
        loop {
            let mut moves = false;
            for (number, call) in calls.iter_mut().enumerate().filter(|(_, call)| call.id.is_none()) {
                if client.go_away.is_some() {
                    call.is_over = true;
                }
                let head = Head::new(Method::POST, Authority::new("a"), &format!("/{number}"), Fields::new());
                call.id = client.begin_stream(&head, "http", None, call.plan.upload.is_none());
                assert!(call.id.is_none() || client.open_streams <= transport.max_streams);
            }
            for call in &mut calls {
                moves |= call.advance(&mut client, transport.capacity, cx);
            }
            if calls.iter().all(|call| call.is_over) && (client.output_length() == 0 || is_closed) {
                return Poll::Ready(());
            }
            if client.output_length() > 0 && !is_closed {
                let mut parts = [IoSlice::new(&[]); 8];
                let count = client.fill_output(&mut parts);
                let first = parts[..count].iter().find(|part| !part.is_empty()).unwrap();
                let part = &first[..first.len().min(*writes.next().unwrap())];
                if let Poll::Ready(written) = Pin::new(&mut io).poll_write(cx, part) {
                    // A server that has sent GOAWAY closes once its streams have ended. What it sent is read.
                    is_closed = written.is_err();
                    client.on_output_written(written.unwrap_or_default());
                    moves = true;
                }
            }
            let mut buf = ReadBuf::new(&mut scratch[..*reads.next().unwrap()]);
            if Pin::new(&mut io).poll_read(cx, &mut buf).is_ready() {
                if buf.filled().is_empty() {
                    client.on_closed();
                } else {
                    client.receive(buf.filled()).unwrap();
                }
                moves = true;
                if buf.filled().is_empty() && calls.iter().all(|call| call.is_over) {
                    return Poll::Ready(());
                }
            }
            if !moves {
                return Poll::Pending;
            }
        }
    })
    .await;
    // The server reads to the connection's end what is on its way.
    drop(io);
    while Rc::strong_count(&seen) > 1 {
        tokio::task::yield_now().await;
    }
    (calls, Rc::into_inner(seen).unwrap().into_inner())
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![Just(0_usize), 1_usize..100, 1_000_usize..40_000, Just(100_000_usize)];
    prop::collection::vec(length, 0..4)
}

fn plan() -> impl Strategy<Value = Plan> {
    let reads = prop::sample::select(vec![ServerReads::First, ServerReads::Behind, ServerReads::Never]);
    let reset = prop_oneof![
        8 => Just(ServerReset::None),
        1 => Just(ServerReset::Refused),
        1 => (1_u32..14).prop_filter("refused", |code| *code != 7).prop_map(ServerReset::Early),
        2 => (0_usize..4).prop_map(ServerReset::Behind),
    ];
    let cancel = prop::option::weighted(0.2, 0_usize..50_000);
    (prop::option::of((lengths(), any::<bool>())), 0_usize..3, (lengths(), any::<bool>()), reads, reset, cancel)
        .prop_map(|(upload, interims, response, reads, reset, cancel)| Plan {
            upload,
            interims,
            response,
            reads,
            reset,
            cancel,
        })
}

fn transport() -> impl Strategy<Value = Transport> {
    let window = || prop_oneof![Just(65_535_u32), 1_u32..2_000, 100_000_u32..1_000_000];
    let splits = || prop::collection::vec(prop_oneof![1_usize..20, 100_usize..5_000, Just(100_000_usize)], 1..6);
    let go_away = prop::option::weighted(0.2, 1_usize..10);
    (window(), window(), 1_u32..12, go_away, 64_usize..100_000, splits(), splits(), 0_usize..1_000_000).prop_map(
        |(stream_window, connection_window, max_streams, go_away_at, pipe, reads, writes, capacity)| Transport {
            stream_window,
            // The h2 crate allows no smaller one.
            connection_window: connection_window.max(65_535),
            max_streams,
            go_away_at,
            pipe,
            reads,
            writes,
            capacity,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn each_request_gets_what_an_h2_server_sent(
        plans in prop::collection::vec(plan(), 1..12),
        transport in transport(),
    ) {
        let mut plans = plans;
        if plans.iter().any(|plan| plan.reads == ServerReads::Never) {
            // Such servers may refuse a stream, and trailers on a refused one end the crate's connection.
            plans.iter_mut().filter_map(|plan| plan.upload.as_mut()).for_each(|upload| upload.1 = false);
        }
        let (calls, seen) = run(LocalSet::new().run_until(perform_plans(&plans, &transport)));
        for (number, (call, seen)) in iter::zip(&calls, &seen).enumerate() {
            let Call { plan, id, received, .. } = call;
            if id.is_none() {
                prop_assert!(transport.go_away_at.is_some(), "{}: not sent", number);
                continue;
            }
            let (request, with_trailers) = plan.upload.clone().unwrap_or_default();
            let (request, response) = (content(number, &request), content(number, &plan.response.0));
            prop_assert!(request.starts_with(&seen.content) && response.starts_with(&received.content), "{}", number);
            if plan.cancel.is_some_and(|bytes| received.content.len() >= bytes) {
                continue;
            }
            match plan.reset {
                ServerReset::None => {
                    let whole = Received {
                        interims: plan.interims,
                        status: 299,
                        content: response,
                        trailers: plan.response.1,
                        ended: true,
                        failure: None,
                    };
                    prop_assert_eq!(received, &whole, "{}", number);
                    if plan.reads != ServerReads::Never {
                        let whole = Received { content: request, trailers: with_trailers, ended: true, ..Received::default() };
                        prop_assert_eq!(seen, &whole, "{}", number);
                    }
                }
                ServerReset::Refused => prop_assert_eq!(received.failure, Some(StreamFailure::Unprocessed)),
                ServerReset::Early(code) => {
                    prop_assert_eq!(received.failure, Some(StreamFailure::Reset(Http2ErrorCode::from_wire(code))), "{}", number);
                }
                ServerReset::Behind(_) => {
                    prop_assert_eq!(received.failure, Some(StreamFailure::Reset(Http2ErrorCode::InternalError)), "{}", number);
                }
            }
        }
    }
}
