//! Firefox, headless, driven by Marionette, its own remote protocol: JSON over a TCP connection to its process. It accepts the
//! lab's certificate by an exception for the server's address, and reaches the server by that address: `localhost` is
//! its own loopback whatever the namespace has.

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::{Value as Json, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// For Firefox to start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// For a page or a script. An answer that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(120);
/// For Firefox to end after the request to.
const END: Duration = Duration::from_secs(10);
/// The time between two looks whether it has started or ended.
const LOOK: Duration = Duration::from_millis(10);
/// The file of a profile that has the port at which Marionette listens.
const PORT: &str = "MarionetteActivePort";

/// The protocols that Firefox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocols {
    /// HTTP/3, as if the server's Alt-Svc were known, and those below.
    Http3,
    /// HTTP/2, or HTTP/1.1 where there is no other.
    Http2,
    Http1,
}

/// Preferences of every profile: Firefox requests nothing by itself, and asks nobody.
const PREFERENCES: [(&str, &str); 26] = [
    ("app.normandy.enabled", "false"),
    ("app.update.disabledForTesting", "true"),
    ("browser.aboutwelcome.enabled", "false"),
    ("browser.download.always_ask_before_handling_new_types", "false"),
    ("browser.download.alwaysOpenPanel", "false"),
    ("browser.download.folderList", "2"),
    ("browser.download.useDownloadDir", "true"),
    ("browser.safebrowsing.downloads.enabled", "false"),
    ("browser.safebrowsing.malware.enabled", "false"),
    ("browser.safebrowsing.phishing.enabled", "false"),
    ("browser.shell.checkDefaultBrowser", "false"),
    ("browser.startup.page", "0"),
    ("datareporting.healthreport.uploadEnabled", "false"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    ("extensions.getAddons.cache.enabled", "false"),
    // Any free port.
    ("marionette.port", "0"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
    // An authority or an exception that is not built in would disable HTTP/3.
    ("network.http.http3.disable_when_third_party_roots_found", "false"),
    // Without a default route it takes itself for offline.
    ("network.manage-offline-status", "false"),
    // Whatever the environment says.
    ("network.proxy.type", "0"),
    ("network.trr.mode", "5"),
    // Times of pages as precise as Chromium's.
    ("privacy.reduceTimerPrecision", "false"),
    ("services.settings.server", "\"http://127.0.0.1:9/\""),
    ("toolkit.telemetry.reportingpolicy.firstRun", "false"),
    ("toolkit.telemetry.server", "\"\""),
];

/// Accepts a certificate (base64) at an address.
const ACCEPT: &str = "const [certificate, host, port] = arguments;
    const database = Cc['@mozilla.org/security/x509certdb;1'].getService(Ci.nsIX509CertDB);
    const exceptions = Cc['@mozilla.org/security/certoverride;1'].getService(Ci.nsICertOverrideService);
    exceptions.rememberValidityOverride(host, port, {}, database.constructX509FromBase64(certificate), true);";
/// CPU time of all processes so far, in seconds.
const CPU: &str = "const done = arguments[0];
    ChromeUtils.requestProcInfo().then(all =>
        done(all.children.reduce((sum, child) => sum + child.cpuTime, all.cpuTime) / 1e9));";
/// Chooses the folder of downloads.
const DOWNLOADS: &str = "Services.prefs.setStringPref('browser.download.dir', arguments[0]);";

/// Where a script runs.
#[derive(Debug, Clone, Copy)]
enum Context {
    /// In the page.
    Content,
    /// In the browser's own process, with its privileges.
    Chrome,
}

/// Firefox with one page, ended when it is dropped.
pub(crate) struct Firefox {
    child: Child,
    marionette: BufReader<TcpStream>,
    next: u64,
    server: SocketAddr,
    _profile: tempfile::TempDir,
}

impl Firefox {
    /// Starts Firefox for a server with a certificate (PEM), in the thread's network namespace. Its network stack writes a
    /// log of what it does to `log`.
    pub(crate) fn start(
        program: &Path,
        server: SocketAddr,
        certificate: &Path,
        protocols: Protocols,
        log: Option<&Path>,
    ) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        fs::write(profile.path().join("user.js"), preferences(server, protocols))?;
        let mut command = Command::new(program);
        // Caches go to a home that is its own.
        command.env("HOME", profile.path()).args(["--headless", "--no-remote", "--marionette"]);
        command.args(["--remote-allow-system-access", "--profile"]).arg(profile.path()).arg("about:blank");
        if let Some(log) = log {
            command.env("MOZ_LOG", "timestamp,sync,nsHttp:5,nsSocketTransport:5,neqo_http3::*:5");
            command.env("MOZ_LOG_FILE", log);
        }
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let stream = match connect(&mut child, &profile.path().join(PORT)) {
            Ok(stream) => stream,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        stream.set_read_timeout(Some(PATIENCE + END))?;
        let marionette = BufReader::new(stream);
        let mut firefox = Self { child, marionette, next: 0, server, _profile: profile };
        // Marionette introduces itself.
        firefox.message()?;
        // Scripts begin while the page loads: what they observe is kept from the start.
        let wanted = json!({ "alwaysMatch": { "pageLoadStrategy": "eager" } });
        firefox.call("WebDriver:NewSession", &json!({ "capabilities": wanted }))?;
        let patience = u64::try_from(PATIENCE.as_millis())?;
        firefox.call("WebDriver:SetTimeouts", &json!({ "pageLoad": patience, "script": patience }))?;
        let certificate = base64_of(&fs::read_to_string(certificate)?);
        firefox.run(Context::Chrome, ACCEPT, &json!([certificate, server.ip(), server.port()]))?;
        Ok(firefox)
    }

    /// Loads the server's page at `path`. Returns what the promise `measure` is in the page, behind the statements `begin`,
    /// and the CPU time of all of Firefox's processes, in seconds.
    pub(crate) fn load(&mut self, path: &str, begin: &str, measure: &str) -> Result<(Json, f64)> {
        let before = self.cpu()?;
        self.open(path)?;
        let script = format!("{begin}\nconst done = arguments[0];\n{measure}.then(done);");
        let measured = self.wait(Context::Content, &script)?;
        Ok((measured, self.cpu()? - before))
    }

    /// Opens the server's page at `path`.
    pub(crate) fn open(&mut self, path: &str) -> Result<()> {
        let url = format!("https://{}{path}", self.server);
        self.call("WebDriver:Navigate", &json!({ "url": url })).map(drop)
    }

    /// The protocol of the page.
    pub(crate) fn protocol(&mut self) -> Result<String> {
        let script = "return performance.getEntriesByType('navigation')[0].nextHopProtocol";
        let protocol = self.run(Context::Content, script, &json!([]))?;
        Ok(protocol.as_str().context("a page without a protocol")?.to_owned())
    }

    /// Begins to download what the server has at `path` into a folder, where it is called `name` once it is whole; until
    /// then an empty file has that name.
    pub(crate) fn download(&mut self, path: &str, folder: &Path, name: &str) -> Result<()> {
        self.run(Context::Chrome, DOWNLOADS, &json!([folder.display().to_string()]))?;
        let link = json!({ "href": path, "download": name });
        let script = "Object.assign(document.createElement('a'), arguments[0]).click()";
        self.run(Context::Content, script, &json!([link])).map(drop)
    }

    /// Whether its process is gone.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Has it end by itself: only then are its processes' CPU times those of the client, and its log whole.
    pub(crate) fn end(&mut self) -> Result<()> {
        // It may be gone before it answers.
        let _ = self.call("Marionette:Quit", &json!({ "flags": ["eForceQuit"] }));
        let end = Instant::now() + END;
        while Instant::now() < end && !self.has_ended()? {
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// CPU time of its processes so far, in seconds.
    fn cpu(&mut self) -> Result<f64> {
        self.wait(Context::Chrome, CPU)?.as_f64().context("no CPU times")
    }

    /// What a script returns.
    fn run(&mut self, context: Context, script: &str, arguments: &Json) -> Result<Json> {
        self.execute("WebDriver:ExecuteScript", context, script, arguments)
    }

    /// What a script passes to the function that is its argument.
    fn wait(&mut self, context: Context, script: &str) -> Result<Json> {
        self.execute("WebDriver:ExecuteAsyncScript", context, script, &json!([]))
    }

    fn execute(&mut self, method: &str, context: Context, script: &str, arguments: &Json) -> Result<Json> {
        let name = match context {
            Context::Content => "content",
            Context::Chrome => "chrome",
        };
        self.call("Marionette:SetContext", &json!({ "value": name }))?;
        let answer = self.call(method, &json!({ "script": script, "args": arguments }))?;
        self.call("Marionette:SetContext", &json!({ "value": "content" }))?;
        Ok(answer.get("value").cloned().unwrap_or_default())
    }

    /// A command's result.
    fn call(&mut self, method: &str, parameters: &Json) -> Result<Json> {
        self.next += 1;
        let command = json!([0, self.next, method, parameters]).to_string();
        write!(self.marionette.get_mut(), "{}:{command}", command.len())?;
        loop {
            let message = self.message().with_context(|| method.to_owned())?;
            let (number, error, result) = match message.as_array().map(Vec::as_slice) {
                Some([_, number, error, result]) => (number, error, result),
                _ => bail!("{method}: {message} is no answer"),
            };
            if *number != self.next {
                continue;
            }
            if !error.is_null() {
                let part = |name: &str| error.get(name).and_then(Json::as_str).unwrap_or_default();
                bail!("{method}: {}: {}", part("error"), part("message"));
            }
            return Ok(result.clone());
        }
    }

    /// The next message: its length in decimal, a colon, JSON.
    fn message(&mut self) -> Result<Json> {
        let mut length = Vec::new();
        self.marionette.read_until(b':', &mut length)?;
        if length.pop() != Some(b':') {
            bail!("Firefox ended");
        }
        let length: usize = String::from_utf8(length)?.parse().context("the length of a message")?;
        let mut message = vec![0; length];
        self.marionette.read_exact(&mut message)?;
        serde_json::from_slice(&message).context("Firefox's message")
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        // Its other processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to Marionette once the profile has its port.
fn connect(child: &mut Child, port: &Path) -> Result<TcpStream> {
    let end = Instant::now() + START;
    while Instant::now() < end {
        if let Some(port) = fs::read_to_string(port).ok().and_then(|text| text.trim().parse().ok()) {
            return TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
                .context("cannot reach Marionette");
        }
        if let Some(status) = child.try_wait()? {
            bail!("Firefox ended before it listened: {status}");
        }
        thread::sleep(LOOK);
    }
    bail!("Firefox does not listen after {} s", START.as_secs())
}

/// The preferences of a profile, as `user.js` has them.
fn preferences(server: SocketAddr, protocols: Protocols) -> String {
    let mut all = PREFERENCES.map(|(name, value)| (name, value.to_owned())).to_vec();
    all.push(("network.http.http3.enable", (protocols == Protocols::Http3).to_string()));
    all.push(("network.http.http2.enabled", (protocols != Protocols::Http1).to_string()));
    if protocols == Protocols::Http3 {
        let mapping = format!("\"{};h3=:{}\"", server.ip(), server.port());
        all.push(("network.http.http3.alt-svc-mapping-for-testing", mapping));
    }
    all.iter().map(|(name, value)| format!("user_pref(\"{name}\", {value});\n")).collect()
}

/// The first certificate of a PEM file, in base64.
fn base64_of(pem: &str) -> String {
    pem.lines()
        .skip_while(|line| !line.starts_with("-----BEGIN"))
        .skip(1)
        .take_while(|line| !line.starts_with('-'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_3_is_known_of_the_server_where_it_is_wanted() {
        let server = ([192, 0, 2, 1], 8443).into();
        let mapping = "user_pref(\"network.http.http3.alt-svc-mapping-for-testing\", \"192.0.2.1;h3=:8443\");\n";
        assert!(preferences(server, Protocols::Http3).contains(mapping));
        let http1 = preferences(server, Protocols::Http1);
        assert!(!http1.contains(mapping) && http1.contains("(\"network.http.http2.enabled\", false)"), "{http1}");
    }

    #[test]
    fn a_certificate_is_the_first_of_its_file() {
        let pem =
            "text\n-----BEGIN CERTIFICATE-----\nAB\nCD\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nEF\n";
        assert_eq!(base64_of(pem), "ABCD");
    }
}
