//! Chromium, headless, driven by its DevTools protocol: a page's `fetch` reads the body as it comes. Chromium accepts the
//! lab's certificate by the fingerprint of its key, and begins with HTTP/3 because it is told to.

use super::{Arguments, Fetched};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::{
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// For it to end after it was told to.
const END: Duration = Duration::from_secs(5);
/// A page of the origin's, to fetch from: its bytes do not matter, whose it is does.
const PAGE: &str = "/b1000";

pub(super) fn fetch(arguments: &Arguments) -> Result<Fetched> {
    let mut browser = Browser::start(arguments)?;
    let port = arguments.address.port();
    let answer = browser.call("Page.navigate", &json!({ "url": format!("https://localhost:{port}{PAGE}") }))?;
    if let Some(error) = field(&answer, "/errorText").as_str() {
        bail!("the page does not load: {error}");
    }
    let wanted = if arguments.h1 { "http/1.1" } else { "h3" };
    let protocol = browser.evaluate(LOADED)?;
    if protocol != wanted {
        bail!("Chromium used {protocol} rather than {wanted}");
    }
    let setup = json!({
        "url": arguments.url(),
        "cut": arguments.seconds,
        "beginning": arguments.beginning,
    });
    browser.evaluate(&format!("globalThis.run = ({DOWNLOAD})({setup}); true"))?;
    if arguments.beginning.is_some() {
        browser.evaluate("run.begun")?;
        arguments.begun()?;
    }
    let told: Told = serde_json::from_value(browser.evaluate("run.done")?).context("what the page tells")?;
    browser.end()?;
    Ok(Fetched {
        bytes: told.bytes,
        seconds: told.seconds,
        steady: told.steady,
        whole: told.bytes == arguments.bytes && told.crc32 == arguments.expect_hash,
    })
}

/// What the page tells.
#[derive(Deserialize)]
struct Told {
    bytes: u64,
    seconds: f64,
    steady: Option<(u64, f64)>,
    crc32: u32,
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

/// Begins the download: a promise for its beginning, another for its end.
const DOWNLOAD: &str = "({ url, cut, beginning }) => {
    const table = new Uint32Array(256).map((_, byte) => {
        for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
        return byte;
    });
    let say;
    const begun = new Promise(done => { say = done; });
    const done = (async () => {
        const answer = await fetch(url, { cache: 'no-store' });
        if (!answer.ok) throw new Error('status ' + answer.status);
        const reader = answer.body.getReader();
        let bytes = 0, crc = -1, first = null, seconds = 0, mark = null;
        for (;;) {
            const { done, value } = await reader.read();
            if (done) break;
            const now = performance.now();
            if (first === null) first = now;
            const since = (now - first) / 1000;
            if (cut !== null && since >= cut) { seconds = cut; reader.cancel(); break; }
            if (beginning !== null && mark === null && since >= beginning) { mark = [bytes, since]; say(true); }
            if (cut === null) for (let at = 0; at < value.length; at++) crc = table[(crc ^ value[at]) & 255] ^ (crc >>> 8);
            bytes += value.length;
            seconds = since;
        }
        say(true);
        return { bytes, seconds, crc32: ~crc >>> 0, steady: mark && [bytes - mark[0], seconds - mark[1]] };
    })();
    done.catch(() => say(true));
    return { begun, done };
}";

/// A field by its JSON pointer; null where there is none.
fn field<'a>(json: &'a Json, pointer: &str) -> &'a Json {
    json.pointer(pointer).unwrap_or(&Json::Null)
}

/// A browser with one page, closed when it is dropped.
struct Browser {
    child: Child,
    commands: BufWriter<ChildStdin>,
    messages: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start(arguments: &Arguments) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let (port, address) = (arguments.address.port(), arguments.address.ip());
        // --remote-debugging-pipe reads commands at descriptor 3 and answers at 4.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(&arguments.program)
            // The sandbox does not work as root; the page is the lab's own.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--ignore-certificate-errors-spki-list={}", arguments.spki))
            .arg(format!("--host-resolver-rules=MAP localhost {address}, MAP * ~NOTFOUND"));
        if arguments.h1 {
            command.arg("--disable-quic");
        } else {
            command.arg("--enable-quic").arg(format!("--origin-to-force-quic-on=localhost:{port}"));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let commands = BufWriter::new(child.stdin.take().context("it has no standard input")?);
        let messages = BufReader::new(child.stdout.take().context("it has no standard output")?);
        let mut browser = Self { child, commands, messages, session: None, next: 0, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": field(&target, "/targetId"), "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach)?;
        browser.session = field(&session, "/sessionId").as_str().map(str::to_owned);
        for domain in ["Page", "Runtime"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// What `expression` is in the page; promises are waited for. For how long, the lab decides, which ends this process.
    fn evaluate(&mut self, expression: &str) -> Result<Json> {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &parameters)?;
        if !field(&answer, "/exceptionDetails").is_null() {
            bail!("the page fails: {}", field(&answer, "/exceptionDetails/exception/description"));
        }
        Ok(field(&answer, "/result/value").clone())
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
    fn end(&mut self) -> Result<()> {
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
