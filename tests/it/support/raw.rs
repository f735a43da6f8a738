//! HTTP/3 by hand: whatever bytes a test likes on QUIC streams, and what comes back. It encodes by itself; only the
//! responses' field sections are read with litequic's decoder, which h3 checks elsewhere.

use super::prelude::*;
use litequic_http3::qpack;
pub(crate) use litequic_testkit::{
    h3::{
        CANCEL_PUSH, CONTROL_STREAM, DATA, GOAWAY, HEADERS, MAX_PUSH_ID, PRIORITY_UPDATE, PUSH_PRIORITY_UPDATE,
        PUSH_PROMISE, RESERVED, SETTINGS, data, frame, headers, next_frame, section,
    },
    pseudo,
    varint::{decode as read_varint, encode as varint},
};
use quinn::{ReadError, RecvStream, SendStream, VarInt};

/// The header of a request for `path`.
pub(crate) fn request(method: &str, path: &str) -> Vec<u8> {
    headers(&pseudo(method, path))
}

/// The header of `GET /`.
pub(crate) fn get() -> Vec<u8> {
    request("GET", "/")
}

/// The header of a request for `/` with `more` behind the pseudo-headers.
pub(crate) fn with(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[pseudo(method, "/"), more.to_vec()].concat())
}

/// The header of `GET /` with one pseudo-header replaced.
pub(crate) fn replaced(name: &str, value: &str) -> Vec<u8> {
    let fields = pseudo("GET", "/").into_iter();
    headers(&fields.map(|field| if field.0 == name { (name, value) } else { field }).collect::<Vec<_>>())
}

/// A connection on which nothing is sent that the test does not send.
pub(crate) struct Raw {
    pub(crate) quic: Quic,
    /// Kept: dropping it would end the control stream.
    control: Option<SendStream>,
}

impl Raw {
    /// Connects, and opens a control stream with empty SETTINGS.
    pub(crate) async fn to(litequic: &Litequic) -> Self {
        Self::over(Quic::to(litequic).await).await
    }

    /// The same, with a window of `stream_window` bytes a stream.
    pub(crate) async fn with_window(litequic: &Litequic, stream_window: u32) -> Self {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(stream_window.into());
        Self::over(Quic::connect(litequic.address, "localhost", &litequic.cert_pem, transport).await).await
    }

    /// Opens a control stream with empty SETTINGS on `quic`.
    pub(crate) async fn over(quic: Quic) -> Self {
        let mut raw = Self { quic, control: None };
        raw.control = Some(raw.uni(&CONTROL_STREAM).await);
        raw
    }

    /// Connects, and nothing else.
    pub(crate) async fn bare(litequic: &Litequic) -> Self {
        Self { quic: Quic::to(litequic).await, control: None }
    }

    /// The control stream of [`Raw::to`].
    pub(crate) fn control(&mut self) -> &mut SendStream {
        self.control.as_mut().unwrap()
    }

    /// Opens a unidirectional stream that begins with `bytes`, and leaves it open.
    pub(crate) async fn uni(&self, bytes: &[u8]) -> SendStream {
        let mut stream = within("a stream", self.quic.connection.open_uni()).await.unwrap();
        // An error means that litequic closed already, which tests look for elsewhere.
        let _ = stream.write_all(bytes).await;
        stream
    }

    /// Opens a request stream that begins with `bytes`, and leaves it open.
    pub(crate) async fn open(&self, bytes: &[u8]) -> Exchange {
        let (send, receive) = within("a stream", self.quic.connection.open_bi()).await.unwrap();
        let mut exchange = Exchange { send, receive };
        exchange.send(bytes).await;
        exchange
    }

    /// Sends `GET /` and FIN, and waits until `origin` has its head.
    pub(crate) async fn asked_at(&self, origin: &Script) -> (Exchange, Peer) {
        let mut exchange = self.open(&get()).await;
        exchange.finish();
        let peer = origin.accept_request().await;
        (exchange, peer)
    }

    /// Sends `bytes` and FIN on a request stream, and returns what comes back.
    pub(crate) async fn ask(&self, bytes: &[u8]) -> Outcome {
        let mut exchange = self.open(bytes).await;
        exchange.finish();
        exchange.outcome().await
    }
}

/// A request stream.
pub(crate) struct Exchange {
    pub(crate) send: SendStream,
    pub(crate) receive: RecvStream,
}

/// What came back on a request stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Responses, the last one whole.
    Response(Response),
    /// RESET_STREAM with this code.
    Reset(u64),
    /// The connection was closed with this code.
    Closed(u64),
}

/// A whole response and the interim ones before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Response {
    /// 1xx
    pub(crate) interim: Vec<Fields>,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Fields>,
    /// How many DATA frames there were.
    pub(crate) data_frames: usize,
}

/// A field section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The one value of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter().filter(|field| field.0 == name);
        let value = all.next().map(|field| field.1.as_str());
        assert!(all.next().is_none(), "{name} stands several times");
        value
    }

    /// `:status`
    pub(crate) fn status(&self) -> u16 {
        self.get(":status").unwrap().parse().unwrap()
    }
}

impl Outcome {
    /// The status of a whole response.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Response(response) => response.fields.status(),
            other => panic!("no response: {other:?}"),
        }
    }

    /// The response.
    pub(crate) fn response(self) -> Response {
        match self {
            Self::Response(response) => response,
            other => panic!("no response: {other:?}"),
        }
    }
}

impl Exchange {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // An error means that litequic has stopped or closed already, which the outcome shows.
        let _ = within("flow control", self.send.write_all(bytes)).await;
    }

    /// FIN
    pub(crate) fn finish(&mut self) {
        // An error means that litequic has stopped the stream, which the outcome shows.
        let _ = self.send.finish();
    }

    /// The code of litequic's STOP_SENDING; `None` if it read everything.
    pub(crate) async fn stopped(&mut self) -> Option<u64> {
        within("STOP_SENDING", self.send.stopped()).await.unwrap().map(VarInt::into_inner)
    }

    /// Whatever ends the response.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let mut all = Vec::new();
        loop {
            match within("the response", self.receive.read_chunk(usize::MAX, true)).await {
                Ok(Some(chunk)) => all.extend_from_slice(&chunk.bytes),
                Ok(None) => return Outcome::Response(parse(&all)),
                Err(ReadError::Reset(code)) => return Outcome::Reset(code.into_inner()),
                Err(ReadError::ConnectionLost(quinn::ConnectionError::ApplicationClosed(close))) => {
                    return Outcome::Closed(close.error_code.into_inner());
                }
                Err(other) => panic!("ended otherwise: {other:?}"),
            }
        }
    }

    /// Reads until the response has a header that is no interim one, and returns it; a body that came with it is lost.
    pub(crate) async fn header(&mut self) -> Fields {
        self.header_and_rest().await.0
    }

    /// The same, with what came behind it.
    pub(crate) async fn header_and_rest(&mut self) -> (Fields, Vec<u8>) {
        let mut all = Vec::new();
        loop {
            let chunk = within("the response's header", self.receive.read_chunk(usize::MAX, true)).await.unwrap();
            all.extend_from_slice(&chunk.expect("a header").bytes);
            let mut rest = &all[..];
            while let Some((HEADERS, payload, next)) = next_frame(rest) {
                let fields = decode(payload);
                if fields.status() >= 200 {
                    return (fields, next.to_vec());
                }
                rest = next;
            }
        }
    }
}

/// The payload of the DATA frame that `bytes` begin with, once it is whole, and the frame's length.
pub(crate) fn next_data(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (kind, payload, rest) = next_frame(bytes)?;
    assert_eq!(kind, DATA, "a frame of type {kind:#x}");
    Some((payload, bytes.len() - rest.len()))
}

fn decode(section: &[u8]) -> Fields {
    let limits = qpack::FieldLimits { bytes: usize::MAX, fields: usize::MAX };
    let fields = qpack::decode_section(section, &limits).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Fields(fields.iter().map(|line| (text(line.name), text(line.value))).collect())
}

fn parse(mut bytes: &[u8]) -> Response {
    let mut response = Response::default();
    while !bytes.is_empty() {
        let (kind, payload, rest) = next_frame(bytes).expect("whole frames");
        bytes = rest;
        let begun = !response.fields.0.is_empty();
        match kind {
            HEADERS if begun => {
                assert!(response.trailers.replace(decode(payload)).is_none(), "trailers twice");
            }
            HEADERS => match decode(payload) {
                fields if fields.status() < 200 => response.interim.push(fields),
                fields => response.fields = fields,
            },
            DATA => {
                assert!(begun && response.trailers.is_none(), "DATA out of order");
                response.data_frames += 1;
                response.body.extend_from_slice(payload);
            }
            other => panic!("a frame of type {other:#x}"),
        }
    }
    assert!(!response.fields.0.is_empty(), "a stream without a response");
    response
}
