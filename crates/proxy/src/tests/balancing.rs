//! Tests origins of several servers: which one gets a request, which is ejected, and which requests are retried.

use super::{Response, Script, Setup, get, on_a_worker, origin, proxy_status, request, settle, setup_at, text};
use crate::{Pages, Routing, ServerName};
use http::Method;
use litequic_config::{Balance, Fraction, OriginAddress, OriginConfig, StatusRange};
use litequic_exchange::Body;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::{JoinHandle, spawn_local},
};

pub(super) const DONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A server with a fixed answer.
pub(super) struct Answering {
    pub(super) address: OriginAddress,
    pub(super) port: u16,
    listener: Option<JoinHandle<()>>,
    connections: Rc<RefCell<Vec<JoinHandle<()>>>>,
    pub(super) requests: Rc<Cell<usize>>,
}

impl Answering {
    pub(super) async fn new(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, answer)
    }

    pub(super) fn on(listener: TcpListener, answer: &'static str) -> Self {
        Self::with_two(listener, answer, answer)
    }

    /// Answers GET with `answer`, and DELETE with `other` and the connection's end.
    fn with_two(listener: TcpListener, answer: &'static str, other: &'static str) -> Self {
        let port = listener.local_addr().unwrap().port();
        let requests = Rc::new(Cell::new(0));
        let counter = Rc::clone(&requests);
        let connections = Rc::<RefCell<Vec<_>>>::default();
        let accepted = Rc::clone(&connections);
        let accepting = async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let counter = Rc::clone(&counter);
                let connection = spawn_local(async move {
                    let mut seen = Vec::new();
                    while stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {
                        if seen.ends_with(b"\r\n\r\n") {
                            let ends = seen.starts_with(b"DELETE ");
                            let answer = if ends { other } else { answer };
                            seen.clear();
                            counter.set(counter.get() + 1);
                            stream.write_all(answer.as_bytes()).await.unwrap();
                            if ends {
                                return;
                            }
                        }
                    }
                });
                accepted.borrow_mut().push(connection);
            }
        };
        Self { address: tcp(port), port, listener: Some(spawn_local(accepting)), connections, requests }
    }

    /// Accepts no connection any more. Existing ones stay.
    async fn close(&mut self) {
        let listener = self.listener.take().unwrap();
        listener.abort();
        let _ = listener.await;
    }

    /// Accepts no connection any more, and closes existing ones.
    pub(super) async fn cut(&mut self) {
        self.close().await;
        let connections = self.connections.take();
        for connection in connections {
            connection.abort();
            let _ = connection.await;
        }
    }
}

fn tcp(port: u16) -> OriginAddress {
    OriginAddress::Tcp { host: "127.0.0.1".into(), port }
}

pub(super) async fn closed_port() -> OriginAddress {
    tcp(TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port())
}

pub(super) fn setup(servers: &[&OriginAddress], change: impl FnOnce(&mut OriginConfig)) -> Setup {
    setup_at(servers[0].clone(), |config| {
        origin(config).servers = servers.iter().copied().cloned().map(Into::into).collect();
        change(origin(config));
    })
}

pub(super) async fn ask(setup: &Setup, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(got(setup.get()).await.status().as_u16());
        settle().await;
    }
    statuses
}

pub(super) async fn got(sent: JoinHandle<Result<Response, litequic_exchange::Abort>>) -> Response {
    sent.await.unwrap().unwrap()
}

#[test]
fn requests_go_from_server_to_server() {
    on_a_worker(async {
        let servers = [Answering::new(DONE).await, Answering::new(DONE).await, Answering::new(DONE).await];
        let setup = setup(&[&servers[0].address, &servers[1].address, &servers[2].address], |_| {});
        assert_eq!(ask(&setup, 30).await, [204; 30]);
        assert!(servers.iter().all(|server| server.requests.get() == 10));
        assert_eq!(setup.metrics.origin_connections.get(), 3);
    });
}

#[test]
fn the_server_with_the_fewest_open_requests_is_asked() {
    on_a_worker(async {
        let (hanging, quick) = (Script::new().await, Answering::new(DONE).await);
        let setup = setup(&[&hanging.address(), &quick.address], |origin| origin.balance = Balance::LeastRequests);
        // One of the first two requests hangs, and from then on its server has one in flight.
        let (first, second) = (setup.get(), setup.get());
        settle().await;
        assert_eq!(ask(&setup, 10).await, [204; 10]);
        assert_eq!(quick.requests.get(), 11);
        let mut peer = hanging.accept().await;
        peer.head().await;
        peer.say(DONE).await;
        assert_eq!(
            (got(first).await.status(), got(second).await.status()),
            (204.try_into().unwrap(), 204.try_into().unwrap())
        );
    });
}

#[test]
fn what_one_server_refuses_another_one_gets_whatever_the_method() {
    on_a_worker(async {
        for method in [Method::GET, Method::POST, Method::PATCH] {
            let (closed, open) = (closed_port().await, Script::new().await);
            let setup = setup(&[&closed, &open.address()], |_| {});
            for _ in 0..2 {
                let sent = setup.send(request(method.clone(), Body::from("order")));
                let mut peer = open.accept().await;
                peer.until("order").await;
                peer.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
                assert_eq!(got(sent).await.status(), 204, "{method}");
            }
            assert_eq!(setup.metrics.origin_retries.get(), 1);
        }
    });
}

#[test]
fn a_used_connection_that_closes_sends_its_request_to_another_server() {
    on_a_worker(async {
        let (one, other) = (Script::new().await, Script::new().await);
        let setup = setup(&[&one.address(), &other.address()], |_| {});
        let mut sent = vec![setup.get(), setup.get()];
        let (mut first, mut second) = (one.accept().await, other.accept().await);
        for peer in [&mut first, &mut second] {
            peer.head().await;
            peer.say(DONE).await;
        }
        for sent in sent.drain(..) {
            assert_eq!(got(sent).await.status(), 204);
        }
        let sent = [setup.get(), setup.get()];
        first.head().await;
        drop((first, one));
        for _ in 0..2 {
            // The other server gets its own requests, and those that the first one lost, over a second connection or
            // one after the other.
            tokio::select! {
                _ = second.head() => second.say(DONE).await,
                mut third = other.accept() => { third.head().await; third.say(DONE).await; }
            }
        }
        for sent in sent {
            assert_eq!(got(sent).await.status(), 204);
        }
        assert_eq!(setup.metrics.origin_retries.get(), 1);
    });
}

#[test]
fn a_server_that_fails_is_ejected_and_comes_back_by_one_request() {
    on_a_worker(async {
        let (mut failing, well) = (Answering::new(DONE).await, Answering::new(DONE).await);
        let port = failing.port;
        let setup = setup(&[&failing.address, &well.address], |origin| {
            origin.eject_after = Some(3);
            origin.eject_time = Duration::from_millis(300);
        });
        let counters = setup.metrics.servers.counters_for(&ServerName::new("o", &failing.address.to_string()));
        failing.close().await;
        assert_eq!(ask(&setup, 20).await, [204; 20]);
        assert_eq!((counters.failures.get(), counters.ejections.get(), counters.ejected.get()), (3, 1, 1));

        let failing = Answering::on(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), DONE);
        while failing.requests.get() < 3 {
            assert_eq!(ask(&setup, 1).await, [204]);
        }
        assert_eq!((counters.ejections.get(), counters.ejected.get()), (1, 0));
    });
}

#[test]
fn truncated_responses_and_configured_statuses_eject_a_server() {
    on_a_worker(async {
        let counted = vec![StatusRange { first: 502, last: 504 }];
        for (answer, statuses, ejected) in [
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", &counted, true),
            ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", &counted, true),
            ("HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n", &counted, true),
            ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", &vec![], false),
            ("nonsense\r\n\r\n", &vec![], true),
            ("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", &counted, false),
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", &counted, false),
        ] {
            let (bad, well) = (Answering::new(answer).await, Answering::new(DONE).await);
            let setup = setup(&[&bad.address, &well.address], |origin| {
                origin.eject_after = Some(3);
                origin.eject_statuses.clone_from(statuses);
            });
            ask(&setup, 20).await;
            let counters = setup.metrics.servers.counters_for(&ServerName::new("o", &bad.address.to_string()));
            assert_eq!(counters.ejections.get(), u64::from(ejected), "{answer}");
            assert_eq!(bad.requests.get(), if ejected { 3 } else { 10 }, "{answer}");
        }
    });
}

/// A client requests such a URL as often as it likes, between the requests of others.
#[test]
fn failures_of_one_url_eject_no_server_that_serves_others() {
    on_a_worker(async {
        for by_design in [
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
            "nonsense\r\n\r\n",
            "",
        ] {
            let listener = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
            let listeners = [listener().await, listener().await];
            let servers = listeners.map(|listener| Answering::with_two(listener, DONE, by_design));
            let setup = setup(&[&servers[0].address, &servers[1].address], |origin| {
                origin.eject_after = Some(3);
                origin.eject_statuses = vec![StatusRange { first: 503, last: 503 }];
            });
            for _ in 0..5 {
                assert_eq!(ask(&setup, 2).await, [204; 2]);
                for _ in 0..20 {
                    let sent = setup.send(request(Method::DELETE, Body::empty()));
                    let response = got(sent).await;
                    let _ = text(response).await;
                    settle().await;
                }
            }
            let counters = servers
                .each_ref()
                .map(|server| setup.metrics.servers.counters_for(&ServerName::new("o", &server.address.to_string())));
            assert!(counters.iter().map(|counters| counters.failures.get()).sum::<u64>() >= 100, "{by_design}");
            for counters in counters {
                assert_eq!((counters.ejections.get(), counters.ejected.get()), (0, 0), "{by_design}");
            }
            assert_eq!(setup.metrics.origin_panics.get(), 0);
        }
    });
}

#[test]
fn ejections_spare_the_last_server_and_keep_the_configured_share() {
    on_a_worker(async {
        const BAD: &str = "nonsense\r\n\r\n";
        for (count, share, expected) in
            [(1, Fraction::ALL, 0), (2, Fraction::ALL, 1), (4, Fraction(500_000), 2), (4, Fraction(1), 1)]
        {
            let mut servers = Vec::new();
            for _ in 0..count {
                servers.push(Answering::new(BAD).await);
            }
            let addresses: Vec<_> = servers.iter().map(|server| &server.address).collect();
            let setup = setup(&addresses, |origin| {
                origin.eject_after = Some(2);
                origin.max_ejected = share;
            });
            ask(&setup, 40).await;
            let ejected = addresses.iter().map(|address| {
                setup.metrics.servers.counters_for(&ServerName::new("o", &address.to_string())).ejections.get()
            });
            assert_eq!(ejected.sum::<u64>(), expected, "{count} {share:?}");
        }
    });
}

#[test]
fn no_more_is_sent_again_than_the_budget_has() {
    on_a_worker(async {
        let missing = |name: &str| OriginAddress::Unix(format!("/nowhere/{name}").into());
        let (one, other) = (missing("one"), missing("other"));
        let setup = setup(&[&one, &other], |origin| {
            origin.eject_after = None;
            origin.retry_share = Some(Fraction(100_000));
            origin.retry_minimum = 0;
        });
        assert_eq!(ask(&setup, 50).await, [502; 50]);
        assert_eq!(setup.metrics.origin_retries.get(), 5);
        assert_eq!(setup.metrics.origin_retries_refused.get(), 45);
    });
}

#[test]
fn a_refused_connection_costs_no_part_of_the_retry_budget() {
    on_a_worker(async {
        let (one, other) = (closed_port().await, closed_port().await);
        let setup = setup(&[&one, &other], |origin| {
            origin.eject_after = None;
            origin.retry_share = Some(Fraction(0));
            origin.retry_minimum = 0;
        });
        assert_eq!(ask(&setup, 50).await, [502; 50]);
        assert_eq!((setup.metrics.origin_retries.get(), setup.metrics.origin_retries_refused.get()), (50, 0));
    });
}

#[test]
fn where_no_server_takes_a_connection_the_answer_says_so() {
    on_a_worker(async {
        let (one, other) = (closed_port().await, closed_port().await);
        let setup = setup(&[&one, &other], |_| {});
        let response = got(setup.get()).await;
        assert_eq!((response.status().as_u16(), proxy_status(&response).as_str()), (502, "error=connection_refused"));
        assert_eq!((setup.metrics.origin_retries.get(), setup.metrics.origin_connect_errors.get()), (1, 2));
    });
}

#[test]
fn a_full_server_leaves_its_request_to_another_one() {
    on_a_worker(async {
        let (one, other) = (Script::new().await, Script::new().await);
        let setup = setup(&[&one.address(), &other.address()], |origin| {
            origin.max_connections = Some(1);
            origin.max_queue = Some(0);
        });
        let _open = [setup.get(), setup.get()];
        let mut peers = [one.accept().await, other.accept().await];
        for peer in &mut peers {
            peer.head().await;
        }
        let response = got(setup.get()).await;
        assert_eq!(
            (response.status().as_u16(), proxy_status(&response).as_str()),
            (503, "error=connection_limit_reached")
        );
        assert_eq!(setup.metrics.limit_origin_queue.get(), 2, "both were asked");
    });
}

#[test]
fn a_reload_keeps_connections_and_findings_of_servers_that_stay() {
    on_a_worker(async {
        let (stays, goes) = (Script::new().await, Script::new().await);
        let setup = setup(&[&stays.address(), &goes.address()], |_| {});
        let sent = [setup.get(), setup.get()];
        let (mut kept, mut gone) = (stays.accept().await, goes.accept().await);
        for peer in [&mut kept, &mut gone] {
            peer.head().await;
            peer.say(DONE).await;
        }
        for sent in sent {
            assert_eq!(got(sent).await.status(), 204);
        }
        let mut next = setup.config.clone();
        origin(&mut next).servers = vec![stays.address().into()];
        origin(&mut next).balance = Balance::LeastRequests;
        setup.shared.store(Arc::new(Routing::compile_after(&next, Pages::default(), Some(&setup.shared.load()))));
        let sent = setup.get();
        kept.head().await;
        kept.say(DONE).await;
        assert_eq!(got(sent).await.status(), 204);
        assert_eq!(gone.rest().await, "", "what leads to the other one is closed");
        assert_eq!(setup.metrics.origin_connections.get(), 2);
    });
}

#[test]
fn the_proxy_protocol_binds_a_connection_to_one_client() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = setup(&[&script.address()], |origin| {
            origin.proxy_protocol = true;
            origin.max_connections = Some(1);
        });
        let ask_as = |client: &str| {
            let (mut exchange, _) = Setup::exchange(get());
            Rc::get_mut(&mut exchange.client).unwrap().address = client.parse().unwrap();
            let proxy = Rc::clone(&setup.proxy);
            spawn_local(async move { super::answer(&proxy, exchange).await })
        };
        let mut peers = Vec::new();
        for (client, bytes, fresh) in [
            ("192.0.2.7:4711", [192, 0, 2, 7], true),
            ("192.0.2.7:4711", [192, 0, 2, 7], false),
            ("192.0.2.8:4711", [192, 0, 2, 8], true),
        ] {
            let sent = ask_as(client);
            if fresh {
                let mut peer = script.accept().await;
                let mut header = [0; 28];
                peer.stream.read_exact(&mut header).await.unwrap();
                assert_eq!(header[..12], *b"\r\n\r\n\0\r\nQUIT\n");
                assert_eq!((header[12], header[13], &header[16..20]), (0x21, 0x11, &bytes[..]), "{client}");
                peers.push(peer);
            }
            let peer = peers.last_mut().unwrap();
            assert!(peer.head().await.starts_with("GET "), "{client}");
            peer.say(DONE).await;
            assert_eq!(got(sent).await.status(), 204);
            settle().await;
        }
        assert_eq!(peers[0].rest().await, "", "the first client's made room");
        assert_eq!(setup.metrics.origin_connections_open.get(), 1);
    });
}
