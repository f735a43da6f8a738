//! A machine of a guide's own: namespaces in which ports 80 and 443, `/etc`, `/run` and `/var` are a test's, so that
//! configurations and commands run as they stand in the document. Ends with the test, and all that runs in it.

use crate::support::{prelude::*, process::litequic_program};
use std::{io::Write, os::unix::fs::symlink};

/// Pebble with its challenges at the ports of the RFC.
const PEBBLE: &str = r#"{ "pebble": {
    "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
    "certificate": "/etc/pebble/tls.crt", "privateKey": "/etc/pebble/tls.key",
    "httpPort": 80, "tlsPort": 443, "retryAfter": { "authz": 1, "order": 1 },
    "profiles": { "default": { "description": "ninety days", "validityPeriod": 7776000 } }
} }"#;

/// Folders that a machine has for itself, above what they hold: changes are gone with it.
const OWN: [&str; 5] = ["/etc", "/run", "/var", "/root", "/usr/local"];

/// Name servers and proxies of the environment, and certificates that programs trust: a guide's commands have none.
const FOREIGN: [&str; 8] = [
    "RUST_LOG",
    "SSLKEYLOGFILE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
];

/// Namespaces, with the process that holds them.
pub(super) struct Machine {
    holder: Process,
    /// Mount points, and a folder for `PATH` with litequic in it.
    folder: tempfile::TempDir,
    /// A file with certificates that curl and litequic trust here.
    trusted: String,
}

impl Machine {
    /// Starts a machine on which `names` are names of 127.0.0.1, and of which `trusted` is the only authority. `None`
    /// where there may be no namespaces: the test is to return then.
    pub(super) fn start(names: &str, trusted: &str) -> Option<Self> {
        let unshare = needs::program("unshare")?;
        needs::program("nsenter")?;
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::create_dir(folder.path().join("own")).unwrap();
        symlink(litequic_program(), bin.join("litequic")).unwrap();
        let mut script = "set -e; mount -t tmpfs tmpfs own\n".to_owned();
        for (number, own) in OWN.iter().enumerate() {
            let (upper, work) = (format!("own/{number}"), format!("own/work{number}"));
            script += &format!(
                "mkdir {upper} {work}\n\
                 mount -t overlay overlay -o lowerdir={own},upperdir={upper},workdir={work} {own}\n"
            );
        }
        script += "ip link set lo up; mount -t proc proc /proc\n\
                   printf '127.0.0.1 localhost %s\\n' \"$1\" >/etc/hosts\n\
                   mkdir -p /etc/litequic /run/litequic /var/log/litequic\n\
                   grep -q ^litequic: /etc/group || printf 'litequic:x:987:\\n' >>/etc/group\n\
                   echo ready; exec sleep infinity";
        let mut command = Command::new(unshare);
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", &script, "sh", names]);
        let holder = Process::spawn({
            command.current_dir(folder.path());
            command
        });
        if !holder.stdout_has("ready") {
            needs::skip(&format!("there may be no namespaces here: {}", holder.stderr()));
            return None;
        }
        let machine = Self { holder, folder, trusted: "/etc/litequic-test-ca.pem".to_owned() };
        machine.write(&machine.trusted, trusted);
        Some(machine)
    }

    /// `sh -e` with `script` in the machine, with `litequic` in `PATH`.
    pub(super) fn command(&self, script: &str) -> Command {
        let own = format!("/proc/{}/ns", self.holder.id());
        let mut command = Command::new("nsenter");
        command
            .args([format!("--net={own}/net"), format!("--mount={own}/mnt"), format!("--pid={own}/pid_for_children")])
            .args(["sh", "-e", "-c", script]);
        for name in FOREIGN {
            command.env_remove(name);
        }
        let path = env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.folder.path().join("bin").display()))
            .env("SSL_CERT_FILE", &self.trusted)
            .env("CURL_CA_BUNDLE", &self.trusted)
            .env("NO_PROXY", "*");
        command
    }

    /// Starts `script`, which goes on beside the test.
    pub(super) fn spawn(&self, script: &str) -> Process {
        Process::spawn(self.command(script))
    }

    /// Runs `script` to its end.
    pub(super) fn end(&self, script: &str) -> Ended {
        self.spawn(script).end()
    }

    /// Runs `script`, which succeeds, and returns its standard output.
    pub(super) fn run(&self, script: &str) -> String {
        self.end(script).success()
    }

    /// Writes the file `path` of the machine, with the folders above it.
    pub(super) fn write(&self, path: &str, text: &str) {
        let mut command = self.command(&format!("mkdir -p \"$(dirname {path})\"; cat >{path}"));
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{path}");
    }

    /// A machine for example.com and www.example.com, with Pebble, whose certificate is the authority that it trusts.
    pub(super) fn with_pebble() -> Option<(Self, Process)> {
        let made = make_self_signed(["localhost"]).unwrap();
        let machine = Self::start("example.com www.example.com", &made.cert_pem)?;
        machine.write("/etc/pebble/tls.crt", &made.cert_pem);
        machine.write("/etc/pebble/tls.key", &made.key_pem);
        machine.write("/etc/pebble/config.json", PEBBLE);
        let pebble =
            machine.spawn("PEBBLE_VA_NOSLEEP=1 PEBBLE_WFE_NONCEREJECT=0 exec pebble -config /etc/pebble/config.json");
        machine.wait("curl --silent --output /dev/null https://localhost:14000/dir");
        Some((machine, pebble))
    }

    /// The same as [`start`](Self::start), with a certificate for `names` in `/etc/litequic` that clients trust here.
    pub(super) fn with_certificate(names: &[&str]) -> Option<Self> {
        let made = make_self_signed(names.iter().copied()).unwrap();
        let machine = Self::start(&names.join(" "), &made.cert_pem)?;
        machine.write("/etc/litequic/tls.crt", &made.cert_pem);
        machine.write("/etc/litequic/tls.key", &made.key_pem);
        Some(machine)
    }

    /// Starts nginx at 127.0.0.1:`port`, which answers each request with a line: `text` with its variables replaced.
    pub(super) fn nginx(&self, port: u16, text: &str) -> Process {
        let location = format!("location / {{ return 200 \"{text}\\n\"; }}");
        let server = format!("server {{ listen 127.0.0.1:{port}; {location} }}");
        self.write("/etc/nginx/nginx.conf", &format!("events {{}}\nhttp {{ {server} }}\n"));
        let nginx = self.spawn("exec nginx -g 'daemon off;'");
        self.wait(&format!("curl --silent --output /dev/null http://127.0.0.1:{port}/"));
        nginx
    }

    /// Starts litequic with the configuration `text` as `/etc/litequic/litequic.toml`, and waits until it serves.
    pub(super) fn litequic(&self, text: &str) -> Process {
        self.write("/etc/litequic/litequic.toml", text);
        let process = self.spawn("exec litequic run --config /etc/litequic/litequic.toml");
        process.address();
        process
    }

    /// Waits until `script` succeeds.
    pub(super) fn wait(&self, script: &str) {
        let script = format!("for n in $(seq 300); do if {script}; then exit; fi; sleep 0.1; done; exit 1");
        self.run(&script);
    }

    /// The process that has the machine's network namespace.
    pub(super) fn id(&self) -> u32 {
        self.holder.id()
    }
}
