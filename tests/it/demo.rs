//! `demo/run.sh`: nginx, two litequic and the page with the video, seen in a real browser. The same by compose, where
//! it runs already: `LITEQUIC_DEMO=compose` in the environment.

use crate::support::{chromium::Browser, prelude::*, process::litequic_program};
use serde_json::json;
use std::{collections::BTreeSet, time::Instant};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/run.sh");
const CHROMIUM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/chromium.sh");
/// Making the video and fetching dash.js, on a machine that does much else.
const MAKING: Duration = Duration::from_secs(300);
/// litequic drains.
const ENDING: Duration = Duration::from_secs(60);
/// A video that stalls is watched again.
const ATTEMPTS: usize = 4;
/// Segments of two seconds that the video has.
const SEGMENTS: u16 = 12;

/// The demo, which ends with the test.
struct Demo {
    /// `run.sh`; compose has been started before.
    process: Option<Process>,
    litequic: u16,
    plain: u16,
    nginx: u16,
}

impl Demo {
    /// `None` where a program is missing: the test is to return then.
    fn start() -> Option<Self> {
        if env::var_os("LITEQUIC_DEMO").is_some() {
            return Some(Self { process: None, litequic: 8443, plain: 8444, nginx: 8445 });
        }
        for program in ["nginx", "ffmpeg", "npm", "openssl"] {
            needs::program(program)?;
        }
        let [litequic, plain] = [free_udp_port(), free_udp_port()];
        let [nginx, litequic_metrics, plain_metrics] = [free_tcp_port(), free_tcp_port(), free_tcp_port()];
        let [litequic_admin, plain_admin] = [free_tcp_port(), free_tcp_port()];
        let mut command = Command::new(RUN);
        command
            .env("LITEQUIC", litequic_program())
            .env("LENGTH", (2 * SEGMENTS).to_string())
            .env("LITEQUIC_PORT", litequic.to_string())
            .env("PLAIN_PORT", plain.to_string())
            .env("NGINX_PORT", nginx.to_string())
            .env("LITEQUIC_METRICS", format!("127.0.0.1:{litequic_metrics}"))
            .env("PLAIN_METRICS", format!("127.0.0.1:{plain_metrics}"))
            .env("LITEQUIC_ADMIN", format!("127.0.0.1:{litequic_admin}"))
            .env("PLAIN_ADMIN", format!("127.0.0.1:{plain_admin}"));
        let process = Process::spawn(command);
        process.await_stdout_within(MAKING, "Ctrl-C ends the demo.");
        Some(Self { process: Some(process), litequic, plain, nginx })
    }

    /// The options that `chromium.sh` starts Chromium with, but for the profile; no other host can be reached.
    fn arguments(&self) -> Vec<String> {
        let mut command = Command::new(CHROMIUM);
        command
            .env("CHROMIUM", "echo")
            .env("LITEQUIC_PORT", self.litequic.to_string())
            .env("PLAIN_PORT", self.plain.to_string())
            .env("NGINX_PORT", self.nginx.to_string());
        let told = Process::spawn(command).end().success();
        let (options, rules) = told.split_once(" --host-resolver-rules=").unwrap();
        let (rules, _) = rules.split_once(" https://").unwrap();
        let is_proxied = self.process.is_none() && cfg!(target_os = "linux") && rules.contains("127.0.0.1");
        assert!(!is_proxied, "chromium.sh finds no container, and docker-proxy loses datagrams: set DOCKER_HOST");
        let options = options.split_whitespace().filter(|option| !option.starts_with("--user-data-dir"));
        options.map(Into::into).chain([format!("--host-resolver-rules={rules}, MAP * ~NOTFOUND")]).collect()
    }

    /// The command that `run.sh` prints has the same options.
    fn prints(&self, arguments: &[String]) {
        let Some(told) = self.process.as_ref().map(Process::stdout) else { return };
        let line = told.lines().find(|line| line.contains(" chromium --")).unwrap();
        for option in arguments.iter().filter(|option| option.contains("quic") || option.contains("spki")) {
            assert!(line.contains(&format!(" {option} ")), "{option}\n{line}");
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        process.signal("TERM");
        if !std::thread::panicking() {
            process.end_within(ENDING).success();
        }
    }
}

/// The protocols of segments, as the browser itself reports them.
const PROTOCOLS: &str = "[...new Set(performance.getEntriesByType('resource')
    .filter(entry => entry.name.endsWith('.m4s')).map(entry => entry.nextHopProtocol))].join()";

#[test]
fn the_demo_plays_its_video_by_each_way() {
    // The configuration of each litequic of it determines its use of datagrams.
    if env::var_os("LITEQUIC_TEST_IO").is_some() {
        return;
    }
    let Some(demo) = Demo::start() else { return };
    let arguments = demo.arguments();
    demo.prints(&arguments);
    let Some(mut browser) = Browser::start(&arguments) else { return };

    browser.open(&format!("https://localhost:{}/", demo.litequic));
    plays_without_stalls(&mut browser, |browser| {
        // From the bottom up.
        browser.wait_for("Number(at('switches').textContent) > 0 && at('rendition').textContent === '1280 × 720'");
    });
    assert_eq!(browser.evaluate(PROTOCOLS), "h3");

    keys_reach_everything(&mut browser);
    every_control_has_a_name(&mut browser);

    plays_without_stalls(&mut browser, |browser| {
        // By hand, and with load beside it.
        browser.evaluate("at('quality').selectedIndex = 1, at('quality').dispatchEvent(new Event('change'))");
        browser.evaluate("at('load').focus()");
        browser.press("Enter", 13);
        browser.wait_for("/ MB came in |broke off/.test(at('loaded').textContent)");
        assert_ne!(browser.evaluate("at('loaded').textContent.includes('broke off')"), true);
        browser.wait_for("Number(at('costs').tBodies[0].rows[2].cells[1].textContent.replace(',', '')) > 40");
        browser.wait_for("Number(at('costs').tBodies[0].rows[2].cells[2].textContent) === 0");
    });
    viewers_watch_from_each_server(&mut browser);
    picture(&mut browser);

    for (way, port, protocol) in [("plain", demo.plain, "h3"), ("nginx", demo.nginx, "h2")] {
        browser.evaluate(&format!("document.querySelector('[data-way={way}]').focus()"));
        browser.press("Enter", 13);
        browser.wait_for(&format!("location.port === '{port}' && typeof at === 'function'"));
        plays_without_stalls(&mut browser, |browser| {
            browser.wait_for(&format!("document.querySelector('[aria-current]').dataset.way === '{way}'"));
        });
        assert_eq!(browser.evaluate(PROTOCOLS), protocol, "{way}");
    }
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// Waits until some of the video was seen.
fn plays(browser: &mut Browser) {
    browser.wait_for(
        "document.readyState === 'complete' && video.played.length && video.played.end(0) - video.played.start(0) > 3",
    );
}

/// Plays while `watch` runs, without a stall. A decoder on a busy machine stalls without a cause in the network, so that
/// one of several attempts must have none.
fn plays_without_stalls(browser: &mut Browser, mut watch: impl FnMut(&mut Browser)) {
    for _ in 0..ATTEMPTS {
        plays(browser);
        watch(browser);
        if browser.evaluate("at('stalls').textContent") == "none" {
            return;
        }
        let address = browser.evaluate("location.href");
        browser.open(address.as_str().unwrap());
    }
    panic!("the video stalls in each of {ATTEMPTS} attempts");
}

/// Emulated ones, until they are stopped.
fn viewers_watch_from_each_server(browser: &mut Browser) {
    browser.evaluate("at('count').value = 3, at('watch').focus()");
    browser.press("Enter", 13);
    browser.wait_for(
        "[...at('crowds').tBodies[0].rows].every(({ cells: [, bars, bitrate] }) =>
            bars.querySelectorAll('span').length === 3 && /Mbit/.test(bitrate.textContent))",
    );
    browser.press("Enter", 13);
    browser.wait_for("at('watch').textContent === 'Start'");
}

/// In the order in which they stand.
fn keys_reach_everything(browser: &mut Browser) {
    browser.evaluate("document.activeElement.blur()");
    let mut reached = Vec::new();
    // The video's own controls take some stops.
    for _ in 0..20 {
        browser.press("Tab", 9);
        let focus = browser.evaluate("document.activeElement.dataset.way || document.activeElement.id");
        reached.push(focus.as_str().unwrap().to_owned());
    }
    reached.dedup();
    let expected = ["litequic", "plain", "nginx", "video", "quality", "load", "count", "watch"];
    assert!(reached.windows(expected.len()).any(|stops| stops == expected), "{reached:?}");
}

/// As a screen reader presents them.
fn every_control_has_a_name(browser: &mut Browser) {
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let mut roles = BTreeSet::new();
    for node in tree["nodes"].as_array().unwrap() {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if ["link", "button", "combobox", "slider", "Video", "table", "navigation"].contains(&role) {
            assert_ne!(node["name"]["value"].as_str().unwrap_or_default(), "", "{node:#}");
            roles.insert(role);
        }
    }
    assert!(roles.is_superset(&["link", "button", "combobox", "table"].into()), "{roles:?}");
}

/// With `LITEQUIC_SCREENSHOTS=FOLDER` in the environment.
fn picture(browser: &mut Browser) {
    let Some(folder) = env::var_os("LITEQUIC_SCREENSHOTS") else { return };
    browser.look((1200, 1160), "light");
    // The best quality on screen again, and its rates in the table.
    browser.evaluate("at('quality').value = 'auto', at('quality').dispatchEvent(new Event('change'))");
    browser.wait_for("at('rendition').textContent === '1280 × 720' && !video.paused");
    browser.evaluate("document.activeElement.blur(), scrollTo(0, 0)");
    browser.picture(&Path::new(&folder).join("demo.png"));
}

/// What a CPU quota does to viewers, as a picture: `CPUS=0.05 docker compose up --wait` before, and
/// `LITEQUIC_DEMO=compose` and `LITEQUIC_SCREENSHOTS=FOLDER` in the environment.
#[test]
fn viewers_of_servers_with_little_cpu_time() {
    const WATCHED: u64 = 90;
    let (Some(folder), Some(_)) = (env::var_os("LITEQUIC_SCREENSHOTS"), env::var_os("LITEQUIC_DEMO")) else { return };
    let Some(demo) = Demo::start() else { return };
    let Some(mut browser) = Browser::start(&demo.arguments()) else { return };
    browser.look((1200, 1160), "light");
    browser.open(&format!("https://localhost:{}/", demo.litequic));
    plays(&mut browser);
    // The page's own player takes a share of the first server.
    browser.evaluate("video.pause(), at('count').value = 20, at('watch').click()");
    let least = format!("crowds.get('litequic').viewers.every(viewer => viewer.played + viewer.stands > {WATCHED})");
    let deadline = Instant::now() + Duration::from_secs(4 * WATCHED);
    while browser.evaluate(&least) != true {
        assert!(Instant::now() < deadline, "no viewer has watched for {WATCHED} s");
        std::thread::sleep(Duration::from_secs(1));
    }
    browser.evaluate("at('crowds').closest('section').scrollIntoView()");
    browser.picture(&Path::new(&folder).join("demo-viewers.png"));
}

#[test]
fn the_demo_says_what_it_lacks() {
    let empty = tempfile::tempdir().unwrap();
    for program in ["dirname", "sh"] {
        let Some(found) = needs::program(program) else { return };
        std::os::unix::fs::symlink(found, empty.path().join(program)).unwrap();
    }
    let mut command = Command::new(RUN);
    command.env("PATH", empty.path());
    let ended = Process::spawn(command).end();
    assert_eq!(ended.code, Some(69), "{ended:?}");
    for program in ["ffmpeg", "npm", "openssl"] {
        assert!(ended.stderr.contains(&format!("  {program}, ")), "{ended:?}");
    }
}
