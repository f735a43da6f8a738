//! Makes health checks: a periodic request to each server of an origin, by the control thread for all workers, so that
//! the number of workers does not multiply them; and reports the state of servers to the operator.

use super::http2_health;
use crate::balance::{CheckResult, HealthState, HealthStreak};
use crate::connection::{self, ProbeTarget, TlsFailure, TlsToOrigin, reach_server};
use crate::metrics::{CheckMetrics, CheckMetricsTable, ServerName};
use litequic_base::timers::timeout;
use litequic_config::{HealthCheck, OriginAddress, OriginProtocol};
use litequic_exchange::http1::{self, HeadError, HeadLines};
use litequic_exchange::http2::{ConnectionFault, StreamFailure};
use std::{convert::Infallible, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    time::sleep,
};
use tokio_util::task::AbortOnDropHandle;

/// Random part of an interval, in both directions: checks of many litequic do not coincide for long.
const JITTER: f64 = 0.1;
/// `User-Agent` of a check.
pub(super) const USER_AGENT: &str = concat!("litequic/", env!("CARGO_PKG_VERSION"), " (health check)");
/// Bytes of a usual response's head; a longer one may have as many as that of a request ([`http1::MAX_HEAD`]).
pub(super) const RESPONSE_CAPACITY: usize = 1024;

/// A server to be checked, with the settings of its checks.
#[derive(Debug, Clone)]
pub(crate) struct CheckTarget {
    pub(crate) origin: Arc<str>,
    pub(crate) address: OriginAddress,
    pub(crate) health: HealthCheck,
    pub(crate) tls: Option<Arc<TlsToOrigin>>,
    pub(crate) proxy_protocol: bool,
    pub(crate) protocol: OriginProtocol,
    pub(crate) dns_interval: Duration,
    pub(crate) health_state: Arc<HealthState>,
}

impl CheckTarget {
    /// Whether `other` is to be checked in the same way, for the same workers.
    fn is_same_target(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.health_state, &other.health_state)
            && (&self.health, self.proxy_protocol, self.protocol)
                == (&other.health, other.proxy_protocol, other.protocol)
            && (self.dns_interval, &self.tls) == (other.dns_interval, &other.tls)
    }

    fn target_name(&self) -> ServerName {
        ServerName { origin: Arc::clone(&self.origin), server: self.address.to_string().into() }
    }
}

/// State of a server of an origin, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Name of the origin.
    pub origin: String,
    /// Address of the server.
    pub address: OriginAddress,
    /// TLS to the server, if it has https.
    pub(crate) tls: Option<Arc<TlsToOrigin>>,
    pub(crate) proxy_protocol: bool,
    /// Result of the server's health checks, if there are any.
    pub check: Option<CheckSummary>,
}

/// Result of a server's health checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckSummary {
    /// Whether the server is healthy.
    pub up: bool,
    /// Problem that the last check found.
    pub problem: Option<String>,
}

/// Whether `server` accepts connections, and TLS if it has https: for readiness without health checks.
///
/// # Errors
///
/// The reason for the failure, for the operator.
///
/// # Cancel safety
///
/// Dropping the future gives up.
pub async fn probe_origin_server(
    server: &ServerState,
    timeout: Duration,
) -> Result<(), impl std::error::Error + use<>> {
    let ServerState { address, tls, proxy_protocol, .. } = server;
    let target = ProbeTarget { address, tls: tls.as_deref(), proxy_protocol: *proxy_protocol };
    connection::probe_target(target, timeout).await
}

/// Checks every server of `wanted`, now and after each of `reloads`.
///
/// # Cancel safety
///
/// Dropping the future ends all checks; servers keep their state.
pub(crate) async fn check_servers(
    wanted: impl Fn() -> Vec<CheckTarget>,
    reloads: Arc<Notify>,
    checks: Arc<CheckMetricsTable>,
) -> Infallible {
    let mut running: Vec<(CheckTarget, AbortOnDropHandle<()>)> = Vec::new();
    loop {
        let wanted = wanted();
        running.retain(|(checked, _)| wanted.iter().any(|wanted| wanted.is_same_target(checked)));
        checks.retain_keys(&wanted.iter().map(CheckTarget::target_name).collect::<Vec<_>>());
        for checked in wanted {
            if !running.iter().any(|(running, _)| running.is_same_target(&checked)) {
                let counters = checks.counters_for(&checked.target_name());
                let task = tokio::spawn(run_server_checks(checked.clone(), counters));
                running.push((checked, AbortOnDropHandle::new(task)));
            }
        }
        reloads.notified().await;
    }
}

async fn run_server_checks(checked: CheckTarget, counters: Arc<CheckMetrics>) {
    let CheckTarget { ref origin, ref address, ref health, ref health_state, .. } = checked;
    let unknown = health_state.last_result() == CheckResult::Pending;
    let mut streak = HealthStreak::new(health.healthy, health.unhealthy, health_state.is_up(), unknown);
    counters.up.set(health_state.is_up().into());
    loop {
        let outcome = timeout(health.timeout, request_health(&checked)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(format!("no answer within {:?}", health.timeout)));
        let change = streak.record_check(outcome.is_ok());
        if let Some(up) = change {
            health_state.set_up(up);
            counters.up.set(up.into());
        }
        match (&outcome, change) {
            (Ok(()), Some(_)) => {
                tracing::info!(%origin, server = %address, "the server is healthy: its health checks succeed");
            }
            (Err(problem), Some(_)) => {
                tracing::warn!(%origin, server = %address, problem, "the server is unhealthy: its health check failed");
            }
            (Ok(()), None) => {}
            (Err(problem), None) => tracing::debug!(%origin, server = %address, problem, "a check failed"),
        }
        match outcome {
            Ok(()) => {
                counters.passed.increment();
                health_state.set_last_result(CheckResult::Passed);
            }
            Err(problem) => {
                counters.failed.increment();
                health_state.set_last_result(CheckResult::Failed(problem));
            }
        }
        sleep(health.interval.mul_f64(rand::random_range(1.0 - JITTER..=1.0 + JITTER))).await;
    }
}

/// Checks the server once, over a connection of its own.
///
/// # Errors
///
/// The problem, for the operator.
async fn request_health(checked: &CheckTarget) -> Result<(), String> {
    let CheckTarget { address, health, tls, proxy_protocol, protocol, dns_interval, .. } = checked;
    let target = ProbeTarget { address, tls: tls.as_deref(), proxy_protocol: *proxy_protocol };
    let stream = reach_server(target, health.timeout, Some(*dns_interval)).await;
    let mut stream = stream.map_err(|error| match TlsFailure::in_error(&error) {
        Some(failure) => failure.to_string(),
        None => format!("cannot connect: {error}"),
    })?;
    let host = match (&health.host, address) {
        (Some(host), _) => host.clone(),
        (None, address) => match address.host_and_port() {
            Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
            Some((host, port)) => format!("{host}:{port}"),
            None => "localhost".into(),
        },
    };
    if *protocol == OriginProtocol::Http2 {
        return http2_health::request_health_over_http2(&mut stream, &host, health).await;
    }
    let fields = [("host", &*host), ("user-agent", USER_AGENT), ("connection", "close")];
    let mut request = Vec::new();
    http1::write_request_head(
        &mut request,
        "GET",
        health.path.as_bytes(),
        fields.map(|(name, value)| (name, value.as_bytes())),
    );
    let written = async {
        stream.write_all(&request).await?;
        stream.flush().await
    };
    // The response may have come with the connection's end.
    let written = written.await;
    let status = match (read_status(&mut stream).await, written) {
        (Ok(status), _) => status,
        (Err(NoHealthAnswer::Closed), Err(error)) => return Err(NoHealthAnswer::Io(error).to_problem()),
        (Err(error), _) => return Err(error.to_problem()),
    };
    check_status(health, status)
}

pub(super) fn check_status(health: &HealthCheck, status: u16) -> Result<(), String> {
    if health.accepts_status(status) { Ok(()) } else { Err(format!("answered with {status}")) }
}

/// Failure of a health check to get a response.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoHealthAnswer {
    #[error("the server closed the connection before its response")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error(transparent)]
    Connection(#[from] ConnectionFault),
    #[error(transparent)]
    Stream(#[from] StreamFailure),
}

impl NoHealthAnswer {
    /// The problem, for the operator.
    pub(super) fn to_problem(&self) -> String {
        let reason = match self {
            Self::Io(error) => TlsFailure::in_error(error).map(ToString::to_string),
            _ => None,
        };
        format!("connection failed: {}", reason.unwrap_or_else(|| self.to_string()))
    }
}

/// Reads the status of the final response that `stream` begins with.
async fn read_status(stream: &mut (impl AsyncRead + Unpin)) -> Result<u16, NoHealthAnswer> {
    let mut received = Vec::with_capacity(RESPONSE_CAPACITY);
    // The check's timeout bounds the number of interim responses.
    loop {
        let mut lines = HeadLines::default();
        match http1::parse_response_head(&received, &mut lines) {
            Ok(Some(head)) if head.is_interim() => {
                let length = head.length;
                received.drain(..length);
                continue;
            }
            Ok(Some(head)) => return Ok(head.status),
            Ok(None) => {}
            Err(error) => return Err(error.into()),
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Err(NoHealthAnswer::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_status_is_read_behind_interim_responses_and_large_headers() {
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(1_000);
        let field = |length: usize| format!("content-security-policy: {}\r\n", "x".repeat(length));
        for (begin, field, expected) in [
            ("", field(10), Ok(204)),
            ("", field(60_000), Ok(204)),
            (&interim, field(9_000), Ok(204)),
            ("", field(http1::MAX_HEAD), Err(())),
        ] {
            let text = format!("{begin}HTTP/1.1 204 No Content\r\n{field}\r\n");
            assert_eq!(read_status(&mut text.as_bytes()).await.map_err(|_| ()), expected, "{}", text.len());
        }
        assert!(matches!(read_status(&mut &b"HTTP/1.1 103 E\r\n\r\n"[..]).await, Err(NoHealthAnswer::Closed)));
    }
}
