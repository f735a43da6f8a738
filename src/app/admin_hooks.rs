//! Builds the hooks by which the admin listener reads the rest of the process: certificates, origins, the configuration
//! in force, and readiness of origins.

use super::{active_state::ActiveState, metrics::WorkerMetrics, reload::unix_seconds};
use futures_util::future;
use litequic_acme::{AcmeHostEntry, AcmeHostTable};
use litequic_admin::{
    self as admin, AcmeStatus, AdminHooks, CertificateStatus, Http3Status, MaintenanceStatus, MechanismStatus,
    MechanismWork, OriginProbe, OriginStatus, ServerIdStatus, Status, TracesStatus,
};
use litequic_base::timers;
use litequic_proxy::{
    self as proxy, ActiveMaintenance, CheckSummary, MaintenanceTarget, Routing, ServerMetrics, ServerName, ServerState,
};
use litequic_telemetry::traces::Tracing;
use litequic_tls::CertificateStore;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::Mutex, time::Instant};

/// Timeout of a probe for whether a server is reachable.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most servers that are probed at once: each takes a descriptor.
const MAX_PROBES: usize = 256;

/// Builds the hooks that read and change `in_force`; clients reach the process at `addresses`.
pub(super) fn build_admin_hooks(in_force: &ActiveState, addresses: &[SocketAddr]) -> AdminHooks {
    let (config, resolver) = (Arc::clone(&in_force.config), Arc::clone(&in_force.resolver));
    let origins = Arc::new(OriginStatusCache { in_force: in_force.clone(), last: Mutex::new(None) });
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let (started, of_status) = (Instant::now(), in_force.clone());
    let renewing = Arc::clone(&in_force.acme.board);
    let (switched, switching, ordering) = (in_force.clone(), in_force.clone(), in_force.clone());
    AdminHooks {
        status: Box::new(move |age| {
            let (origins, http3) = (Arc::clone(&origins), &switched.http3);
            let mut status = Status {
                uptime: Some(started.elapsed().as_secs_f64()),
                listen: addresses.clone(),
                last_reload: of_status.last_reload.reload_status(),
                certificates: certificate_status(&resolver.current_store()),
                acme: acme_status(&of_status.acme.board),
                maintenance: switched.routes_in_maintenance().iter().map(maintenance_status).collect(),
                server_id: server_id_status(&of_status),
                traces: traces_status(&of_status.traces),
                http3: Http3Status { on: Some(http3.is_http3_on()), configured: Some(http3.configured_http3()) },
                mechanisms: mechanism_status(&of_status),
                descriptors: of_status.shared.descriptor_status(),
                ..Status::default()
            };
            Box::pin(async move {
                status.origins = origins.probe_origins(age).await;
                status
            })
        }),
        configuration: Box::new(move || config.load().keys_and_values()),
        maintain: Box::new(move |order| switching.switch_maintenance(order)),
        renew: Box::new(move |host| renewing.order_renewal(host)),
        order_http3: Box::new(move |on| ordering.order_http3(on)),
    }
}

/// Status of the collector of traces; `None` without a collector.
fn traces_status(traces: &Tracing) -> Option<TracesStatus> {
    let (endpoint, state) = traces.collector_status()?;
    Some(TracesStatus {
        endpoint: Some(endpoint),
        accepted_at: state.accepted_at.map(unix_seconds),
        problem: state.problem,
    })
}

/// Server ID of new connection IDs, and the time at which the last former one ends.
fn server_id_status(in_force: &ActiveState) -> Option<ServerIdStatus> {
    let config = in_force.config.load();
    let server_id = config.listen.server_id.as_ref()?;
    Some(ServerIdStatus {
        id: Some(server_id.hex_digits()),
        layout: Some(server_id.describe_layout()),
        former_until: in_force.ids.former_ids_until().map(unix_seconds),
    })
}

/// Work that the mechanisms of the configuration in force have saved.
fn mechanism_status(in_force: &ActiveState) -> Vec<MechanismStatus> {
    let of = |read: fn(&WorkerMetrics) -> u64| in_force.metrics.sum_over_workers(read);
    let work = MechanismWork {
        datagrams_received: of(|worker| worker.net.datagrams_received.get()),
        receive_messages: of(|worker| worker.net.receive_messages.get()),
        receive_batches: of(|worker| worker.net.receive_batches.get()),
        datagrams_sent: of(|worker| worker.net.datagrams_sent.get()),
        gso_messages: of(|worker| worker.net.gso_messages.get()),
        gso_segments: of(|worker| worker.net.gso_segments.get()),
        packets_sent: of(|worker| worker.quic.packets_sent.get()),
        ack_frames_received: of(|worker| worker.quic.ack_frames_received.get()),
        ack_frames_merged: of(|worker| worker.quic.ack_frames_merged.get()),
        connections: of(|worker| worker.http3.connections.get()),
        ack_frequency_offers: of(|worker| worker.quic.ack_frequency_offered.get()),
        wakes_moderation: of(|worker| worker.wake.metrics.wakes_moderation.get()),
        without_gso: of(|worker| {
            let net = &worker.net;
            net.io_degraded_gso_missing.get() + net.io_degraded_gso_eio.get() + net.io_degraded_gso_einval.get()
        }),
        without_gro: of(|worker| worker.net.io_degraded_gro.get()),
        without_io_uring: of(|worker| {
            let net = &worker.net;
            net.io_degraded_io_uring_forbidden.get()
                + net.io_degraded_io_uring_missing.get()
                + net.io_degraded_io_uring_memory.get()
                + net.io_degraded_io_uring_broken.get()
        }),
    };
    admin::mechanism_rows(&in_force.config.load().litequic, &work)
}

pub(super) fn maintenance_status(one: &ActiveMaintenance) -> MaintenanceStatus {
    let target = match &one.target {
        MaintenanceTarget::All => None,
        MaintenanceTarget::Route(what) => Some(what.to_string()),
    };
    MaintenanceStatus { target, retry_after: Some(one.retry_after.into()), routes: one.routes.clone() }
}

fn certificate_status(store: &CertificateStore) -> Vec<CertificateStatus> {
    let one = |certificate: &litequic_tls::LoadedCertificate| {
        let names = &certificate.names;
        let names = names.dns.iter().cloned().chain(names.ip.iter().map(ToString::to_string));
        let warnings = certificate.chain_warnings(SystemTime::now());
        CertificateStatus {
            names: names.collect(),
            algorithm: Some(certificate.algorithm.to_string()),
            valid_from: Some(unix_seconds(certificate.not_before())),
            renew_by: Some(unix_seconds(certificate.renew_by())),
            expires: Some(unix_seconds(certificate.not_after())),
            warnings: warnings.collect(),
        }
    };
    store.all.iter().map(one).collect()
}

/// Status of ACME hosts; `None` without `[[acme]]`.
fn acme_status(board: &AcmeHostTable) -> Option<Vec<AcmeStatus>> {
    let one = |entry: AcmeHostEntry| AcmeStatus {
        host: Some(entry.host),
        state: Some(entry.state.state_name().into()),
        valid_from: entry.validity.map(|validity| validity.from),
        expires: entry.validity.map(|validity| validity.until),
        directory: Some(entry.directory),
        next: Some(entry.next),
        resumes: Some(entry.resumes),
        attempts: Some(entry.failures),
        failing_since: entry.failing_since,
        problem: entry.problem,
        record: entry.record,
    };
    let entries = board.host_entries();
    (!entries.is_empty()).then(|| entries.into_iter().map(one).collect())
}

/// Builds the probe of `/readyz`: ready when each origin that a route uses has a healthy server, or if
/// `admin.ready_needs_origin` is off.
pub(super) fn build_origin_probe(in_force: &ActiveState) -> OriginProbe {
    let in_force = in_force.clone();
    Box::new(move || {
        let (config, servers) = (in_force.config.load_full(), in_force.routing.load().server_states());
        Box::pin(async move {
            if !config.admin.ready_needs_origin {
                return Ok(());
            }
            let origins = config.origins.keys().filter(|name| config.uses_origin(name)).map(async |name| {
                let servers = servers.iter().filter(|server| server.origin == *name);
                any_server_healthy(servers, config.timeouts.connect).await
            });
            future::try_join_all(origins).await.map(drop)
        })
    })
}

/// Returns whether any of `servers` is healthy.
///
/// # Errors
///
/// The problem of the last of `servers`, if none is healthy.
async fn any_server_healthy(servers: impl Iterator<Item = &ServerState>, timeout: Duration) -> Result<(), String> {
    let problems = servers.map(async |server| match server_problem(server, timeout).await {
        None => Err(()),
        Some(problem) => Ok(format!("{}: {problem}", server.address)),
    });
    // The first healthy server ends the search.
    match future::try_join_all(problems).await {
        Err(()) => Ok(()),
        Ok(problems) => Err(problems.into_iter().next_back().unwrap_or_default()),
    }
}

/// Problem of `server`: by its health check if there is one, else by a connection attempt.
async fn server_problem(server: &ServerState, timeout: Duration) -> Option<String> {
    match &server.check {
        Some(CheckSummary { up: true, .. }) => None,
        Some(CheckSummary { problem, .. }) => {
            Some(problem.clone().unwrap_or_else(|| "unhealthy: its health check failed".into()))
        }
        None => probe_server(server, timeout).await,
    }
}

async fn probe_server(server: &ServerState, timeout: Duration) -> Option<String> {
    match timers::timeout(timeout, proxy::probe_origin_server(server, timeout)).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("connecting timed out".into()),
    }
}

/// Status of the origins' servers, probed again once the last result is too old.
struct OriginStatusCache {
    in_force: ActiveState,
    /// Last result. Locked while servers are probed.
    last: Mutex<Option<ProbedServers>>,
}

/// Results of one probe of all servers, with its time and the routes that it was made for.
struct ProbedServers {
    at: Instant,
    routing: Arc<Routing>,
    servers: Vec<OriginStatus>,
}

impl OriginStatusCache {
    /// Probes the servers, unless the last result is younger than `age`.
    async fn probe_origins(&self, age: Duration) -> Vec<OriginStatus> {
        let mut last = self.last.lock().await;
        let routing = self.in_force.routing.load_full();
        if let Some(found) = &*last
            && found.at.elapsed() < age
            && Arc::ptr_eq(&found.routing, &routing)
        {
            return found.servers.clone();
        }
        let servers = routing.server_states();
        let probe = async |server: &ServerState| {
            let address = server.address.to_string();
            let name = ServerName::new(&server.origin, &address);
            let of = |read: fn(&ServerMetrics) -> u64| self.in_force.metrics.sum_of_server(&name, read);
            OriginStatus {
                name: Some(server.origin.clone()),
                address: Some(address),
                checked: Some(server.check.is_some()),
                problem: server_problem(server, PROBE_TIMEOUT).await,
                ejected_by: Some(of(|server| server.ejected.get())),
                connections: Some(of(|server| server.connections.get())),
                requests: Some(of(|server| server.requests.get())),
                failures: Some(of(|server| server.failures.get())),
            }
        };
        let mut found = Vec::with_capacity(servers.len());
        for some in servers.chunks(MAX_PROBES) {
            found.extend(future::join_all(some.iter().map(probe)).await);
        }
        *last = Some(ProbedServers { at: Instant::now(), routing, servers: found.clone() });
        found
    }
}
