//! Answers a request over TCP: checks it, passes it to the handler, and counts the response.

use super::{
    body::{RequestBody, ResponseBody},
    connection::{Connection, Open},
    http1::Expectation,
    http2::{Connected, Stall},
    io::Timed,
    refusal::Refusal,
    request,
    tunnel::Joint,
};
use crate::{
    exchange::{Abort, Body, BodyError, Exchange, Handler, Pace, Protocol, Record, Response},
    lifecycle::{Phase, panic_if_asked},
};
use http::{HeaderValue, Method, StatusCode, Version, header};
use hyper::{
    body::{Body as _, Incoming},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use std::{
    cell::Cell,
    future::Future,
    rc::{Rc, Weak},
    sync::Arc,
};

impl<H: Handler> Connection<H> {
    /// Answers one request. Dropped before its end, it cancels the exchange.
    pub(super) fn answer(
        self: &Rc<Self>,
        mut request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<hyper::Response<ResponseBody<H>>, Abort>> + use<H> {
        let connection = Rc::clone(self);
        async move {
            let stream = (request.method() == Method::CONNECT).then(|| hyper::upgrade::on(&mut request));
            let mut open = Open::new(Rc::clone(&connection));
            panic_if_asked("request");
            let method = request.method().clone();
            let fault = Rc::new(Cell::new(None));
            let (request, expectation) = match connection.accept(request, &fault, open.record()).await {
                Ok(accepted) => accepted,
                Err(refusal) => return Ok(connection.refuse(refusal, open)),
            };
            connection.count_request();
            let exchange = Exchange {
                request,
                client: Rc::clone(&connection.client),
                interim: expectation.interim(),
                record: open.record().clone(),
            };
            match connection.front.handler.handle(exchange).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    connection.switch(response, open, stream)
                }
                Ok(response) => Ok(connection.finish(response, &method, open, expectation.end())),
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
    async fn accept(
        &self,
        request: hyper::Request<Incoming>,
        fault: &Rc<Cell<Option<BodyError>>>,
        record: &Record,
    ) -> Result<(crate::exchange::Request, Expectation), Refusal> {
        if let Some(refusal) = self.pipeline.read() {
            return Err(refusal);
        }
        let (mut parts, incoming) = request.into_parts();
        request::note(&parts, record);
        let (expectation, gate) = match self.client.protocol {
            Protocol::Http1 if !incoming.is_end_stream() => Expectation::new(&parts, self.pipeline.has_body_come()),
            _ => Default::default(),
        };
        // Before any rejection: what it does not read is discarded.
        let body = (!incoming.is_end_stream()).then(|| {
            let (metrics, fault) = (Arc::clone(self.metrics()), Rc::clone(fault));
            let (pace, lingering) = (self.upload_pace(), self.lingering());
            let pipeline = (self.client.protocol == Protocol::Http1).then(|| Rc::clone(&self.pipeline));
            RequestBody::new(incoming, pipeline, pace, fault, metrics, record.clone(), lingering)
                .within(self.bounds())
                .behind(gate)
        });
        request::translate(&mut parts, self.client.protocol, &self.bounds(), &self.pipeline.authority)?;
        if let Some(host) = parts.uri.host()
            && !(self.front.covers)(&self.client, host)
        {
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "this connection is not for that host"));
        }
        let body = match body {
            Some(body) => body.unless_empty(&parts.method).await.map_or_else(Body::empty, Body::stream),
            None => Body::empty(),
        };
        Ok((http::Request::from_parts(parts, body), expectation))
    }

    /// An answer of the front end's own, after which an HTTP/1.1 connection closes: what follows may be anything.
    fn refuse(&self, refusal: Refusal, open: Open<H>) -> hyper::Response<ResponseBody<H>> {
        tracing::debug!(client = %self.client.address, error = %refusal, "a request was rejected");
        refusal.count(self.metrics());
        open.record().error("http_request_error");
        match self.client.protocol {
            Protocol::Http2 => self.metrics().tcp_refused_h2.increment(),
            Protocol::Http1 | Protocol::Http3 => self.metrics().tcp_refused_h1.increment(),
        }
        self.finish(refusal.response(), &Method::GET, open, true)
    }

    fn finish(
        &self,
        response: Response,
        method: &Method,
        mut open: Open<H>,
        close: bool,
    ) -> hyper::Response<ResponseBody<H>> {
        let (mut parts, body) = response.into_parts();
        // Whatever the handler has: hyper panics at a version that it does not speak, and answers HTTP/1.0 in HTTP/1.0 by itself.
        parts.version = Version::HTTP_11;
        open.size = Some(0);
        self.answered(parts.status, &open);
        if let Some(alt_svc) = &self.alt_svc
            && self.front.watch.phase() < Phase::Draining
        {
            parts.headers.insert(header::ALT_SVC, self.front.alt_svc(alt_svc));
        }
        if close && self.client.protocol == Protocol::Http1 {
            parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let bodiless =
            *method == Method::HEAD || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let body = if bodiless { Body::empty() } else { body };
        http::Response::from_parts(parts, ResponseBody::new(body, open))
    }

    /// Sends the answer that the protocol is switched, and joins the tunnel with the client's bytes from now on: when
    /// hyper is done with the connection (HTTP/1.1), or as a task of its own beside the response (HTTP/2, where 200
    /// means success).
    fn switch(
        &self,
        response: Response,
        open: Open<H>,
        stream: Option<OnUpgrade>,
    ) -> Result<hyper::Response<ResponseBody<H>>, Abort> {
        let (mut parts, body) = response.into_parts();
        // A tunnel is a 101 with one.
        let tunnel = body.into_tunnel().map_err(|_| Abort::Internal)?;
        let fields = &mut parts.headers;
        match (stream, Stall::current()) {
            (None, _) => {
                fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                fields.insert(header::UPGRADE, tunnel.protocol().clone());
                // The guard is not notified: what follows is not a request, and kept for the tunnel.
                self.count(parts.status, &open);
                let next = self.joint.get().and_then(Weak::upgrade).ok_or(Abort::Internal)?;
                next.set(Some(Joint { tunnel, open }));
            }
            (Some(stream), Some(stall)) => {
                parts.status = StatusCode::OK;
                self.answered(parts.status, &open);
                let (pace, metrics) = (Pace::any(self.timeouts.send), Arc::clone(self.metrics()));
                let joint = Joint { tunnel, open };
                let (client, motion) = (Rc::clone(&stall), self.admitted.holder.motion());
                stall.spawn(async move {
                    // An error means that the client has gone before the answer.
                    if let Ok(stream) = stream.await {
                        // A tunnel that stalls ends alone: its connection continues.
                        let (stalled, blocked) = Default::default();
                        let stream = Timed::new(TokioIo::new(stream), pace, stalled, blocked, motion, metrics);
                        joint.join(Connected::new(stream, client)).await;
                    }
                });
            }
            (Some(_), None) => return Err(Abort::Internal), // every stream of HTTP/2 has one
        }
        Ok(http::Response::from_parts(parts, ResponseBody::none()))
    }

    /// Counts and records a response, after which the next request may be read.
    fn answered(&self, status: StatusCode, open: &Open<H>) {
        self.pipeline.answered();
        self.count(status, open);
    }

    fn count(&self, status: StatusCode, open: &Open<H>) {
        self.metrics().shared.count_response(status);
        open.record().responded(status);
    }
}
