//! Sign-in by oauth2-proxy in front of a server that knows nothing of it: a browser over HTTP/3, a WebSocket and an
//! upload behind it.

use crate::support::{chromium::Browser, nginx::Nginx, ports::free_tcp_port, prelude::*, process::litequic};
use std::{net::TcpStream, thread::sleep, time::Instant};

/// Starting a browser on a busy machine takes seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// The password `open sesame` of alice, which oauth2-proxy reads as SHA-1.
const USERS: &str = "alice:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";

/// oauth2-proxy at a free port, with a form for a name and a password.
fn oauth2_proxy(folder: &Path) -> Option<(Process, u16)> {
    let program = needs::program("oauth2-proxy")?;
    let users = folder.join("users");
    fs::write(&users, USERS).unwrap();
    let port = free_tcp_port();
    let configuration = format!(
        "http_address = \"127.0.0.1:{port}\"\nreverse_proxy = true\nupstreams = [\"static://202\"]\n\
         provider = \"github\"\nclient_id = \"none\"\nclient_secret = \"none\"\n\
         cookie_secret = \"0123456789abcdef0123456789abcdef\"\nemail_domains = [\"*\"]\n\
         htpasswd_file = \"{}\"\ndisplay_htpasswd_form = true\nset_xauthrequest = true\n",
        users.display()
    );
    let file = folder.join("oauth2-proxy.cfg");
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new(program);
    command.arg("--config").arg(&file);
    let process = Process::spawn(command);
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < DEADLINE, "{}", process.stderr());
        sleep(LOOK_AGAIN);
    }
    Some((process, port))
}

#[test]
fn a_browser_signs_in_over_http3_to_an_unmodified_origin() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_auth, auth)) = oauth2_proxy(folder.path()) else { return };
    let page = "<title>in</title>user=$http_x_auth_request_user email=$http_x_auth_request_email";
    let server = format!("location / {{ default_type text/html; return 200 '{page}'; }}");
    let Some(nginx) = Nginx::start(&server) else { return };
    let made = make_self_signed(["localhost"]).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("tls.crt", &made.cert_pem);
    write("tls.key", &made.key_pem);
    let log = folder.path().join("access.log");
    let text = format!(
        "{}listen.udp = \"127.0.0.1:0\"\nlisten.workers = 1\nlog.level = \"debug\"\n\
         [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n\
         [origin]\nurl = \"http://{}\"\n[origins.auth]\nurl = \"http://127.0.0.1:{auth}\"\n\
         [[routes]]\norigin = \"origin\"\n\
         auth = {{ origin = \"auth\", path = \"/\", copy = [\"X-Auth-Request-User\", \"X-Auth-Request-Email\"] }}\n\
         [[routes]]\npath_prefix = \"/oauth2\"\norigin = \"auth\"\n\
         [access_log]\npath = \"{}\"\nfields = [\"protocol\", \"path\", \"status\", \"auth_time\", \"origin_time\"]\n",
        io_key(),
        nginx.address,
        log.display()
    );
    // Port 0 is for the command line alone.
    let text = text.replace("127.0.0.1:0\"", &format!("127.0.0.1:{}\"", free_tcp_port()));
    write("litequic.toml", &text);
    let file = folder.path().join("litequic.toml").display().to_string();
    let checked = litequic(["check", &file]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let process = Process::start(["run", "--config", &file]);
    let port = process.address().port();

    let Some(mut browser) = Browser::trusting(&made.spki_sha256, Some(port), &[]) else { return };
    browser.open(&format!("https://localhost:{port}/docs/?page=1"));
    browser.wait_for("document.querySelector('#password') !== null");
    let protocol = "performance.getEntriesByType('navigation')[0].nextHopProtocol";
    assert_eq!(browser.evaluate(protocol), "h3");
    assert_eq!(browser.evaluate("document.title"), "Sign In");
    // The style of the form is a route without sign-in.
    browser.wait_for("document.styleSheets.length >= 1 && [...document.styleSheets].some(sheet => sheet.href)");
    let sign_in = |browser: &mut Browser, password: &str| {
        browser.evaluate(&format!(
            "document.querySelector('#username').value = 'alice',
             document.querySelector('#password').value = '{password}',
             document.querySelector('#password').form.submit()"
        ));
    };
    sign_in(&mut browser, "wrong");
    browser.wait_for("document.querySelector('#password')?.value === '' && location.pathname === '/oauth2/sign_in'");
    sign_in(&mut browser, "open sesame");
    browser.wait_for("document.title === 'in'");
    assert_eq!(browser.evaluate("location.pathname + location.search"), "/docs/?page=1");
    assert_eq!(browser.evaluate(protocol), "h3");
    assert_eq!(browser.evaluate("document.body.textContent"), "user=alice email=");
    // What a page claims does not reach the server.
    let forged = "fetch('/docs/', { headers: { 'X-Auth-Request-User': 'root', 'X_Auth_Request_User': 'root' } })";
    let answer = browser.evaluate(&format!("{forged}.then(answer => answer.text())"));
    assert_eq!(answer, "<title>in</title>user=alice email=");
    let upload = "fetch('/docs/', { method: 'POST', body: 'x'.repeat(1000000) }).then(answer => answer.status)";
    assert_eq!(browser.evaluate(upload), 200);
    browser.evaluate("fetch('/oauth2/sign_out').then(answer => answer.text())");
    assert_eq!(browser.evaluate("fetch('/docs/').then(answer => answer.status)"), 403);
    drop(browser);
    assert!(process.stderr().contains("the auth server denied the request"), "{}", process.stderr());
    process.end_by("TERM");
    let lines = fs::read_to_string(&log).unwrap();
    let admitted = lines.lines().find(|line| line.contains("\"path\":\"/docs/\",\"status\":200")).unwrap();
    assert!(admitted.contains("\"protocol\":\"HTTP/3\"") && admitted.contains("\"auth_time\":0."), "{admitted}");
    assert!(lines.contains("\"path\":\"/docs/\",\"status\":403,\"auth_time\":0."), "{lines}");
    // The sign-in itself is not asked about.
    assert!(lines.lines().filter(|line| line.contains("/oauth2/")).all(|line| !line.contains("auth_time")), "{lines}");
}
