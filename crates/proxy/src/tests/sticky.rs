//! Tests clients that stay on one server, weights, backup servers and servers that come back slowly.

use super::{
    Request, Response, Script, Setup, answer,
    balancing::{Answering, DONE, ask, closed_port, got, setup},
    get, on_a_worker, origin, settle,
};
use crate::{Pages, Routing, ServerName};
use http::{HeaderName, HeaderValue, header};
use litequic_config::{OriginAddress, OriginConfig, OriginServer, Sticky};
use std::{rc::Rc, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, spawn_local},
};

fn by_cookie(origin: &mut OriginConfig) {
    origin.sticky = Some(Sticky::default());
}

fn get_with(name: HeaderName, value: &str) -> Request {
    let mut request = get();
    request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    request
}

/// The cookie that a response sets, as its client sends it back.
fn cookie(response: &Response) -> Option<String> {
    let mut fields = response.headers().get_all(header::SET_COOKIE).iter();
    let field = fields.next()?.to_str().unwrap();
    assert!(fields.next().is_none());
    let (pair, attributes) = field.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
    Some(pair.to_owned())
}

/// Sends a request with a cookie, and returns the cookie that the response sets.
async fn ask_with(setup: &Setup, given: &str) -> Option<String> {
    let response = got(setup.send(get_with(header::COOKIE, given))).await;
    assert_eq!(response.status(), 204);
    let set = cookie(&response);
    drop(response);
    settle().await;
    set
}

/// The cookies of servers, in the order of `servers`, each of which answers one of as many requests.
async fn cookies(setup: &Setup, servers: &[&Answering]) -> Vec<String> {
    let mut found = vec![String::new(); servers.len()];
    for _ in servers {
        let before: Vec<_> = servers.iter().map(|server| server.requests.get()).collect();
        let given = cookie(&got(setup.get()).await).expect("a cookie");
        settle().await;
        let which = (0..servers.len()).find(|server| servers[*server].requests.get() > before[*server]).unwrap();
        found[which] = given;
    }
    found
}

fn requests(setup: &Setup, server: &OriginAddress) -> u64 {
    setup.metrics.servers.counters_for(&ServerName::new("o", &server.to_string())).requests.get()
}

#[test]
fn a_cookie_keeps_a_client_on_its_server() {
    on_a_worker(async {
        let servers = [Answering::new(DONE).await, Answering::new(DONE).await, Answering::new(DONE).await];
        let setup = setup(&servers.each_ref().map(|server| &server.address), by_cookie);
        let cookies = cookies(&setup, &servers.each_ref()).await;
        for (server, given) in servers.iter().zip(&cookies) {
            let before = server.requests.get();
            for _ in 0..5 {
                assert_eq!(ask_with(&setup, &format!("a=b; {given}")).await, None);
            }
            assert_eq!(server.requests.get(), before + 5);
        }
        assert_eq!((setup.metrics.sticky_cookies_refused.get(), setup.metrics.sticky_moves.get()), (0, 0));
    });
}

#[test]
fn a_cookie_that_names_no_server_is_refused_and_replaced() {
    on_a_worker(async {
        let servers = [Answering::new(DONE).await, Answering::new(DONE).await];
        let setup = setup(&servers.each_ref().map(|server| &server.address), by_cookie);
        let cookies = cookies(&setup, &servers.each_ref()).await;
        for (refused, given) in ["origin_server=", "origin_server=http://10.0.0.5:8080", &format!("{}0", cookies[0])]
            .into_iter()
            .enumerate()
        {
            let set = ask_with(&setup, given).await.expect("another cookie");
            assert!(cookies.contains(&set), "{given}");
            assert_eq!(setup.metrics.sticky_cookies_refused.get(), refused as u64 + 1, "{given}");
        }
        assert_eq!(servers.map(|server| server.requests.get()).iter().sum::<usize>(), 5);
    });
}

#[test]
fn a_client_of_a_removed_server_moves_once() {
    on_a_worker(async {
        let (mut lost, other) = (Answering::new(DONE).await, Answering::new(DONE).await);
        let setup = setup(&[&lost.address, &other.address], |origin| {
            by_cookie(origin);
            origin.eject_after = Some(1);
            origin.eject_time = Duration::from_millis(50);
        });
        let cookies = cookies(&setup, &[&lost, &other]).await;
        let port = lost.port;
        lost.cut().await;
        let moved = ask_with(&setup, &cookies[0]).await.expect("the other server's cookie");
        assert_eq!(moved, cookies[1]);
        assert_eq!(setup.metrics.sticky_moves.get(), 1);
        assert_eq!(ask_with(&setup, &moved).await, None);

        let back = Answering::on(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), DONE);
        while back.requests.get() == 0 {
            assert_eq!(ask(&setup, 1).await, [204]);
        }
        let before = back.requests.get();
        for _ in 0..5 {
            assert_eq!(ask_with(&setup, &moved).await, None);
        }
        assert_eq!(back.requests.get(), before, "it stays");
        assert_eq!(ask_with(&setup, &cookies[0]).await, None, "one that was away meanwhile comes home");
        assert_eq!(back.requests.get(), before + 1);
    });
}

/// An idle connection that closes is not a failure of its server.
#[test]
fn a_used_connection_that_closes_moves_no_client() {
    on_a_worker(async {
        let (one, other) = (Script::new().await, Script::new().await);
        let key = HeaderName::from_static("x-user");
        let setup = setup(&[&one.address(), &other.address()], |origin| {
            origin.sticky = Some(Sticky::Header(key.clone()));
        });
        let sent = setup.send(get_with(key.clone(), "ann"));
        let (home, mut peer) = tokio::select! {
            peer = one.accept() => (&one, peer),
            peer = other.accept() => (&other, peer),
        };
        peer.head().await;
        peer.say(DONE).await;
        assert_eq!(got(sent).await.status(), 204);
        let sent = setup.send(get_with(key.clone(), "ann"));
        peer.head().await;
        drop(peer);
        let mut again = home.accept().await;
        again.head().await;
        again.say(DONE).await;
        assert_eq!(got(sent).await.status(), 204);
        assert_eq!(setup.metrics.origin_retries.get(), 1);
    });
}

#[test]
fn a_client_whose_server_is_full_is_served_by_another() {
    on_a_worker(async {
        let (full, other) = (Script::new().await, Answering::new(DONE).await);
        let setup = setup(&[&full.address(), &other.address], |origin| {
            by_cookie(origin);
            (origin.max_connections, origin.max_queue) = (Some(1), Some(0));
        });
        let sent = [setup.get(), setup.get()];
        let mut peer = full.accept().await;
        peer.head().await;
        while !sent.iter().any(JoinHandle::is_finished) {
            settle().await;
        }
        let [mut waits, mut answered] = sent;
        if waits.is_finished() {
            std::mem::swap(&mut waits, &mut answered);
        }
        let others = cookie(&got(answered).await).unwrap();
        peer.say(DONE).await;
        let given = cookie(&got(waits).await).unwrap();
        settle().await;

        let waits = setup.send(get_with(header::COOKIE, &given));
        peer.head().await;
        assert_eq!(ask_with(&setup, &given).await, Some(others));
        assert_eq!(setup.metrics.sticky_moves.get(), 1);
        peer.say(DONE).await;
        assert_eq!(cookie(&got(waits).await), None);
    });
}

#[test]
fn a_reload_that_moves_servers_in_the_list_moves_no_client() {
    on_a_worker(async {
        let servers = [Answering::new(DONE).await, Answering::new(DONE).await, Answering::new(DONE).await];
        let setup = setup(&servers.each_ref().map(|server| &server.address), by_cookie);
        let cookies = cookies(&setup, &servers.each_ref()).await;
        let reload = |order: &[usize]| {
            let mut next = setup.config.clone();
            origin(&mut next).servers = order.iter().map(|server| servers[*server].address.clone().into()).collect();
            setup.shared.store(Arc::new(Routing::compile_after(&next, Pages::default(), Some(&setup.shared.load()))));
        };
        reload(&[2, 0, 1]);
        for (server, given) in servers.iter().zip(&cookies) {
            let before = server.requests.get();
            assert_eq!(ask_with(&setup, given).await, None);
            assert_eq!(server.requests.get(), before + 1);
        }
        reload(&[2, 1]);
        assert!(cookies[1..].contains(&ask_with(&setup, &cookies[0]).await.unwrap()), "its server is gone");
        assert_eq!(setup.metrics.sticky_cookies_refused.get(), 1);
        assert_eq!(ask_with(&setup, &cookies[2]).await, None);
        reload(&[1]);
        assert_eq!(ask_with(&setup, "origin_server=x").await, None, "one alone needs none");
        assert_eq!(setup.metrics.sticky_cookies_refused.get(), 1);
    });
}

#[test]
fn hashing_moves_only_the_clients_of_a_lost_server() {
    on_a_worker(async {
        let mut servers = [Answering::new(DONE).await, Answering::new(DONE).await, Answering::new(DONE).await];
        let key = HeaderName::from_static("x-user");
        let setup = setup(&servers.each_ref().map(|server| &server.address), |origin| {
            origin.sticky = Some(Sticky::Header(key.clone()));
            origin.eject_after = Some(1);
            origin.eject_time = Duration::from_millis(50);
        });
        let users: Vec<_> = (0..60).map(|user| format!("user-{user}")).collect();
        let home = async |servers: &[Answering; 3], user: &str| {
            let before = servers.each_ref().map(|server| server.requests.get());
            let response = got(setup.send(get_with(key.clone(), user))).await;
            assert_eq!((response.status().as_u16(), cookie(&response)), (204, None));
            drop(response);
            settle().await;
            (0..3).find(|server| servers[*server].requests.get() > before[*server]).unwrap()
        };
        let mut homes = Vec::new();
        for user in &users {
            homes.push(home(&servers, user).await);
            assert_eq!(home(&servers, user).await, *homes.last().unwrap());
        }
        assert!((0..3).all(|server| homes.contains(&server)));
        let port = servers[1].port;
        servers[1].cut().await;
        for (user, before) in users.iter().zip(&homes) {
            let now = home(&servers, user).await;
            assert!(if *before == 1 { now != 1 } else { now == *before }, "{user}: {before}, {now}");
        }
        servers[1] = Answering::on(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), DONE);
        let mine = users.iter().zip(&homes).find(|(_, home)| **home == 1).unwrap().0;
        while home(&servers, mine).await != 1 {}
        for (user, before) in users.iter().zip(&homes) {
            assert_eq!(home(&servers, user).await, *before, "{user} is home");
        }
        // Without the field requests are balanced.
        let before = servers.each_ref().map(|server| server.requests.get());
        assert_eq!(ask(&setup, 9).await, [204; 9]);
        assert!((0..3).all(|server| servers[server].requests.get() == before[server] + 3));
    });
}

#[test]
fn by_address_an_ipv6_client_is_its_network() {
    on_a_worker(async {
        let servers = [Answering::new(DONE).await, Answering::new(DONE).await];
        let setup = setup(&servers.each_ref().map(|server| &server.address), |origin| {
            origin.sticky = Some(Sticky::Address);
        });
        let home = async |client: &str| {
            let before = servers.each_ref().map(|server| server.requests.get());
            let (mut exchange, _) = Setup::exchange(get());
            Rc::get_mut(&mut exchange.client).unwrap().address = client.parse().unwrap();
            let proxy = Rc::clone(&setup.proxy);
            got(spawn_local(async move { answer(&proxy, exchange).await })).await;
            settle().await;
            (0..2).find(|server| servers[*server].requests.get() > before[*server]).unwrap()
        };
        let mut homes = Vec::new();
        for n in 0..64 {
            let one = home(&format!("192.0.2.{n}:1000")).await;
            assert_eq!(home(&format!("192.0.2.{n}:2000")).await, one);
            homes.push(one);
            let one = home(&format!("[2001:db8:0:{n}::1]:1000")).await;
            assert_eq!(home(&format!("[2001:db8:0:{n}:ffff::2]:2000")).await, one);
        }
        assert!(homes.contains(&0) && homes.contains(&1));
    });
}

fn weighted(address: &OriginAddress, weight: u16) -> OriginServer {
    OriginServer { weight, ..address.clone().into() }
}

fn backup(address: &OriginAddress) -> OriginServer {
    OriginServer { backup: true, ..address.clone().into() }
}

#[test]
fn servers_get_requests_by_their_weights_and_others_by_a_reload() {
    on_a_worker(async {
        let servers = [Answering::new(DONE).await, Answering::new(DONE).await];
        let addresses = servers.each_ref().map(|server| &server.address);
        let setup = setup(&addresses, |origin| {
            origin.servers = vec![weighted(addresses[0], 3), weighted(addresses[1], 1)];
        });
        assert_eq!(ask(&setup, 40).await, [204; 40]);
        assert_eq!(servers.each_ref().map(|server| server.requests.get()), [30, 10]);
        let mut next = setup.config.clone();
        origin(&mut next).servers = vec![weighted(addresses[0], 1), weighted(addresses[1], 4)];
        setup.shared.store(Arc::new(Routing::compile_after(&next, Pages::default(), Some(&setup.shared.load()))));
        assert_eq!(ask(&setup, 40).await, [204; 40]);
        assert_eq!(servers.each_ref().map(|server| server.requests.get()), [38, 42]);
        assert_eq!(setup.metrics.origin_connections.get(), 2, "the same connections");
    });
}

#[test]
fn a_backup_server_gets_requests_only_while_no_other_is_healthy() {
    on_a_worker(async {
        let (mut first, spare) = (Answering::new(DONE).await, Answering::new(DONE).await);
        let address = first.address.clone();
        let setup = setup(&[&address, &spare.address], |origin| {
            origin.servers = vec![address.clone().into(), backup(&spare.address)];
            origin.eject_after = Some(2);
            origin.eject_time = Duration::from_millis(50);
        });
        assert_eq!(ask(&setup, 10).await, [204; 10]);
        assert_eq!((first.requests.get(), spare.requests.get()), (10, 0));
        let port = first.port;
        first.cut().await;
        assert_eq!(ask(&setup, 10).await, [204; 10]);
        assert_eq!(spare.requests.get(), 10);
        let back = Answering::on(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), DONE);
        while back.requests.get() == 0 {
            assert_eq!(ask(&setup, 1).await, [204]);
        }
        let before = spare.requests.get();
        assert_eq!(ask(&setup, 10).await, [204; 10]);
        assert_eq!(spare.requests.get(), before);
    });
}

/// Otherwise half of the servers at most are ejected, and clients see the failures of the others.
#[test]
fn for_a_backup_server_all_others_are_ejected() {
    on_a_worker(async {
        let dead = [closed_port().await, closed_port().await, closed_port().await];
        let spare = Answering::new(DONE).await;
        let setup = setup(&[&dead[0]], |origin| {
            origin.servers = dead.iter().cloned().map(Into::into).chain([backup(&spare.address)]).collect();
            origin.eject_after = Some(1);
        });
        assert_eq!(ask(&setup, 10).await[1..], [204; 9], "the first one has two retries alone");
        let tried: u64 = dead.iter().map(|server| requests(&setup, server)).sum();
        assert_eq!((tried, spare.requests.get()), (3, 9));
        assert_eq!(setup.metrics.origin_panics.get(), 0);
    });
}

#[test]
fn a_server_that_comes_back_starts_slowly() {
    on_a_worker(async {
        for (slow_start, least, most) in [(None, 20, 20), (Some(Duration::from_secs(3600)), 0, 1)] {
            let (mut failing, well) = (Answering::new(DONE).await, Answering::new(DONE).await);
            let setup = setup(&[&failing.address, &well.address], |origin| {
                origin.eject_after = Some(1);
                origin.eject_time = Duration::from_millis(50);
                origin.slow_start = slow_start;
            });
            let port = failing.port;
            failing.cut().await;
            assert_eq!(ask(&setup, 4).await, [204; 4]);
            let back = Answering::on(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), DONE);
            while back.requests.get() == 0 {
                assert_eq!(ask(&setup, 1).await, [204]);
            }
            let before = back.requests.get();
            assert_eq!(ask(&setup, 40).await, [204; 40]);
            let got = back.requests.get() - before;
            assert!((least..=most).contains(&got), "{slow_start:?}: {got}");
        }
    });
}
