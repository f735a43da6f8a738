//! What the admin listener tells of the rest of the process: certificates, origins, the configuration in force.

use super::reload::InForce;
use crate::{
    admin::Inside,
    config::{Config, Live},
    proxy,
    tls::CertificateStore,
};
use futures_util::future;
use serde_json::{Value as Json, json};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

/// How long an origin may take to be found reachable.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a finding stands: however many pages are open, an origin is tried once in that time.
const PROBE_VALIDITY: Duration = Duration::from_secs(5);

/// Tells of what is `in_force`, by now and later; clients reach it at `addresses`.
pub(super) fn inside(in_force: &InForce, addresses: &[SocketAddr]) -> Inside {
    let (config, resolver) = (Arc::clone(&in_force.config), Arc::clone(&in_force.resolver));
    let origins = Arc::new(Origins { config: Arc::clone(&config), last: Mutex::new(None) });
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
        let expires = certificate.not_after().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        json!({ "names": names.collect::<Vec<_>>(), "expires": expires })
    };
    store.certificates().iter().map(one).collect()
}

/// Whether the origins take connections.
struct Origins {
    config: Live,
    /// The last finding, when it was made, and of which configuration. Held while they are tried.
    last: Mutex<Option<(Instant, Arc<Config>, Json)>>,
}

impl Origins {
    async fn look(&self) -> Json {
        let mut last = self.last.lock().await;
        let config = self.config.load_full();
        if let Some((at, of, found)) = &*last
            && at.elapsed() < PROBE_VALIDITY
            && Arc::ptr_eq(of, &config)
        {
            return found.clone();
        }
        let found = config.origins.iter().map(async |(name, origin)| {
            let problem = match timeout(PROBE_TIMEOUT, proxy::probe(origin, PROBE_TIMEOUT)).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("does not accept a connection in time".to_owned()),
            };
            json!({ "name": name, "address": origin.address.to_string(), "problem": problem })
        });
        let found: Json = future::join_all(found).await.into_iter().collect();
        *last = Some((Instant::now(), config, found.clone()));
        found
    }
}
