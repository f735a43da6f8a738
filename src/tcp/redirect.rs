//! Plain HTTP: every request is redirected to https. Nothing else is served without TLS.

use crate::{
    exchange::{Abort, Exchange, Handler, Response, date},
    tcp::{Later, Metrics},
};
use http::{HeaderValue, Method, StatusCode, header};
use std::sync::Arc;

/// The port that https has unless a URL says another (RFC 9110 §4.2.2).
const HTTPS: u16 = 443;

/// The answer to a CA's validation request for a host and a path (RFC 8555 §8.3); `None` at once for any other request.
pub type Validation = dyn Fn(&str, &str) -> Option<Later<Option<String>>>;

/// Answers 308 (Permanent Redirect), which keeps method and body (RFC 9110 §15.4.9).
pub struct RedirectListener {
    /// The port of https.
    port: u16,
    metrics: Arc<Metrics>,
    validation: Option<Box<Validation>>,
}

impl RedirectListener {
    /// To https at `port` of whatever host a request is for.
    pub fn new(port: u16, metrics: Arc<Metrics>) -> Self {
        Self { port, metrics, validation: None }
    }

    /// Returns the redirect with `validation`, which answers a CA's validation requests.
    #[must_use]
    pub fn answering(self, validation: Box<Validation>) -> Self {
        Self { validation: Some(validation), ..self }
    }

    /// The answer to a CA's validation request, if this is one.
    async fn validation(&self, host: &str, exchange: &Exchange) -> Option<Response> {
        let request = &exchange.request;
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD) && request.uri().query().is_none();
        let answer = self.validation.as_ref().filter(|_| is_read)?(host, request.uri().path())?.await?;
        let mut response = Response::new(answer.into());
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response.headers_mut().insert(header::DATE, date());
        Some(response)
    }
}

impl Handler for RedirectListener {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let uri = exchange.request.uri();
        // The front end accepts nothing else.
        let host = uri.host().ok_or(Abort::Internal)?;
        if let Some(answer) = self.validation(host, &exchange).await {
            return Ok(answer);
        }
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let path = if path == "*" { "" } else { path };
        let port = if self.port == HTTPS { String::new() } else { format!(":{}", self.port) };
        let location = HeaderValue::try_from(format!("https://{host}{port}{path}")).map_err(|_| Abort::Internal)?;
        self.metrics.tcp_redirects.increment();
        let mut response = Response::default();
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
        response.headers_mut().insert(header::LOCATION, location);
        response.headers_mut().insert(header::DATE, date());
        Ok(response)
    }
}
