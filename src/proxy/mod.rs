//! Sends requests to origins: chooses a route, rewrites the head, sends it over the origin's connection pool, and
//! answers in the origin's place when it cannot.
//!
//! One [`Proxy`] a worker: pools, queues and names are its own, and nothing here is shared with another worker but
//! the [`Routing`], which a reload replaces as a whole. `routes`, `request`, `response`, `forwarded` and `retry` are
//! pure; `origin` has the sockets and the clocks.
//!
//! Decisions worth knowing: `TE: trailers` is passed on; `Early-Data` passes as it is (RFC 8470 §5.1); `Via` is not
//! added (some origins stop compressing for proxies); an origin that answers with HTTP/1.0 gets a connection a
//! request; a 100 (Continue) comes from the origin, or after a second from litequic.

mod error;
mod forwarded;
mod origin;
mod request;
mod response;
mod retry;
mod routes;
#[cfg(test)]
mod tests;

use crate::{
    config::{self, Config, Network, Timeouts},
    exchange::{Abort, Body, CertificateRequest, Client, Exchange, Handler, Interim, Record, Response},
    telemetry::{RouteMetrics, WorkerMetrics},
};
use arc_swap::ArcSwap;
use error::Error;
use http::{HeaderValue, StatusCode};
use origin::{Origin, Outcome, Sending};
use request::Framing;
use routes::Routes;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use tokio::time::Instant;

/// What the configuration says about requests, compiled. Replaced as a whole by a reload.
#[derive(Debug)]
pub struct Routing {
    routes: Routes,
    /// The routes', in the order of the configuration.
    names: Vec<String>,
    origins: BTreeMap<String, config::Origin>,
    timeouts: Timeouts,
    trusted: Vec<Network>,
}

impl Routing {
    /// Compiles `config`.
    pub fn new(config: &Config) -> Self {
        Self {
            routes: Routes::new(&config.routes, config.limits.max_body_bytes, &config.client_certificates),
            names: config.routes.iter().map(config::Route::name).collect(),
            origins: config.origins.clone(),
            timeouts: config.timeouts,
            trusted: config.trusted_proxies.clone(),
        }
    }

    /// The route that a request takes.
    fn route(&self, head: &http::request::Parts) -> Option<&routes::Route> {
        let authority = match head.uri.authority() {
            Some(authority) => authority.as_str(),
            None => head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
        };
        self.routes.choose(authority, head.uri.path())
    }

    /// What a handshake asks of a client that asks for `server_name` (SNI).
    pub fn certificate_request(&self, server_name: Option<&str>) -> CertificateRequest {
        self.routes.certificate_request(server_name)
    }

    /// Whether `client`'s connection may carry requests for `host` (an authority without its port); 421 otherwise
    /// (RFC 9110 §15.5.20).
    ///
    /// It may if its handshake asked for what this host asks for. A reload may have changed that since: then the
    /// connection still serves the host that it was opened for, unless another handshake would find out more.
    pub fn admits(&self, client: &Client, host: &str) -> bool {
        let (identity, now) = (&client.identity, self.routes.certificate_request(Some(host)));
        if identity.asked == now {
            return true;
        }
        let opened_for_it = client.server_name.as_deref().map_or_else(
            || routes::is_address(host),
            |name| name.trim_end_matches('.').eq_ignore_ascii_case(host.trim_end_matches('.')),
        );
        opened_for_it
            && match now {
                CertificateRequest::None => true,
                CertificateRequest::Optional => identity.asked != CertificateRequest::None,
                CertificateRequest::Required => identity.certificate.is_some(),
            }
    }
}

/// One worker's proxy.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<ArcSwap<Routing>>,
    metrics: Arc<WorkerMetrics>,
    local: RefCell<Rc<Local>>,
}

/// The routing that this worker goes by, and its pools.
#[derive(Debug)]
struct Local {
    routing: Arc<Routing>,
    origins: BTreeMap<String, Rc<Origin>>,
    /// By the routes' numbers.
    routes: Vec<Arc<RouteMetrics>>,
}

impl Proxy {
    /// The proxy of the worker that counts in `metrics`. It follows what is stored in `shared`.
    pub fn new(shared: Arc<ArcSwap<Routing>>, metrics: Arc<WorkerMetrics>) -> Self {
        let local = Local::new(shared.load_full(), &BTreeMap::new(), &metrics);
        Self { local: RefCell::new(Rc::new(local)), shared, metrics }
    }

    /// The routing of now. An origin that a reload did not touch keeps its pool; one that is gone closes its idle
    /// connections, and the requests on the others end as they would.
    fn local(&self) -> Rc<Local> {
        let local = Rc::clone(&self.local.borrow());
        let shared = self.shared.load();
        if Arc::ptr_eq(&shared, &local.routing) {
            return local;
        }
        let next = Rc::new(Local::new(Arc::clone(&shared), &local.origins, &self.metrics));
        for (name, origin) in &local.origins {
            if next.origins.get(name).is_none_or(|kept| !Rc::ptr_eq(kept, origin)) {
                origin.close();
            }
        }
        self.local.replace(Rc::clone(&next));
        next
    }

    #[expect(clippy::too_many_arguments, reason = "what one request is served by")]
    async fn serve(
        &self,
        local: &Local,
        route: &routes::Route,
        request: (http::request::Parts, Body),
        client: &Client,
        interim: &Interim,
        id: &HeaderValue,
        trusted: bool,
        record: &Record,
    ) -> Result<Response, Outcome> {
        let (mut head, body) = request;
        record.note(|facts| {
            facts.route = Some(Arc::clone(&route.name));
            facts.origin = Some(route.origin.as_str().into());
        });
        if route.certificate == CertificateRequest::Required && client.identity.certificate.is_none() {
            return Err(Error::NoCertificate.into());
        }
        // A checked configuration has the origin of every route.
        let origin = local.origins.get(&route.origin).ok_or(Error::NoRoute)?;

        if !request::may_go_on(&head.method, &mut head.headers) {
            return Ok(last_recipient(id));
        }
        let framing = Framing::of(&body);
        if let (Framing::Length(length), Some(allowed)) = (framing, route.max_body_bytes)
            && length > allowed
        {
            self.metrics.limit_body_bytes.increment();
            return Err(Error::BodyTooLarge.into());
        }
        request::translate(&mut head, framing, route, client, id, trusted)?;

        let timeouts = &local.routing.timeouts;
        let deadline = timeouts.request.map(|limit| Instant::now() + limit);
        let max_body_bytes = route.max_body_bytes;
        let sending = Sending { head, framing, body, max_body_bytes, interim, timeouts, deadline };
        let began = Instant::now();
        let answer = origin.send(sending).await;
        let took = began.elapsed();
        self.metrics.origin_duration.observe(took);
        record.note(|facts| facts.origin_time = Some(took));
        answer
    }
}

/// The answer to an OPTIONS that is to go no further than here (RFC 9110 §7.6.2).
fn last_recipient(id: &HeaderValue) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(forwarded::REQUEST_ID, id.clone());
    response
}

impl Local {
    fn new(routing: Arc<Routing>, before: &BTreeMap<String, Rc<Origin>>, metrics: &Arc<WorkerMetrics>) -> Self {
        let pool = |(name, config): (&String, &config::Origin)| {
            let kept = before.get(name).filter(|origin| origin.config() == config).cloned();
            (name.clone(), kept.unwrap_or_else(|| Rc::new(Origin::new(config, Arc::clone(metrics)))))
        };
        let origins = routing.origins.iter().map(pool).collect();
        let routes = routing.names.iter().map(|name| metrics.routes.of(name)).collect();
        Self { routing, origins, routes }
    }
}

impl Handler for Proxy {
    async fn handle(&self, exchange: Exchange) -> Result<Response, Abort> {
        let Exchange { request, client, interim, record } = exchange;
        let local = self.local();
        let trusted = forwarded::is_trusted(client.address.ip(), &local.routing.trusted);
        let id = forwarded::request_id(request.headers(), trusted);
        record.note(|facts| facts.request_id = id.as_bytes().to_vec().into());
        let request = request.into_parts();
        let route = local.routing.route(&request.0);
        let count = |response: Response| {
            if let Some(counters) = route.and_then(|route| local.routes.get(route.number)) {
                counters.count(response.status());
            }
            response
        };
        let served = match route {
            Some(route) => self.serve(&local, route, request, &client, &interim, &id, trusted, &record).await,
            None => Err(Error::NoRoute.into()),
        };
        match served {
            Ok(response) => Ok(count(response)),
            Err(Outcome::Answer(error)) => {
                tracing::info!(request = id.to_str().unwrap_or_default(), %error, "answered in the origin's place");
                record.error(error.table().1);
                Ok(count(error.response(&id)))
            }
            Err(Outcome::Abort(abort)) => Err(abort),
        }
    }
}

/// Whether `origin` takes connections: what readiness asks.
///
/// # Errors
///
/// Why it does not, in words for the operator.
///
/// # Cancel safety
///
/// Dropping the future gives up.
pub async fn probe(origin: &config::Origin, timeout: Duration) -> Result<(), impl std::error::Error + use<>> {
    origin::probe(origin, timeout).await
}

/// Turns the head of `client`'s request, one without a body, into its origin's: what a [`Proxy`] does on the way, for
/// whoever measures that alone.
///
/// # Errors
///
/// There is no route for it, or it is a request that no origin gets.
pub fn request_head(
    routing: &Routing,
    head: &mut http::request::Parts,
    client: &Client,
) -> Result<(), impl std::error::Error + use<>> {
    let Some(route) = routing.route(head) else { return Err(Error::NoRoute) };
    let trusted = forwarded::is_trusted(client.address.ip(), &routing.trusted);
    let id = forwarded::request_id(&head.headers, trusted);
    request::translate(head, Framing::None, route, client, &id, trusted)
}

/// Turns the head of an origin's response to a `method` request into the client's, as [`request_head`] does with its
/// request. `length` is the body's, where it is known.
///
/// # Errors
///
/// The response cannot be passed on as it is meant.
pub fn response_head(
    head: &mut http::response::Parts,
    method: &http::Method,
    length: Option<u64>,
) -> Result<(), impl std::error::Error + use<>> {
    response::translate(head, method, length)
}
