//! Clients' certificates before the real process with its files: what a reload changes, and `litequic get`.

use super::{
    CERTIFICATE_REQUIRED, CERTIFICATE_REVOKED, UNKNOWN_CA, empty,
    person::{Authority, Person, Shown},
    seen,
};
use crate::{
    drain::ask,
    support::{prelude::*, process::litequic},
};
use base64::{Engine, prelude::BASE64_STANDARD};

/// The real process with its files.
struct Setup {
    directory: tempfile::TempDir,
    made: SelfSigned,
    udp: SocketAddr,
    admin: SocketAddr,
    origin: SocketAddr,
}

impl Setup {
    fn new(origin: SocketAddr, ca: &str) -> Self {
        let setup = Self {
            directory: tempfile::tempdir().unwrap(),
            made: make_self_signed(["localhost", "a.test", "b.test"]).unwrap(),
            udp: (Ipv4Addr::LOCALHOST, free_udp_port()).into(),
            admin: (Ipv4Addr::LOCALHOST, free_tcp_port()).into(),
            origin,
        };
        setup.put("tls.crt", &setup.made.cert_pem);
        setup.put("tls.key", &setup.made.key_pem);
        setup.put("ca.crt", ca);
        setup
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn put(&self, name: &str, text: &str) {
        let beside = self.path(".new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
    }

    /// Writes the configuration, with `more` behind it.
    fn write(&self, more: &str) {
        let Self { udp, admin, origin, .. } = self;
        self.put(
            "litequic.toml",
            &format!(
                "listen.udp = \"{udp}\"\nlisten.workers = 2\nadmin.listen = \"{admin}\"\norigin.url = \"http://{origin}\"\n\
                 [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n{more}\n"
            ),
        );
    }

    async fn start(&self, more: &str) -> Process {
        self.write(more);
        let process = Process::start(["run", "--config", &self.path("litequic.toml")]);
        assert_eq!(process.address(), self.udp);
        self.reload(200, "nothing has changed").await;
        process
    }

    async fn reload(&self, status: u16, said: &str) {
        let (found, text) = ask(self.admin, "POST /reload").await;
        assert_eq!(found, status, "{text}");
        assert!(text.contains(said), "{text}");
    }

    fn person(&self, shown: Option<&Shown>) -> Person {
        Person::new(&self.made.cert_pem, shown)
    }
}

const WITH_CA: &str = "[client_certificates]\nca = \"ca.crt\"";

#[tokio::test]
async fn a_reloaded_authority_counts_from_the_next_handshake_on() {
    let (old, new, origin) = (Authority::new("old"), Authority::new("new"), empty().await);
    let setup = Setup::new(origin.address, &old.pem());
    let process = setup.start(WITH_CA).await;
    let (of_old, of_new) = (setup.person(Some(&old.client())), setup.person(Some(&new.client())));
    let connected = of_old.connect(setup.udp, "localhost").await;
    assert_eq!(connected.get("/before").await.status, 200);
    assert_eq!(of_new.refused(setup.udp, "localhost").await, UNKNOWN_CA);

    // No request triggers the renewal.
    setup.put("ca.crt", &new.pem());
    process.await_stderr("\"key\":\"client_certificates.ca\"");
    assert!(process.stderr().contains("renewed, certificates: 1"), "{}", process.stderr());
    assert_eq!(of_old.refused(setup.udp, "localhost").await, UNKNOWN_CA, "whatever it kept of its first visit");
    assert_eq!(of_new.connect(setup.udp, "localhost").await.get("/after").await.status, 200);
    assert_eq!(connected.get("/still").await.status, 200, "connections stay");
}

#[tokio::test]
async fn a_broken_authority_is_refused_and_the_old_one_serves_on() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let setup = Setup::new(origin.address, &authority.pem());
    let process = setup.start(WITH_CA).await;
    let person = setup.person(Some(&authority.client()));
    let not_x509 = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (broken, fault) in [
        ("", "ca.crt contains no certificate"),
        (
            not_x509,
            "ca.crt cannot be used to verify \
                                                                                clients",
        ),
    ] {
        setup.put("ca.crt", broken);
        setup.reload(422, fault).await;
        assert_eq!(person.connect(setup.udp, "localhost").await.get("/").await.status, 200);
    }
    setup.put("ca.crt", &authority.pem());
    setup.write(&format!("{WITH_CA}\ncrl = \"ca.crl\""));
    setup.reload(422, "ca.crl: ").await;
    let revoked = authority.issue(|parameters| parameters.serial_number = Some(7.into()));
    let revoked = setup.person(Some(&revoked));
    assert_eq!(revoked.connect(setup.udp, "localhost").await.get("/").await.status, 200);

    setup.put("ca.crl", &authority.crl(&[]));
    setup.reload(200, "").await;
    assert_eq!(revoked.connect(setup.udp, "localhost").await.get("/").await.status, 200);
    setup.put("ca.crl", &authority.crl(&[7]));
    process.await_stderr("renewed, certificates: 1");
    assert_eq!(revoked.refused(setup.udp, "localhost").await, CERTIFICATE_REVOKED);
}

#[tokio::test]
async fn a_reload_of_the_policy_holds_for_tickets_and_open_connections_too() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let setup = Setup::new(origin.address, &authority.pem());
    let process = setup.start("").await;
    let (anonymous, known) = (setup.person(None), setup.person(Some(&authority.client())));
    let before = anonymous.connect(setup.udp, "localhost").await;
    for person in [&anonymous, &known] {
        assert_eq!(person.connect(setup.udp, "localhost").await.get("/").await.status, 200);
        assert_eq!(person.asked(), 0);
    }

    // Both have tickets now, which resume nothing where a certificate is requested.
    setup.write(WITH_CA);
    setup.reload(200, "client_certificates.verify: none → required\n").await;
    assert_eq!(before.get("/").await.status, 421, "another connection would be asked");
    assert_eq!(anonymous.refused(setup.udp, "localhost").await, CERTIFICATE_REQUIRED);
    let strict = known.connect(setup.udp, "localhost").await;
    assert_eq!(strict.get("/").await.status, 200);
    assert_eq!((anonymous.asked(), known.asked()), (1, 1));

    // One with a certificate that is no longer requested stays open, and the certificate is not forwarded any more.
    let told = seen(&origin.seen(), "client-cert").len();
    assert_eq!(told, 1);
    setup.write("");
    setup.reload(200, "client_certificates.ca: ").await;
    for client in [&strict, &before] {
        assert_eq!(client.get("/").await.status, 200);
    }
    assert_eq!(anonymous.connect(setup.udp, "localhost").await.get("/").await.status, 200);
    assert_eq!(seen(&origin.seen(), "client-cert").len(), told);
    drop(process);
}

#[tokio::test]
async fn litequic_get_shows_a_certificate_and_says_why_it_is_refused() {
    let (authority, origin) = (Authority::new("root"), origin::demo().await);
    let setup = Setup::new(origin, &authority.pem());
    let _process = setup.start(WITH_CA).await;
    let put = |name: &str, shown: &Shown| {
        let certificate = shown.chain[0].clone();
        let pem = BASE64_STANDARD.encode(certificate);
        setup.put(&format!("{name}.crt"), &format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n"));
        setup.put(&format!("{name}.key"), &shown.key);
    };
    put("client", &authority.client());
    put("stranger", &Authority::new("stranger").client());
    let url = format!("https://localhost:{}/status/204", setup.udp.port());
    let resolve = format!("localhost:{}:127.0.0.1", setup.udp.port());
    let (ca, path) = (setup.path("tls.crt"), |name: &str| setup.path(name));
    // The origin is on this thread.
    let get = async |more: &[String]| {
        let mut arguments = vec!["get".to_owned(), "--ca".into(), ca.clone(), "--resolve".into(), resolve.clone()];
        arguments.extend_from_slice(more);
        arguments.push(url.clone());
        spawn_blocking(|| litequic(arguments)).await.unwrap()
    };
    let shown = |name: &str| {
        let (cert, key) = (path(&format!("{name}.crt")), path(&format!("{name}.key")));
        ["--client-cert".to_owned(), cert, "--client-key".into(), key]
    };
    assert!(get(&shown("client")).await.success().starts_with("HTTP/3 204"));
    for (shown, why) in [(&[][..], "certificate_required"), (&shown("stranger")[..], "unknown_ca")] {
        let refused = get(shown).await;
        assert_eq!(refused.code, Some(76), "{}", refused.stderr);
        assert!(refused.stderr.to_lowercase().contains(why), "{why}: {}", refused.stderr);
    }
    assert_eq!(get(&shown("missing")).await.code, Some(78));
    assert_eq!(get(&shown("client")[..2]).await.code, Some(64));
}
