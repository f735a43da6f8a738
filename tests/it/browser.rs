//! A real browser loads a page through litequic: Chromium, headless, with HTTP/3 from the first request.

use crate::support::{chromium::Browser, prelude::*, process::litequic, tunnel};
use litequic_config::AckFrequency;

/// Starting a browser on a busy machine takes seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// What the demo's page shows.
const IMAGES: usize = 24;

#[test]
fn a_browser_gets_the_page_and_its_images_by_http3() {
    let Some(chromium) = needs::program("chromium") else { return };
    let (demo, port) = Process::demo(&[]);
    see_the_page(Command::new(chromium), port, &demo.spki(), &[]);
}

/// Chromium's QUIC option for ACK frequency: it offers support.
#[tokio::test]
async fn a_browser_with_min_ack_delay_gets_ack_frequency_and_the_page() {
    let Some(chromium) = needs::program("chromium") else { return };
    let certificate = make_self_signed(["localhost"]).unwrap();
    let spki = certificate.spki_sha256.clone();
    let edit = |config: &mut Config| config.litequic.ack_frequency = AckFrequency::Fixed(10);
    let litequic = Litequic::showing(&[certificate], origin::demo().await, edit).await;
    let port = litequic.address.port();
    let see = move || see_the_page(Command::new(chromium), port, &spki, &["--quic-client-connection-options=AFIA"]);
    spawn_blocking(see).await.unwrap();
    let sum = |read: fn(&WorkerMetrics) -> u64| litequic.sum(read);
    assert!(sum(|worker| worker.quic.ack_frequency_offered.get()) > 0);
    assert!(sum(|worker| worker.quic.ack_frequency_acknowledged.get()) > 0);
    assert_eq!(sum(|worker| worker.quic.ack_frequency_misplaced.get()), 0);
    litequic.stop().await;
}

/// A page that requests more until the browser uses HTTP/3, and shows the protocol.
const BY_AND_BY: &str = r"<!doctype html><p id=o>waiting</p><script>
    (async () => {
        const seen = [performance.getEntriesByType('navigation')[0].nextHopProtocol];
        for (let i = 0; i < 40 && !seen.includes('h3'); i++) {
            await (await fetch('/more?' + i, { cache: 'no-store' })).text();
            seen.push(performance.getEntriesByName(location.origin + '/more?' + i)[0].nextHopProtocol);
            await new Promise(next => setTimeout(next, 100));
        }
        document.getElementById('o').textContent = 'by ' + [...new Set(seen)].join(', then ') + '.';
    })();
</script>";

/// Only `Alt-Svc` advertises it: QUIC is forced for another port, without which Chromium takes no certificate over
/// QUIC that no public authority has signed.
#[tokio::test]
async fn a_browser_comes_by_http2_and_goes_on_by_http3() {
    let Some(chromium) = needs::program("chromium") else { return };
    let page =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{BY_AND_BY}", BY_AND_BY.len());
    let origin = Always::new(page).await;
    let (litequic, page) = load_from(chromium, origin.address).await;
    assert!(page.contains("by h2, then h3."), "{page}");
    litequic.stop().await;
}

/// Functions for the demo's page, in real time. `until` requests more until one request is by the protocol wanted, and
/// returns the protocols. `begin` begins a download and reads little of it; `finish` reads the rest.
const REQUESTS: &str = r"
    performance.setResourceTimingBufferSize(100000);
    let count = 0;
    const by = path => performance.getEntriesByName(location.origin + path)[0].nextHopProtocol;
    const request = path => fetch(path, { cache: 'no-store' });
    window.until = async wanted => {
        const seen = [];
        for (let i = 0; i < 600 && seen.at(-1) !== wanted; i++) {
            const path = '/bytes/10?' + count++;
            await (await request(path)).arrayBuffer();
            if (by(path) !== seen.at(-1)) seen.push(by(path));
            await new Promise(next => setTimeout(next, 100));
        }
        return seen.join(', then ');
    };
    let reader, received = 0;
    window.begin = async () => {
        reader = (await request('/bytes/40000000')).body.getReader();
        received += (await reader.read()).value.length;
        return received < 40000000;
    };
    window.finish = async () => {
        for (let part = await reader.read(); !part.done; part = await reader.read()) received += part.value.length;
        return received + ' bytes by ' + by('/bytes/40000000');
    };
";

/// Chromium tries HTTP/3 again five minutes after a refusal; here after a second.
const RETRY_HTTP3: [&str; 2] = [
    "--force-fieldtrials=QUIC/Enabled",
    "--force-fieldtrial-params=QUIC.Enabled:initial_delay_for_broken_alternative_service_seconds/1",
];

#[test]
fn a_browser_leaves_http3_while_it_is_switched_off() {
    let (demo, port) = Process::demo(&[]);
    let mut arguments = vec![
        "--enable-quic".to_owned(),
        // Forced for another port: without the option Chromium takes no certificate over QUIC that no public authority
        // signed.
        "--origin-to-force-quic-on=localhost:1".into(),
        format!("--ignore-certificate-errors-spki-list={}", demo.spki()),
        "--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND".into(),
    ];
    arguments.extend(RETRY_HTTP3.map(str::to_owned));
    let Some(mut browser) = Browser::start(&arguments) else { return };
    let text = demo.stdout();
    let (_, admin) = text.split_once("the status page:").unwrap();
    let admin = admin.split_whitespace().next().unwrap();
    let http3 = |state: &str| litequic(["ctl", "http3", state, "--admin", admin]).answer();

    browser.open(&format!("https://localhost:{port}/"));
    browser.wait_for("document.readyState === 'complete'");
    browser.evaluate(REQUESTS);
    let first = browser.evaluate("until('h3')");
    assert!(first == "h2, then h3" || first == "h3", "{first}");
    assert_eq!(browser.evaluate("begin()"), true);
    assert!(http3("off").starts_with("HTTP/3 is off, until a reload changes listen.http3"));
    let off = browser.evaluate("until('h2')");
    assert!(off == "h2" || off == "h3, then h2", "{off}");
    // The download that was open goes on where it was.
    assert_eq!(browser.evaluate("finish()"), "40000000 bytes by h3");
    assert_eq!(browser.evaluate("until('h2')"), "h2");
    assert_eq!(http3("on"), "HTTP/3 is on, as configured\n");
    let on = browser.evaluate("until('h3')");
    assert!(on == "h2, then h3" || on == "h3", "{on}");
}

/// A page that talks over a WebSocket. It loads all the while: else the browser's clock would run ahead of it.
const CONVERSATION: &str = r"<!doctype html><p id=o>waiting</p><script>
    (async () => {
        const seen = [];
        const socket = new WebSocket('wss://' + location.host + '/chat');
        socket.onopen = () => socket.send('hello');
        socket.onmessage = event => { seen.push('heard ' + event.data); socket.close(1000); };
        socket.onclose = event => seen.push('closed ' + event.code + ' ' + event.wasClean);
        for (let i = 0; i < 1000 && !seen.some(word => word.startsWith('closed')); i++) {
            await (await fetch('/more?' + i, { cache: 'no-store' })).text();
        }
        document.getElementById('o').textContent = seen.join(', ') + '.';
    })();
</script>";

#[tokio::test]
async fn a_browser_talks_over_a_websocket() {
    let Some(chromium) = needs::program("chromium") else { return };
    let origin = tunnel::echo_beside(CONVERSATION).await;
    let (litequic, page) = load_from(chromium, origin).await;
    assert!(page.contains("heard hello, closed 1000 true."), "{page}");
    assert_eq!(litequic.sum(|worker| worker.proxy.tunnels.get()), 1);
    litequic.stop().await;
}

/// Has the browser load the page of `origin` through litequic, without options for HTTP/3. Returns litequic and what
/// the page became.
async fn load_from(chromium: PathBuf, origin: SocketAddr) -> (Litequic, String) {
    let certificate = make_self_signed(["localhost"]).unwrap();
    let spki = certificate.spki_sha256.clone();
    let litequic = Litequic::showing(&[certificate], origin, |_| {}).await;
    let port = litequic.address.port();
    let see = move || {
        let profile = tempfile::tempdir().unwrap();
        load(Command::new(chromium), profile.path(), port, 1, &spki, &[])
    };
    let page = spawn_blocking(see).await.unwrap();
    (litequic, page)
}

/// Has the browser load the demo's page from localhost at `port`, whose key has the fingerprint `spki`.
pub(crate) fn see_the_page(chromium: Command, port: u16, spki: &str, more: &[&str]) {
    let profile = tempfile::tempdir().unwrap();
    let page = load(chromium, profile.path(), port, port, spki, more);

    // The page asked `performance.getEntries()` for each `nextHopProtocol`, where `h3` is what the browser itself saw.
    assert!(page.contains("This page came by <strong>HTTP/3</strong>"), "{page}");
    assert!(page.contains(&format!("{} × HTTP/3.", IMAGES + 1)), "{page}");
    for image in 0..IMAGES {
        assert!(page.contains(&format!("<td>/image/{image}.svg</td><td>HTTP/3</td>")), "image {image}: {page}");
    }
}

/// The page at `port` as the browser has it when its script is done. QUIC is forced for localhost at `quic_port`.
fn load(mut chromium: Command, profile: &Path, port: u16, quic_port: u16, spki: &str, more: &[&str]) -> String {
    chromium
        // The sandbox does not work as root, nor in many containers; the page is our own.
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .arg("--enable-quic")
        .arg(format!("--origin-to-force-quic-on=localhost:{quic_port}"))
        .arg(format!("--ignore-certificate-errors-spki-list={spki}"))
        .arg("--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND")
        .arg(format!("--user-data-dir={}", profile.display()))
        // Timers run ahead while nothing loads: the page's script is done when the document is written out.
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .args(more)
        .arg(format!("https://localhost:{port}/"));
    Process::spawn(chromium).end_within(DEADLINE).success()
}
