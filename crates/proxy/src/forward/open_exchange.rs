//! Holds the origin's side of an exchange whose response has begun: its connection, and its ticket at the server.

use crate::connection::{Upload, UploadProgress};
use crate::origin::Ticket;
use crate::pool::PooledConnection;
use bytes::Bytes;
use http_body::Frame;
use litequic_exchange::BodyError;
use std::{
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Origin's side of an exchange whose response has begun.
#[derive(Debug)]
pub(crate) struct OpenExchange {
    pub(crate) connection: PooledConnection,
    pub(crate) ticket: Ticket,
}

impl OpenExchange {
    /// Polls the response's body without a wait: no task is woken by later bytes, so that the body must be polled
    /// again.
    pub(crate) fn poll_without_waker(&mut self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.connection.is_end_stream() {
            return Poll::Ready(None);
        }
        self.connection.poll_frame(&mut Context::from_waker(Waker::noop()))
    }
}

/// Result of reading a response's body.
pub(crate) enum BodyRead {
    Frame(Frame<Bytes>),
    /// The body is complete.
    End,
    /// The origin has sent no more bytes yet.
    Wait,
    /// The connection has ended before the body, or the body is invalid.
    Broken(BodyError),
    Failed(BodyError),
}

/// Returns the connection of a complete response to its pool, unless the request's body is still being sent, and drops
/// the client's stream.
pub(crate) fn finish_exchange(OpenExchange { connection, ticket, .. }: OpenExchange, upload: Option<&Rc<Upload>>) {
    ticket.report_completed();
    if upload.is_none_or(|upload| upload.progress() == UploadProgress::Done) {
        connection.return_to_pool();
    }
    if let Some(upload) = upload {
        upload.cancel_upload();
    }
}
