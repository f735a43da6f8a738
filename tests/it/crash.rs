//! A litequic that was killed and started again: what clients of the first get from the second, with
//! `listen.secret_file` and without. Always the real process.

use crate::support::{
    prelude::*,
    process::litequic,
    raw::{headers, pseudo},
};
use quinn::ConnectionError;
use std::os::unix::fs::PermissionsExt;

/// What a client waits for an answer before it gives up by itself: longer than any test waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client without an answer is watched: it repeats some three times within.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// A directory with a configuration and what it names.
pub(crate) struct Setup {
    directory: tempfile::TempDir,
    made: SelfSigned,
    udp: SocketAddr,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let made = make_self_signed(["localhost"]).unwrap();
        let setup =
            Self { directory: tempfile::tempdir().unwrap(), made, udp: (Ipv4Addr::LOCALHOST, free_udp_port()).into() };
        setup.write("tls.crt", &setup.made.cert_pem);
        setup.write("tls.key", &setup.made.key_pem);
        setup
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn configure(&self, origin: SocketAddr, more: &str) {
        let udp = self.udp;
        let text = format!(
            "{more}\nlisten.udp = \"{udp}\"\norigin.url = \"http://{origin}\"\n[[certificates]]\ncert = \"tls.crt\"\n\
             key = \"tls.key\"\n"
        );
        self.write("litequic.toml", &text);
    }

    pub(crate) async fn start(&self, origin: SocketAddr, more: &str) -> Process {
        self.configure(origin, more);
        let process = Process::start(["run", "--config", &self.path("litequic.toml")]);
        assert_eq!(process.address(), self.udp);
        process
    }

    /// A client that has had an answer.
    pub(crate) async fn client(&self) -> Client {
        let mut transport = quinn::TransportConfig::default();
        transport.max_idle_timeout(Some(PATIENCE.try_into().unwrap()));
        let client = Client::connect(self.udp, &self.made.cert_pem, transport).await;
        assert_eq!(client.get("/status/204").await.status, 204);
        client
    }
}

/// Has `client` send a request again, and returns how its connection ends, if it does within `patience`.
pub(crate) async fn end(client: &Client, patience: Duration) -> Option<ConnectionError> {
    let connection = &client.quic.connection;
    // An error means that what it sent by itself was answered already.
    if let Ok((mut send, _receive)) = connection.open_bi().await {
        let _ = send.write_all(&headers(&pseudo("GET", "/status/204"))).await;
    }
    timeout(patience, connection.closed()).await.ok()
}

#[tokio::test]
async fn a_successor_sends_stateless_resets_for_a_killed_process() {
    let origin = origin::demo().await;
    let setup = Setup::new();
    setup.write("secret", &"0123456789abcdef".repeat(4));
    let secret = "listen.secret_file = \"secret\"";
    for (before, after) in [(1, 1), (4, 1), (1, 4), (2, 3)] {
        let old = setup.start(origin, &format!("{secret}\nlisten.workers = {before}")).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(setup.client().await);
        }
        assert_eq!(old.end_by("KILL").code, None);
        let new = setup.start(origin, &format!("{secret}\nlisten.workers = {after}")).await;
        for client in &clients {
            let end = end(client, DEADLINE).await;
            assert_eq!(end, Some(ConnectionError::Reset), "{before} workers, then {after}");
        }
        setup.client().await;
        drop(new); // killed as well
    }
}

#[tokio::test]
async fn they_learn_so_at_each_of_several_addresses_whatever_their_order() {
    let origin = origin::demo().await;
    let mut setup = Setup::new();
    setup.write("secret", &"0123456789abcdef".repeat(4));
    let addresses = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port())));
    let start = |setup: &Setup, [one, two]: [SocketAddr; 2]| {
        let text = format!(
            "listen.udp = [\"{one}\", \"{two}\"]\nlisten.secret_file = \"secret\"\norigin.url = \"http://{origin}\"\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n"
        );
        setup.write("litequic.toml", &text);
        let process = Process::start(["run", "--config", &setup.path("litequic.toml")]);
        process.address();
        process
    };
    let [one, two] = addresses;
    let old = start(&setup, [one, two]);
    let mut clients = Vec::new();
    for address in addresses {
        setup.udp = address;
        clients.push(setup.client().await);
    }
    old.end_by("KILL");
    let _new = start(&setup, [two, one]);
    for client in &clients {
        assert_eq!(end(client, DEADLINE).await, Some(ConnectionError::Reset));
    }
}

#[tokio::test]
async fn without_a_secret_they_hear_nothing() {
    let origin = origin::demo().await;
    let setup = Setup::new();
    let old = setup.start(origin, "").await;
    let client = setup.client().await;
    old.end_by("KILL");
    let _new = setup.start(origin, "").await;
    assert_eq!(end(&client, SILENCE).await, None);
    setup.client().await;
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_a_fault_of_the_configuration() {
    let setup = Setup::new();
    setup.configure((Ipv4Addr::LOCALHOST, 80).into(), "listen.secret_file = \"secret\"");
    for command in ["check", "run"] {
        let arguments = [command, "--config", &setup.path("litequic.toml")];
        let _ = fs::remove_file(setup.path("secret"));
        let ended = litequic(arguments);
        assert_eq!(ended.code, Some(78));
        assert!(ended.stderr.contains(":1:22: listen.secret_file = \"secret\": cannot read "), "{}", ended.stderr);
        setup.write("secret", "too short");
        let ended = litequic(arguments);
        assert_eq!(ended.code, Some(78));
        assert!(ended.stderr.contains("has 9; expected 32 to 4096 bytes"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_secret_that_others_may_read_is_taken_with_a_warning() {
    let setup = Setup::new();
    let secret = "listen.secret_file = \"secret\"";
    setup.write("secret", &"x".repeat(32));
    let origin = origin::demo().await;
    let process = setup.start(origin, secret).await;
    assert!(!process.stderr().contains("readable by others"), "{}", process.stderr());
    process.end_by("TERM").success();
    fs::set_permissions(setup.path("secret"), fs::Permissions::from_mode(0o644)).unwrap();
    let process = setup.start(origin, secret).await;
    process.await_stderr("listen.secret_file = \\\"secret\\\": the file is readable by others");
    within("an answer", setup.client()).await;
}
