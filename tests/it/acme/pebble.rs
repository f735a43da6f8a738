//! Pebble, Let's Encrypt's CA for tests, with a name server that knows 127.0.0.1 alone, and a litequic that obtains
//! certificates from it.

use crate::support::prelude::*;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value as Json, json};
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Ports of the litequic under test, where the CA validates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) https: u16,
    pub(super) http: u16,
}

impl Ports {
    pub(super) fn free() -> Self {
        Self { https: free_tcp_port(), http: free_tcp_port() }
    }
}

/// A CA.
pub(super) struct Pebble {
    process: Process,
    _names: Process,
    folder: TempDir,
    pub(super) port: u16,
    management: u16,
    dns: u16,
    /// Port of the name server's management, over plain HTTP.
    pub(super) names: u16,
    /// The directory's own certificate, in PEM.
    pub(super) cert_pem: String,
    program: PathBuf,
}

/// Pebble with `variables`, and a site that it reaches; none where there is no Pebble.
pub(super) async fn pebble_and_site(variables: &[(&str, &str)]) -> Option<(Pebble, Site)> {
    let ports = Ports::free();
    Some((Pebble::start(ports, variables).await?, Site::new(ports).await))
}

impl Pebble {
    /// Starts one that validates at `ports`, with variables of its environment. `None` where there is none.
    pub(super) async fn start(ports: Ports, variables: &[(&str, &str)]) -> Option<Self> {
        Self::start_with(ports, variables, "").await
    }

    /// The same, with `more` in its configuration.
    pub(super) async fn start_with(ports: Ports, variables: &[(&str, &str)], more: &str) -> Option<Self> {
        let (program, names) = (needs::program("pebble")?, needs::program("pebble-challtestsrv")?);
        let folder = tempfile::tempdir().unwrap();
        let (cert_pem, key_pem) = long_lived();
        let [port, management, dns, names_management] = [(); 4].map(|()| free_tcp_port());
        fs::write(folder.path().join("ca.pem"), &cert_pem).unwrap();
        fs::write(folder.path().join("ca.key"), key_pem).unwrap();
        let Ports { https, http } = ports;
        let config = format!(
            r#"{{ "pebble": {{
                "listenAddress": "127.0.0.1:{port}", "managementListenAddress": "127.0.0.1:{management}",
                "certificate": "ca.pem", "privateKey": "ca.key", "httpPort": {http}, "tlsPort": {https},
                "domainBlocklist": ["blocked.test"], "retryAfter": {{ "authz": 1, "order": 1 }}, {more}
                "profiles": {{ "default": {{ "description": "ninety days", "validityPeriod": 7776000 }},
                    "shortlived": {{ "description": "six days", "validityPeriod": 518400 }} }}
            }} }}"#
        );
        fs::write(folder.path().join("config.json"), config).unwrap();
        let mut command = Command::new(names);
        let (dns_server, at) = (format!("127.0.0.1:{dns}"), format!("127.0.0.1:{names_management}"));
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""]);
        command.args(["-dnsserver", &dns_server, "-management", &at]);
        let names = Process::spawn(command);
        let process = Self::spawn(&program, folder.path(), dns, variables);
        let pebble =
            Self { process, _names: names, folder, port, management, dns, names: names_management, cert_pem, program };
        pebble.await_start().await;
        Some(pebble)
    }

    fn spawn(program: &Path, folder: &Path, dns: u16, variables: &[(&str, &str)]) -> Process {
        let mut command = Command::new(program);
        command.args(["-config", "config.json", "-dnsserver", &format!("127.0.0.1:{dns}")]).current_dir(folder);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0").env("PEBBLE_AUTHZREUSE", "0");
        command.envs(variables.iter().copied());
        Process::spawn(command)
    }

    /// Starts it anew: it has forgotten every account and order.
    pub(super) async fn restart(&mut self, variables: &[(&str, &str)]) {
        self.process = Self::spawn(&self.program, self.folder.path(), self.dns, variables);
        self.await_start().await;
    }

    async fn await_start(&self) {
        until("Pebble's start", async || {
            self.try_get(self.port, "/dir").await.is_ok() && self.try_get(self.management, "/roots/0").await.is_ok()
        })
        .await;
    }

    /// The root of its certificates, in PEM.
    pub(super) async fn root(&self) -> String {
        let answer = self.try_get(self.management, "/roots/0").await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    pub(super) fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// The file with which the directory's own certificate is trusted.
    pub(super) fn trusted(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Orders that it has got since its start.
    pub(super) fn orders(&self) -> usize {
        self.log().matches("Added order").count()
    }

    /// What it logged.
    pub(super) fn log(&self) -> String {
        self.process.stdout()
    }

    async fn try_get(&self, port: u16, path: &str) -> std::io::Result<String> {
        self.request(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).await
    }

    /// Has it answer requests for renewal information about the certificate in `pem`.
    pub(super) async fn set_renewal_info(&self, pem: &str, answer: &str) {
        const END: &str = "-----END CERTIFICATE-----\n";
        let leaf = format!("{}{END}", pem.split_once(END).unwrap().0);
        let order = json!({ "Certificate": leaf, "ARIResponse": answer });
        let answered = self.manage("/set-renewal-info/", &order.to_string()).await;
        assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    }

    /// Posts `body` to its management interface.
    async fn manage(&self, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: litequic-test\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        self.request(self.management, &(head + body)).await.unwrap()
    }

    async fn request(&self, port: u16, request: &str) -> std::io::Result<String> {
        use tokio::io::AsyncReadExt;
        let config = tls::config(&self.cert_pem, &["http/1.1"]);
        let mut tls = Tls::connect((Ipv4Addr::LOCALHOST, port).into(), "localhost", config).await?;
        tls.say(request).await;
        let mut answer = Vec::new();
        // Go closes without close_notify now and then.
        let _ = within("Pebble's answer", tls.stream.read_to_end(&mut answer)).await;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A certificate for this machine that is valid whatever the clock says, and its key.
pub(super) fn long_lived() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    parameters.not_before = date_time_ymd(2020, 1, 1);
    parameters.not_after = date_time_ymd(2090, 1, 1);
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A folder with a configuration, and what it is made of.
pub(super) struct Site {
    pub(super) folder: TempDir,
    pub(super) ports: Ports,
    origin: SocketAddr,
}

impl Site {
    /// Before the demo's origin.
    pub(super) async fn new(ports: Ports) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), ports, origin: origin::demo().await }
    }

    /// A second process' site, which has the folder of certificates of this one, at ports of its own.
    pub(super) async fn beside(&self, ports: Ports) -> Self {
        let site = Self::new(ports).await;
        fs::create_dir_all(self.file("state")).unwrap();
        fs::set_permissions(self.file("state"), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(self.file("state"), site.file("state")).unwrap();
        site
    }

    /// What `litequic ctl` with `arguments` prints.
    pub(super) fn ctl(&self, arguments: &[&str]) -> Ended {
        let socket = self.file("admin.sock").display().to_string();
        Process::start([&["ctl"], arguments, &["--admin", &socket]].concat()).end()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a configuration whose table `[[acme]]` has `hosts` and `more`.
    pub(super) fn write(&self, pebble: &Pebble, hosts: &str, more: &str) {
        self.write_for(&pebble.directory(), &pebble.trusted(), hosts, more);
    }

    /// Writes such a configuration for the directory of another server, which `ca` trusts.
    pub(super) fn write_for(&self, directory: &str, ca: &Path, hosts: &str, more: &str) {
        let Ports { https, http } = self.ports;
        let config = format!(
            "{}\n[listen]\nudp = \"127.0.0.1:{https}\"\nredirect = \"127.0.0.1:{http}\"\nworkers = 2\n\
             [admin]\nsocket = \"admin.sock\"\nhandover = \"handover.sock\"\n[log]\nformat = \"json\"\n[origin]\nurl = \"http://{}\"\n\
             [[acme]]\nhosts = [{hosts}]\nfolder = \"state\"\nterms_agreed = true\ndirectory = \"{directory}\"\nca = {ca:?}\n{more}\n",
            io_key(),
            self.origin,
        );
        fs::write(self.file("litequic.toml"), config).unwrap();
    }

    /// Writes a DNS hook that sets and removes records at Pebble's name server by `curl`, and runs `cleanup` after the
    /// latter. Its calls are in the file `seen`.
    pub(super) fn write_hook(&self, pebble: &Pebble, curl: &Path, cleanup: &str) -> String {
        let (seen, curl, names) = (self.file("seen"), curl.display(), pebble.names);
        let hook = format!(
            "#!/bin/sh\necho \"$@\" >>{}\ncase $1 in present) what=set ;; *) what=clear ;; esac\n\
             {curl} --silent --data \"{{\\\"host\\\": \\\"$2\\\", \\\"value\\\": \\\"$3\\\"}}\" http://127.0.0.1:{names}/$what-txt || exit 1\n\
             if [ $1 = cleanup ]; then {cleanup}; fi\n",
            seen.display()
        );
        fs::write(self.file("hook"), hook).unwrap();
        fs::set_permissions(self.file("hook"), fs::Permissions::from_mode(0o755)).unwrap();
        format!("challenges = [\"dns-01\"]\ndns_command = [{:?}]\n[laboratory]\ndns_wait = \"0s\"", self.file("hook"))
    }

    /// What `litequic ctl certificates --json` shows.
    pub(super) fn certificates(&self) -> Json {
        serde_json::from_str(&self.ctl(&["certificates", "--json"]).success()).unwrap()
    }

    /// Waits until a certificate of `host` is stored, which it is after it is served.
    pub(super) async fn await_stored(&self, host: &str) {
        until("the plan", async || self.plan(host)["directory"] != "").await;
    }

    /// The plan that is stored for `host`.
    pub(super) fn plan(&self, host: &str) -> Json {
        serde_json::from_str(&fs::read_to_string(self.file(&format!("state/{host}.json"))).unwrap()).unwrap()
    }

    /// Has the next process ask for renewal information.
    pub(super) fn forget_renewal_info(&self, host: &str) {
        let mut plan = self.plan(host);
        plan["renewal"] = Json::Null;
        fs::write(self.file(&format!("state/{host}.json")), plan.to_string()).unwrap();
    }

    pub(super) fn start(&self) -> Process {
        self.start_with(&[])
    }

    /// With variables of its environment.
    pub(super) fn start_with(&self, variables: &[(&str, &str)]) -> Process {
        let mut command = self.command();
        command.envs(variables.iter().copied());
        Process::spawn(command)
    }

    pub(super) fn command(&self) -> Command {
        command(["run".as_ref(), self.file("litequic.toml").as_os_str()])
    }

    pub(super) fn https(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.https).into()
    }

    /// Whether clients of `name` that trust `root` are served over QUIC; and over TCP.
    pub(super) async fn is_served(&self, name: &str, root: &str) -> [bool; 2] {
        let quic = Quic::try_connect(self.https(), name, root, quinn::TransportConfig::default()).await;
        let tcp = Tls::connect(self.https(), name, tls::config(root, &["http/1.1"])).await;
        [quic.is_ok(), tcp.is_ok()]
    }

    /// Waits until clients of `name` are served over both.
    pub(super) async fn await_served(&self, name: &str, root: &str) {
        within("a certificate", async {
            while self.is_served(name, root).await != [true; 2] {
                sleep(LOOK_AGAIN).await;
            }
        })
        .await;
    }

    /// An answer of the redirect listener to a request for `path` of `host`.
    pub(super) async fn plain(&self, host: &str, path: &str) -> String {
        use tokio::{
            io::{AsyncReadExt, AsyncWriteExt},
            net::TcpStream,
        };
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports.http)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
        answer
    }
}
