//! docs/how-to/sign-in-with-oauth2-proxy.md.

use super::{Guide, adapted, machine::Machine};
use crate::support::prelude::*;

/// What oauth2-proxy asks its provider for as it starts.
const PROVIDER: &str = r#"import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        base = "http://127.0.0.1:5556"
        body = json.dumps({
            "issuer": base, "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token",
            "jwks_uri": base + "/keys", "id_token_signing_alg_values_supported": ["RS256"],
        }).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 5556), Handler).serve_forever()
"#;

/// A machine with nginx, which answers with `page`, the provider, and oauth2-proxy by the guide's configuration with
/// `changes`; and what is to be kept of them.
fn machine(guide: &Guide, page: &str, changes: &[(&str, &str)]) -> Option<(Machine, [Process; 3])> {
    needs::programs(&["oauth2-proxy", "curl", "nginx", "python3"])?;
    let machine = Machine::with_certificate(&["example.com"])?;
    let origin = machine.nginx(8080, page);
    machine.write("/etc/provider.py", PROVIDER);
    let provider = machine.spawn("exec python3 /etc/provider.py");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:5556/");
    let here = ("https://id.example.com/", "http://127.0.0.1:5556");
    let configuration = adapted(&guide.block("ini", "cookie_secret"), &[&[here], changes].concat());
    machine.write("/etc/oauth2-proxy.cfg", &configuration);
    let proxy = machine.spawn(&format!("exec {}", guide.command("oauth2-proxy --config")));
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:4180/ping");
    Some((machine, [origin, provider, proxy]))
}

/// The answer without a session, which leads to the provider, and its location.
fn redirected(guide: &Guide, machine: &Machine) -> (String, String) {
    let sent = machine.run(&guide.command("https://example.com/ "));
    assert!(sent.starts_with("HTTP/2 302"), "{sent}");
    let location = sent.lines().find(|line| line.starts_with("location: ")).unwrap().to_owned();
    assert!(location.contains("127.0.0.1:5556/authorize?"), "{sent}");
    (sent, location)
}

#[test]
fn clients_without_a_session_are_redirected_except_on_public_paths() {
    let guide = Guide::read("sign-in-with-oauth2-proxy");
    let Some((machine, _kept)) = machine(&guide, "user: '$http_x_forwarded_user'", &[]) else { return };
    let _litequic = machine.litequic(&guide.block("toml", "[origin] # oauth2-proxy"));

    let (sent, location) = redirected(&guide, &machine);
    assert!(location.contains("redirect_uri=https%3A%2F%2Fexample.com%2Foauth2%2Fcallback"), "{sent}");
    assert!(sent.to_lowercase().contains("; secure"), "{sent}");
    let public = machine.run(&guide.command("https://example.com/public/"));
    assert!(public.starts_with("HTTP/2 200"), "{public}");
    let forged = machine.run("curl --silent --header 'X-Forwarded-User: root' https://example.com/public/");
    assert_eq!(forged, "user: ''\n");
}

#[test]
fn oauth2_proxy_decides_and_the_application_gets_the_requests() {
    let guide = Guide::read("sign-in-with-oauth2-proxy");
    let beside = guide.block("ini", "static://202");
    let upstreams = ("upstreams = [\"http://127.0.0.1:8080/\"]\n", &*beside);
    let page = "user: '$http_x_auth_request_user' $http_x_forwarded_for";
    let Some((machine, _kept)) = machine(&guide, page, &[upstreams]) else { return };
    let _litequic = machine.litequic(&guide.block("toml", "copy = "));

    let (sent, _) = redirected(&guide, &machine);
    assert!(sent.to_lowercase().contains("set-cookie: "), "{sent}");
    let public = machine.run(&guide.command("https://example.com/public/"));
    assert!(public.starts_with("HTTP/2 200"), "{public}");
    let forged = machine.run("curl --silent --header 'X-Auth-Request-User: root' https://example.com/public/");
    assert_eq!(forged, "user: '' 127.0.0.1\n");
}
