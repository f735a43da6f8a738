//! One HTTP/1.1 connection: TCP, rustls, and one request at a time.

use super::{
    super::{body::Content, check::Answer, wire::Happening},
    response::Response,
};
use rustls::ClientConnection;
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

/// How long a connection that should be resumed later is kept for its ticket, which comes right behind the handshake.
const TICKET_WAIT: Duration = Duration::from_millis(50);

/// Reads from a socket before the others have their turn.
const READS: usize = 8;

/// What all connections of a load have in common.
pub(super) struct Common {
    pub(super) head: Vec<u8>,
    pub(super) body: u64,
    pub(super) content: Content,
    /// Whether a connection is open only once its ticket is there.
    pub(super) tickets: bool,
    /// Ciphertext is read into this in one call; rustls by itself reads 4 KB at a time.
    pub(super) buffer: Vec<u8>,
    /// Plaintext of one record or several.
    pub(super) plain: Vec<u8>,
    pub(super) received: u64,
    pub(super) body_received: u64,
    pub(super) body_sent: u64,
    pub(super) handshakes: u64,
}

pub(super) struct Connection {
    slot: usize,
    pub(super) tcp: TcpStream,
    tls: ClientConnection,
    state: State,
    request: Option<Request>,
    /// Whether epoll watches for room to write.
    pub(super) watched_for_room: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    /// The handshake ended at this moment; the ticket is awaited.
    Confirmed(Instant),
    Open,
    Draining,
    Lost,
}

struct Request {
    token: usize,
    head_written: usize,
    body_written: u64,
    response: Response,
    first_byte: Option<Instant>,
}

impl Connection {
    pub(super) fn new(slot: usize, tcp: TcpStream, tls: ClientConnection) -> Self {
        Self { slot, tcp, tls, state: State::Handshaking, request: None, watched_for_room: true }
    }

    pub(super) fn request(&mut self, token: usize) {
        let response = Response::default();
        self.request = Some(Request { token, head_written: 0, body_written: 0, response, first_byte: None });
    }

    /// When `drive` is wanted without the socket being ready.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Confirmed(at) => Some(at + TICKET_WAIT),
            _ => None,
        }
    }

    /// Whether there is something to write.
    pub(super) fn wants_room(&self, common: &Common) -> bool {
        let unsent = self.request.as_ref().is_some_and(|request| request.unsent(common));
        self.tls.wants_write() || unsent && !self.tls.is_handshaking()
    }

    /// Reads and writes as far as the socket goes.
    pub(super) fn drive(&mut self, readable: bool, common: &mut Common, happened: &mut Vec<Happening>) {
        if self.state == State::Lost {
            return;
        }
        let outcome = if readable { self.read(common, happened) } else { Ok(false) };
        let outcome = outcome.and_then(|ended| {
            self.write(common)?;
            self.progress(common, happened);
            Ok(ended)
        });
        match outcome {
            Ok(false) => {}
            Ok(true) => self.ended(happened),
            Err(reason) => self.lose(reason, happened),
        }
    }

    /// Sends close_notify, as far as there is room for it.
    pub(super) fn close(&mut self) {
        self.tls.send_close_notify();
        // A server that does not get it sees the end of the connection.
        let _ = self.tls.write_tls(&mut self.tcp);
    }

    /// Reads what there is; whether the server has closed.
    fn read(&mut self, common: &mut Common, happened: &mut Vec<Happening>) -> Result<bool, String> {
        for _ in 0..READS {
            let count = match self.tcp.read(&mut common.buffer) {
                Ok(0) => return Ok(true),
                Ok(count) => count,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("receiving: {error}")),
            };
            common.received += count as u64;
            let buffer = std::mem::take(&mut common.buffer);
            let outcome = self.decrypt(buffer.get(..count).unwrap_or_default(), common, happened);
            common.buffer = buffer;
            if outcome? {
                return Ok(true);
            }
            if count < common.buffer.len() {
                break;
            }
        }
        Ok(false)
    }

    /// Passes ciphertext to rustls and its plaintext to the response; returns whether the server has sent close_notify.
    fn decrypt(
        &mut self,
        mut bytes: &[u8],
        common: &mut Common,
        happened: &mut Vec<Happening>,
    ) -> Result<bool, String> {
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).map_err(|error| format!("TLS: {error}"))?;
            let state = self.tls.process_new_packets().map_err(|error| format!("TLS: {error}"))?;
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let mut plain = std::mem::take(&mut common.plain);
                let count = self.tls.reader().read(&mut plain).map_err(|error| format!("TLS: {error}"))?;
                let outcome = self.receive(plain.get(..count).unwrap_or_default(), common, happened);
                common.plain = plain;
                outcome?;
                left = left.saturating_sub(count.max(1));
            }
            if state.peer_has_closed() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn receive(&mut self, mut plain: &[u8], common: &mut Common, happened: &mut Vec<Happening>) -> Result<(), String> {
        let request = self.request.as_mut().ok_or("a response without a request")?;
        let body = request.response.receive(&mut plain)?;
        if body > 0 {
            request.first_byte.get_or_insert_with(Instant::now);
            common.body_received += body;
        }
        if !plain.is_empty() {
            return Err("bytes behind the response".into());
        }
        if request.response.complete() {
            if request.unsent(common) {
                return Err("a response before the whole request".into());
            }
            self.answer(happened);
        }
        Ok(())
    }

    fn answer(&mut self, happened: &mut Vec<Happening>) {
        let Some(Request { token, response, first_byte, .. }) = self.request.take() else { return };
        if response.last && self.state == State::Open {
            self.state = State::Draining;
            happened.push(Happening::Draining { slot: self.slot });
        }
        let finished = Instant::now();
        let answer = Answer {
            status: response.status,
            content_length: response.content_length,
            body: response.body,
            first_byte: first_byte.unwrap_or(finished),
            finished,
        };
        happened.push(Happening::Answered { token, result: Ok(answer) });
    }

    /// Writes the request and what TLS has to say.
    fn write(&mut self, common: &mut Common) -> Result<(), String> {
        loop {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut self.tcp) {
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => {
                        return Ok(());
                    }
                    Err(error) => return Err(format!("sending: {error}")),
                }
            }
            if self.tls.is_handshaking() {
                return Ok(());
            }
            let Some(request) = self.request.as_mut().filter(|request| request.unsent(common)) else { return Ok(()) };
            let mut writer = self.tls.writer();
            let head = common.head.get(request.head_written..).unwrap_or_default();
            let written = if head.is_empty() {
                let piece = common.content.piece(request.body_written, common.body - request.body_written);
                let written = writer.write(&piece).map_err(|error| format!("TLS: {error}"))?;
                request.body_written += written as u64;
                common.body_sent += written as u64;
                written
            } else {
                let written = writer.write(head).map_err(|error| format!("TLS: {error}"))?;
                request.head_written += written;
                written
            };
            if written == 0 {
                return Ok(());
            }
        }
    }

    /// From handshaking to open.
    fn progress(&mut self, common: &mut Common, happened: &mut Vec<Happening>) {
        if self.state == State::Handshaking && !self.tls.is_handshaking() && !self.tls.wants_write() {
            common.handshakes += 1;
            self.state = State::Confirmed(Instant::now());
        }
        if let State::Confirmed(at) = self.state
            && (!common.tickets || self.tls.tls13_tickets_received() > 0 || Instant::now() >= at + TICKET_WAIT)
        {
            self.state = State::Open;
            happened.push(Happening::Connected { slot: self.slot, at });
        }
    }

    /// The server has closed.
    fn ended(&mut self, happened: &mut Vec<Happening>) {
        match &self.request {
            Some(request) if request.response.complete_at_end() => self.answer(happened),
            Some(_) => self.lose("the server closed the connection inside a response".into(), happened),
            None if self.state == State::Open => {
                self.state = State::Draining;
                happened.push(Happening::Draining { slot: self.slot });
            }
            None if self.state == State::Draining => {}
            None => self.lose("the server closed the connection in its handshake".into(), happened),
        }
    }

    fn lose(&mut self, reason: String, happened: &mut Vec<Happening>) {
        self.state = State::Lost;
        happened.push(Happening::Lost { slot: self.slot, reason });
    }
}

impl Request {
    fn unsent(&self, common: &Common) -> bool {
        self.head_written < common.head.len() || self.body_written < common.body
    }
}
