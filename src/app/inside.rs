//! What the admin listener shows of the rest of the process: certificates, origins, the configuration in force; and
//! whether origins are ready.

use super::{active_state::ActiveState, metrics::WorkerMetrics, reload::seconds};
use futures_util::future;
use litequic_acme::{Board, Entry};
use litequic_admin::{
    self as admin, AcmeStatus, AdminHooks, CertificateStatus, Http3Status, MaintenanceStatus, MechanismStatus,
    MechanismWork, OriginProbe, OriginStatus, ServerIdStatus, Status, TracesStatus,
};
use litequic_base::timers;
use litequic_proxy::{
    self as proxy, Check, InMaintenance, MaintenanceTarget, Routing, ServerMetrics, ServerName, ServerState,
};
use litequic_telemetry::traces::Tracing;
use litequic_tls::CertificateStore;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::Mutex, time::Instant};

/// How long a server may take to be found reachable.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a result is reused: however many pages are open, a server is tried once in that time.
const PROBE_VALIDITY: Duration = Duration::from_secs(5);

/// Shows what is `in_force`, now and later; clients reach it at `addresses`.
pub(super) fn admin_hooks(in_force: &ActiveState, addresses: &[SocketAddr]) -> AdminHooks {
    let (config, resolver) = (Arc::clone(&in_force.config), Arc::clone(&in_force.resolver));
    let origins = Arc::new(Origins { in_force: in_force.clone(), last: Mutex::new(None) });
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let (started, of_status) = (Instant::now(), in_force.clone());
    let renewing = Arc::clone(&in_force.acme.board);
    let (switched, switching, ordering) = (in_force.clone(), in_force.clone(), in_force.clone());
    AdminHooks {
        status: Box::new(move || {
            let (origins, http3) = (Arc::clone(&origins), &switched.http3);
            let mut status = Status {
                uptime: Some(started.elapsed().as_secs_f64()),
                listen: addresses.clone(),
                last_reload: of_status.last_reload.status().into(),
                certificates: certificates(&resolver.store()),
                acme: acme(&of_status.acme.board),
                maintenance: switched.in_maintenance().iter().map(in_maintenance).collect(),
                server_id: server_id(&of_status).into(),
                traces: traces(&of_status.traces).into(),
                http3: Http3Status { on: Some(http3.is_on()), configured: Some(http3.configured()) },
                mechanisms: mechanisms(&of_status),
                descriptors: of_status.shared.status(),
                ..Status::default()
            };
            Box::pin(async move {
                status.origins = origins.look().await;
                status
            })
        }),
        configuration: Box::new(move || config.load().list()),
        maintain: Box::new(move |order| switching.maintain(order)),
        renew: Box::new(move |host| renewing.order(host)),
        order_http3: Box::new(move |on| ordering.order_http3(on)),
    }
}

/// The collector of traces, and what is known of it.
fn traces(traces: &Tracing) -> Option<TracesStatus> {
    let (endpoint, state) = traces.collector()?;
    Some(TracesStatus {
        endpoint: Some(endpoint),
        accepted_at: state.accepted_at.map(seconds).into(),
        problem: state.problem.into(),
    })
}

/// The server ID of new connection IDs, and when the last one before a reload ends.
fn server_id(in_force: &ActiveState) -> Option<ServerIdStatus> {
    let config = in_force.config.load();
    let server_id = config.listen.server_id.as_ref()?;
    Some(ServerIdStatus {
        id: Some(server_id.digits()),
        layout: Some(server_id.layout()),
        former_until: in_force.ids.former_until().map(seconds),
    })
}

/// What the mechanisms of the configuration in force have saved.
fn mechanisms(in_force: &ActiveState) -> Vec<MechanismStatus> {
    let of = |read: fn(&WorkerMetrics) -> u64| in_force.metrics.sum(read);
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
    admin::mechanisms(&in_force.config.load().litequic, &work)
}

fn in_maintenance(one: &InMaintenance) -> MaintenanceStatus {
    let target = match &one.target {
        MaintenanceTarget::All => None,
        MaintenanceTarget::Route(what) => Some(what.to_string()),
    };
    MaintenanceStatus { target: target.into(), retry_after: Some(one.retry_after.into()), routes: one.routes.clone() }
}

fn certificates(store: &CertificateStore) -> Vec<CertificateStatus> {
    let one = |certificate: &litequic_tls::Certificate| {
        let names = certificate.names();
        let names = names.dns.iter().cloned().chain(names.ip.iter().map(ToString::to_string));
        let warnings = certificate.warnings(SystemTime::now()).map(|warning| warning.to_string());
        CertificateStatus {
            names: names.collect(),
            algorithm: Some(certificate.algorithm().to_string()),
            valid_from: Some(seconds(certificate.not_before())),
            renew_by: Some(seconds(certificate.renew_by())),
            expires: Some(seconds(certificate.not_after())),
            warnings: warnings.collect(),
        }
    };
    store.all().iter().map(one).collect()
}

/// `None` without `[[acme]]`.
fn acme(board: &Board) -> Option<Vec<AcmeStatus>> {
    let one = |entry: Entry| AcmeStatus {
        host: Some(entry.host),
        state: Some(entry.state.name().into()),
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
    let entries = board.entries();
    (!entries.is_empty()).then(|| entries.into_iter().map(one).collect())
}

/// Ready when each origin that a route uses has a healthy server, or if readiness does not depend on origins.
pub(super) fn origin_probe(in_force: &ActiveState) -> OriginProbe {
    let in_force = in_force.clone();
    Box::new(move || {
        let (config, servers) = (in_force.config.load_full(), in_force.routing.load().servers());
        Box::pin(async move {
            if !config.admin.ready_needs_origin {
                return Ok(());
            }
            let wanted = |name: &String| config.routes.iter().any(|route| route.origin() == Some(name.as_str()));
            let origins = config.origins.keys().filter(|name| wanted(name)).map(async |name| {
                let servers = servers.iter().filter(|server| server.origin == *name);
                any_is_well(servers, config.timeouts.connect).await
            });
            future::try_join_all(origins).await.map(drop)
        })
    })
}

/// # Errors
///
/// The problem of the last of `servers`, if none of them is healthy.
async fn any_is_well(servers: impl Iterator<Item = &ServerState>, patience: Duration) -> Result<(), String> {
    let problems = servers.map(async |server| match problem(server, patience).await {
        None => Err(()),
        Some(problem) => Ok(format!("{}: {problem}", server.address)),
    });
    // The first healthy one ends the search.
    match future::try_join_all(problems).await {
        Err(()) => Ok(()),
        Ok(problems) => Err(problems.into_iter().next_back().unwrap_or_default()),
    }
}

/// The problem of `server`: by its health checks if there are any, else by a connection.
async fn problem(server: &ServerState, patience: Duration) -> Option<String> {
    match &server.check {
        Some(Check { up: true, .. }) => None,
        Some(Check { problem, .. }) => {
            Some(problem.clone().unwrap_or_else(|| "unhealthy: its health check failed".into()))
        }
        None => connect(server, patience).await,
    }
}

async fn connect(server: &ServerState, patience: Duration) -> Option<String> {
    match timers::timeout(patience, proxy::probe(server, patience)).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("connecting timed out".into()),
    }
}

/// The states of the origins' servers.
struct Origins {
    in_force: ActiveState,
    /// The last result. Locked while servers are tried.
    last: Mutex<Option<Looked>>,
}

/// What was found of the origins' servers, when, and by which configuration.
struct Looked {
    at: Instant,
    routing: Arc<Routing>,
    servers: Vec<OriginStatus>,
}

impl Origins {
    async fn look(&self) -> Vec<OriginStatus> {
        let mut last = self.last.lock().await;
        let routing = self.in_force.routing.load_full();
        if let Some(found) = &*last
            && found.at.elapsed() < PROBE_VALIDITY
            && Arc::ptr_eq(&found.routing, &routing)
        {
            return found.servers.clone();
        }
        let servers = routing.servers();
        let found = servers.iter().map(async |server| {
            let address = server.address.to_string();
            let name = ServerName::new(&server.origin, &address);
            let of = |read: fn(&ServerMetrics) -> u64| self.in_force.metrics.of_server(&name, read);
            OriginStatus {
                name: Some(server.origin.clone()),
                address: Some(address),
                checked: Some(server.check.is_some()),
                problem: problem(server, PROBE_TIMEOUT).await.into(),
                ejected_by: Some(of(|server| server.ejected.get())),
                connections: Some(of(|server| server.connections.get())),
                requests: Some(of(|server| server.requests.get())),
                failures: Some(of(|server| server.failures.get())),
            }
        });
        let found = future::join_all(found).await;
        *last = Some(Looked { at: Instant::now(), routing, servers: found.clone() });
        found
    }
}
