//! Chromium, headless, driven by its DevTools protocol. It accepts the lab's certificate by the fingerprint of its key,
//! and begins with HTTP/3 because an option forces it.

use crate::http::Http;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value as Json, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    net::{IpAddr, SocketAddr},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// For it to end after the request to.
const END: Duration = Duration::from_secs(5);

/// The protocols of a browser.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transport<'a> {
    /// HTTP/3 from the first request on, to these ports of `localhost`, with options of QUIC's handshake.
    Quic(&'a [u16], Option<&'a str>),
    /// HTTP/3 where the servers' Alt-Svc is known: by what an earlier browser has learned, or by responses over HTTP/2.
    Found(Option<&'a Learned>),
    /// HTTP/2, or HTTP/1.1 where there is no other.
    NoQuic,
    Http1,
}

/// What a browser has learned of servers' networks, Alt-Svc and round-trip times, as it keeps them for its next start.
#[derive(Debug, Clone)]
pub(crate) struct Learned(Vec<u8>);

/// Their file in a profile.
const LEARNED: [&str; 2] = ["Default/Network/Network Persistent State", "Default/Network Persistent State"];
/// No server is there. A host to whose ports QUIC is forced may have a certificate whose authority is not one that
/// Chromium comes with, at other ports too.
const NO_PORT: u16 = 9;

/// Where it goes.
pub(crate) struct Origin<'a> {
    pub(crate) address: SocketAddr,
    /// The SHA-256 of the certificate's public key in base64.
    pub(crate) spki: &'a str,
    pub(crate) http: Http,
    /// Options that the browser offers in QUIC's handshake, such as `AFIA`: the server may request fewer ACKs.
    pub(crate) options: Option<&'a str>,
}

/// Waits until the page is there; by what it came.
const LOADED: &str = "new Promise(done => {
    const look = () => {
        const entry = performance.getEntriesByType('navigation')[0];
        if (location.protocol === 'https:' && document.readyState === 'complete' && entry) done(entry.nextHopProtocol);
        else setTimeout(look, 20);
    };
    look();
})";

/// A field by its JSON pointer; null where there is none.
fn field<'a>(json: &'a Json, pointer: &str) -> &'a Json {
    json.pointer(pointer).unwrap_or(&Json::Null)
}

/// A browser with one page, closed when it is dropped.
pub(crate) struct Browser {
    child: Child,
    commands: BufWriter<ChildStdin>,
    messages: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start(program: &Path, origin: &Origin) -> Result<Self> {
        let ports = [origin.address.port()];
        let transport = match origin.http {
            Http::One => Transport::Http1,
            Http::Two => Transport::NoQuic,
            Http::Three => Transport::Quic(&ports, origin.options),
        };
        let mut browser = Self::launch(program, origin.address.ip(), origin.spki, transport, None)?;
        browser.page()?;
        Ok(browser)
    }

    /// Starts a browser for a server at `address`, without a page. Its network stack writes a log of what it does to
    /// `log`.
    pub(crate) fn launch(
        program: &Path,
        address: IpAddr,
        spki: &str,
        transport: Transport,
        log: Option<&Path>,
    ) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        // --remote-debugging-pipe reads commands at descriptor 3 and answers at 4.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(program)
            // Killed, it leaves its own temporary folders.
            .env("TMPDIR", profile.path())
            // The sandbox does not work as root; the page is the lab's own.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--ignore-certificate-errors-spki-list={spki}"))
            .arg(format!("--host-resolver-rules=MAP localhost {address}, MAP * ~NOTFOUND"));
        match transport {
            Transport::Quic(ports, options) => {
                command.args(options.map(|options| format!("--quic-client-connection-options={options}")));
                let origins: Vec<String> = ports.iter().map(|port| format!("localhost:{port}")).collect();
                command.arg("--enable-quic").arg(format!("--origin-to-force-quic-on={}", origins.join(",")));
            }
            Transport::Found(learned) => {
                command.arg("--enable-quic").arg(format!("--origin-to-force-quic-on=localhost:{NO_PORT}"));
                if let Some(Learned(bytes)) = learned {
                    for file in LEARNED.map(|file| profile.path().join(file)) {
                        fs::create_dir_all(file.parent().context("a file without a folder")?)?;
                        fs::write(file, bytes)?;
                    }
                }
            }
            Transport::NoQuic => {
                command.arg("--disable-quic");
            }
            Transport::Http1 => {
                command.args(["--disable-quic", "--disable-http2"]);
            }
        }
        if let Some(log) = log {
            command.arg(format!("--log-net-log={}", log.display()));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let commands = BufWriter::new(child.stdin.take().context("it has no standard input")?);
        let messages = BufReader::new(child.stdout.take().context("it has no standard output")?);
        Ok(Self { child, commands, messages, session: None, next: 0, profile })
    }

    /// Opens an empty page, to which commands go from then on.
    fn page(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": field(&target, "/targetId"), "flatten": true });
        let session = self.call("Target.attachToTarget", &attach)?;
        let session = field(&session, "/sessionId").as_str().context("a page without a session")?.to_owned();
        self.session = Some(session);
        for domain in ["Page", "Runtime"] {
            self.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(())
    }

    /// CPU time of its processes so far, in seconds.
    fn cpu(&mut self) -> Result<f64> {
        let session = self.session.take();
        let processes = self.call("SystemInfo.getProcessInfo", &json!({}));
        self.session = session;
        let processes = processes?;
        let processes = field(&processes, "/processInfo").as_array().context("no CPU times")?;
        Ok(processes.iter().filter_map(|process| field(process, "/cpuTime").as_f64()).sum())
    }

    /// Loads `url`. Returns what `measure` is in the page, in which `begin` ran first, and the CPU time of all of the
    /// browser's processes, in seconds.
    pub(crate) fn load(&mut self, url: &str, begin: &str, measure: &str) -> Result<(Json, f64)> {
        self.page()?;
        let before = self.cpu()?;
        self.call("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": begin }))?;
        let answer = self.call("Page.navigate", &json!({ "url": url }))?;
        if let Some(error) = field(&answer, "/errorText").as_str() {
            bail!("the page does not load: {error}");
        }
        let measured = self.evaluate(measure)?;
        Ok((measured, self.cpu()? - before))
    }

    /// Ends it, and returns what it has learned.
    pub(crate) fn learned(mut self) -> Result<Learned> {
        self.end()?;
        let files = LEARNED.map(|file| self.profile.path().join(file));
        let bytes = files.iter().find_map(|file| fs::read(file).ok()).context("it keeps nothing of servers")?;
        Ok(Learned(bytes))
    }

    /// Opens a page of the origin's, and returns its protocol.
    pub(crate) fn open(&mut self, origin: &Origin, path: &str) -> Result<()> {
        let url = format!("https://localhost:{}{path}", origin.address.port());
        let answer = self.call("Page.navigate", &json!({ "url": url }))?;
        if let Some(error) = field(&answer, "/errorText").as_str() {
            bail!("the page does not load: {error}");
        }
        let wanted = origin.http.alpn();
        let protocol = self.evaluate(LOADED)?;
        if protocol != wanted {
            bail!("Chromium used {protocol} rather than {wanted}");
        }
        Ok(())
    }

    /// What `expression` is in the page; promises are waited for. For how long, the lab decides, which ends this
    /// process.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Json> {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &parameters)?;
        if !field(&answer, "/exceptionDetails").is_null() {
            bail!("the page fails: {}", field(&answer, "/exceptionDetails/exception/description"));
        }
        Ok(field(&answer, "/result/value").clone())
    }

    /// Begins to download `url` of the page's origin into a folder, where it is called `name` once it is whole.
    pub(crate) fn download(&mut self, url: &str, folder: &Path, name: &str) -> Result<()> {
        let page = self.session.take();
        let behaviour = json!({ "behavior": "allow", "downloadPath": folder.display().to_string() });
        self.call("Browser.setDownloadBehavior", &behaviour)?;
        self.session = page;
        let link = json!({ "href": url, "download": name });
        self.evaluate(&format!("Object.assign(document.createElement('a'), {link}).click()"))?;
        Ok(())
    }

    /// Whether its process is gone.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// A command's result.
    fn call(&mut self, method: &str, parameters: &Json) -> Result<Json> {
        self.next += 1;
        let command = match &self.session {
            None => json!({ "id": self.next, "method": method, "params": parameters }),
            Some(session) => {
                json!({ "id": self.next, "method": method, "params": parameters, "sessionId": session })
            }
        };
        write!(self.commands, "{command}\0")?;
        self.commands.flush()?;
        loop {
            let mut message = Vec::new();
            if self.messages.read_until(0, &mut message)? == 0 {
                bail!("Chromium ended before it answered {method}");
            }
            message.pop();
            let message: Json = serde_json::from_slice(&message).context("Chromium's message")?;
            // Others are events.
            if *field(&message, "/id") == self.next {
                let error = field(&message, "/error");
                if !error.is_null() {
                    bail!("{method}: {error}");
                }
                return Ok(field(&message, "/result").clone());
            }
        }
    }

    /// Has it end by itself: only then are its processes' CPU times those of the client.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.session = None;
        // It may be gone before it answers.
        let _ = self.call("Browser.close", &json!({}));
        let end = Instant::now() + END;
        while Instant::now() < end {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // What it started ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
