//! Tests a server whose name has several addresses: which connections are opened, and which addresses are avoided.

use super::*;
use crate::{ServerMetrics, ServerName, address::resolve_for_tests};
use litequic_config::StatusRange;
use std::net::{Ipv4Addr, SocketAddr};

/// Opens listeners at two addresses and the same port.
async fn pair() -> [TcpListener; 2] {
    loop {
        let one = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = SocketAddr::from(([127, 0, 0, 2], one.local_addr().unwrap().port()));
        if let Ok(other) = TcpListener::bind(other).await {
            return [one, other];
        }
    }
}

/// A proxy for the server `name`, at the port of `listener`, with the addresses 127.0.0.2 and 127.0.0.1, in this order.
fn before(name: &str, listener: &TcpListener, change: impl FnOnce(&mut Config)) -> (Setup, Arc<ServerMetrics>) {
    resolve_for_tests(name, &[Ipv4Addr::new(127, 0, 0, 2).into(), Ipv4Addr::LOCALHOST.into()]);
    let address = OriginAddress::Tcp { host: name.into(), port: listener.local_addr().unwrap().port() };
    let setup = setup_at(address.clone(), |config| {
        // Each request has a connection of its own.
        origin(config).max_requests = Some(1);
        change(config);
    });
    let counters = setup.metrics.servers.counters_for(&ServerName::new("o", &address.to_string()));
    (setup, counters)
}

/// Serves each connection of `listener` with `answer` to its first request, and closes it.
fn serve(listener: TcpListener, answer: &'static str) -> Rc<Cell<usize>> {
    let count = Rc::new(Cell::new(0));
    let counter = Rc::clone(&count);
    spawn_local(async move {
        loop {
            let mut peer = Peer { stream: listener.accept().await.unwrap().0, seen: Vec::new() };
            counter.set(counter.get() + 1);
            peer.head().await;
            peer.say(answer).await;
        }
    });
    count
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn an_address_whose_connections_break_is_ejected_and_not_its_server() {
    on_a_worker(async {
        let [works, breaks] = pair().await;
        let (setup, counters) = before("breaks.addresses.test", &works, |config| {
            origin(config).eject_after = Some(2);
        });
        let (works, breaks) = (serve(works, OK), serve(breaks, "HTTP/1.1 200 O"));
        let mut failed = 0;
        while counters.address_ejections.get() == 0 {
            let status = setup.get().await.unwrap().unwrap().status();
            failed += usize::from(status == 502);
        }
        assert_eq!((failed, breaks.get()), (2, 2));
        let before = works.get();
        for _ in 0..10 {
            assert_eq!(text(setup.get().await.unwrap().unwrap()).await.unwrap(), "ok");
        }
        assert_eq!((works.get(), breaks.get()), (before + 10, 2));
        assert_eq!((counters.address_ejections.get(), counters.ejections.get()), (1, 0));
        assert_eq!((counters.failures.get(), counters.address_failures.get()), (2, 0));
    });
}

#[test]
fn a_server_whose_addresses_all_break_is_ejected_for_another_one() {
    on_a_worker(async {
        let [one, other] = pair().await;
        let script = Script::new().await;
        let (setup, counters) = before("all.addresses.test", &one, |config| {
            origin(config).servers.push(script.address().into());
            origin(config).eject_after = Some(2);
        });
        let (_one, _other) = (serve(one, "HTTP/1.1 200 O"), serve(other, "HTTP/1.1 200 O"));
        let _well = serve(script.listener, OK);
        while counters.ejections.get() == 0 {
            setup.get().await.unwrap().unwrap();
        }
        assert_eq!(counters.address_ejections.get(), 1, "the other one is the last");
        for _ in 0..6 {
            assert_eq!(text(setup.get().await.unwrap().unwrap()).await.unwrap(), "ok");
        }
    });
}

#[test]
fn a_status_ejects_the_server_with_all_its_addresses() {
    on_a_worker(async {
        let [one, other] = pair().await;
        let script = Script::new().await;
        let (setup, counters) = before("status.addresses.test", &one, |config| {
            origin(config).servers.push(script.address().into());
            origin(config).eject_after = Some(2);
            origin(config).eject_statuses = vec![StatusRange { first: 500, last: 500 }];
        });
        const ILL: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
        let (_one, _other) = (serve(one, ILL), serve(other, ILL));
        let _well = serve(script.listener, OK);
        while counters.ejections.get() == 0 {
            setup.get().await.unwrap().unwrap();
        }
        assert_eq!(counters.address_ejections.get(), 0);
    });
}

#[test]
fn the_proxy_header_goes_to_the_address_beside_a_black_hole() {
    on_a_worker(async {
        let (_deaf, listener) = loop {
            let deaf = Deaf::at([127, 0, 0, 2]);
            let OriginAddress::Tcp { port, .. } = deaf.address() else { panic!() };
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                break (deaf, listener);
            }
        };
        let (setup, counters) = before("deaf.addresses.test", &listener, |config| {
            origin(config).proxy_protocol = true;
        });
        for _ in 0..5 {
            let sent = setup.get();
            let mut peer = Peer { stream: listener.accept().await.unwrap().0, seen: Vec::new() };
            while !peer.seen.ends_with(b"\r\n\r\n") || peer.seen.len() < 100 {
                peer.stream.read_buf(&mut peer.seen).await.unwrap();
            }
            assert!(peer.seen.starts_with(b"\r\n\r\n\0\r\nQUIT\n"));
            peer.say(OK).await;
            assert_eq!(text(sent.await.unwrap().unwrap()).await.unwrap(), "ok");
        }
        assert_eq!(counters.address_failures.get(), 1, "the first connection alone began with the black hole");
        assert_eq!(setup.metrics.origin_connections.get(), 5);
    });
}
