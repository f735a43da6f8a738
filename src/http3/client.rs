//! A small HTTP/3 client, for `litequic get`: one request on a connection, its response streamed.

use super::{
    error::Code,
    frame::{Endpoint, FrameHeader, FrameType, MessageStream, Part},
    message,
    qpack::{self, FieldLimits},
    send::application_error,
    settings::Settings,
    uni::StreamType,
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use s2n_quic::stream::{ReceiveStream, SendStream};

/// What a response's header may hold: four times what litequic itself takes as a request.
const LIMITS: FieldLimits = FieldLimits { bytes: 128 * 1024, fields: 400 };

/// Why there is no response, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Connection(#[from] s2n_quic::connection::Error),
    /// The stream ended.
    #[error("the response broke off: {0}")]
    Stream(#[from] s2n_quic::stream::Error),
    /// The server broke a rule; the code says which.
    #[error("the server's response breaks HTTP/3's rules: {0}")]
    Protocol(Code),
    /// The response's header is larger than this client takes.
    #[error("the response's header is too large")]
    TooLarge,
    /// The request cannot be said in HTTP/3.
    #[error("the request cannot be sent: {0}")]
    Request(#[from] message::EncodeError),
    /// The body is not as long as its `Content-Length` says.
    #[error("the body has {got} bytes, its Content-Length says {expected}")]
    Length {
        /// Announced.
        expected: u64,
        /// Received.
        got: u64,
    },
}

/// A response's body as it comes.
pub struct ResponseBody {
    stream: ReceiveStream,
    message: MessageStream,
    chunk: Bytes,
    expected: Option<u64>,
    received: u64,
    /// Kept, because closing it is an error (RFC 9114 §6.2.1).
    _control: SendStream,
    handle: s2n_quic::connection::Handle,
}

/// Sends `request` and gives its final response; interim ones go to `interim`. A request body is sent whole before the
/// response is read.
///
/// # Errors
///
/// [`ClientError`].
///
/// # Cancel safety
///
/// Dropping the future, or the body, gives the request up.
pub async fn send(
    connection: s2n_quic::Connection,
    request: Request<Bytes>,
    mut interim: impl FnMut(Response<()>),
) -> Result<Response<ResponseBody>, ClientError> {
    let (mut handle, _acceptor) = connection.split();
    // While a response is outstanding the client keeps the connection open, not the server (RFC 9114 §5.1). An error says that the
    // connection is gone, and so does the next call.
    let _ = handle.keep_alive(true);
    let mut control = handle.open_send_stream().await?;
    control.send(settings()).await?;
    let (stream, mut out) = handle.open_bidirectional_stream().await?.split();
    let (parts, body) = request.into_parts();
    let mut start = BytesMut::new();
    message::encode_request(&parts.method, &parts.uri, &parts.headers, &mut start)?;
    if !body.is_empty() {
        FrameHeader { kind: FrameType::Data, length: body.len() as u64 }.encode(&mut start);
    }
    out.send(start.freeze()).await?;
    out.send(body).await?;
    out.finish()?;

    let mut body = ResponseBody {
        stream,
        message: MessageStream::new(Endpoint::Server, LIMITS.bytes),
        chunk: Bytes::new(),
        expected: None,
        received: 0,
        _control: control,
        handle,
    };
    loop {
        let section = match body.part().await? {
            Some(Part::Header(section)) => section,
            Some(Part::HeaderTooLarge) => return Err(ClientError::TooLarge),
            _ => return Err(ClientError::Protocol(Code::MessageError)),
        };
        let head = body
            .fields(section)
            .and_then(|fields| message::response(fields).map_err(|_| ClientError::Protocol(Code::MessageError)))?;
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        if head.status.is_informational() {
            body.message.expect_another_header();
            interim(response);
            continue;
        }
        body.expected = head
            .content_length
            .filter(|_| parts.method != http::Method::HEAD && head.status != http::StatusCode::NOT_MODIFIED);
        return Ok(response.map(|()| body));
    }
}

/// The control stream's beginning.
fn settings() -> Bytes {
    let mut out = BytesMut::new();
    StreamType::Control.encode(&mut out);
    Settings { max_field_section_size: Some(LIMITS.bytes as u64), ..Settings::default() }.encode(None, &mut out);
    out.freeze()
}

/// A piece of a response's body.
#[derive(Debug)]
pub enum Piece {
    /// Bytes; never empty.
    Data(Bytes),
    /// The trailers; nothing comes after them.
    Trailers(HeaderMap),
}

impl ResponseBody {
    /// The next piece, or `None` at the body's end. Not cancel safe: part of a piece may be lost.
    ///
    /// # Errors
    ///
    /// [`ClientError`]: the body did not end well.
    pub async fn next(&mut self) -> Result<Option<Piece>, ClientError> {
        match self.part().await? {
            Some(Part::Data(data)) => {
                self.received += data.len() as u64;
                Ok(Some(Piece::Data(data)))
            }
            Some(Part::Trailers(section)) => {
                let fields = self.fields(section)?;
                let trailers = message::trailers(fields).map_err(|_| ClientError::Protocol(Code::MessageError))?;
                Ok(Some(Piece::Trailers(trailers)))
            }
            Some(Part::TrailersTooLarge | Part::HeaderTooLarge) => Err(ClientError::TooLarge),
            Some(Part::Header(_)) => Err(ClientError::Protocol(Code::FrameUnexpected)),
            None => match self.expected {
                Some(expected) if expected != self.received => {
                    Err(ClientError::Length { expected, got: self.received })
                }
                _ => Ok(None),
            },
        }
    }

    /// Closes the connection: nothing more is wanted.
    pub fn close(self) {
        self.handle.close(application_error(Code::NoError));
    }

    fn fields(&self, section: Bytes) -> Result<Vec<qpack::Field>, ClientError> {
        qpack::decode(section, &LIMITS).map_err(|error| match error {
            qpack::DecodeError::Failed(_) => ClientError::Protocol(Code::QpackDecompressionFailed),
            qpack::DecodeError::TooManyBytes | qpack::DecodeError::TooManyFields => ClientError::TooLarge,
        })
    }

    async fn part(&mut self) -> Result<Option<Part>, ClientError> {
        loop {
            if let Some(part) = self.message.read(&mut self.chunk).map_err(ClientError::Protocol)? {
                return Ok(Some(part));
            }
            match self.stream.receive().await? {
                Some(chunk) => self.chunk = chunk,
                None => {
                    self.message.finish().map_err(ClientError::Protocol)?;
                    return Ok(None);
                }
            }
        }
    }
}
