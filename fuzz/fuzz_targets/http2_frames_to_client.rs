//! The bytes of an HTTP/2 server, in any pieces, while the client opens streams, sends, reads and cancels: the client
//! writes frames in an order that RFC 9113 allows and within the server's windows, and reads what the server sent. Without
//! requests in between, pieces make no difference.
#![no_main]

use bytes::Bytes;
use http::Method;
use libfuzzer_sys::fuzz_target;
use litequic_exchange::{
    Authority, FieldNameRef, Fields, Head,
    http2::{
        ClientConnection, DEFAULT_WINDOW, FRAME_HEADER_LEN, Http2FrameHeader, PREFACE, flag, kind, parse_settings,
        setting,
    },
    terms::FieldLimits,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::IoSlice,
    task::{Context, Poll, Waker},
};

/// Largest payload of DATA that a client sends.
const MAX_SENT: u32 = 64 * 1024;

fuzz_target!(|input: (u8, u64, &[u8])| {
    let (piece, actions, bytes) = input;
    let server = server_bytes(bytes);
    let (whole, in_pieces) = (read(&server, server.len()), read(&server, piece.into()));
    assert_eq!(whole, in_pieces);

    let mut client = Client::new();
    let mut actions = actions;
    for piece in server.chunks(usize::from(piece).max(1)) {
        // xorshift
        actions ^= actions << 13;
        actions ^= actions >> 7;
        actions ^= actions << 17;
        client.act(actions);
        if client.connection.receive(piece).is_err() {
            break;
        }
    }
    client.finish();
    client.check(&server);
});

/// The bytes as they are behind a SETTINGS frame, or frames made of records: type, flags, stream, length, payload.
fn server_bytes(input: &[u8]) -> Vec<u8> {
    let Some((&first, mut rest)) = input.split_first() else { return Vec::new() };
    let mut out = if first & 2 == 0 { vec![0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0] } else { Vec::new() };
    if first & 1 == 0 {
        out.extend_from_slice(rest);
        return out;
    }
    while let [kind, flags, stream, length, payload @ ..] = rest {
        let (payload, behind) = payload.split_at(payload.len().min(usize::from(*length)));
        let length = payload.len() as u32;
        let header = Http2FrameHeader { length, kind: kind % 12, flags: *flags, stream: u32::from(stream % 10) };
        out.extend_from_slice(&header.header_bytes());
        out.extend_from_slice(payload);
        rest = behind;
    }
    out
}

/// All that a client sees and writes that opens three streams first, as text.
fn read(server: &[u8], piece: usize) -> String {
    let mut client = Client::new();
    client.open(0);
    // Behind the first SETTINGS, if there are any.
    let (first, rest) = server.split_at(server.len().min(FRAME_HEADER_LEN));
    let _ = client.connection.receive(first);
    for choice in [1, 2, 4] {
        client.open(choice);
    }
    let received = rest.chunks(piece.max(1)).try_for_each(|piece| client.connection.receive(piece));
    client.finish();
    format!("{received:?} {:?} {:?} {:?}", client.connection.go_away, client.seen, client.written)
}

struct Client {
    connection: ClientConnection,
    opened: Vec<u32>,
    /// Streams that were not closed.
    streams: BTreeSet<u32>,
    content: BTreeMap<u32, Vec<u8>>,
    seen: Vec<String>,
    written: Vec<u8>,
}

impl Client {
    fn new() -> Self {
        Self {
            connection: ClientConnection::new(FieldLimits { bytes: 4096, fields: 32 }),
            opened: Vec::new(),
            streams: BTreeSet::new(),
            content: BTreeMap::new(),
            seen: Vec::new(),
            written: Vec::new(),
        }
    }

    fn act(&mut self, action: u64) {
        let choice = (action >> 8) as usize;
        let id = self.opened.get(choice % self.opened.len().max(1)).copied().unwrap_or(1);
        match action % 10 {
            0..3 => self.open(choice),
            3 => self.read_message(id),
            4 => self.read_content(id, choice % 200_000),
            5 => {
                let capacity = self.connection.poll_upload_window(id, &Context::from_waker(Waker::noop()));
                if !self.connection.is_request_sent(id) {
                    self.connection.send_piece(id, &mut Bytes::from(vec![b'x'; capacity.min(choice % 100_000)]));
                }
            }
            6 => {
                let trailers = Fields::from_iter([(FieldNameRef::from_lower_case_token("x-a"), &b"b"[..])]);
                self.connection.finish_request(id, (choice & 1 == 0).then_some(&trailers));
            }
            7 => {
                self.connection.remove_stream(id);
                self.streams.remove(&id);
            }
            8 => self.connection.cancel_stream(id),
            _ => self.write(choice % 1_000 + 1),
        }
    }

    fn open(&mut self, choice: usize) {
        let method = if choice & 1 == 0 { Method::GET } else { Method::HEAD };
        let path = format!("/{}", "p".repeat(choice % 40_000 / 1_000 * 1_000));
        let head = Head::new(method, Authority::new("a"), &path, Fields::new());
        let accepts = self.connection.accepts_streams();
        let opened = self.connection.begin_stream(&head, "http", None, choice & 2 == 0);
        assert_eq!(opened.is_some(), accepts);
        self.opened.extend(opened);
        self.streams.extend(opened);
    }

    fn read_message(&mut self, id: u32) {
        if let Poll::Ready(message) = self.connection.poll_message(id, &Context::from_waker(Waker::noop())) {
            self.seen.push(format!("{id}: {message:?}"));
        }
    }

    fn read_content(&mut self, id: u32, capacity: usize) {
        match self.connection.poll_content(id, capacity, &Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(content))) => self.content.entry(id).or_default().extend_from_slice(&content),
            Poll::Ready(end) => {
                let trailers = self.connection.take_response_trailers(id);
                self.seen.push(format!("{id}: {end:?} {trailers:?} {:?}", self.content.get(&id)));
            }
            Poll::Pending => {}
        }
    }

    /// Writes at most that many bytes.
    fn write(&mut self, bytes: usize) {
        let mut slices = [IoSlice::new(&[]); 4];
        let count = self.connection.fill_output(&mut slices);
        let all = slices.iter().take(count).flat_map(|slice| slice.iter().copied()).take(bytes).collect::<Vec<_>>();
        self.connection.on_output_written(all.len());
        self.written.extend(all);
    }

    /// Reads and writes what is left.
    fn finish(&mut self) {
        for id in self.streams.clone() {
            for _ in 0..8 {
                self.read_message(id);
            }
            for _ in 0..3 {
                self.read_content(id, 0);
            }
        }
        assert!(self.connection.open_streams as usize <= self.streams.len());
        self.connection.on_closed();
        assert_eq!(self.connection.open_streams, 0);
        for id in std::mem::take(&mut self.streams) {
            assert!(!self.connection.remove_stream(id));
        }
        assert!(self.connection.is_idle());
        while self.connection.output_length() > 0 {
            self.write(usize::MAX);
        }
    }

    /// Compares what was written and read with what the server sent.
    fn check(&self, server: &[u8]) {
        let (mut windows, mut initial, mut sent, mut pings) =
            (BTreeMap::new(), u64::from(DEFAULT_WINDOW), BTreeMap::new(), 0);
        for (header, payload) in frames(server) {
            let Http2FrameHeader { kind, flags, stream, .. } = header;
            match kind {
                kind::DATA => {
                    let padding =
                        payload.first().filter(|_| flags & flag::PADDED != 0).map(|length| usize::from(*length) + 1);
                    let content = payload.get(padding.map_or(0, |_| 1)..).unwrap_or_default();
                    let length = (content.len() + usize::from(padding.is_some())).saturating_sub(padding.unwrap_or(0));
                    sent.entry(stream).or_insert_with(Vec::new).extend_from_slice(&content[..length]);
                }
                kind::SETTINGS => {
                    let values = parse_settings(payload).into_iter().flatten();
                    let wanted = values.filter(|(id, _)| *id == setting::INITIAL_WINDOW_SIZE);
                    initial = wanted.fold(initial, |most, (_, value)| most.max(value.into()));
                }
                kind::WINDOW_UPDATE => {
                    if let Some(increment) = payload.first_chunk() {
                        *windows.entry(stream).or_insert(0) += u64::from(u32::from_be_bytes(*increment) & 0x7fff_ffff);
                    }
                }
                kind::PING => pings += 1,
                _ => {}
            }
        }
        for (id, content) in &self.content {
            assert!(sent.get(id).is_some_and(|sent| sent.starts_with(content)), "content of stream {id}");
        }

        let rest = self.written.strip_prefix(&PREFACE[..]).expect("a preface");
        let written: Vec<_> = frames(rest).collect();
        let length: usize = written.iter().map(|(_, payload)| FRAME_HEADER_LEN + payload.len()).sum();
        assert_eq!(length, rest.len(), "whole frames");
        let (mut last, mut ended, mut reset, mut used) = (0, BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        for (header, payload) in written {
            let Http2FrameHeader { length, kind, flags, stream } = header;
            assert!(!reset.contains(&stream), "{header:?} follows RST_STREAM");
            assert!(stream <= last || kind == kind::HEADERS, "a frame on a stream that is not open");
            match kind {
                kind::DATA | kind::HEADERS => {
                    assert!(stream % 2 == 1 && length <= MAX_SENT && !ended.contains(&stream));
                    last = last.max(stream);
                    if flags & flag::END_STREAM != 0 {
                        ended.insert(stream);
                    }
                    if kind == kind::DATA {
                        *used.entry(stream).or_insert(0) += u64::from(length);
                        *used.entry(0).or_insert(0) += u64::from(length);
                    }
                }
                kind::RST_STREAM => assert!(reset.insert(stream)),
                kind::PING => {
                    pings -= 1;
                    assert_eq!((flags, payload.len()), (flag::ACK, 8));
                }
                kind::CONTINUATION | kind::SETTINGS | kind::WINDOW_UPDATE | kind::GOAWAY => {}
                _ => panic!("a client does not send {header:?}"),
            }
        }
        assert!(pings >= 0);
        for (stream, used) in used {
            let begin = if stream == 0 { u64::from(DEFAULT_WINDOW) } else { initial };
            assert!(used <= begin + windows.get(&stream).copied().unwrap_or(0), "the window of {stream}");
        }
    }
}

/// The whole frames at the beginning of `bytes`.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (Http2FrameHeader, &[u8])> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_first_chunk()?;
        let header = Http2FrameHeader::parse_frame_header(header);
        let (payload, behind) = rest.split_at_checked(header.length as usize)?;
        bytes = behind;
        Some((header, payload))
    })
}
