//! A client that is served while another meets a limit or a timeout, and litequic before the origins of both.

use super::{prelude::*, proxy::tcp};
use litequic_config::RouteTarget;
use quinn::VarInt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use tokio::task::JoinHandle;

/// A timeout long enough to be noticed, short enough to wait for.
pub(crate) const SHORT: Duration = Duration::from_millis(200);
/// The bystander's host, which leads to an origin of its own.
const ELSEWHERE: &str = "b.test";
/// Requests of the bystander on one connection: below every limit that a test sets.
pub(crate) const A_CONNECTION_S: usize = 20;
const A_BODY: usize = 10_000;

/// Another client, which sends requests and checks the answers, in a loop.
pub(crate) struct Bystander {
    served: Arc<AtomicUsize>,
    enough: Arc<AtomicBool>,
    asking: JoinHandle<()>,
}

impl Bystander {
    fn start(litequic: &Litequic) -> Self {
        let (served, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (Arc::clone(&served), Arc::clone(&enough));
        let (address, cert_pem) = (litequic.address, litequic.cert_pem.clone());
        let asking = tokio::spawn(async move {
            while !stop.load(Relaxed) {
                let quic = Quic::connect(address, ELSEWHERE, &cert_pem, quinn::TransportConfig::default()).await;
                let client = Client::over(quic, ELSEWHERE).await;
                for _ in 0..A_CONNECTION_S {
                    let answer = client.get(&format!("/bytes/{A_BODY}")).await;
                    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, A_BODY), "the bystander");
                    count.fetch_add(1, Relaxed);
                    if stop.load(Relaxed) {
                        break;
                    }
                }
                client.quic.connection.close(VarInt::from_u32(0x100), b"");
            }
        });
        Self { served, enough, asking }
    }

    /// Waits until it was served once more.
    pub(crate) async fn goes_on(&self) {
        let before = self.served.load(Relaxed);
        let served = async {
            while self.served.load(Relaxed) <= before + 1 {
                assert!(!self.asking.is_finished(), "the bystander was not served");
                sleep(Duration::from_millis(2)).await;
            }
        };
        within("an answer to the bystander", served).await;
    }

    async fn ends_well(self) {
        self.enough.store(true, Relaxed);
        within("the bystander's end", self.asking).await.unwrap();
    }
}

/// Starts litequic as `edit` wants it before `origin`, has `bite` meet a limit while a bystander is served, and checks
/// that it was served to the end.
pub(crate) async fn beside_a_bystander(
    origin: SocketAddr,
    edit: impl FnOnce(&mut Config),
    bite: impl AsyncFnOnce(&Litequic, &Bystander),
) {
    let demo = origin::demo().await;
    let litequic = Litequic::start(origin, |config| {
        edit(config);
        let mut other = config.origins[Config::ORIGIN_NAME].clone();
        other.servers = vec![tcp(demo).into()];
        (other.max_connections, other.max_queue) = (Some(10), Some(10));
        config.origins.insert("other".into(), other);
        let mut route: RouteConfig = config.routes[0].clone();
        (route.host, route.target) = (Some(ELSEWHERE.into()), RouteTarget::Origin("other".into()));
        config.routes.push(route);
    })
    .await;
    let bystander = Bystander::start(&litequic);
    bystander.goes_on().await;
    bite(&litequic, &bystander).await;
    bystander.goes_on().await;
    bystander.ends_well().await;
    litequic.stop().await;
}

/// Waits until `read` is `expected`.
pub(crate) async fn counts(litequic: &Litequic, what: &str, read: impl Fn(&WorkerMetrics) -> u64, expected: u64) {
    litequic.wait_until(what, read, |value| value == expected).await;
}
