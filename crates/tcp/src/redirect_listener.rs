//! Redirects every plain HTTP request to https. Nothing else is served without TLS.

use crate::{tcp_metrics::TcpMetrics, tcp_worker::DeferredValue};
use http::{Method, StatusCode};
use litequic_exchange::{Abort, Body, Exchange, Handler, Response, field_syntax::is_field_value, name, set_date};
use std::sync::Arc;

/// Default port of https (RFC 9110 §4.2.2).
const HTTPS_PORT: u16 = 443;

/// Finds the response to a CA's validation request for a host and a path (RFC 8555 §8.3); `None` at once for any other
/// request.
pub type HttpValidation = dyn Fn(&str, &str) -> Option<DeferredValue<Option<String>>>;

/// A handler that answers 308 (Permanent Redirect), which keeps method and body (RFC 9110 §15.4.9).
pub struct RedirectListener {
    /// Port of https.
    pub port: u16,
    /// Counts the redirects.
    pub metrics: Arc<TcpMetrics>,
    /// Responds to validation requests of CAs.
    pub validation: Box<HttpValidation>,
}

impl RedirectListener {
    /// Returns the response to a CA's validation request; `None` for any other request.
    async fn answer_validation(&self, host: &str, exchange: &Exchange) -> Option<Response> {
        let head = &exchange.request.head;
        let is_read = matches!(head.method, Method::GET | Method::HEAD) && head.query().is_none();
        let answer = is_read.then(|| (self.validation)(host, head.path_without_query())).flatten()?.await?;
        let mut response = Response::new(StatusCode::OK, answer);
        response.fields.append(name::CONTENT_TYPE, b"application/octet-stream");
        set_date(&mut response.fields);
        Some(response)
    }
}

impl Handler for RedirectListener {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let host = exchange.request.head.host();
        if let Some(answer) = self.answer_validation(host, &exchange).await {
            return Ok(answer);
        }
        let path = exchange.request.head.path_and_query();
        let path = if path == "*" { "" } else { path };
        let port = if self.port == HTTPS_PORT { String::new() } else { format!(":{}", self.port) };
        let location = format!("https://{host}{port}{path}");
        // The front end accepts no host or path that would be an invalid value.
        if !is_field_value(location.as_bytes()) {
            return Err(Abort::Internal);
        }
        self.metrics.tcp_redirects.increment();
        let mut response = Response::new(StatusCode::PERMANENT_REDIRECT, Body::empty());
        response.fields.append(name::LOCATION, location.as_bytes());
        set_date(&mut response.fields);
        Ok(response)
    }
}
