//! Plain HTTP: every request is redirected to https. Nothing else is served without TLS.

use crate::{
    exchange::{Abort, Exchange, Handler, Response, date},
    tcp::Metrics,
};
use http::{HeaderValue, StatusCode, header};
use std::sync::Arc;

/// The port that https has unless a URL says another (RFC 9110 §4.2.2).
const HTTPS: u16 = 443;

/// Answers 308 (Permanent Redirect), which keeps method and body (RFC 9110 §15.4.9).
#[derive(Debug)]
pub struct Redirect {
    /// The port of https.
    port: u16,
    metrics: Arc<Metrics>,
}

impl Redirect {
    /// To https at `port` of whatever host a request is for.
    pub fn new(port: u16, metrics: Arc<Metrics>) -> Self {
        Self { port, metrics }
    }
}

impl Handler for Redirect {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let uri = exchange.request.uri();
        // The front end accepts nothing else.
        let host = uri.host().ok_or(Abort::Internal)?;
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
