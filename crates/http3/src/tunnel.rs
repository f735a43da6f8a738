//! The stream of an extended CONNECT (RFC 9220) joined with its origin: DATA frames both ways, until both have ended.

use super::{
    error::Code,
    front::Connection,
    outcome::{Failure, RequestFault, RequestOutcome},
    receive::RequestBody,
    response::respond,
    send::Sender,
};
use futures_util::{TryStreamExt, future::try_join};
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use litequic_exchange::{Body, BodyError, Fields, Handler, Record, Response, Silenced, TUNNEL_BUFFER, Tunnel};
use std::{io, pin::pin};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt, split},
    select,
};
use tokio_util::io::ReaderStream;

/// Sends the answer that the protocol is switched, which is 200 here, and joins both. The end of either is forwarded to
/// the other (half close); once anything fails, nothing has moved for `timeouts.tunnel`, or for
/// `timeouts.tunnel_half_closed` after the end of one, or another client's tunnel gets its place, both are reset.
pub(super) async fn serve<H: Handler>(
    fields: Fields,
    tunnel: Tunnel,
    body: RequestBody,
    sender: &mut Sender,
    connection: &Connection<H>,
    outcome: &RequestOutcome,
    record: &Record,
) -> Result<(), Failure> {
    // A tunnel has a timeout of its own. A connection whose client is gone ends all the same, as it acknowledges
    // nothing.
    let _open = connection.pauses.begin();
    // Whatever drops the client's half before its end.
    outcome.stop_with(Code::RequestCancelled);
    sender.open_tunnel();
    let quiet = tunnel.quiet();
    let (from, to) = split(tunnel);
    let pieces = ReaderStream::with_capacity(from, TUNNEL_BUFFER).map_ok(Frame::data);
    let pieces = Body::stream(StreamBody::new(pieces.map_err(|error| cause(&error))));
    let response = Response { status: StatusCode::OK, fields, body: pieces };
    let download = async {
        respond(response, &Method::GET, sender, connection, outcome, record).await.map_err(of_tunnel)?;
        sender.flush().await.map_err(Failure::Send)?;
        sender.end();
        Ok(())
    };
    select! {
        joined = try_join(upload(body, to, record), download) => joined.map(drop),
        silenced = quiet.expired() => match silenced {
            Silenced::Evicted => Err(Failure::Evicted),
            Silenced::TimedOut | Silenced::HalfClosed => {
                let shared = &connection.front.metrics.shared;
                let is_half_closed = silenced == Silenced::HalfClosed;
                if is_half_closed { &shared.timeout_tunnel_half_closed } else { &shared.timeout_tunnel }.increment();
                record.broke_off(BodyError::TimedOut);
                Err(Failure::Tunnel)
            }
        }
    }
}

async fn upload(body: RequestBody, mut to: impl AsyncWrite + Unpin, record: &Record) -> Result<(), Failure> {
    let broken = |error: io::Error| {
        record.broke_off(cause(&error));
        Failure::Tunnel
    };
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        // The request's outcome has the cause.
        let frame = frame.map_err(|_| Failure::Request(RequestFault::Cancelled))?;
        if let Ok(data) = frame.into_data() {
            to.write_all(&data).await.map_err(broken)?;
            // TLS with an origin may hold what its socket has no room for.
            to.flush().await.map_err(broken)?;
        }
    }
    to.shutdown().await.map_err(broken)
}

/// RFC 9220 §3: a tunnel that fails is not an internal error.
fn of_tunnel(failure: Failure) -> Failure {
    match failure {
        Failure::Response => Failure::Tunnel,
        other => other,
    }
}

fn cause(error: &io::Error) -> BodyError {
    tracing::debug!(%error, "a tunnel's connection to its origin failed");
    BodyError::Truncated
}
