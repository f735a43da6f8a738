//! One worker's proxy, and the routing that it follows.

use crate::metrics::{Metrics, RouteMetrics, RouteName};
use crate::origin::{Origin, RoutedOrigin};
use crate::pool::Resources;
use crate::routing::Routing;
use crate::tunnel::Tunnels;
use arc_swap::{ArcSwap, Cache};
use litequic_resources::memory::Pressure;
use litequic_telemetry::clients::DenyList;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

/// One worker's proxy.
#[derive(Debug)]
pub struct Proxy {
    /// A look at the routing in force costs a comparison.
    shared: RefCell<Cache<Arc<ArcSwap<Routing>>, Arc<Routing>>>,
    pub(super) metrics: Arc<Metrics>,
    resources: Rc<Resources>,
    local: RefCell<Rc<Local>>,
    pub(super) tunnels: Tunnels,
    pub(super) denied: Arc<DenyList>,
}

/// The routing in force in this worker, and its pools.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) routing: Arc<Routing>,
    pub(super) origins: BTreeMap<String, Rc<Origin>>,
    /// By the routes' numbers.
    pub(super) routes: Vec<Arc<RouteMetrics>>,
}

impl Proxy {
    /// The proxy of the worker with these `metrics`. It follows what is stored in `shared`. Nothing is taken into
    /// memory to free a connection while `pressure` says that memory is short.
    pub fn new(shared: Arc<ArcSwap<Routing>>, metrics: Arc<Metrics>, pressure: Pressure) -> Self {
        let routing = shared.load_full();
        let resources = Resources::new(routing.capacity(), &metrics, pressure);
        let local = Local::new(routing, &BTreeMap::new(), &metrics, &resources);
        Self {
            shared: RefCell::new(Cache::new(shared)),
            metrics,
            resources,
            local: RefCell::new(Rc::new(local)),
            tunnels: Tunnels::default(),
            denied: Arc::default(),
        }
    }

    /// Answers 403 to the clients that are `denied`.
    pub fn refusing(self, denied: Arc<DenyList>) -> Self {
        Self { denied, ..self }
    }

    /// The routing in force. A server that a reload did not touch keeps its pool; one that is gone closes its idle
    /// connections, and the requests on the others end normally.
    pub(super) fn local(&self) -> Rc<Local> {
        let local = Rc::clone(&self.local.borrow());
        let shared = {
            let mut shared = self.shared.borrow_mut();
            let shared = shared.load();
            if Arc::ptr_eq(shared, &local.routing) {
                return local;
            }
            Arc::clone(shared)
        };
        let next = Rc::new(Local::new(shared, &local.origins, &self.metrics, &self.resources));
        for (name, origin) in &local.origins {
            origin.close_but(next.origins.get(name).map(Rc::as_ref));
        }
        self.metrics.servers.keep(&next.routing.server_names());
        self.local.replace(Rc::clone(&next));
        next
    }
}

impl Local {
    fn new(
        routing: Arc<Routing>,
        before: &BTreeMap<String, Rc<Origin>>,
        metrics: &Arc<Metrics>,
        resources: &Rc<Resources>,
    ) -> Self {
        let origin = |(name, routed): (&String, &RoutedOrigin)| {
            let before = before.get(name);
            let origin = match before.filter(|origin| origin.is(routed)) {
                Some(kept) => Rc::clone(kept),
                None => {
                    let key = &routing.cookie_key;
                    let before = before.map(Rc::as_ref);
                    Rc::new(Origin::new(name, routed, key, before, metrics, resources))
                }
            };
            origin.follow(&routed.health_states);
            (name.clone(), origin)
        };
        let origins = routing.origins.iter().map(origin).collect();
        let routes = routing.names.iter().map(|name| metrics.routes.of(&RouteName(name.as_str().into()))).collect();
        Self { routing, origins, routes }
    }
}
