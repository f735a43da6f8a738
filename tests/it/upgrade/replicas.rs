//! What clients of one process have of it, and the next one honours: session tickets, and the stateless reset tokens of
//! a replica whatever its host is called by then.

use super::{
    Service, ended,
    resets::{Observer, short},
    terminate,
};
use crate::{
    resumption::{Browser, tcp_handshake},
    support::tls,
};
use rustls::HandshakeKind;

#[tokio::test]
async fn sessions_resume_at_the_process_that_took_over() {
    for secret_file in [false, true] {
        let service = Service::new().await;
        if secret_file {
            std::fs::write(service.directory.path().join("secret"), [7; 32]).unwrap();
            service.edit("[listen]\n", "[listen]\nsecret_file = \"secret\"\n");
        }
        let old = service.start().await;
        let browser = Browser::trusting(&service.cert_pem);
        let client = tls::config(&service.cert_pem, &["h2"]);
        let connect = async |full| {
            let mut connection = browser.connect_to(service.address).await;
            connection.download(1000, |_| {}).await;
            connection.close().await;
            assert_eq!(browser.full_handshakes(), full);
            tcp_handshake(service.address, &client, "h2").await
        };
        assert_eq!(connect(1).await, HandshakeKind::Full);
        let new = service.start().await;
        ended(old).await;
        assert_eq!(connect(1).await, HandshakeKind::Resumed);

        // Once more: the secret is handed on. Then a restart, which has it from the file alone.
        let next = service.start().await;
        ended(new).await;
        assert_eq!(connect(1).await, HandshakeKind::Resumed);
        terminate(next).await;
        let restarted = service.start().await;
        let then = if secret_file { HandshakeKind::Resumed } else { HandshakeKind::Full };
        assert_eq!(connect(if secret_file { 1 } else { 2 }).await, then);
        terminate(restarted).await;
    }
}

#[tokio::test]
async fn a_process_that_takes_over_keeps_the_reset_tokens_of_its_predecessor() {
    let service = Service::new().await;
    std::fs::write(service.directory.path().join("secret"), [7; 32]).unwrap();
    let replica = |name: &str| format!("[listen]\nsecret_file = \"secret\"\nreplica = \"{name}\"\n");
    service.edit("[listen]\n", &replica("one"));
    // Of a generation that none of these processes has.
    let token = async || Observer::of(service.address).await.token_for(short(200, 1)).await;
    let old = service.start().await;
    let first = token().await;

    service.edit("\"one\"", "\"two\"");
    let new = service.start().await;
    ended(old).await;
    assert_eq!(token().await, first, "the clients of the first process have it");
    assert!(
        new.stderr().contains("stateless reset tokens are derived from the previous replica name"),
        "{}",
        new.stderr()
    );
    terminate(new).await;

    let restarted = service.start().await;
    let second = token().await;
    assert_ne!(second, first);
    terminate(restarted).await;
    service.edit("\"two\"", "\"one\"");
    let restarted = service.start().await;
    assert_eq!(token().await, first);
    terminate(restarted).await;
}
