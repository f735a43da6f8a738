//! Joins the stream of an extended CONNECT (RFC 9220) with the origin: DATA frames both ways, until both sides have
//! ended.

use super::{
    error_code::ErrorCode,
    request_outcome::{RequestFault, ResponseFailure},
    request_receiver::RequestBody,
    response_writer::ResponseWriter,
};
use futures_util::{TryStreamExt, future::try_join};
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use litequic_exchange::{
    Body, BodyError, ExpiryCause, Fields, Handler, RequestRecord, Response, TUNNEL_BUFFER, Tunnel,
};
use std::{io, pin::pin};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt, split},
    select,
};
use tokio_util::io::ReaderStream;

impl<H: Handler> ResponseWriter<'_, H> {
    /// Sends the response that the protocol is switched, which is 200 here, and joins both sides. The end of one side
    /// is forwarded to the other (half close). Both are reset once one fails, nothing has moved for `timeouts.tunnel`,
    /// or for half a minute after the end of one side, or the tunnel makes room for another client's.
    pub(super) async fn serve_tunnel(
        &mut self,
        fields: Fields,
        tunnel: Tunnel,
        body: RequestBody,
    ) -> Result<(), ResponseFailure> {
        let (connection, record) = (self.connection, self.record);
        // A tunnel has its own timeout. If the client is gone the connection ends all the same, as nothing is
        // acknowledged.
        let _open = connection.paused_streams.begin_pause();
        // The code applies to any drop of the client's half before its end.
        self.outcome.stop_code.set(ErrorCode::RequestCancelled);
        self.sender.tunnel = true;
        let quiet = tunnel.expiry_handle();
        let (from, to) = split(tunnel);
        let pieces = ReaderStream::with_capacity(from, TUNNEL_BUFFER).map_ok(Frame::data);
        let pieces = Body::from_stream(StreamBody::new(pieces.map_err(|error| origin_body_error(&error))));
        let response = Response { status: StatusCode::OK, fields, body: pieces };
        let download = async {
            self.relay_checked_response(response, &Method::GET).await.map_err(to_tunnel_failure)?;
            self.sender.flush_queued().await.map_err(ResponseFailure::Send)?;
            self.sender.end_stream();
            Ok(())
        };
        select! {
            joined = try_join(upload_to_origin(body, to, record), download) => joined.map(drop),
            silenced = quiet.wait_for_expiry() => match silenced {
                ExpiryCause::Evicted => Err(ResponseFailure::Evicted),
                ExpiryCause::TimedOut | ExpiryCause::HalfClosed => {
                    let shared = &connection.worker.metrics.shared;
                    let is_half_closed = silenced == ExpiryCause::HalfClosed;
                    if is_half_closed { &shared.timeout_tunnel_half_closed } else { &shared.timeout_tunnel }.increment();
                    record.record_broken_body(BodyError::TimedOut);
                    Err(ResponseFailure::Tunnel)
                }
            }
        }
    }
}

async fn upload_to_origin(
    body: RequestBody,
    mut to: impl AsyncWrite + Unpin,
    record: &RequestRecord,
) -> Result<(), ResponseFailure> {
    let broken = |error: io::Error| {
        record.record_broken_body(origin_body_error(&error));
        ResponseFailure::Tunnel
    };
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        // The request's outcome has the cause.
        let frame = frame.map_err(|_| ResponseFailure::Request(RequestFault::Cancelled))?;
        if let Ok(data) = frame.into_data() {
            to.write_all(&data).await.map_err(broken)?;
            // TLS with an origin may hold what its socket has no room for.
            to.flush().await.map_err(broken)?;
        }
    }
    to.shutdown().await.map_err(broken)
}

/// Maps a failed response to a failed tunnel, which is no internal error (RFC 9220 §3).
fn to_tunnel_failure(failure: ResponseFailure) -> ResponseFailure {
    match failure {
        ResponseFailure::Response => ResponseFailure::Tunnel,
        other => other,
    }
}

fn origin_body_error(error: &io::Error) -> BodyError {
    tracing::debug!(%error, "a tunnel's connection to its origin failed");
    BodyError::Truncated
}
