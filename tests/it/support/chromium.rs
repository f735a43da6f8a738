//! Chromium, headless, held by its DevTools protocol: for pages that run in real time, which `--dump-dom` with its
//! virtual time does not show. Closed with the test.

use super::prelude::*;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value as Json, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Instant,
};
use tempfile::TempDir;

/// For anything that a page is to do on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Json>,
    session: Option<String>,
    next: u64,
    /// Exceptions, and errors in the page's console.
    pub(crate) complaints: Vec<String>,
    /// Responses as the domain `Network` reports them, once it is enabled.
    pub(crate) responses: Vec<Json>,
    _profile: TempDir,
}

impl Browser {
    /// Starts it with `more` arguments. `None` where there is no Chromium: the test is to return then.
    pub(crate) fn start(more: &[String]) -> Option<Self> {
        let chromium = needs::program("chromium")?;
        let profile = tempfile::tempdir().unwrap();
        // --remote-debugging-pipe reads commands at descriptor 3 and answers at 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(chromium)
            // Killed, it leaves its own temporary folders.
            .env("TMPDIR", profile.path())
            // The sandbox does not work as root, nor in many containers; the page is our own.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--remote-debugging-pipe", "--autoplay-policy=no-user-gesture-required", "--mute-audio"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let (sender, messages) = channel();
        let answers = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                // No listener is left once the test is over.
                let _ = sender.send(serde_json::from_slice(&message).unwrap());
            }
        });
        let (complaints, responses) = Default::default();
        let mut browser =
            Self { child, commands, messages, session: None, next: 0, complaints, responses, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Starts it for a server at localhost whose key has the fingerprint `spki`, with `more` arguments: over QUIC alone to
    /// the port `quic`, or over TCP alone.
    pub(crate) fn trusting(spki: &str, quic: Option<u16>, more: &[String]) -> Option<Self> {
        let mut arguments = match quic {
            Some(port) => vec!["--enable-quic".to_owned(), format!("--origin-to-force-quic-on=localhost:{port}")],
            None => vec!["--disable-quic".to_owned()],
        };
        arguments.push(format!("--ignore-certificate-errors-spki-list={spki}"));
        arguments.push("--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND".to_owned());
        Self::start(&[&arguments, more].concat())
    }

    /// Goes to `url`.
    pub(crate) fn open(&mut self, url: &str) {
        let answer = self.call("Page.navigate", &json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
    }

    /// What `expression` is in the page; promises are waited for.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Json {
        let answer = self.try_evaluate(expression);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until `condition` holds in the page, be it the next one.
    pub(crate) fn wait_for(&mut self, condition: &str) {
        let started = Instant::now();
        let wait = format!(
            "new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 50); look(); }})"
        );
        // A page that goes away takes its promises along.
        while self.try_evaluate(&wait)["result"]["value"] != true {
            assert!(started.elapsed() < PATIENCE, "it never was: {condition}");
        }
    }

    /// Presses and releases the key `key` with the Windows virtual key code `code`.
    pub(crate) fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if (kind, key) == ("keyDown", "Enter") {
                event["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Has the page seen in a window of `width` and `height`, by someone who prefers `scheme`: `light` or `dark`.
    pub(crate) fn look(&mut self, (width, height): (u64, u64), scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &scheme);
    }

    /// Writes what is seen of the page to `file`, as PNG.
    pub(crate) fn picture(&mut self, file: &Path) {
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        fs::write(file, BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// Has it end by itself, so that its NetLog is whole.
    pub(crate) fn close(mut self) {
        self.session = None;
        self.call("Browser.close", &json!({}));
        let deadline = Instant::now() + PATIENCE;
        // Its standard output ends with it.
        let ended = loop {
            match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(ended) => break ended,
            }
        };
        assert_eq!(ended, RecvTimeoutError::Disconnected, "the browser does not end");
        self.child.wait().unwrap();
    }

    /// A command's result.
    pub(crate) fn call(&mut self, method: &str, parameters: &Json) -> Json {
        let answer = self.ask(method, parameters);
        assert!(answer["error"].is_null(), "{method} {parameters}: {answer}");
        answer["result"].clone()
    }

    fn try_evaluate(&mut self, expression: &str) -> Json {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        self.ask("Runtime.evaluate", &parameters)["result"].clone()
    }

    fn ask(&mut self, method: &str, parameters: &Json) -> Json {
        self.next += 1;
        let mut command = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self
                .messages
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
                .unwrap_or_else(|_| panic!("the browser does not answer {method} {parameters}"));
            if message["id"] == self.next {
                return message;
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Json) {
        let parameters = &event["params"];
        if event["method"] == "Runtime.exceptionThrown" || parameters["entry"]["level"] == "error" {
            self.complaints.push(parameters.to_string());
        }
        if event["method"] == "Network.responseReceived" {
            self.responses.push(parameters["response"].clone());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Errors say that it has ended; what it started ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
