//! The administration interface: the status page in a real browser, `litequic ctl`, the token, what is shown and to
//! which clients.

use crate::support::{
    chromium::Browser,
    prelude::*,
    process::{litequic, litequic_program},
};
use litequic_config::{self as config};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value as Json;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::SystemTime,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TOKEN: &str = "correct-horse-battery-staple";
/// Starting a browser on a busy machine takes seconds.
const BROWSER: Duration = Duration::from_secs(60);

/// A litequic with an admin address, and whatever else.
struct Setup {
    folder: tempfile::TempDir,
    process: Process,
    admin: SocketAddr,
}

impl Setup {
    fn new(origin: SocketAddr, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = make_self_signed(["localhost"]).unwrap();
        write_certificate(folder.path(), &made);
        fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
        let udp = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
        let text = format!(
            "{}log.format = \"json\"\nlisten.udp = \"{udp}\"\nlisten.workers = 2\nadmin.listen = \"{admin}\"\n{more}\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n[origin]\nurl = \"http://{origin}\"\n",
            io_key()
        );
        let file = folder.path().join("litequic.toml");
        fs::write(&file, text).unwrap();
        let process = Process::start(["run", "--config", file.to_str().unwrap()]);
        process.address();
        Self { folder, process, admin }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// `litequic ctl WHAT`, with `more`.
    fn ctl(&self, what: &str, more: &[&str]) -> Ended {
        let admin = self.admin.to_string();
        let mut command = command([&["ctl", what, "--admin", &admin], more].concat());
        command.env_remove("LITEQUIC_ADMIN_TOKEN").env_remove("LITEQUIC_ADMIN_TOKEN_FILE");
        Process::spawn(command).end()
    }
}

#[tokio::test]
async fn ctl_tells_status_and_configuration_reloads_and_drains() {
    let origin = Always::new(Always::EMPTY_200).await;
    let setup = Setup::new(origin.address, "");
    let status: Json = serde_json::from_str(&setup.ctl("status", &["--json"]).success()).unwrap();
    assert_eq!((&status["phase"], &status["version"]), (&"ready".into(), &env!("CARGO_PKG_VERSION").into()));
    assert_eq!(status["workers"].as_array().unwrap().len(), 2);
    assert_eq!(status["metrics"]["requests{protocol=\"h3\"}"], 0);
    assert_eq!(status["origins"][0]["problem"], Json::Null, "{status}");
    assert_eq!(status["certificates"][0]["names"][0], "localhost");
    let [from, renewal, until] =
        ["valid_from", "renew_by", "expires"].map(|key| status["certificates"][0][key].as_u64());
    assert!(from < renewal && renewal < until, "{status}");
    assert!(status["uptime"].as_f64() > Some(0.0) && status["process"]["cpu_seconds"].as_f64().is_some(), "{status}");
    assert_eq!((&status["last_reload"], &status["mechanisms"][0]["name"]), (&Json::Null, &"GSO".into()));
    for what in ["config", "ready"] {
        assert_eq!(setup.ctl(what, &["--json"]).code, Some(64), "{what}");
    }

    let config: Json = serde_json::from_str(&setup.ctl("config", &[]).success()).unwrap();
    assert_eq!(config["admin.listen"], setup.admin.to_string().as_str());
    assert_eq!(config["origin.url"], format!("http://{}", origin.address).as_str());
    assert!(setup.ctl("metrics", &[]).success().ends_with("# EOF\n"));
    assert_eq!(setup.ctl("ready", &[]).success(), "ready\n");
    assert_eq!(setup.ctl("health", &[]).success(), "ok\n");

    assert_eq!(setup.ctl("reload", &[]).answer(), "nothing has changed\n");
    let file = setup.path("litequic.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}[limits]\nmax_headers = 0\n[timeouts]\nidle = \"x\"\n")).unwrap();
    let refused = setup.ctl("reload", &[]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("limits.max_headers") && refused.stderr.contains("timeouts.idle"), "{refused:?}");
    let status: Json = serde_json::from_str(&setup.ctl("status", &["--json"]).success()).unwrap();
    let last = &status["last_reload"];
    assert_eq!(last["result"], "refused");
    assert!(
        last["lines"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("limits.max_headers")),
        "{last}"
    );
    fs::write(&file, format!("{good}[limits]\nmax_headers = 7\n")).unwrap();
    // A change of the file is noticed by itself too, but not within half a second.
    let changed = setup.ctl("reload", &[]).answer();
    assert!(
        changed == "limits.max_headers: 99 → 7\n" || changed.starts_with("nothing has changed since "),
        "{changed}"
    );
    let config: Json = serde_json::from_str(&setup.ctl("config", &[]).success()).unwrap();
    assert_eq!(config["limits.max_headers"], "7");

    assert_eq!(setup.ctl("drain", &[]).answer(), "draining\n");
    assert_eq!(setup.process.end().code, Some(0));
}

#[tokio::test]
async fn ctl_shows_the_status_to_people() {
    let origin = Always::new(Always::EMPTY_200).await;
    let setup = Setup::new(origin.address, "");
    let screen = setup.ctl("status", &[]).success();
    assert!(screen.starts_with(&format!("litequic {}  ready  up ", env!("CARGO_PKG_VERSION"))), "{screen}");
    let server = format!("origin        http://{:<23}accepts connections\n", origin.address);
    let route = "*/                                           0       0.0         0 B       0 B/s\n";
    for expected in
        ["workers 2  all respond", route, &server, "limits and timeouts reached: none\n", "last reload: none yet\n"]
    {
        assert!(screen.contains(expected), "{expected:?} in\n{screen}");
    }
    let rates = screen.lines().find(|line| line.starts_with("HTTP/3")).unwrap();
    assert!(rates.ends_with(" 0.0"), "two answers a second apart: {rates}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80) && !screen.contains('\x1b'), "{screen}");
}

#[tokio::test]
async fn ctl_shows_the_status_again_and_again() {
    let origin = Always::new(Always::EMPTY_200).await;
    let setup = Setup::new(origin.address, "");
    let admin = setup.admin.to_string();
    let watch = Process::spawn(command(["ctl", "status", "--watch", "1", "--admin", &admin]));
    // One after the other, until litequic is gone, and then that.
    watch.await_stdout("litequic 0");
    watch.await_stdout("\n\nlitequic 0");
    assert_eq!(setup.ctl("drain", &[]).answer(), "draining\n");
    assert_eq!(setup.process.end().code, Some(0));
    watch.await_stdout(&format!("litequic: no running litequic was found: not at {admin} (nothing listens)\n"));
}

#[tokio::test]
async fn the_log_has_admin_addresses_and_limits_at_start() {
    let origin = Always::new(Always::EMPTY_200).await;
    let probes = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
    let more = format!("admin.probes = \"{probes}\"\nlimits.max_connections = 77\nlimits.memory = \"64 MiB\"");
    let setup = Setup::new(origin.address, &more);
    setup.process.await_stderr("limits in force");
    let log = setup.process.stderr();
    let events: Vec<Json> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found = |key: &str| events.iter().find(|event| event["key"] == key).unwrap_or_else(|| panic!("{key} in {log}"));
    for (key, address) in [("admin.listen", setup.admin), ("admin.probes", probes)] {
        assert_eq!(found(key)["message"], "listening for admin requests");
        assert_eq!(found(key)["address"], address.to_string());
    }
    let limits: Vec<_> = events.iter().filter(|event| event["message"] == "limits in force").collect();
    let [limits] = limits.as_slice() else { panic!("one line in {log}") };
    let changed = "limits.max_connections = 77, limits.memory = 64 MiB";
    assert_eq!((&limits["workers"], &limits["changed"]), (&2.into(), &changed.into()));
    // A cgroup may allow even less; of what there is each worker has an eighth for each of the two.
    let memory = limits["memory"].as_u64().unwrap();
    assert!(memory <= 64 << 20, "{limits}");
    assert_eq!(limits["worker_send_buffer"], memory / 4 / 2);
}

#[tokio::test]
async fn with_a_token_nothing_is_told_or_done_without_it() {
    let origin = Always::new(Always::EMPTY_200).await;
    let setup = Setup::new(origin.address, "admin.token_file = \"token\"");
    let token = setup.path("token");
    fs::write(setup.path("wrong"), "correct-horse-battery-staplf").unwrap();
    for what in ["status", "config", "reload", "drain", "metrics"] {
        for more in [&[][..], &["--token-file", &setup.path("wrong")]] {
            let ended = setup.ctl(what, more);
            assert_eq!(
                (ended.code, ended.stderr.as_str()),
                (Some(1), "litequic: the token is missing or wrong\n"),
                "{what}"
            );
        }
    }
    for what in ["status", "config", "metrics"] {
        let told = setup.ctl(what, &["--token-file", &token]).success();
        assert!(!told.contains(TOKEN), "{what}");
    }
    let (status, _) = crate::drain::ask(setup.admin, "GET /readyz").await;
    assert_eq!(status, 200, "probes need none");
    assert_eq!(setup.ctl("drain", &["--token-file", &token]).answer(), "draining\n");
    let ended = setup.process.end();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.stderr.contains(TOKEN), "{}", ended.stderr);
}

/// As `docker exec` and `kubectl exec` run it, in a container whose environment has both.
#[tokio::test]
async fn ctl_takes_address_and_token_file_from_the_environment() {
    let origin = Always::new(Always::EMPTY_200).await;
    let setup = Setup::new(origin.address, "admin.token_file = \"token\"");
    fs::write(setup.path("wrong"), "correct-horse-battery-staplf").unwrap();
    let ctl = |more: &[&str]| {
        let mut command = command([&["ctl", "metrics"], more].concat());
        command.env("LITEQUIC_ADMIN", setup.admin.to_string()).env("LITEQUIC_ADMIN_TOKEN_FILE", setup.path("token"));
        Process::spawn(command).end()
    };
    assert!(ctl(&[]).success().ends_with("# EOF\n"));
    // An option is stronger.
    assert_eq!(ctl(&["--token-file", &setup.path("wrong")]).stderr, "litequic: the token is missing or wrong\n");
}

#[test]
fn an_admin_address_for_other_machines_takes_a_token() {
    let base = "[[certificates]]\ncert = 'c'\nkey = 'k'\n[origin]\nurl = 'http://a'\n[admin]\n";
    for (keys, accepted) in [
        ("listen = '127.0.0.1:9443'", true),
        ("listen = '[::1]:9443'", true),
        ("listen = '0.0.0.0:9443'", false),
        ("listen = '192.0.2.1:9443'", false),
        ("listen = '[::]:9443'", false),
        ("listen = '0.0.0.0:9443'\ntoken_file = 't'", true),
        ("probes = '0.0.0.0:9444'", true),
    ] {
        let parsed = config::parse_config(&format!("{base}{keys}"), Path::new("litequic.toml"), |_| None);
        assert_eq!(parsed.is_ok(), accepted, "{keys}: {parsed:?}");
    }
}

fn chromium(program: &Path, profile: &Path) -> Command {
    let mut chromium = Command::new(program);
    chromium
        // The sandbox does not work as root, nor in many containers; the page is our own.
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .arg(format!("--user-data-dir={}", profile.display()))
        // Timers run ahead while nothing loads: several polls are answered.
        .arg("--virtual-time-budget=5000");
    chromium
}

/// With `LITEQUIC_SCREENSHOTS=FOLDER` in the environment pictures are taken as well.
#[tokio::test]
async fn the_status_page_shows_in_a_browser_what_litequic_does() {
    let Some(program) = needs::program("chromium") else { return };
    let shop = "routes = [{ name = \"shop\", path_prefix = \"/shop\", origin = \"origin\" }]";
    let setup = Setup::new(origin::demo().await, shop);
    setup.ctl("maintenance", &["on", "--route", "shop", "--retry-after", "600"]).answer();
    let url = format!("https://{}/bytes/2M", setup.process.address());
    // The origin needs this thread.
    let load =
        move || (0..3).for_each(|_| drop(litequic(["get", "--insecure", "--output", "/dev/null", &url]).success()));
    spawn_blocking(load).await.unwrap();
    let page = format!("http://{}/", setup.admin);
    let open = tls::credulous(&["http/1.1"]);
    let _open = Tls::connect(setup.process.address(), "localhost", open).await.unwrap();
    let profile = tempfile::tempdir().unwrap();
    let mut dump = chromium(&program, profile.path());
    dump.args(["--dump-dom", "--enable-logging=stderr", &page]);
    let ended = spawn_blocking(move || Process::spawn(dump).end_within(BROWSER)).await.unwrap();
    // The browser reports what the policy rejected, and errors of the script.
    let complaints = ["Content Security Policy", "Uncaught"].map(|what| ended.stderr.contains(what));
    assert_eq!(complaints, [false; 2], "{}", ended.stderr);
    let shown = ended.success();
    for expected in [
        "litequic is ready.",
        " role=\"status\">In maintenance, answered 503: shop (Retry-After 600 s).</p>",
        "<main id=\"answered\">",
        " open files, HTTP/3 on.</p>",
        "<p id=\"uptime\">Process ",
        "<figcaption>Requests per second: <output>0",
        "<path class=\"line\" vector-effect=\"non-scaling-stroke\" d=\"M",
        "<td data-label=\"Protocol\">HTTP/1.1</td><td class=\"n\" data-label=\"Since\">",
        "<th scope=\"row\">*/</th><td class=\"n\" data-label=\"Responses\">3</td>",
        "<td class=\"n\" data-label=\"To clients\">6 MB</td>",
        "<th scope=\"row\">shop <span class=\"badge\">in maintenance</span></th>",
        "<th scope=\"row\">receive moderation</th><td data-label=\"State\">",
        " messages to send</td><td class=\"n\" data-label=\"Per second\">",
        "<th scope=\"row\">h3</th><td class=\"n\" data-label=\"Connections\">3</td>",
        "<th scope=\"row\">2xx</th><td class=\"n\" data-label=\"Responses\">3</td>",
        "<th scope=\"row\">0</th><td class=\"good\" data-label=\"State\">responds</td>",
        "<th scope=\"row\">Datagrams sent in a message (GSO)</th>",
        "<th scope=\"row\">origin</th>",
        "<td class=\"good\" data-label=\"State\">accepts connections</td><td class=\"n\" data-label=\"Connections\">",
        "<th scope=\"row\">none</th>",
        "<th scope=\"row\">localhost (ECDSA P-256)</th>",
        "<th scope=\"row\">limits.max_headers</th><td data-label=\"Value\">99</td>",
        "<dd>6 MB</dd>",
    ] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
    if let Some(folder) = env::var_os("LITEQUIC_SCREENSHOTS") {
        take_pictures(folder.into()).await;
    }
}

/// A narrow frame around the page, which reports how wide that is once it has its first answer, every key shown.
fn narrow(width: u32) -> String {
    format!(
        r#"<!doctype html><body style="margin:0"><iframe src="/page" width="{width}" height="900" style="border:0"></iframe>
        <p id=o>waiting</p><script>
        const look = () => {{
            const page = document.querySelector('iframe').contentDocument;
            const answered = page && page.getElementById('answered');
            if (!answered || answered.hidden) return setTimeout(look, 100);
            page.querySelector('details').open = true;
            const {{ scrollWidth, clientWidth }} = page.documentElement;
            document.getElementById('o').textContent = 'It is ' + scrollWidth + ' wide of ' + clientWidth + '.';
        }};
        look();
        </script>"#
    )
}

/// Shows `frame` at `/`, the page of `admin` at `/page` without the policy that forbids framing it, and passes all else
/// on.
async fn framed(admin: SocketAddr, frame: String) -> SocketAddr {
    let server = Server::start(move |mut browser| {
        let frame = frame.clone();
        async move {
            let mut question = Vec::new();
            while !question.ends_with(b"\r\n\r\n") {
                if browser.read_buf(&mut question).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            let question = String::from_utf8(question).unwrap();
            let path = question.split(' ').nth(1).unwrap();
            let answer = if path == "/" {
                let length = frame.len();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
                format!("{head}\r\nContent-Length: {length}\r\n\r\n{frame}")
            } else {
                let path = if path == "/page" { "/" } else { path };
                let mut admin_side = TcpStream::connect(admin).await.unwrap();
                let question = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
                admin_side.write_all(question.as_bytes()).await.unwrap();
                let mut answer = String::new();
                admin_side.read_to_string(&mut answer).await.unwrap();
                answer.replacen("content-security-policy:", "x-policy:", 1)
            };
            // A browser that has seen enough is gone.
            let _ = browser.write_all(answer.as_bytes()).await;
        }
    });
    server.await.detach()
}

#[tokio::test]
async fn the_status_page_fits_a_telephone() {
    let Some(program) = needs::program("chromium") else { return };
    let setup = Setup::new(origin::demo().await, "");
    let frame = framed(setup.admin, narrow(320)).await;
    let profile = tempfile::tempdir().unwrap();
    let mut dump = chromium(&program, profile.path());
    dump.args(["--dump-dom", &format!("http://{frame}/")]);
    let shown = spawn_blocking(move || Process::spawn(dump).end_within(BROWSER)).await.unwrap().success();
    assert!(shown.contains("It is 320 wide of 320."), "{shown}");
}

/// The page in both colour schemes and on a telephone, while clients of every protocol send requests to two origins, a
/// server of which is down, and a route is in maintenance.
async fn take_pictures(folder: PathBuf) {
    let (site, media, down) = (origin::demo().await, origin::demo().await, origin::closed_port());
    let more = format!(
        "routes = [{{ path_prefix = \"/bytes/\", origin = \"media\" }},\n\
         {{ name = \"shop\", path_prefix = \"/shop\", origin = \"origin\" }}]\n\
         origins.media = {{ url = [\"http://{media}\", \"http://{down}\"], health = {{ path = \"/status/204\" }} }}"
    );
    let setup = Setup::new(site, &more);
    let mut parameters =
        CertificateParams::new(["localhost", "example.com", "*.example.com"].map(String::from)).unwrap();
    parameters.not_after = (SystemTime::now() + Duration::from_secs(89 * 24 * 3600)).into();
    let key = KeyPair::generate().unwrap();
    fs::write(setup.path("tls.crt"), parameters.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(setup.path("tls.key"), key.serialize_pem()).unwrap();
    setup.ctl("reload", &[]).answer();
    setup.ctl("maintenance", &["on", "--route", "shop", "--retry-after", "600"]).answer();

    let own = format!("{} get --insecure --output /dev/null", litequic_program().display());
    let curl = "curl -sk --output /dev/null";
    let too_large = "y".repeat(40_000);
    let done = Arc::new(AtomicBool::new(false));
    let loads = [
        format!("{own} PROXY/bytes/5M"),
        format!("{own} PROXY/bytes/2M"),
        format!("{own} PROXY/status/404"),
        format!("{curl} --http2 PROXY/bytes/300k"),
        format!("{curl} --http1.1 PROXY/bytes/20k"),
        format!("{curl} --http2 --header x:{too_large} PROXY/"),
    ]
    .map(|load| {
        let proxy = format!("https://localhost:{}", setup.process.address().port());
        let words: Vec<String> = load.replace("PROXY", &proxy).split(' ').map(String::from).collect();
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            while !done.load(Relaxed) {
                // Without curl there is less to see.
                let _ = Command::new(&words[0]).args(&words[1..]).status();
            }
        })
    });
    let page = format!("http://{}/", setup.admin);
    let pictures = spawn_blocking(move || pictures(&page, &folder)).await;
    done.store(true, Relaxed);
    spawn_blocking(|| loads.into_iter().for_each(|load| load.join().unwrap())).await.unwrap();
    pictures.unwrap();
}

/// By DevTools, in real time: Chromium's `--screenshot` wants a page that has nothing more to ask.
fn pictures(page: &str, folder: &Path) {
    /// Answers that charts are made of, two seconds apart.
    const ANSWERS: u32 = 12;
    const DESK: u64 = 1200;
    const TELEPHONE: (u64, u64) = (390, 844);
    let Some(mut browser) = Browser::start(&[]) else { return };
    browser.open(page);
    browser.wait_for(&format!("trend.length >= {ANSWERS}"));
    for scheme in ["light", "dark"] {
        browser.look((DESK, 800), scheme);
        let height = browser.evaluate("document.documentElement.scrollHeight").as_u64().unwrap();
        browser.look((DESK, height), scheme);
        browser.picture(&folder.join(format!("status-{scheme}.png")));
    }
    browser.look(TELEPHONE, "light");
    browser.picture(&folder.join("status-phone.png"));
}

/// An origin that is gone, and a configuration that was rejected: in a window of a desk, and on a telephone.
#[tokio::test]
async fn the_status_page_begins_with_what_is_wrong() {
    let route = |n| format!("{{ path_prefix = \"/{n}\", origin = \"origin\" }}");
    let routes: Vec<String> = (0..8).map(route).collect();
    let setup = Setup::new(origin::closed_port(), &format!("routes = [{}]", routes.join(", ")));
    let file = setup.path("litequic.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}[limits]\nmax_headers = 0\n")).unwrap();
    assert_eq!(setup.ctl("reload", &[]).code, Some(1));
    let screen = setup.ctl("status", &[]).success();
    let problems: Vec<&str> = screen.lines().skip(2).take(2).collect();
    assert_eq!(problems[0], "! no healthy server of origin origin: the origin refused the connection", "{screen}");
    assert_eq!(problems[1], "! the last reload was rejected", "{screen}");

    let page = format!("http://{}/", setup.admin);
    let see = move || {
        let Some(mut browser) = Browser::start(&[]) else { return };
        browser.look((1280, 720), "light");
        browser.open(&page);
        browser.wait_for("document.querySelectorAll('#problems li').length == 2");
        let text = |browser: &mut Browser, what: &str| {
            browser.evaluate(&format!("document.querySelector('{what}').textContent")).as_str().unwrap().to_owned()
        };
        assert_eq!(text(&mut browser, "#state"), "Ready, with 2 problems:");
        assert_eq!(browser.evaluate("document.getElementById('state').className"), "bad");
        let first = text(&mut browser, "#problems li");
        assert_eq!(first, "no healthy server of origin origin: the origin refused the connection");
        assert_eq!(text(&mut browser, "#problems li:last-child"), "the last reload was rejected");
        let bottom = "document.getElementById('problems').getBoundingClientRect().bottom";
        assert!(browser.evaluate(bottom).as_f64().unwrap() < 720.0, "in the first screen");
        let order = browser
            .evaluate("[...document.querySelectorAll('section')].map(one => one.getAttribute('aria-labelledby'))");
        let expected = [
            "now",
            "by-route",
            "behind",
            "certs",
            "bitten",
            "busiest",
            "by-protocol",
            "by-class",
            "loops",
            "trend",
            "by-config",
            "saved",
        ];
        assert_eq!(order, serde_json::json!(expected));

        browser.look((390, 844), "light");
        let top = browser.evaluate("document.querySelector('#origins tbody tr').getBoundingClientRect().bottom");
        assert!(top.as_f64().unwrap() < 2.0 * 844.0, "origins within two screens: {top}");
        let bottom = browser.evaluate(bottom);
        assert!(bottom.as_f64().unwrap() < 844.0, "{bottom}");
        assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    };
    spawn_blocking(see).await.unwrap();
}

#[tokio::test]
async fn the_status_page_asks_for_the_token_where_there_is_one() {
    let Some(program) = needs::program("chromium") else { return };
    let setup = Setup::new(origin::demo().await, "admin.token_file = \"token\"");
    let profile = tempfile::tempdir().unwrap();
    let mut dump = chromium(&program, profile.path());
    dump.args(["--dump-dom", &format!("http://{}/", setup.admin)]);
    let shown = spawn_blocking(move || Process::spawn(dump).end_within(BROWSER)).await.unwrap().success();
    assert!(shown.contains("This address needs its token.") && shown.contains("<form id=\"ask\">"), "{shown}");
    assert!(!shown.contains(TOKEN) && !shown.contains("limits.max_headers"));
    assert!(shown.contains("<main id=\"answered\" hidden"), "nothing empty is shown before the first answer: {shown}");
}

#[tokio::test]
async fn the_page_may_load_nothing_and_not_be_framed() {
    let origin = Always::new(Always::EMPTY_200).await;
    let setup = Setup::new(origin.address, "");
    let url = format!("http://{}/", setup.admin);
    let answer = within("the page", head(&url)).await;
    for field in [
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "content-type: text/html; charset=utf-8",
        "referrer-policy: no-referrer",
        "x-content-type-options: nosniff",
    ] {
        assert!(answer.contains(field), "{field}\n{answer}");
    }
}

/// The header of what is at `url`.
async fn head(url: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("HEAD / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn responses_are_counted_by_route_and_times_by_request_and_origin() {
    let litequic = Litequic::demo(|config| {
        let api = RouteConfig { path_prefix: "/status".into(), ..RouteConfig::catch_all(Config::ORIGIN_NAME) };
        let only_host = RouteConfig { host: Some("a.test".into()), ..api.clone() };
        config.routes.splice(0..0, [api, only_host]);
    })
    .await;
    let client = Client::to(&litequic).await;
    for (path, status) in [("/bytes/1", 200), ("/status/503", 503), ("/status/404", 404), ("/status/404", 404)] {
        assert_eq!(client.get(path).await.status.as_u16(), status);
    }
    litequic.wait_until_idle().await;
    let scrape = litequic.metrics.registry().render_metrics();
    for line in [
        "litequic_route_responses_total{route=\"*/\",protocol=\"h3\",class=\"2xx\"} 1",
        "litequic_route_responses_total{route=\"*/status\",protocol=\"h3\",class=\"4xx\"} 2",
        "litequic_route_responses_total{route=\"*/status\",protocol=\"h3\",class=\"5xx\"} 1",
        "litequic_route_responses_total{route=\"a.test/status\",protocol=\"h3\",class=\"2xx\"} 0",
        "litequic_request_duration_seconds_count 4",
        "litequic_origin_duration_seconds_count 4",
    ] {
        assert!(scrape.lines().any(|found| found == line), "{line} in {scrape}");
    }
    assert!(scrape.contains("litequic_certificates_expiry_timestamp_seconds{certificate=\"certificates[0]\"} 1"));
    litequic.stop().await;
}
