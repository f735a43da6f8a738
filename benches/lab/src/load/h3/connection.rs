//! One HTTP/3 connection: quinn's state machine below, the requests that run on it above.

use super::{
    super::{body::Content, check::Answer, wire::Happening},
    frames::{Response, Unidirectional},
    socket::Socket,
    threshold::Seen,
};
use litequic_testkit::h3::CONTROL_STREAM;
use quinn_proto::{
    Connection as Quic, ConnectionEvent, ConnectionHandle, Dir, Endpoint, Event, FinishError, ReadError, StreamEvent,
    StreamId, VarInt, WriteError,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// Datagrams built at a time: one GSO send.
const SEGMENTS: usize = 32;

/// How long a connection that should be resumed later is kept for its ticket, which comes right behind the handshake.
const TICKET_WAIT: Duration = Duration::from_millis(50);

/// How long a bulk download runs before requests begin beside it: many round trips, after which its path's queue is full.
const BULK_AHEAD: Duration = Duration::from_secs(4);

/// RFC 9114 §8.1.
const H3_NO_ERROR: VarInt = VarInt::from_u32(0x100);
const H3_REQUEST_REJECTED: VarInt = VarInt::from_u32(0x10b);

/// What all connections of a load have in common.
pub(super) struct Common {
    pub(super) streams: usize,
    /// HEADERS, and the frame header of the body.
    pub(super) request: Vec<u8>,
    /// HEADERS of a bulk download beside the requests of each connection.
    pub(super) bulk: Option<Vec<u8>>,
    pub(super) body: u64,
    pub(super) content: Content,
    /// Whether a connection is open only once its ticket is there.
    pub(super) tickets: bool,
    pub(super) body_received: u64,
    pub(super) body_sent: u64,
    pub(super) handshakes: u64,
    /// quinn's packets are built here.
    pub(super) out: Vec<u8>,
}

pub(super) struct Connection {
    slot: usize,
    handle: ConnectionHandle,
    pub(super) quic: Quic,
    pub(super) seen: Arc<Seen>,
    pub(super) socket: usize,
    /// The moment for which it is in the client's queue of timers.
    pub(super) armed: Option<Instant>,
    state: State,
    exchanges: HashMap<StreamId, Exchange>,
    /// The stream of the bulk download.
    bulk: Option<StreamId>,
    unidirectional: HashMap<StreamId, Unidirectional>,
    /// Requests that wait for the server to allow a stream.
    waiting: VecDeque<usize>,
    readable: Vec<StreamId>,
    writable: Vec<StreamId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    /// Our side is done; the server has not confirmed.
    Connected,
    /// Confirmed at this moment; the ticket is awaited, or the bulk download has not run for long enough.
    Confirmed(Instant),
    Open,
    Lost,
}

/// A request and its response.
struct Exchange {
    token: usize,
    response: Response,
    first_byte: Option<Instant>,
    /// Of the request's frames, how much is written.
    head_written: usize,
    body_written: u64,
    finished: bool,
    /// The server has all of the request.
    acknowledged: bool,
    /// The response to an upload that is not acknowledged yet.
    answer: Option<Answer>,
}

impl Connection {
    pub(super) fn new(slot: usize, handle: ConnectionHandle, quic: Quic, seen: Arc<Seen>, socket: usize) -> Self {
        Self {
            slot,
            handle,
            quic,
            seen,
            socket,
            armed: None,
            state: State::Handshaking,
            exchanges: HashMap::new(),
            bulk: None,
            unidirectional: HashMap::new(),
            waiting: VecDeque::new(),
            readable: Vec::new(),
            writable: Vec::new(),
        }
    }

    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle
    }

    /// Begins a request as soon as the server allows a stream.
    pub(super) fn request(&mut self, token: usize, common: &mut Common) {
        self.waiting.push_back(token);
        self.open(common);
    }

    /// One datagram came: what it calls for goes out before the next is looked at, so that an ACK acknowledges no more
    /// than it should.
    pub(super) fn receive(&mut self, event: ConnectionEvent, now: Instant, socket: &mut Socket, common: &mut Common) {
        self.quic.handle_event(event);
        self.transmit(now, socket, common);
    }

    /// A moment for which quinn or the ticket has waited has come.
    pub(super) fn timeout(&mut self, now: Instant) {
        if self.quic.poll_timeout().is_some_and(|at| at <= now) {
            self.quic.handle_timeout(now);
        }
    }

    /// When `timeout` and `drive` are wanted, datagrams or not.
    pub(super) fn next_timeout(&mut self) -> Option<Instant> {
        let opens = match self.state {
            State::Confirmed(at) => Some(at + self.confirmed_for()),
            _ => None,
        };
        [self.quic.poll_timeout(), opens].into_iter().flatten().min()
    }

    /// How long the connection is confirmed before it is open, at most.
    fn confirmed_for(&self) -> Duration {
        if self.bulk.is_some() { BULK_AHEAD } else { TICKET_WAIT }
    }

    /// Reads and writes all there is, and sends what follows from it.
    pub(super) fn drive(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        socket: &mut Socket,
        common: &mut Common,
        happened: &mut Vec<Happening>,
    ) {
        while let Some(event) = self.quic.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(self.handle, event) {
                self.quic.handle_event(event);
            }
        }
        while let Some(event) = self.quic.poll() {
            self.event(event, common, happened);
        }
        self.progress(now, common, happened);
        for id in std::mem::take(&mut self.readable) {
            self.read(id, now, common, happened);
        }
        for id in std::mem::take(&mut self.writable) {
            self.write(id, common, happened);
        }
        self.transmit(now, socket, common);
    }

    /// Sends CONNECTION_CLOSE. The caller drops the connection.
    pub(super) fn close(&mut self, now: Instant, socket: &mut Socket, common: &mut Common) {
        self.quic.close(now, H3_NO_ERROR, bytes::Bytes::new());
        self.transmit(now, socket, common);
    }

    fn event(&mut self, event: Event, common: &mut Common, happened: &mut Vec<Happening>) {
        match event {
            Event::Connected => {
                self.state = State::Connected;
                if let Some(control) = self.quic.streams().open(Dir::Uni)
                    && self.quic.send_stream(control).write(&CONTROL_STREAM).is_err()
                {
                    self.lose("the server refuses the control stream".into(), happened);
                }
            }
            Event::ConnectionLost { reason } => self.lose(reason.to_string(), happened),
            Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                while let Some(id) = self.quic.streams().accept(Dir::Uni) {
                    self.unidirectional.insert(id, Unidirectional::default());
                    self.readable.push(id);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) => self.readable.push(id),
            Event::Stream(StreamEvent::Writable { id }) => self.writable.push(id),
            Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => self.open(common),
            Event::Stream(StreamEvent::Finished { id }) => self.acknowledged(id, happened),
            Event::Stream(StreamEvent::Stopped { id, error_code }) => self.stopped(id, error_code, common, happened),
            Event::Stream(_) | Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {}
        }
    }

    /// From connected to open.
    fn progress(&mut self, now: Instant, common: &mut Common, happened: &mut Vec<Happening>) {
        if self.state == State::Connected && self.quic.stats().frame_rx.handshake_done > 0 {
            common.handshakes += 1;
            self.seen.confirm();
            self.state = State::Confirmed(now);
            if let Some(request) = &common.bulk {
                self.begin_bulk(request, happened);
            }
        }
        let is_ready = self.bulk.is_none() && (!common.tickets || self.seen.ticket());
        if let State::Confirmed(at) = self.state
            && (is_ready || now >= at + self.confirmed_for())
        {
            self.state = State::Open;
            happened.push(Happening::Connected { slot: self.slot, at });
        }
    }

    /// Requests the bulk download.
    fn begin_bulk(&mut self, request: &[u8], happened: &mut Vec<Happening>) {
        self.bulk = self.quic.streams().open(Dir::Bi);
        let begun = self.bulk.is_some_and(|id| {
            let mut stream = self.quic.send_stream(id);
            stream.write(request) == Ok(request.len()) && stream.finish().is_ok()
        });
        if !begun {
            self.lose("the bulk download cannot be requested".into(), happened);
        }
    }

    fn lose(&mut self, reason: String, happened: &mut Vec<Happening>) {
        if self.state != State::Lost {
            self.state = State::Lost;
            happened.push(Happening::Lost { slot: self.slot, reason });
        }
    }

    /// Opens streams for the requests that wait.
    fn open(&mut self, common: &mut Common) {
        while let Some(token) = self.waiting.front().copied() {
            let Some(id) = self.quic.streams().open(Dir::Bi) else { break };
            self.waiting.pop_front();
            let exchange = Exchange {
                token,
                response: Response::default(),
                first_byte: None,
                head_written: 0,
                body_written: 0,
                finished: false,
                acknowledged: false,
                answer: None,
            };
            self.exchanges.insert(id, exchange);
            self.writable.push(id);
        }
        // Room for the packets of all of them.
        common.out.reserve(SEGMENTS * 1500);
    }

    /// Writes what is left of a request, as far as flow control and the send buffer go.
    fn write(&mut self, id: StreamId, common: &mut Common, happened: &mut Vec<Happening>) {
        let Some(exchange) = self.exchanges.get_mut(&id).filter(|exchange| !exchange.finished) else { return };
        let mut stream = self.quic.send_stream(id);
        let result = loop {
            let head = common.request.get(exchange.head_written..).unwrap_or_default();
            let left = common.body - exchange.body_written;
            if !head.is_empty() {
                match stream.write(head) {
                    Ok(written) => exchange.head_written += written,
                    Err(error) => break Err(error),
                }
            } else if left > 0 {
                match stream.write_chunks(&mut [common.content.piece(exchange.body_written, left)]) {
                    Ok(written) => {
                        exchange.body_written += written.bytes as u64;
                        common.body_sent += written.bytes as u64;
                    }
                    Err(error) => break Err(error),
                }
            } else {
                exchange.finished = true;
                break match stream.finish() {
                    Ok(()) => Ok(()),
                    Err(FinishError::Stopped(code)) => Err(WriteError::Stopped(code)),
                    Err(FinishError::ClosedStream) => Err(WriteError::ClosedStream),
                };
            }
        };
        match result {
            Ok(()) | Err(WriteError::Blocked) => {}
            Err(WriteError::Stopped(code)) => self.stopped(id, code, common, happened),
            Err(error) => {
                let token = exchange.token;
                self.end(id, token, Err(format!("sending: {error}")), happened);
            }
        }
    }

    /// The server has all of a request: only then has an upload been taken, whatever was answered before.
    fn acknowledged(&mut self, id: StreamId, happened: &mut Vec<Happening>) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.acknowledged = true;
        if let Some(answer) = exchange.answer.take() {
            let token = exchange.token;
            self.end(id, token, Ok(answer), happened);
        }
    }

    /// The server stopped reading a request. Without a body that is allowed: the response counts.
    fn stopped(&mut self, id: StreamId, code: VarInt, common: &Common, happened: &mut Vec<Happening>) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.finished = true;
        if common.body > 0 {
            let token = exchange.token;
            self.end(
                id,
                token,
                Err(format!("the server stopped the upload with code {:#x}", code.into_inner())),
                happened,
            );
        }
    }

    fn read(&mut self, id: StreamId, now: Instant, common: &mut Common, happened: &mut Vec<Happening>) {
        if let Some(stream) = self.unidirectional.get_mut(&id) {
            let mut goaway = None;
            let outcome = consume(&mut self.quic, id, |bytes| {
                goaway = stream.receive(bytes)?.or(goaway);
                Ok(())
            });
            match outcome {
                Ok(false) => {}
                // A server that ends a critical stream (RFC 9114 §6.2.1) is on its way out.
                Ok(true) | Err(Broken::Reset(_)) => {
                    self.unidirectional.remove(&id);
                }
                Err(Broken::Wrong(reason)) => self.lose(reason, happened),
            }
            if let Some(first) = goaway {
                self.go(first, happened);
            }
            return;
        }
        if self.bulk == Some(id) {
            if !matches!(consume(&mut self.quic, id, |_| Ok(())), Ok(false)) {
                self.lose("the bulk download has ended".into(), happened);
            }
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        let (response, first_byte) = (&mut exchange.response, &mut exchange.first_byte);
        let outcome = consume(&mut self.quic, id, |bytes| {
            let body = response.receive(bytes)?;
            if body > 0 {
                first_byte.get_or_insert(now);
                common.body_received += body;
            }
            Ok(())
        });
        let token = exchange.token;
        match outcome {
            Ok(false) => {}
            Ok(true) => {
                let first_byte = exchange.first_byte.unwrap_or(now);
                let response = std::mem::take(&mut exchange.response);
                let result = response.finish().map(|(head, body)| Answer {
                    status: head.status,
                    content_length: head.content_length,
                    body,
                    first_byte,
                    finished: now,
                });
                match result {
                    Ok(_) if !exchange.finished => {
                        self.end(id, token, Err("a response before the whole request".into()), happened);
                    }
                    Ok(answer) if common.body > 0 && !exchange.acknowledged => exchange.answer = Some(answer),
                    result => self.end(id, token, result, happened),
                }
            }
            Err(Broken::Reset(H3_REQUEST_REJECTED)) => {
                self.exchanges.remove(&id);
                happened.push(Happening::Refused { token });
            }
            Err(Broken::Reset(code)) => {
                self.end(
                    id,
                    token,
                    Err(format!("the server reset the stream with code {:#x}", code.into_inner())),
                    happened,
                );
            }
            Err(Broken::Wrong(reason)) => self.end(id, token, Err(reason), happened),
        }
    }

    /// The server takes no requests on streams from `first` on (RFC 9114 §5.2).
    fn go(&mut self, first: u64, happened: &mut Vec<Happening>) {
        happened.push(Happening::Draining { slot: self.slot });
        happened.extend(self.waiting.drain(..).map(|token| Happening::Refused { token }));
        let untouched = self.exchanges.extract_if(|id, _| u64::from(VarInt::from(*id)) >= first);
        happened.extend(untouched.map(|(_, exchange)| Happening::Refused { token: exchange.token }));
    }

    fn end(&mut self, id: StreamId, token: usize, result: Result<Answer, String>, happened: &mut Vec<Happening>) {
        if result.is_err() {
            // The rest of it shall not take part in what follows. Either side may be closed already.
            let _ = self.quic.recv_stream(id).stop(H3_NO_ERROR);
            let _ = self.quic.send_stream(id).reset(H3_NO_ERROR);
        }
        self.exchanges.remove(&id);
        happened.push(Happening::Answered { token, result });
    }

    fn transmit(&mut self, now: Instant, socket: &mut Socket, common: &mut Common) {
        let segments = SEGMENTS.min(socket.max_gso_segments());
        loop {
            common.out.clear();
            let Some(transmit) = self.quic.poll_transmit(now, segments, &mut common.out) else { break };
            socket.send(&transmit, &common.out);
        }
    }
}

/// How reading broke off.
enum Broken {
    Reset(VarInt),
    Wrong(String),
}

/// Hands what there is on a stream to `take`, in order; whether it ended.
fn consume(quic: &mut Quic, id: StreamId, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<bool, Broken> {
    let mut stream = quic.recv_stream(id);
    // A stream that is closed has nothing more to say.
    let Ok(mut chunks) = stream.read(true) else { return Ok(false) };
    let outcome = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                if let Err(reason) = take(&chunk.bytes) {
                    break Err(Broken::Wrong(reason));
                }
            }
            Ok(None) => break Ok(true),
            Err(ReadError::Blocked) => break Ok(false),
            Err(ReadError::Reset(code)) => break Err(Broken::Reset(code)),
        }
    };
    // Whatever it wants sent is sent when the drive ends.
    let _ = chunks.finalize();
    outcome
}
