//! Processes behind a load balancer of UDP that names the client by the PROXY protocol: a new one that takes over, and one that
//! follows a crash.

use super::{Download, PATIENCE, Service, ended, terminate};
use crate::{
    drain::ask,
    support::{
        balancer::{Balancer, proxy_header},
        prelude::*,
    },
};
use futures_util::future;

/// What a load balancer marks.
type Mark = fn(Balancer) -> Balancer;

/// `listen.proxy_protocol_udp`, and what the load balancer marks then.
const MODES: [(&str, Mark); 2] = [("every", |balancer| balancer), ("first:3m", Balancer::mark_first)];

/// A service at the address of a load balancer.
async fn balanced(mode: &str, mark: Mark) -> (Service, Balancer) {
    let mut service = Service::new().await;
    let keys = "secret_file = \"secret\"\nproxy_protocol_from = [\"127.0.0.1\"]";
    service.edit("[listen]\n", &format!("[listen]\n{keys}\nproxy_protocol_udp = \"{mode}\"\n"));
    fs::write(service.directory.path().join("secret"), [7; 32]).unwrap();
    let balancer = mark(Balancer::with_headers(vec![service.address], vec![], proxy_header).await);
    service.address = balancer.address;
    (service, balancer)
}

#[tokio::test]
async fn connections_behind_a_load_balancer_survive_upgrades_and_new_flows() {
    const UPGRADES: usize = 3;
    const STEP: usize = 96 * 1024;
    for (mode, mark) in MODES {
        let (service, balancer) = balanced(mode, mark).await;
        let mut processes = vec![service.start().await];
        let begin = (0..8).map(|_| Download::begin(&service, (UPGRADES + 1) * STEP));
        let mut downloads = future::join_all(begin).await;
        for upgrade in 1..=UPGRADES {
            processes.push(service.start().await);
            let progress = downloads.iter_mut().map(|download| download.read_to(upgrade * STEP - STEP / 2));
            assert!(future::join_all(progress).await.into_iter().all(|more| more), "{mode}, {upgrade}");
            // The clients' next datagrams come from other ports: the old process follows them there.
            balancer.forget_flows();
            let progress = downloads.iter_mut().map(|download| download.read_to(upgrade * STEP));
            assert!(future::join_all(progress).await.into_iter().all(|more| more), "{mode}, {upgrade}");
            Download::begin(&service, 1000).await.read_to(usize::MAX).await;
        }
        for download in &mut downloads {
            assert!(!download.read_to(usize::MAX).await, "{mode}");
        }
        drop(downloads);
        let (_, metrics) = ask(service.admin, "GET /metrics").await;
        assert!(metrics.contains("\nlitequic_udp_proxy_headers_total{result=\"forged\"} 0\n"), "{mode}: {metrics}");
        let newest = processes.pop().unwrap();
        for process in processes {
            ended(process).await;
        }
        terminate(newest).await;
    }
}

#[tokio::test]
async fn a_stateless_reset_passes_a_load_balancer() {
    for (mode, mark) in MODES {
        let (service, balancer) = balanced(mode, mark).await;
        let crashed = service.start().await;
        let client = service.h3().await;
        assert_eq!(client.get("/bytes/1000").await.status, 200);
        crashed.end_by("KILL");
        let next = service.start().await;
        // Of a flow that is marked once alone, the next process knows nothing.
        balancer.forget_flows();
        let _unanswered = client.begin_get("/bytes/1000").await;
        let closed = timeout(PATIENCE, client.quic.connection.closed()).await.expect("a reset");
        assert_eq!(closed, quinn::ConnectionError::Reset, "{mode}");
        terminate(next).await;
    }
}
