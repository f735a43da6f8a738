//! Tests connections to origins with few file descriptors: idle connections that are closed, requests that wait.

use super::{Abort, Response, Script, Setup, config, get, on_a_worker, proxy_status, settle, with_a_jumping_clock};
use crate::{Capacity, DerivedLimits, Proxy, ProxyMetrics, Routing};
use arc_swap::ArcSwap;
use litequic_config::{Config, OriginAddress, OriginConfig, RouteConfig};
use litequic_resources::{
    descriptors::{DescriptorDivision, Descriptors, ProxySide},
    memory::MemoryPressure,
};
use std::{rc::Rc, sync::Arc, time::Duration};
use tokio::task::JoinHandle;

const DONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A proxy whose process has `limit` descriptors, with an origin at `address`.
fn setup(address: OriginAddress, limit: u32, change: impl FnOnce(&mut Config)) -> (Setup, Arc<Capacity>) {
    let config = config(address, change);
    let descriptors = Arc::new(Descriptors::new(DescriptorDivision { limit, fixed: 0 }));
    let capacity = Arc::new(Capacity::new(descriptors, 1, DerivedLimits::default()));
    let mut routing = Routing::new(&config);
    routing.capacity = Arc::clone(&capacity);
    let (shared, metrics) = (Arc::new(ArcSwap::from_pointee(routing)), Arc::new(ProxyMetrics::default()));
    let proxy = Rc::new(Proxy::new(Arc::clone(&shared), Arc::clone(&metrics), MemoryPressure::default()));
    (Setup { proxy, metrics, shared, config }, capacity)
}

async fn status(sent: JoinHandle<Result<Response, Abort>>) -> u16 {
    sent.await.unwrap().unwrap().status().as_u16()
}

#[test]
fn idle_connections_beyond_a_fifth_of_the_descriptors_are_closed() {
    on_a_worker(async {
        let script = Script::new().await;
        let (setup, capacity) = setup(script.address(), 20, |_| {});
        let sent: Vec<_> = (0..10).map(|_| setup.get()).collect();
        let mut peers = Vec::new();
        for _ in 0..10 {
            peers.push(script.accept().await);
        }
        assert_eq!(capacity.descriptors.taken_descriptors().taken_by(ProxySide::Origins), 10);
        for peer in &mut peers {
            peer.head().await;
            peer.say(DONE).await;
        }
        for sent in sent {
            assert_eq!(status(sent).await, 204);
        }
        assert_eq!(capacity.descriptors.taken_descriptors().taken_by(ProxySide::Origins), 4, "a fifth of 20");
        assert_eq!(setup.metrics.limit_idle_descriptors.get(), 6);
        // Idle connections are used again.
        let sent = setup.get();
        settle().await;
        assert_eq!(capacity.descriptors.taken_descriptors().taken_by(ProxySide::Origins), 4);
        drop(sent);
        drop(setup);
        settle().await;
    });
}

#[test]
fn a_lack_of_descriptors_closes_another_servers_oldest_idle_connection() {
    on_a_worker(async {
        let (busy, other) = (Script::new().await, Script::new().await);
        let (setup, capacity) = setup(busy.address(), 40, |config| {
            config.origins.insert("other".into(), OriginConfig::new(other.address()));
            config.routes.insert(0, RouteConfig { host: Some("b.test".into()), ..RouteConfig::catch_all("other") });
        });
        // Clients have all descriptors but those of the origins alone.
        let _clients: Vec<_> =
            std::iter::from_fn(|| capacity.descriptors.take_descriptor(ProxySide::Clients)).collect();
        let (first, mut peer) = busy.asked_by(&setup).await;
        peer.say(DONE).await;
        assert_eq!(status(first).await, 204);
        let mut requests: Vec<_> = Vec::new();
        let mut peers = Vec::new();
        for number in 0..10 {
            let mut request = get();
            *request.uri_mut() = "https://b.test/".parse().unwrap();
            requests.push(setup.send(request));
            peers.push(other.accept().await);
            let open = capacity.descriptors.taken_descriptors().taken_by(ProxySide::Origins);
            assert_eq!(open, 10.min(number + 2), "a quarter of 40, with the idle one until its descriptor is needed");
        }
        assert_eq!(peer.rest().await, "", "the idle connection was closed");
        assert_eq!(setup.metrics.limit_origin_descriptors.get(), 1);
    });
}

#[test]
fn a_waiting_request_gets_the_first_descriptor_that_becomes_free() {
    on_a_worker(async {
        let script = Script::new().await;
        let (setup, capacity) = setup(script.address(), 16, |_| {});
        let mut clients: Vec<_> =
            std::iter::from_fn(|| capacity.descriptors.take_descriptor(ProxySide::Clients)).collect();
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(script.asked_by(&setup).await);
        }
        let waiting = setup.get();
        settle().await;
        assert!(capacity.descriptors.has_waiting_origin());
        clients.pop();
        let mut peer = script.accept().await;
        peer.head().await;
        peer.say(DONE).await;
        assert_eq!(status(waiting).await, 204);
        assert_eq!(setup.metrics.limit_origin_descriptors.get(), 1);
        assert_eq!(setup.metrics.timeout_queue.get(), 0);
    });
}

#[test]
fn a_request_without_a_descriptor_gets_503_without_blame_for_servers() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let (setup, _capacity) = setup(script.address(), 16, |config| {
            config.timeouts.queue = Duration::from_secs(2);
        });
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(script.asked_by(&setup).await);
        }
        let refused = setup.get().await.unwrap().unwrap();
        let answer = (refused.status().as_u16(), proxy_status(&refused));
        assert_eq!(answer, (503, "error=connection_limit_reached".into()));
        assert_eq!(setup.metrics.timeout_queue.get(), 1);
        assert_eq!(setup.metrics.origin_connect_errors.get(), 0);
    });
}

#[test]
fn a_derived_maximum_changes_without_another_pool() {
    on_a_worker(async {
        let script = Script::new().await;
        let (setup, capacity) = setup(script.address(), u32::MAX, |_| {});
        capacity.set_derived(DerivedLimits { max_connections: 1, max_queue: 0 });
        let (first, mut peer) = script.asked_by(&setup).await;
        let refused = setup.get().await.unwrap().unwrap();
        assert_eq!(refused.status().as_u16(), 503, "the one connection is in use, and the queue has no place");
        capacity.set_derived(DerivedLimits { max_connections: 2, max_queue: 0 });
        let (second, mut other) = script.asked_by(&setup).await;
        for peer in [&mut peer, &mut other] {
            peer.say(DONE).await;
        }
        assert_eq!((status(first).await, status(second).await), (204, 204));
        // The pool, with its idle connections, is the same after a reload that changes the number.
        let next = Routing::compile_after(&setup.config, crate::Pages::default(), Some(&setup.shared.load()));
        setup.shared.store(Arc::new(next));
        let third = setup.get();
        other.head().await;
        other.say(DONE).await;
        assert_eq!(status(third).await, 204);
        assert_eq!(setup.metrics.origin_connections.get(), 2);
    });
}
