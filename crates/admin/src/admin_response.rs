//! Answers admin requests. No request body is read, and every response but that of `/qlog` is small and complete.

use super::body::{AdminResponseBody, lines_body, whole_body};
use super::clients::{CloseOrder, parse_list_query};
use super::denial::{DenyOrder, parse_allow_query};
use super::maintenance::MaintenanceOrder;
use super::qlog::QlogOrder;
use super::state::{AdminState, Surface, WORKER_DEADLINE};
use super::{page, status_response};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{
        ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY, SERVER,
        WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
    request::Parts,
};
use litequic_base::{lifecycle::ProcessPhase, named_enum, timers};
use litequic_telemetry::{self as telemetry, Heartbeat};
use serde::Serialize;
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

pub(super) type AdminResponse = Response<AdminResponseBody>;

const TEXT_TYPE: &str = "text/plain; charset=utf-8";
const JSON_TYPE: &str = "application/json";
/// The media type of qlog as JSON-SEQ (draft-ietf-quic-qlog-main-schema §11.2).
const QLOG_TYPE: &str = "application/qlog+json-seq";
const HTML_TYPE: &str = "text/html; charset=utf-8";

/// Bytes of a host at most (RFC 1035 §2.3.4), with `*.` in percent-encoding.
const MAX_HOST_BYTES: usize = 253 + 4;

named_enum! {
    /// The resources of the admin interface.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum AdminResource {
        Health = "/healthz",
        Ready = "/readyz",
        Metrics = "/metrics",
        Page = "/",
        Status = "/status",
        History = "/history",
        Clients = "/clients",
        Denied = "/denied",
        Config = "/config",
        Reload = "/reload",
        Close = "/close",
        Deny = "/deny",
        Allow = "/allow",
        Qlog = "/qlog",
        Maintenance = "/maintenance",
        Http3 = "/http3",
        Renew = "/renew",
        Drain = "/drain",
    }
    /// Path of the resource.
    fn resource_path;
}

impl AdminResource {
    /// Returns the methods of the resource, as `Allow` lists them.
    const fn allowed_methods(self) -> &'static str {
        if self.changes_state() { "POST" } else { "GET, HEAD" }
    }

    fn allows_method(self, method: &Method) -> bool {
        if self.changes_state() { method == Method::POST } else { method == Method::GET || method == Method::HEAD }
    }

    /// Whether a request for the resource changes state.
    const fn changes_state(self) -> bool {
        matches!(
            self,
            Self::Reload
                | Self::Close
                | Self::Deny
                | Self::Allow
                | Self::Qlog
                | Self::Maintenance
                | Self::Http3
                | Self::Renew
                | Self::Drain
        )
    }

    /// Whether the resource needs no token. The status page contains no data before it has one.
    const fn needs_no_token(self) -> bool {
        matches!(self, Self::Health | Self::Ready | Self::Page)
    }

    /// Whether the response is for the operator alone. Other resources are served to every client that reaches the
    /// address: probes and load balancers request them by any name.
    const fn is_operator_only(self) -> bool {
        matches!(self, Self::Metrics | Self::Status | Self::History | Self::Clients | Self::Denied | Self::Config)
    }

    fn is_on_surface(self, surface: Surface) -> bool {
        surface != Surface::Probes || matches!(self, Self::Health | Self::Ready | Self::Metrics)
    }
}

/// Answers one request to an address of `surface`.
pub(super) async fn answer_admin_request(state: &AdminState, surface: Surface, request: &Parts) -> AdminResponse {
    let answer = answer_resource(state, surface, request).await;
    let mut answer = answer.unwrap_or_else(|AdminFault(status, problem)| text_response(status, problem));
    // Who may not ask learns nothing of the process.
    let is_told = surface != Surface::Probes
        && !matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    if !is_told {
        return answer;
    }
    let (process, config) = (std::process::id(), &state.identity.config);
    let process = if config.is_empty() { process.to_string() } else { format!("{process}, {config}") };
    // A path with control characters is no value of a field.
    if let Ok(process) = HeaderValue::from_maybe_shared(Bytes::from(process)) {
        answer.headers_mut().insert(super::PROCESS_FIELD, process);
    }
    answer
}

/// A request that is not carried out, with the response's status and text.
struct AdminFault(StatusCode, String);

/// A query that cannot be parsed.
fn bad_query(problem: String) -> AdminFault {
    AdminFault(StatusCode::BAD_REQUEST, format!("{problem}\n"))
}

/// An order that is refused.
fn refused(problem: String) -> AdminFault {
    AdminFault(StatusCode::UNPROCESSABLE_ENTITY, problem)
}

/// A request that nothing can carry out now.
fn unavailable(problem: String) -> AdminFault {
    AdminFault(StatusCode::SERVICE_UNAVAILABLE, problem)
}

/// A client that may not send the request.
fn forbidden(problem: &str) -> AdminFault {
    AdminFault(StatusCode::FORBIDDEN, problem.into())
}

async fn answer_resource(state: &AdminState, surface: Surface, request: &Parts) -> Result<AdminResponse, AdminFault> {
    let on_surface = || {
        AdminResource::NAMES.iter().map(|(_, resource)| *resource).filter(|resource| {
            resource.is_on_surface(surface) && (*resource != AdminResource::Reload || state.reload.is_some())
        })
    };
    let Some(resource) = on_surface().find(|resource| resource.resource_path() == request.uri.path()) else {
        let list =
            on_surface().map(|resource| format!("{} {}\n", resource.allowed_methods(), resource.resource_path()));
        let list = list.collect::<String>();
        return Err(AdminFault(StatusCode::NOT_FOUND, format!("not found; available:\n{list}")));
    };
    if !resource.allows_method(&request.method) {
        let problem = format!("{} allows {}\n", resource.resource_path(), resource.allowed_methods());
        let mut answer = text_response(StatusCode::METHOD_NOT_ALLOWED, problem);
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(resource.allowed_methods()));
        return Ok(answer);
    }
    let token = state.token.as_ref().filter(|_| surface == Surface::Operator);
    if let Some(token) = token.filter(|_| !resource.needs_no_token())
        && !token.is_presented(&request.headers)
    {
        let mut answer = text_response(StatusCode::UNAUTHORIZED, "the token is missing or wrong\n".into());
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Ok(answer);
    }
    // An attacker's web page may have a name that resolves to this machine. It is then same-origin with this address,
    // and its requests have neither Origin nor, over plain HTTP, Sec-Fetch-Site. Without a token only the name
    // distinguishes it.
    let by_name = surface != Surface::Local && token.is_none();
    if by_name && resource.is_operator_only() && !has_trusted_host(request, &state.names) {
        return Err(forbidden("Host must be an IP address, localhost or a name in admin.names\n"));
    }
    // A page in the operator's browser can send a POST to a loopback address, but not without this field (Fetch
    // §3.2). No tool that an operator uses sends it.
    if resource.changes_state() && request.headers.contains_key(ORIGIN) {
        return Err(forbidden("requests of web pages are rejected\n"));
    }
    let (query, hooks, clients) = (request.uri.query().unwrap_or_default(), &state.hooks, &state.clients);
    Ok(match resource {
        AdminResource::Page => page_response(),
        AdminResource::Status => json_response(&status_response::build_status(state).await),
        AdminResource::History => json_response(&state.history.recorded_history()),
        AdminResource::Clients => {
            let query = parse_list_query(query).map_err(bad_query)?;
            json_response(&clients.list_clients(query).await.map_err(unavailable)?)
        }
        AdminResource::Denied => json_response(&clients.list_denied_networks()),
        AdminResource::Config => json_response(&status_response::configuration_object(state)),
        AdminResource::Health => health_response(&state.heartbeats),
        AdminResource::Ready => match state.readiness.check_ready(&state.lifecycle).await {
            Ok(()) => text_response(StatusCode::OK, "ready\n".into()),
            Err(reason) => return Err(unavailable(format!("not ready: {reason}\n"))),
        },
        AdminResource::Metrics => {
            let text = match state.metrics_text.cached_text(Instant::now()) {
                Some(text) => text,
                None => {
                    status_response::refresh_problems(state).await;
                    state.metrics_text.render_text(&state.registry)
                }
            };
            let accept = request.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
            if telemetry::prefers_prometheus_text(accept) {
                let text = telemetry::to_prometheus_text(&String::from_utf8_lossy(&text));
                content_response(StatusCode::OK, telemetry::PROMETHEUS_TYPE, text)
            } else {
                content_response(StatusCode::OK, telemetry::CONTENT_TYPE, text)
            }
        }
        AdminResource::Reload => text_response(StatusCode::OK, reload_configuration(state).await?),
        AdminResource::Close => {
            let order = CloseOrder::from_close_query(query).map_err(bad_query)?;
            let closed = clients.close_clients(order).await.map_err(unavailable)?;
            text_response(StatusCode::OK, order.describe_closed(closed))
        }
        AdminResource::Deny => {
            let order = DenyOrder::from_deny_query(query).map_err(bad_query)?;
            let denied = clients.deny_clients(order).await.map_err(unavailable)?;
            text_response(StatusCode::OK, denied.map_err(refused)?)
        }
        AdminResource::Allow => {
            let network = parse_allow_query(query).map_err(bad_query)?;
            text_response(StatusCode::OK, clients.allow_clients(network).map_err(refused)?)
        }
        AdminResource::Qlog => {
            let order = QlogOrder::from_qlog_query(query).map_err(bad_query)?;
            let lines = clients.log_connections(order).await.map_err(unavailable)?.map_err(refused)?;
            body_response(StatusCode::OK, QLOG_TYPE, lines_body(lines))
        }
        AdminResource::Maintenance => {
            let order = MaintenanceOrder::from_maintenance_query(query).map_err(bad_query)?;
            text_response(StatusCode::OK, (hooks.maintain)(&order).map_err(refused)?)
        }
        AdminResource::Http3 => {
            let on = match query {
                "state=on" => true,
                "state=off" => false,
                _ => return Err(bad_query("the query has neither state=on nor state=off".into())),
            };
            text_response(StatusCode::OK, (hooks.order_http3)(on).map_err(refused)?)
        }
        AdminResource::Renew => {
            let host = query.strip_prefix("host=").filter(|host| (1..=MAX_HOST_BYTES).contains(&host.len()));
            let host = host.ok_or_else(|| bad_query("the query has no host=HOST".into()))?;
            text_response(StatusCode::ACCEPTED, (hooks.renew)(&host.replace("%2A", "*")).map_err(refused)?)
        }
        AdminResource::Drain => drain_response(state),
    })
}

/// Whether `Host` is a name that no foreign page can have: an IP address, `localhost`, or one of `names`, in lower
/// case.
fn has_trusted_host(request: &Parts, names: &[String]) -> bool {
    let Some(host) = request.headers.get(HOST).and_then(|host| host.to_str().ok()) else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let bare = bare.strip_suffix('.').unwrap_or(bare);
    let mut own = names.iter().map(String::as_str).chain(["localhost"]);
    bare.parse::<IpAddr>().is_ok() || own.any(|own| bare.eq_ignore_ascii_case(own))
}

fn page_response() -> AdminResponse {
    let mut answer = content_response(StatusCode::OK, HTML_TYPE, page::DOCUMENT.clone());
    let fields = answer.headers_mut();
    fields.insert(CONTENT_SECURITY_POLICY, page::POLICY.clone());
    fields.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Answers `/healthz`. Origins do not count: an origin that is down is no reason to restart the proxy.
fn health_response(heartbeats: &[Arc<Heartbeat>]) -> AdminResponse {
    // After a suspension of the process, a worker has had no time to tick yet.
    let running = timers::time_since_suspension();
    let hung = |(index, heartbeat): (usize, &Arc<Heartbeat>)| {
        hung_worker_line(index, heartbeat.unresponsive_time().min(running))
    };
    let hung: String = heartbeats.iter().enumerate().filter_map(hung).collect();
    if hung.is_empty() {
        text_response(StatusCode::OK, "ok\n".into())
    } else {
        text_response(StatusCode::SERVICE_UNAVAILABLE, hung)
    }
}

fn hung_worker_line(worker: usize, age: Duration) -> Option<String> {
    (age > WORKER_DEADLINE).then(|| format!("worker {worker} has hung for {:.1} s\n", age.as_secs_f64()))
}

/// Reloads the configuration. Returns the changed keys.
async fn reload_configuration(state: &AdminState) -> Result<String, AdminFault> {
    let (request, answered) = oneshot::channel();
    if let Some(reload) = &state.reload {
        // If this fails, the request is dropped, and `answered` returns an error.
        let _ = reload.send(request).await;
    }
    answered.await.map_err(|_| unavailable("litequic is stopping: no more reloads\n".into()))?.map_err(refused)
}

fn drain_response(state: &AdminState) -> AdminResponse {
    if state.lifecycle.advance_phase(ProcessPhase::Leaving) {
        tracing::info!("drain requested by POST /drain");
        text_response(StatusCode::ACCEPTED, "draining\n".into())
    } else {
        text_response(StatusCode::ACCEPTED, "draining already\n".into())
    }
}

fn text_response(status: StatusCode, body: String) -> AdminResponse {
    content_response(status, TEXT_TYPE, body)
}

fn content_response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> AdminResponse {
    body_response(status, content_type, whole_body(body.into()))
}

fn body_response(status: StatusCode, content_type: &'static str, body: AdminResponseBody) -> AdminResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers_mut().insert(SERVER, HeaderValue::from_static(super::SERVER_FIELD));
    answer
}

/// Answers with `value` as indented JSON.
fn json_response(value: &impl Serialize) -> AdminResponse {
    // Keys are strings, and every value has a JSON form, so serde_json has no reason to fail.
    content_response(StatusCode::OK, JSON_TYPE, serde_json::to_string_pretty(value).unwrap_or_default() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdminHooks, Token, state::tests::state};
    use litequic_base::lifecycle::Lifecycle;

    #[test]
    fn a_worker_is_hung_once_past_the_deadline() {
        assert_eq!(hung_worker_line(0, WORKER_DEADLINE), None);
        let late = WORKER_DEADLINE + Duration::from_millis(100);
        assert_eq!(hung_worker_line(3, late).as_deref(), Some("worker 3 has hung for 5.1 s\n"));
    }

    #[tokio::test]
    async fn a_reload_is_answered_with_what_changed_or_every_fault() {
        let (reload, mut requests) = tokio::sync::mpsc::channel::<crate::ReloadRequest>(1);
        let state = AdminState { reload: Some(reload), ..state() };
        let ask = async |method, origin, surface| {
            let mut request = http::Request::builder().method(method).uri("/reload");
            if origin {
                request = request.header(ORIGIN, "https://elsewhere.test");
            }
            let (request, ()) = request.body(()).unwrap().into_parts();
            answer_admin_request(&state, surface, &request).await.status().as_u16()
        };
        // A foreign origin is rejected before the reload is requested.
        for (method, origin, surface, expected) in [
            (Method::GET, false, Surface::Operator, 405),
            (Method::POST, true, Surface::Operator, 403),
            (Method::POST, false, Surface::Probes, 404),
        ] {
            assert_eq!(ask(method, origin, surface).await, expected);
        }
        assert!(requests.try_recv().is_err());
        for (outcome, expected) in [(Ok("changes".into()), 200), (Err("faults".into()), 422)] {
            let reloader = async { requests.recv().await.unwrap().send(outcome).unwrap() };
            let (status, ()) = tokio::join!(ask(Method::POST, false, Surface::Operator), reloader);
            assert_eq!(status, expected);
        }
        drop(requests);
        assert_eq!(ask(Method::POST, false, Surface::Operator).await, 503);
    }

    #[tokio::test]
    async fn maintenance_is_for_the_operator_and_not_for_web_pages() {
        let orders = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&orders);
        let hooks = AdminHooks {
            status: Box::new(|_| Box::pin(async { crate::Status::default() })),
            configuration: Box::new(Vec::new),
            renew: Box::new(|_| Err(String::new())),
            maintain: Box::new(move |order| {
                seen.lock().unwrap().push(order.on);
                if order.on { Ok("now\n".into()) } else { Err("no such route\n".into()) }
            }),
            order_http3: Box::new(|on| if on { Ok("on\n".into()) } else { Err("no listener\n".into()) }),
        };
        let state = AdminState { hooks, ..state() };
        for (method, query, origin, surface, expected) in [
            (Method::GET, "?state=on", false, Surface::Operator, 405),
            (Method::POST, "?state=on", true, Surface::Operator, 403),
            (Method::POST, "?state=on", false, Surface::Probes, 404),
            (Method::POST, "", false, Surface::Operator, 400),
            (Method::POST, "?state=on&retry_after=0", false, Surface::Operator, 400),
            (Method::POST, "?state=on", false, Surface::Operator, 200),
            (Method::POST, "?state=off", false, Surface::Operator, 422),
        ] {
            let mut request = http::Request::builder().method(method).uri(format!("/maintenance{query}"));
            if origin {
                request = request.header(ORIGIN, "https://elsewhere.test");
            }
            let (request, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(
                answer_admin_request(&state, surface, &request).await.status().as_u16(),
                expected,
                "{query} {surface:?}"
            );
        }
        assert_eq!(*orders.lock().unwrap(), [true, false]);
    }

    #[tokio::test]
    async fn closing_is_for_the_operator_and_not_for_web_pages() {
        for (method, query, origin, surface, expected) in [
            (Method::GET, "?client=192.0.2.1", false, Surface::Operator, 405),
            (Method::POST, "?client=192.0.2.1", true, Surface::Operator, 403),
            (Method::POST, "?client=192.0.2.1", false, Surface::Probes, 404),
            (Method::POST, "?client=10.0.0.0/8", false, Surface::Operator, 400),
            (Method::POST, "?client=192.0.2.1", false, Surface::Operator, 503),
        ] {
            let mut request = http::Request::builder().method(method).uri(format!("/close{query}"));
            if origin {
                request = request.header(ORIGIN, "https://elsewhere.test");
            }
            let (request, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(
                answer_admin_request(&state(), surface, &request).await.status().as_u16(),
                expected,
                "{query} {surface:?}"
            );
        }
    }

    #[tokio::test]
    async fn denying_and_logging_are_for_the_operator_and_not_for_web_pages() {
        for (method, path, origin, surface, expected) in [
            (Method::GET, "/deny?network=192.0.2.1&seconds=1", false, Surface::Operator, 405),
            (Method::POST, "/deny?network=192.0.2.1&seconds=1", true, Surface::Operator, 403),
            (Method::POST, "/deny?network=192.0.2.1&seconds=1", false, Surface::Probes, 404),
            (Method::POST, "/deny?network=192.0.2.1", false, Surface::Operator, 400),
            (Method::POST, "/deny?network=192.0.2.1&seconds=1", false, Surface::Operator, 503),
            (Method::POST, "/allow?network=192.0.2.1", true, Surface::Operator, 403),
            (Method::POST, "/allow?network=192.0.2.1", false, Surface::Probes, 404),
            (Method::POST, "/allow", false, Surface::Operator, 400),
            (Method::POST, "/allow?network=192.0.2.1", false, Surface::Operator, 422),
            (Method::GET, "/qlog?client=192.0.2.1", false, Surface::Operator, 405),
            (Method::POST, "/qlog?client=192.0.2.1", true, Surface::Operator, 403),
            (Method::POST, "/qlog?client=192.0.2.1", false, Surface::Probes, 404),
            (Method::POST, "/qlog", false, Surface::Operator, 400),
            (Method::POST, "/qlog?client=192.0.2.1", false, Surface::Operator, 503),
            (Method::GET, "/denied", false, Surface::Probes, 404),
            (Method::GET, "/denied", false, Surface::Operator, 200),
        ] {
            let mut request = http::Request::builder().method(method).uri(path);
            if origin {
                request = request.header(ORIGIN, "https://elsewhere.test");
            }
            let (request, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(
                answer_admin_request(&state(), surface, &request).await.status().as_u16(),
                expected,
                "{path} {surface:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_worker_that_hangs_fails_liveness_until_it_ticks() {
        let state = AdminState {
            heartbeats: vec![Arc::default(), Arc::new(Heartbeat::with_age(WORKER_DEADLINE * 2))],
            ..state()
        };
        let (request, ()) = http::Request::get("/healthz").body(()).unwrap().into_parts();
        assert_eq!(answer_admin_request(&state, Surface::Probes, &request).await.status(), 503);
        state.heartbeats[1].tick_heartbeat();
        assert_eq!(answer_admin_request(&state, Surface::Probes, &request).await.status(), 200);
    }

    #[test]
    fn only_names_of_this_machine_are_trusted() {
        for (host, expected) in [
            ("127.0.0.1:9443", true),
            ("127.0.0.1", true),
            ("[::1]:9443", true),
            ("[::1]", true),
            ("localhost:9443", true),
            ("LOCALHOST", true),
            ("rebound.test:9443", false),
            ("rebound.test", false),
            ("127.0.0.1.rebound.test", false),
            ("", false),
            ("litequic", true),
            ("Metrics.Internal.:9444", true),
            ("litequic.rebound.test", false),
        ] {
            let (request, ()) = http::Request::get("/status").header(HOST, host).body(()).unwrap().into_parts();
            let names = ["litequic".to_owned(), "metrics.internal".to_owned()];
            assert_eq!(has_trusted_host(&request, &names), expected, "{host}");
        }
    }

    /// `probes` shows metrics, with or without a token, only to requests by a trusted name.
    #[tokio::test]
    async fn metrics_are_no_more_for_a_foreign_name_than_the_status() {
        let token = Token::new_for_tests("0123456789abcdef");
        for (has_token, surface, shown, path, host, expected) in [
            (false, Surface::Probes, false, "/metrics", "10.0.0.1:9444", 200),
            (false, Surface::Probes, false, "/metrics", "litequic:9444", 200),
            (false, Surface::Probes, false, "/metrics", "rebound.test:9444", 403),
            (true, Surface::Probes, false, "/metrics", "rebound.test:9444", 403),
            (true, Surface::Probes, false, "/metrics", "10.0.0.1:9444", 200),
            (false, Surface::Probes, false, "/healthz", "rebound.test:9444", 200),
            (false, Surface::Probes, false, "/readyz", "rebound.test:9444", 200),
            (false, Surface::Operator, false, "/metrics", "127.0.0.1:9443", 200),
            (false, Surface::Operator, false, "/metrics", "rebound.test:9443", 403),
            (false, Surface::Operator, false, "/config", "rebound.test:9443", 403),
            (false, Surface::Operator, false, "/clients", "rebound.test:9443", 403),
            (false, Surface::Probes, false, "/clients", "127.0.0.1:9444", 404),
            (true, Surface::Operator, false, "/metrics", "rebound.test:9443", 401),
            (true, Surface::Operator, true, "/metrics", "rebound.test:9443", 200),
        ] {
            let lifecycle = Lifecycle::default();
            lifecycle.advance_phase(ProcessPhase::Ready);
            let state = AdminState {
                lifecycle,
                token: has_token.then(|| token.clone()),
                names: vec!["litequic".into()],
                ..state()
            };
            let mut request = http::Request::get(path).header(HOST, host);
            if shown {
                request = request.header(http::header::AUTHORIZATION, token.authorization_value());
            }
            let (request, ()) = request.body(()).unwrap().into_parts();
            let status = answer_admin_request(&state, surface, &request).await.status().as_u16();
            assert_eq!(status, expected, "{surface:?} {path} {host}");
        }
    }
}
