//! Serves a request over TCP: checks it, passes it to the handler, and counts the response.

use super::{
    refusal::Refusal,
    request_head,
    tcp_body::{IncomingBody, TcpRequestBody, TcpResponseBody},
    tcp_connection::{ActiveRequest, TcpConnection},
    tunnel_handoff::TunnelHandoff,
};
use http::{Method, StatusCode, header, request::Parts, response};
use hyper::ext::ReasonPhrase;
use litequic_base::lifecycle::{ProcessPhase, panic_if_requested};
use litequic_exchange::{
    Abort, Body, BodyError, Exchange, Handler, InterimSender, Protocol, Request, RequestRecord, Response, name,
};
use std::{cell::Cell, future::Future, rc::Rc};

/// The response to a request, or the tunnel that it opens.
pub(super) enum RequestAnswer<H> {
    Response(http::Response<TcpResponseBody<H>>),
    /// The head of a 101, which each protocol adapts, and the tunnel that follows.
    Tunnel(response::Parts, TunnelHandoff<H>),
}

impl<H: Handler> TcpConnection<H> {
    /// Serves one request on `stream`. Its body is `None` if it ends with the head. Dropping the future cancels the
    /// exchange.
    pub(super) fn answer_tcp_request<I: IncomingBody>(
        self: &Rc<Self>,
        parts: Parts,
        incoming: Option<I>,
        interim: InterimSender,
        stream: u32,
    ) -> impl Future<Output = Result<RequestAnswer<H>, Abort>> + use<H, I> {
        let connection = Rc::clone(self);
        let mut open = ActiveRequest::new(Rc::clone(self), stream);
        request_head::record_request_head(&parts, open.request_record());
        async move {
            panic_if_requested("request");
            let method = parts.method.clone();
            let fault = Rc::new(Cell::new(None));
            let request = match connection.convert_request(parts, incoming, &fault, open.request_record()).await {
                Ok(request) => request,
                Err(refusal) => return Ok(RequestAnswer::Response(connection.answer_refusal(refusal, open))),
            };
            connection.count_request();
            open.set_initial_priority(&request.head.fields, request.head.upgrade.is_some());
            let (client, record) = (Rc::clone(&connection.client), open.request_record().clone());
            match connection.worker.handler.handle(Exchange { request, client, interim, record }).await {
                Ok(response) if response.status == StatusCode::SWITCHING_PROTOCOLS => {
                    let (parts, body) = http::Response::from(response).into_parts();
                    // A tunnel's response is a 101 with a tunnel as the body.
                    let tunnel = body.into_tunnel().map_err(|_| Abort::Internal)?;
                    Ok(RequestAnswer::Tunnel(parts, TunnelHandoff { tunnel, request: open }))
                }
                Ok(response) => Ok(RequestAnswer::Response(connection.finish_response(response, &method, open))),
                Err(_) if fault.get() == Some(BodyError::Malformed) => {
                    let refusal = Refusal::bad_request("the request's body is malformed");
                    Ok(RequestAnswer::Response(connection.answer_refusal(refusal, open)))
                }
                Err(abort) => {
                    open.fail_request();
                    Err(abort)
                }
            }
        }
    }

    /// Checks a request, and converts it for the handler.
    async fn convert_request<I: IncomingBody>(
        &self,
        parts: Parts,
        incoming: Option<I>,
        fault: &Rc<Cell<Option<BodyError>>>,
        record: &RequestRecord,
    ) -> Result<Request, Refusal> {
        // Created before any rejection, so that the rest of the body is discarded.
        let body = incoming.map(|incoming| TcpRequestBody::new(incoming, self, Rc::clone(fault), record.clone()));
        let head = request_head::convert_head(parts, self.client.protocol, &self.terms.field_limits, &self.authority)?;
        if !(self.worker.covers)(&self.client, head.host()) {
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "this connection does not serve that host"));
        }
        let body = match body {
            Some(body) => {
                body.into_nonempty(&head.method).await.map_or_else(Body::empty, TcpRequestBody::into_upload_body)
            }
            None => Body::empty(),
        };
        Ok(Request { head, body })
    }

    /// Answers a refused request. An HTTP/1.1 connection closes afterwards, as anything may follow.
    pub(super) fn answer_refusal(
        &self,
        refusal: Refusal,
        open: ActiveRequest<H>,
    ) -> http::Response<TcpResponseBody<H>> {
        tracing::debug!(client = %self.client.address, error = %refusal, "a request was rejected");
        if let Some(limit) = refusal.limit {
            limit.count_reached(&self.worker.metrics);
        }
        open.request_record().record_error("http_request_error");
        match self.client.protocol {
            Protocol::Http2 => self.worker.metrics.tcp_refused_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.worker.metrics.tcp_refused_h1.increment(),
        }
        let mut response = Response::with_reason(refusal.status, refusal.why, "litequic; error=http_request_error");
        self.worker.handler.complete_rejection(&self.client, &mut response);
        if self.client.protocol == Protocol::Http1 {
            response.fields.set_field(name::CONNECTION, b"close");
        }
        self.finish_response(response, &Method::GET, open)
    }

    fn finish_response(
        &self,
        response: Response,
        method: &Method,
        mut open: ActiveRequest<H>,
    ) -> http::Response<TcpResponseBody<H>> {
        open.on_response_fields(&response.fields);
        // In HTTP/1.1 the version is the gateway's own (RFC 9112 §2.3). hyper answers HTTP/1.0 in HTTP/1.0 by itself.
        let (mut parts, body) = http::Response::from(response).into_parts();
        if parts.status.canonical_reason().is_none() {
            // hyper would write `<none>` to an HTTP/1.1 client; an empty phrase is right (RFC 9112 §4).
            parts.extensions.insert(ReasonPhrase::from_static(b""));
        }
        open.begin_response_head(parts.status);
        if let Some(alt_svc) = &self.alt_svc
            && self.worker.watch.watched_phase() < ProcessPhase::Draining
        {
            parts.headers.insert(header::ALT_SVC, self.worker.alt_svc_header(alt_svc, self.authority.last_port()));
        }
        let bodiless =
            *method == Method::HEAD || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let body = if bodiless { Body::empty() } else { body };
        http::Response::from_parts(parts, TcpResponseBody::new(body, open))
    }
}
