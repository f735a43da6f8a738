//! Sends the requests of `litequic get` on one HTTP/3 connection, and streams each body both ways.

use super::{
    error_code::{ErrorCode, to_application_error},
    frame::{
        ControlFrame, ControlStream, FrameHeader, FrameType, MessagePart, MessageStream, PeerRole, settings::Settings,
    },
    message,
    qpack::{self, FieldLimits},
    stream_type::{StreamType, UnidirectionalStreams},
    varint,
};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode, Version};
use litequic_exchange::{DecodedFields, Fields};
use s2n_quic::{
    connection::{Handle, ReceiveStreamAcceptor},
    stream::{ReceiveStream, SendStream},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Limits of a response's header: four times what litequic itself accepts in a request.
const RESPONSE_LIMITS: FieldLimits = FieldLimits { bytes: 128 * 1024, fields: 400 };

/// The reason why there is no complete response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection ended.
    #[error("{}", describe_connection_end(.0))]
    Connection(#[from] s2n_quic::connection::Error),
    /// The stream ended.
    #[error("{}", describe_stream_end(.0))]
    Stream(#[from] s2n_quic::stream::Error),
    /// The server violated the rule of HTTP/3 that the code names.
    #[error("the server's response violates HTTP/3: {0}")]
    Protocol(ErrorCode),
    /// The server accepts no more requests on this connection.
    #[error("the server is closing the connection (GOAWAY)")]
    Goaway,
    /// The response's header is larger than this client accepts.
    #[error("the response's header is too large")]
    TooLarge,
    /// The request cannot be encoded in HTTP/3.
    #[error("the request cannot be sent: {0}")]
    Request(#[from] message::EncodeError),
    /// The body's length differs from `Content-Length`.
    #[error("the body has {got} bytes, but its Content-Length is {expected}")]
    Length {
        /// Announced length in bytes.
        expected: u64,
        /// Received length in bytes.
        got: u64,
    },
}

fn describe_connection_end(error: &s2n_quic::connection::Error) -> String {
    use s2n_quic::connection::Error;
    match error {
        Error::Application { error, initiator, .. } if initiator.is_remote() => {
            format!("the server closed the connection with {}", ErrorCode::describe_code((*error).into()))
        }
        error => format!("the connection ended: {error}"),
    }
}

fn describe_stream_end(error: &s2n_quic::stream::Error) -> String {
    use s2n_quic::stream::Error;
    match error {
        Error::StreamReset { error, .. } => {
            format!("the server reset the stream with {}", ErrorCode::describe_code((*error).into()))
        }
        Error::ConnectionError { error, .. } => describe_connection_end(error),
        error => format!("the response was cut off: {error}"),
    }
}

/// A client connection for requests, one after the other or in parallel. To be used inside one task, which polls
/// [`Self::watch_server_streams`] beside each response.
pub struct Http3Client {
    handle: Handle,
    peer: Rc<ServerControl>,
    server_streams: RefCell<Option<ReceiveStreamAcceptor>>,
    /// Kept open: closing it is an error (RFC 9114 §6.2.1).
    _control: SendStream,
}

/// SETTINGS and GOAWAY of the server.
#[derive(Debug, Default)]
struct ServerControl {
    settings: Cell<Option<Settings>>,
    goaway: Cell<Option<u64>>,
}

impl Http3Client {
    /// Opens the control stream on `connection`.
    ///
    /// # Errors
    ///
    /// [`ClientError`]: the connection is gone.
    pub async fn from_connection(connection: s2n_quic::Connection) -> Result<Self, ClientError> {
        let (mut handle, acceptor) = connection.split();
        // While a response is outstanding the client keeps the connection open, not the server (RFC 9114 §5.1). An
        // error means that the connection is gone; then the next call fails, too.
        let _ = handle.keep_alive(true);
        let mut control = handle.open_send_stream().await?;
        control.send(encode_client_settings()).await?;
        let (_, streams) = acceptor.split();
        Ok(Self { handle, peer: Rc::default(), server_streams: RefCell::new(Some(streams)), _control: control })
    }

    /// Returns the server's SETTINGS, once they have arrived.
    pub fn server_settings(&self) -> Option<Settings> {
        self.peer.settings.get()
    }

    /// Reads the server's unidirectional streams: SETTINGS, GOAWAY. To be polled beside the requests, once. Returns if
    /// the server violates HTTP/3.
    pub async fn watch_server_streams(&self) -> ClientError {
        // Bound to a variable, so that nothing is borrowed across the wait.
        let streams = self.server_streams.borrow_mut().take();
        let Some(mut streams) = streams else { return std::future::pending().await };
        let open = RefCell::new(UnidirectionalStreams::new(PeerRole::Server));
        let mut reading = futures_util::stream::FuturesUnordered::new();
        loop {
            tokio::select! {
                stream = streams.accept_receive_stream() => match stream {
                    Ok(Some(stream)) => reading.push(read_server_stream(stream, &open, &self.peer)),
                    // The connection has ended. Its requests report the error.
                    Ok(None) | Err(_) => return std::future::pending().await,
                },
                Some(outcome) = futures_util::StreamExt::next(&mut reading) => {
                    if let Err(code) = outcome {
                        self.handle.close(to_application_error(code));
                        return ClientError::Protocol(code);
                    }
                }
            }
        }
    }

    /// Sends the header of `request`. Returns the halves for the request's body and for the response.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn send_request<T>(
        &self,
        request: &Request<T>,
    ) -> Result<(ClientRequestBody, ResponseStream), ClientError> {
        let mut start = Vec::new();
        let fields = Fields::from(request.headers());
        message::encode_request(request.method(), request.uri(), &fields, &mut start)?;
        let stream = self.handle.clone().open_bidirectional_stream().await?;
        if self.peer.goaway.get().is_some_and(|first| stream.id() >= first) {
            return Err(ClientError::Goaway);
        }
        let (stream, out) = stream.split();
        let mut body = ClientRequestBody { stream: out, finished: false };
        body.stream.send(start.into()).await?;
        let response = ResponseStream {
            stream,
            message: MessageStream::new(PeerRole::Server, RESPONSE_LIMITS.bytes),
            chunk: Bytes::new(),
            is_head_request: request.method() == Method::HEAD,
            expected: None,
            received: 0,
        };
        Ok((body, response))
    }

    /// Closes the connection.
    pub fn close_connection(&self) {
        self.handle.close(to_application_error(ErrorCode::NoError));
    }
}

/// Reads one of the server's unidirectional streams to its end.
async fn read_server_stream(
    mut stream: ReceiveStream,
    open: &RefCell<UnidirectionalStreams>,
    peer: &ServerControl,
) -> Result<(), ErrorCode> {
    let (mut kind, mut control) = (None, ControlStream::new(PeerRole::Server));
    let mut partial = varint::PartialVarint::default();
    while let Ok(Some(mut chunk)) = stream.receive().await {
        if kind.is_none() {
            let Some(value) = partial.read_partial(&mut chunk) else { continue };
            let new = StreamType::from_stream_value(value);
            open.borrow_mut().register_stream(new)?;
            kind = Some(new);
        }
        match kind {
            Some(StreamType::Control) => {
                while let Some(said) = control.read_control_frame(&mut chunk)? {
                    match said {
                        ControlFrame::Settings(settings) => peer.settings.set(Some(settings)),
                        ControlFrame::Goaway(first) => peer.goaway.set(Some(first)),
                        // Clients alone send this frame, and the control stream's rules reject it before.
                        ControlFrame::PriorityUpdate { .. } => return Err(ErrorCode::FrameUnexpected),
                    }
                }
            }
            // The dynamic table has no capacity here: only instructions without an effect are valid.
            Some(StreamType::QpackEncoder | StreamType::QpackDecoder) | None => {}
            Some(StreamType::Push | StreamType::Unknown(_)) => {
                // An error means that the stream has ended.
                let _ = stream.stop_sending(to_application_error(ErrorCode::StreamCreationError));
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the beginning of the control stream, with SETTINGS.
fn encode_client_settings() -> Bytes {
    let mut out = BytesMut::new();
    StreamType::Control.encode_stream_type(&mut out);
    Settings { max_field_section_size: Some(RESPONSE_LIMITS.bytes as u64), ..Settings::default() }
        .encode_settings(&mut out);
    out.freeze()
}

/// The sending half of a request. If it is dropped before [`Self::finish_request`] the request is cancelled: s2n-quic
/// alone would end the stream as if the body were complete.
pub struct ClientRequestBody {
    stream: SendStream,
    finished: bool,
}

impl ClientRequestBody {
    /// Sends `data`, which is not empty, once the stream has room. Returns false if the server stopped reading; its
    /// response has the reason. Not cancel safe: part of `data` may be sent.
    ///
    /// # Errors
    ///
    /// [`ClientError`]: the connection is gone.
    pub async fn send_body_data(&mut self, data: Bytes) -> Result<bool, ClientError> {
        let mut header = BytesMut::new();
        FrameHeader { kind: FrameType::Data, length: data.len() as u64 }.encode_frame_header(&mut header);
        for chunk in [header.freeze(), data] {
            match self.stream.send(chunk).await {
                Ok(()) => {}
                Err(s2n_quic::stream::Error::StreamReset { .. }) => {
                    self.finished = true;
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Ends the body, which is complete.
    pub fn finish_request(mut self) {
        self.finished = true;
        // An error means that the server stopped reading, or that the connection is gone. The response reports it.
        let _ = self.stream.finish();
    }
}

impl Drop for ClientRequestBody {
    fn drop(&mut self) {
        if !self.finished {
            // An error has the same meaning as in `finish_request`.
            let _ = self.stream.reset(to_application_error(ErrorCode::RequestCancelled));
        }
    }
}

/// The receiving half of a response.
pub struct ResponseStream {
    stream: ReceiveStream,
    message: MessageStream,
    chunk: Bytes,
    is_head_request: bool,
    expected: Option<u64>,
    received: u64,
}

/// A piece of a response's body.
#[derive(Debug)]
pub enum ResponsePiece {
    /// Bytes of the body, never none.
    Data(Bytes),
    /// The trailers, which end the response.
    Trailers(Fields),
}

impl ResponseStream {
    /// Receives the next header: those of interim responses (1xx), then that of the final one. Not cancel safe.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn next_head(&mut self) -> Result<Response<()>, ClientError> {
        let section = match self.receive_part().await? {
            Some(MessagePart::Header(section)) => section,
            Some(MessagePart::HeaderTooLarge) => return Err(ClientError::TooLarge),
            _ => return Err(ClientError::Protocol(ErrorCode::MessageError)),
        };
        let head = message::decode_response(decode_fields(&section)?)
            .map_err(|_| ClientError::Protocol(ErrorCode::MessageError))?;
        if head.status.is_informational() {
            self.message.expect_another_header();
        } else {
            self.expected =
                head.content_length.filter(|_| !self.is_head_request && head.status != StatusCode::NOT_MODIFIED);
        }
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = head.fields.into();
        *response.version_mut() = Version::HTTP_3;
        Ok(response)
    }

    /// Receives the next piece of the body, after the final header; `None` at the body's end. Not cancel safe: part of
    /// a piece may be lost.
    ///
    /// # Errors
    ///
    /// [`ClientError`]: the body is incomplete.
    pub async fn next_body_piece(&mut self) -> Result<Option<ResponsePiece>, ClientError> {
        match self.receive_part().await? {
            Some(MessagePart::Data(data)) => {
                self.received += data.len() as u64;
                Ok(Some(ResponsePiece::Data(data)))
            }
            Some(MessagePart::Trailers(section)) => {
                let trailers = message::decode_trailers(decode_fields(&section)?)
                    .map_err(|_| ClientError::Protocol(ErrorCode::MessageError))?;
                Ok(Some(ResponsePiece::Trailers(trailers)))
            }
            Some(MessagePart::TrailersTooLarge | MessagePart::HeaderTooLarge) => Err(ClientError::TooLarge),
            Some(MessagePart::Header(_)) => Err(ClientError::Protocol(ErrorCode::FrameUnexpected)),
            None => match self.expected {
                Some(expected) if expected != self.received => {
                    Err(ClientError::Length { expected, got: self.received })
                }
                _ => Ok(None),
            },
        }
    }

    async fn receive_part(&mut self) -> Result<Option<MessagePart>, ClientError> {
        loop {
            if let Some(part) = self.message.read_part(&mut self.chunk).map_err(ClientError::Protocol)? {
                return Ok(Some(part));
            }
            match self.stream.receive().await? {
                Some(chunk) => self.chunk = chunk,
                None => {
                    self.message.check_end().map_err(ClientError::Protocol)?;
                    return Ok(None);
                }
            }
        }
    }
}

fn decode_fields(section: &[u8]) -> Result<DecodedFields, ClientError> {
    qpack::decode_section(section, &RESPONSE_LIMITS).map_err(|error| match error {
        qpack::DecodeError::Failed(_) => ClientError::Protocol(ErrorCode::QpackDecompressionFailed),
        qpack::DecodeError::TooManyBytes | qpack::DecodeError::TooManyFields => ClientError::TooLarge,
    })
}
