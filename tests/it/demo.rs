//! `demo/run.sh`: nginx, two litequic and the page with the video, seen in a real browser. The same by compose, where it runs
//! already: `LITEQUIC_DEMO="$(docker compose logs --no-log-prefix certificate)"` in the environment.

use crate::support::{
    chromium::Browser,
    needs,
    process::{Process, free_tcp_port, free_udp_port, litequic_program},
};
use serde_json::json;
use std::{collections::BTreeSet, env, path::Path, process::Command, time::Duration};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/run.sh");
/// Making the video and fetching dash.js, on a machine that does much else.
const MAKING: Duration = Duration::from_secs(300);
/// litequic drains.
const ENDING: Duration = Duration::from_secs(60);
/// Segments of two seconds that the video has.
const SEGMENTS: u16 = 12;

/// The demo, which ends with the test.
struct Demo {
    process: Option<Process>,
    /// What it prints.
    told: String,
    litequic: u16,
    plain: u16,
    nginx: u16,
}

impl Demo {
    /// `None` where a program is missing: the test is to return then.
    fn start() -> Option<Self> {
        if let Ok(told) = env::var("LITEQUIC_DEMO") {
            return Some(Self { process: None, told, litequic: 8443, plain: 8444, nginx: 8445 });
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
        let told = process.stdout();
        Some(Self { process: Some(process), told, litequic, plain, nginx })
    }

    /// The options of the printed command for Chromium, but for the profile and the page.
    fn arguments(&self) -> Vec<String> {
        let line = self.told.lines().find(|line| line.contains(" chromium --")).unwrap();
        let options = line.split_whitespace().filter(|word| word.starts_with("--"));
        // What is in quotes a shell would split.
        let told = options.filter(|option| !option.contains('"')).map(Into::into);
        told.chain(["--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND".into()]).collect()
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
    let Some(mut browser) = Browser::start(&demo.arguments()) else { return };

    browser.open(&format!("https://localhost:{}/", demo.litequic));
    plays(&mut browser);
    // From the bottom up.
    browser.wait_for("Number(at('switches').textContent) > 0 && at('rendition').textContent === '1280 × 720'");
    assert_eq!(browser.evaluate(PROTOCOLS), "h3");
    assert_eq!(browser.evaluate("at('stalls').textContent"), "none");

    keys_reach_everything(&mut browser);
    every_control_has_a_name(&mut browser);

    // By hand, and with load beside it.
    browser.evaluate("at('quality').selectedIndex = 1, at('quality').dispatchEvent(new Event('change'))");
    browser.evaluate("at('load').focus()");
    browser.press("Enter", 13);
    browser.wait_for("/ MB came in |broke off/.test(at('loaded').textContent)");
    assert_ne!(browser.evaluate("at('loaded').textContent.includes('broke off')"), true);
    browser.wait_for("Number(at('costs').tBodies[0].rows[2].cells[1].textContent.replace(',', '')) > 40");
    browser.wait_for("Number(at('costs').tBodies[0].rows[2].cells[2].textContent) === 0");
    assert_eq!(browser.evaluate("at('stalls').textContent"), "none");
    viewers_watch_from_each_server(&mut browser);
    picture(&mut browser);

    for (way, port, protocol) in [("plain", demo.plain, "h3"), ("nginx", demo.nginx, "h2")] {
        browser.evaluate(&format!("document.querySelector('[data-way={way}]').focus()"));
        browser.press("Enter", 13);
        browser.wait_for(&format!("location.port === '{port}' && typeof at === 'function'"));
        plays(&mut browser);
        browser.wait_for(&format!("document.querySelector('[aria-current]').dataset.way === '{way}'"));
        assert_eq!(browser.evaluate(PROTOCOLS), protocol, "{way}");
        assert_eq!(browser.evaluate("at('stalls').textContent"), "none", "{way}");
    }
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// Waits until some of the video was seen.
fn plays(browser: &mut Browser) {
    browser.wait_for(
        "document.readyState === 'complete' && video.played.length && video.played.end(0) - video.played.start(0) > 3",
    );
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
