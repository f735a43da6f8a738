//! Makes one health check over HTTP/2, on a connection of its own: a GET, or a call of `grpc.health.v1.Health/Check`
//! ([the protocol](https://github.com/grpc/grpc/blob/master/doc/health-checking.md)).

use super::health_check::{NoHealthAnswer, RESPONSE_CAPACITY, USER_AGENT, check_status};
use crate::connection::OriginSocket;
use bytes::Bytes;
use http::Method;
use litequic_config::HealthCheck;
use litequic_exchange::{
    Authority, FieldNameRef, Fields, Head,
    http1::RESPONSE_LIMITS,
    http2::{ClientConnection, StreamFailure},
    name,
};
use std::{
    io::{self, IoSlice},
    task::{Context, Poll, Waker},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Path of the call.
const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";
/// `HealthCheckResponse` whose `status` is `SERVING`, behind a message's prefix of five bytes.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
/// Statuses of gRPC that a server has when it cannot say its health.
const NOT_FOUND: &[u8] = b"5";
const UNIMPLEMENTED: &[u8] = b"12";

/// Response to a check.
#[derive(Debug, Default)]
struct HealthAnswer {
    /// Status of the final response; 0 before it was received.
    status: u16,
    /// The header's fields, or those of the trailers.
    fields: Fields,
    /// Beginning of the content of a call's response.
    content: Vec<u8>,
}

/// Requests the health from the server at `stream`, whose name is `host`.
///
/// # Errors
///
/// The problem, for the operator.
pub(super) async fn request_health_over_http2(
    stream: &mut OriginSocket,
    host: &str,
    health: &HealthCheck,
) -> Result<(), String> {
    let answer = exchange_health(stream, host, health).await.map_err(|failure| failure.to_problem())?;
    let Some(service) = &health.grpc else { return check_status(health, answer.status) };
    match answer.fields.get(name::GRPC_STATUS) {
        _ if answer.status != 200 => Err(format!("answered with {}", answer.status)),
        Some(b"0") if answer.content == SERVING => Ok(()),
        Some(b"0") => Err("the service is not SERVING".into()),
        Some(UNIMPLEMENTED) => Err("the server has no grpc.health.v1.Health service (UNIMPLEMENTED)".into()),
        Some(NOT_FOUND) => Err(format!("the server has no service {service:?} (NOT_FOUND)")),
        Some(status) => Err(format!("answered with grpc-status {:?}", String::from_utf8_lossy(status))),
        None => Err("answered without grpc-status".into()),
    }
}

async fn exchange_health(
    stream: &mut OriginSocket,
    host: &str,
    health: &HealthCheck,
) -> Result<HealthAnswer, NoHealthAnswer> {
    let mut client = ClientConnection::new(RESPONSE_LIMITS);
    let (mut id, mut answer) = (None, HealthAnswer::default());
    let mut message = health.grpc.as_deref().map(encode_check).unwrap_or_default();
    let mut received = Vec::with_capacity(RESPONSE_CAPACITY);
    // The check's timeout bounds what the server sends.
    loop {
        while client.output_length() > 0 {
            let mut parts = [IoSlice::new(&[]); 4];
            let count = client.fill_output(&mut parts);
            match stream.write_vectored(parts.get(..count).unwrap_or_default()).await? {
                0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                written => client.on_output_written(written),
            }
        }
        stream.flush().await?;
        received.clear();
        if stream.read_buf(&mut received).await? == 0 {
            return Err(NoHealthAnswer::Closed);
        }
        let fault = client.receive(&received);
        if let Some(id) = id
            && read_answer(&mut client, id, health.grpc.is_some(), &mut answer)?
        {
            return Ok(answer);
        }
        fault?;
        if id.is_none() && client.has_settings() {
            id = open_check(&mut client, host, stream.is_tls_socket(), health);
        }
        if let Some(id) = id.filter(|id| !client.is_request_sent(*id)) {
            client.send_piece(id, &mut message);
            if message.is_empty() {
                client.finish_request(id, None);
            }
        }
    }
}

/// Opens the stream of a check. Returns its ID, if the server allows one.
fn open_check(client: &mut ClientConnection, host: &str, is_https: bool, health: &HealthCheck) -> Option<u32> {
    let mut fields = vec![("user-agent", USER_AGENT)];
    let (method, path) = match &health.grpc {
        Some(_) => {
            fields.extend([("content-type", "application/grpc"), ("te", "trailers")]);
            (Method::POST, CHECK_PATH)
        }
        None => (Method::GET, &*health.path),
    };
    let fields = fields.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes()));
    let head = Head::new(method, Authority::new(host), path, fields.collect());
    let scheme = if is_https { "https" } else { "http" };
    client.begin_stream(&head, scheme, None, health.grpc.is_none())
}

/// Encodes `HealthCheckRequest`, whose first field is the `service`, as a message of gRPC.
fn encode_check(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.extend([0x0a, u8::try_from(service.len()).unwrap_or(u8::MAX)]);
        message.extend(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0][..], &length, &message].concat().into()
}

/// Reads what was received of a response. Returns whether `answer` has all that the check needs.
fn read_answer(
    client: &mut ClientConnection,
    id: u32,
    is_grpc: bool,
    answer: &mut HealthAnswer,
) -> Result<bool, StreamFailure> {
    let cx = Context::from_waker(Waker::noop());
    while answer.status == 0 {
        match client.poll_message(id, &cx) {
            Poll::Ready(message) => {
                let (status, fields) = message?;
                if !status.is_informational() {
                    (answer.status, answer.fields) = (status.as_u16(), fields);
                }
            }
            Poll::Pending => return Ok(false),
        }
    }
    if !is_grpc {
        return Ok(true);
    }
    loop {
        match client.poll_content(id, 0, &cx) {
            Poll::Ready(Some(piece)) => {
                answer.content.extend(piece?);
                answer.content.truncate(RESPONSE_CAPACITY);
            }
            Poll::Ready(None) => {
                answer.fields = client.take_response_trailers(id).unwrap_or_else(|| std::mem::take(&mut answer.fields));
                return Ok(true);
            }
            Poll::Pending => return Ok(false),
        }
    }
}
