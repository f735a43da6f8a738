//! Answers a request over TCP: checks it, passes it to the handler, and counts the response.

use super::{
    body::{Incoming, TcpRequestBody, TcpResponseBody},
    connection::{ActiveRequest, Connection},
    refusal::Refusal,
    request,
    tunnel::TunnelHandoff,
};
use http::{Method, StatusCode, header, request::Parts, response};
use hyper::ext::ReasonPhrase;
use litequic_base::lifecycle::{Phase, panic_if_asked};
use litequic_exchange::{
    Abort, Body, BodyError, Exchange, Handler, Interim, Protocol, Record, Request, Response, name,
};
use std::{cell::Cell, future::Future, rc::Rc, sync::Arc};

/// The answer to a request.
pub(super) enum Answer<H> {
    Response(http::Response<TcpResponseBody<H>>),
    /// The protocol is switched: the head of a 101, which each protocol adapts, and the tunnel that follows.
    Tunnel(response::Parts, TunnelHandoff<H>),
}

impl<H: Handler> Connection<H> {
    /// Answers one request on `stream`, whose body is `None` if it ends with the head, or which was refused already.
    /// Dropped before its end, it cancels the exchange.
    pub(super) fn answer<I: Incoming>(
        self: &Rc<Self>,
        request: Result<(Parts, Option<I>), Refusal>,
        interim: Interim,
        stream: u32,
    ) -> impl Future<Output = Result<Answer<H>, Abort>> + use<H, I> {
        let connection = Rc::clone(self);
        let mut open = ActiveRequest::new(Rc::clone(self), stream);
        // Of a request that was refused nothing is known.
        if let Ok((parts, _)) = &request {
            request::note(parts, open.record());
        }
        async move {
            panic_if_asked("request");
            let (parts, incoming) = match request {
                Ok(request) => request,
                Err(refusal) => return Ok(connection.refuse(refusal, open)),
            };
            let method = parts.method.clone();
            let fault = Rc::new(Cell::new(None));
            let request = match connection.accept(parts, incoming, &fault, open.record()).await {
                Ok(request) => request,
                Err(refusal) => return Ok(connection.refuse(refusal, open)),
            };
            connection.count_request();
            open.prioritize(&request.head.fields, request.head.upgrade.is_some());
            let (client, record) = (Rc::clone(&connection.client), open.record().clone());
            match connection.front.handler.handle(Exchange { request, client, interim, record }).await {
                Ok(response) if response.status == StatusCode::SWITCHING_PROTOCOLS => {
                    let (parts, body) = http::Response::from(response).into_parts();
                    // A tunnel is a 101 with one.
                    let tunnel = body.into_tunnel().map_err(|_| Abort::Internal)?;
                    Ok(Answer::Tunnel(parts, TunnelHandoff { tunnel, open }))
                }
                Ok(response) => Ok(connection.finish(response, &method, open)),
                Err(_) if fault.get() == Some(BodyError::Malformed) => {
                    Ok(connection.refuse(Refusal::bad("the request's body is malformed"), open))
                }
                Err(abort) => {
                    open.fail();
                    Err(abort)
                }
            }
        }
    }

    /// Checks a request, and converts it for the handler.
    async fn accept<I: Incoming>(
        &self,
        parts: Parts,
        incoming: Option<I>,
        fault: &Rc<Cell<Option<BodyError>>>,
        record: &Record,
    ) -> Result<Request, Refusal> {
        // Before any rejection: what it does not read is discarded.
        let body = incoming.map(|incoming| {
            let (metrics, fault) = (Arc::clone(self.metrics()), Rc::clone(fault));
            TcpRequestBody::new(incoming, self.terms.upload_pace(), fault, metrics, record.clone(), self.lingering())
                .within(self.terms.field_limits)
        });
        let head = request::translate(parts, self.client.protocol, &self.terms.field_limits, &self.authority)?;
        if !(self.front.covers)(&self.client, head.host()) {
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "this connection is not for that host"));
        }
        let body = match body {
            Some(body) => body.unless_empty(&head.method).await.map_or_else(Body::empty, Body::stream),
            None => Body::empty(),
        };
        Ok(Request { head, body })
    }

    /// An answer of the front end's own, after which an HTTP/1.1 connection closes: what follows may be anything.
    fn refuse(&self, refusal: Refusal, open: ActiveRequest<H>) -> Answer<H> {
        tracing::debug!(client = %self.client.address, error = %refusal, "a request was rejected");
        refusal.count(self.metrics());
        open.record().error("http_request_error");
        match self.client.protocol {
            Protocol::Http2 => self.metrics().tcp_refused_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.metrics().tcp_refused_h1.increment(),
        }
        let mut response = refusal.response();
        self.front.handler.complete_rejection(&self.client, &mut response);
        if self.client.protocol == Protocol::Http1 {
            response.fields.set(name::CONNECTION, b"close");
        }
        self.finish(response, &Method::GET, open)
    }

    fn finish(&self, response: Response, method: &Method, mut open: ActiveRequest<H>) -> Answer<H> {
        open.respond(&response.fields);
        // In HTTP/1.1, the gateway's own version (RFC 9112 §2.3); hyper answers HTTP/1.0 in HTTP/1.0 by itself.
        let (mut parts, body) = http::Response::from(response).into_parts();
        if parts.status.canonical_reason().is_none() {
            // hyper, which writes it for HTTP/1.1 clients, would write `<none>`; an empty phrase is right
            // (RFC 9112 §4).
            parts.extensions.insert(ReasonPhrase::from_static(b""));
        }
        open.begin(parts.status);
        if let Some(alt_svc) = &self.alt_svc
            && self.front.watch.phase() < Phase::Draining
        {
            parts.headers.insert(header::ALT_SVC, self.front.alt_svc(alt_svc));
        }
        let bodiless =
            *method == Method::HEAD || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let body = if bodiless { Body::empty() } else { body };
        Answer::Response(http::Response::from_parts(parts, TcpResponseBody::new(body, open)))
    }
}
