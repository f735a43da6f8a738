//! What the admin listener tells of the rest of the process: certificates, origins, the configuration in force; and
//! whether origins are ready.

use super::reload::InForce;
use crate::{
    admin::{Inside, OriginProbe},
    config::OriginAddress,
    proxy::{self, Check, Routing, ServerState},
    proxy::{ServerMetrics, ServerName},
    tls::CertificateStore,
};
use futures_util::future;
use serde_json::{Value as Json, json};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

/// How long a server may take to be found reachable.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a finding stands: however many pages are open, a server is tried once in that time.
const PROBE_VALIDITY: Duration = Duration::from_secs(5);

/// Tells of what is `in_force`, by now and later; clients reach it at `addresses`.
pub(super) fn inside(in_force: &InForce, addresses: &[SocketAddr]) -> Inside {
    let (config, resolver) = (Arc::clone(&in_force.config), Arc::clone(&in_force.resolver));
    let origins = Arc::new(Origins { in_force: in_force.clone(), last: Mutex::new(None) });
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    Inside {
        status: Box::new(move || {
            let certificates = certificates(&resolver.store());
            let (origins, addresses) = (Arc::clone(&origins), addresses.clone());
            Box::pin(async move {
                let origins = origins.look().await;
                json!({ "listen": addresses, "certificates": certificates, "origins": origins })
            })
        }),
        configuration: Box::new(move || config.load().list()),
    }
}

fn certificates(store: &CertificateStore) -> Json {
    let one = |certificate: &crate::tls::Certificate| {
        let names = certificate.names();
        let names = names.dns.iter().cloned().chain(names.ip.iter().map(ToString::to_string));
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let warnings = certificate.warnings(SystemTime::now()).map(|warning| warning.to_string());
        json!({
            "names": names.collect::<Vec<_>>(),
            "valid_from": seconds(certificate.not_before()),
            "expires": seconds(certificate.not_after()),
            "warnings": warnings.collect::<Vec<_>>(),
        })
    };
    store.certificates().iter().map(one).collect()
}

/// Ready when a server of each origin is well that a route leads to, or nobody asks for one.
pub(super) fn origin_probe(in_force: &InForce) -> OriginProbe {
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
/// What is wrong with the last of `servers`, where none of them is well.
async fn any_is_well(servers: impl Iterator<Item = &ServerState>, patience: Duration) -> Result<(), String> {
    let problems = servers.map(async |server| match problem(server, patience).await {
        None => Err(()),
        Some(problem) => Ok(format!("{}: {problem}", server.address)),
    });
    // The first that is well ends the search.
    match future::try_join_all(problems).await {
        Err(()) => Ok(()),
        Ok(problems) => Err(problems.into_iter().next_back().unwrap_or_default()),
    }
}

/// What is wrong with `server`: by its checks where there are any, else by a connection.
async fn problem(server: &ServerState, patience: Duration) -> Option<String> {
    match &server.check {
        Some(Check { up: true, .. }) => None,
        Some(Check { problem, .. }) => Some(problem.clone().unwrap_or_else(|| "not well by its checks".into())),
        None => connect(&server.address, patience).await,
    }
}

async fn connect(address: &OriginAddress, patience: Duration) -> Option<String> {
    match timeout(patience, proxy::probe(address, patience)).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("does not accept a connection in time".into()),
    }
}

/// How the origins' servers stand.
struct Origins {
    in_force: InForce,
    /// The last finding, when it was made, and of which configuration. Held while they are tried.
    last: Mutex<Option<(Instant, Arc<Routing>, Json)>>,
}

impl Origins {
    async fn look(&self) -> Json {
        let mut last = self.last.lock().await;
        let routing = self.in_force.routing.load_full();
        if let Some((at, of, found)) = &*last
            && at.elapsed() < PROBE_VALIDITY
            && Arc::ptr_eq(of, &routing)
        {
            return found.clone();
        }
        let servers = routing.servers();
        let found = servers.iter().map(async |server| {
            let address = server.address.to_string();
            let name = ServerName::new(&server.origin, &address);
            let of = |read: fn(&ServerMetrics) -> u64| self.in_force.metrics.of_server(&name, read);
            json!({
                "name": server.origin,
                "address": address,
                "checked": server.check.is_some(),
                "problem": problem(server, PROBE_TIMEOUT).await,
                "ejected_by": of(|server| server.ejected.get()),
                "connections": of(|server| server.connections.get()),
                "requests": of(|server| server.requests.get()),
                "failures": of(|server| server.failures.get()),
            })
        });
        let found: Json = future::join_all(found).await.into_iter().collect();
        *last = Some((Instant::now(), routing, found.clone()));
        found
    }
}
