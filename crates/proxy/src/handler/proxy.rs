//! Holds one worker's proxy, and the routing that it follows.

use crate::metrics::{ProxyMetrics, RouteMetrics, RouteName};
use crate::origin::{RoutedOrigin, WorkerOrigin};
use crate::pool::PoolResources;
use crate::routing::Routing;
use crate::tunnel::TunnelPool;
use arc_swap::{ArcSwap, Cache};
use litequic_resources::memory::MemoryPressure;
use litequic_telemetry::clients::DenyList;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

/// Proxy of one worker, between the front ends and the origins.
#[derive(Debug)]
pub struct Proxy {
    /// Routing in force for all workers; reading it costs a comparison.
    shared: RefCell<Cache<Arc<ArcSwap<Routing>>, Arc<Routing>>>,
    pub(super) metrics: Arc<ProxyMetrics>,
    resources: Rc<PoolResources>,
    local: RefCell<Rc<WorkerRouting>>,
    pub(super) tunnels: TunnelPool,
    pub(super) denied: Arc<DenyList>,
}

/// Routing in force in this worker, with its pools.
#[derive(Debug)]
pub(super) struct WorkerRouting {
    pub(super) routing: Arc<Routing>,
    pub(super) origins: BTreeMap<String, Rc<WorkerOrigin>>,
    /// Counters of the routes, by the routes' numbers.
    pub(super) routes: Vec<Arc<RouteMetrics>>,
}

impl Proxy {
    /// The proxy of the worker with these `metrics`. It follows the routing in `shared`. No response is spooled into
    /// memory while `pressure` says that memory is short.
    pub fn new(shared: Arc<ArcSwap<Routing>>, metrics: Arc<ProxyMetrics>, pressure: MemoryPressure) -> Self {
        let routing = shared.load_full();
        let resources = PoolResources::new(&routing.capacity, &metrics, pressure);
        let local = WorkerRouting::new(routing, &BTreeMap::new(), &metrics, &resources);
        Self {
            shared: RefCell::new(Cache::new(shared)),
            metrics,
            resources,
            local: RefCell::new(Rc::new(local)),
            tunnels: TunnelPool::default(),
            denied: Arc::default(),
        }
    }

    /// The function that ends the worker's streaming calls, of which gRPC's get trailers with UNAVAILABLE: clients and
    /// servers may never end them.
    pub fn call_ender(&self) -> impl Fn() + use<> {
        let resources = Rc::clone(&self.resources);
        move || resources.end_streaming_calls()
    }

    /// Answers 403 to the clients that are `denied`.
    pub fn with_deny_list(self, denied: Arc<DenyList>) -> Self {
        Self { denied, ..self }
    }

    /// The routing in force. A server that a reload did not touch keeps its pool; one that is gone closes its idle
    /// connections, and the requests on the others end normally.
    pub(super) fn current_routing(&self) -> Rc<WorkerRouting> {
        let local = Rc::clone(&self.local.borrow());
        let shared = {
            let mut shared = self.shared.borrow_mut();
            let shared = shared.load();
            if Arc::ptr_eq(shared, &local.routing) {
                return local;
            }
            Arc::clone(shared)
        };
        let next = Rc::new(WorkerRouting::new(shared, &local.origins, &self.metrics, &self.resources));
        for (name, origin) in &local.origins {
            origin.close_replaced(next.origins.get(name).map(Rc::as_ref));
        }
        self.metrics.servers.retain_keys(&next.routing.server_names());
        self.local.replace(Rc::clone(&next));
        next
    }
}

impl WorkerRouting {
    fn new(
        routing: Arc<Routing>,
        before: &BTreeMap<String, Rc<WorkerOrigin>>,
        metrics: &Arc<ProxyMetrics>,
        resources: &Rc<PoolResources>,
    ) -> Self {
        let origin = |(name, routed): (&String, &RoutedOrigin)| {
            let before = before.get(name);
            let origin = match before.filter(|origin| origin.matches_routed(routed)) {
                Some(kept) => Rc::clone(kept),
                None => {
                    let key = &routing.cookie_key;
                    let before = before.map(Rc::as_ref);
                    Rc::new(WorkerOrigin::new(name, routed, key, before, metrics, resources))
                }
            };
            origin.follow_server_health(&routed.health_states);
            (name.clone(), origin)
        };
        let origins = routing.origins.iter().map(origin).collect();
        let routes =
            routing.names.iter().map(|name| metrics.routes.counters_for(&RouteName(name.as_str().into()))).collect();
        Self { routing, origins, routes }
    }
}
