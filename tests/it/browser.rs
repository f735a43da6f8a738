//! A real browser loads a page through litequic: Chromium, headless, told to begin with HTTP/3.

use crate::support::{needs, process::Process};
use std::{process::Command, time::Duration};

/// Starting a browser on a busy machine takes seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// What the demo's page shows.
const IMAGES: usize = 24;

#[test]
fn a_browser_gets_the_page_and_its_images_by_http3() {
    let Some(chromium) = needs::program("chromium") else { return };
    let (demo, port) = Process::demo(&[]);
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command
        // The sandbox does not work as root, nor in many containers; the page is our own.
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .arg("--enable-quic")
        .arg(format!("--origin-to-force-quic-on=localhost:{port}"))
        .arg(format!("--ignore-certificate-errors-spki-list={}", demo.spki()))
        .arg("--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        // Timers run ahead while nothing loads: the page's script is done when the document is written out.
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("https://localhost:{port}/"));
    let page = Process::spawn(command).end_within(DEADLINE).success();

    // The page asked `performance.getEntries()` for each `nextHopProtocol`, where `h3` is what the browser itself saw.
    assert!(page.contains("This page came by <strong>HTTP/3</strong>"), "{page}");
    assert!(page.contains(&format!("{} × HTTP/3.", IMAGES + 1)), "{page}");
    for image in 0..IMAGES {
        assert!(page.contains(&format!("<td>/image/{image}.svg</td><td>HTTP/3</td>")), "image {image}: {page}");
    }
}
