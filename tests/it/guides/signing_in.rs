//! docs/how-to/sign-in-with-oauth2-proxy.md.

use super::{Guide, adapted, machine::Machine};
use crate::support::needs;

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

#[test]
fn clients_without_a_session_are_redirected_except_on_public_paths() {
    let [Some(_), Some(_), Some(_), Some(_)] = ["oauth2-proxy", "curl", "nginx", "python3"].map(needs::program) else {
        return;
    };
    let guide = Guide::read("sign-in-with-oauth2-proxy");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    let _origin = machine.nginx(8080, "user: '$http_x_forwarded_user'");
    machine.write("/etc/provider.py", PROVIDER);
    let _provider = machine.spawn("exec python3 /etc/provider.py");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:5556/");
    let configuration =
        adapted(&guide.block("ini", "cookie_secret"), &[("https://id.example.com/", "http://127.0.0.1:5556")]);
    machine.write("/etc/oauth2-proxy.cfg", &configuration);
    let _proxy = machine.spawn(&format!("exec {}", guide.command("oauth2-proxy --config")));
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:4180/ping");
    let _litequic = machine.litequic(&guide.block("toml", "[origin] # oauth2-proxy"));

    let sent = machine.run(&guide.command("https://example.com/ "));
    assert!(sent.starts_with("HTTP/2 302"), "{sent}");
    let location = sent.lines().find(|line| line.starts_with("location: ")).unwrap();
    assert!(location.contains("127.0.0.1:5556/authorize?"), "{sent}");
    assert!(location.contains("redirect_uri=https%3A%2F%2Fexample.com%2Foauth2%2Fcallback"), "{sent}");
    assert!(sent.to_lowercase().contains("; secure"), "{sent}");
    let public = machine.run(&guide.command("https://example.com/public/"));
    assert!(public.starts_with("HTTP/2 200"), "{public}");
    let forged = machine.run("curl --silent --header 'X-Forwarded-User: root' https://example.com/public/");
    assert_eq!(forged, "user: ''\n");
}

#[test]
fn oauth2_proxy_decides_and_the_application_gets_the_requests() {
    let [Some(_), Some(_), Some(_), Some(_)] = ["oauth2-proxy", "curl", "nginx", "python3"].map(needs::program) else {
        return;
    };
    let guide = Guide::read("sign-in-with-oauth2-proxy");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    let _origin = machine.nginx(8080, "user: '$http_x_auth_request_user' $http_x_forwarded_for");
    machine.write("/etc/provider.py", PROVIDER);
    let _provider = machine.spawn("exec python3 /etc/provider.py");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:5556/");
    let (beside, whole) = (guide.block("ini", "static://202"), guide.block("ini", "cookie_secret"));
    let configuration = adapted(
        &whole,
        &[
            ("https://id.example.com/", "http://127.0.0.1:5556"),
            ("upstreams = [\"http://127.0.0.1:8080/\"]\n", &beside),
        ],
    );
    machine.write("/etc/oauth2-proxy.cfg", &configuration);
    let _proxy = machine.spawn(&format!("exec {}", guide.command("oauth2-proxy --config")));
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:4180/ping");
    let _litequic = machine.litequic(&guide.block("toml", "copy = "));

    let sent = machine.run(&guide.command("https://example.com/ "));
    assert!(sent.starts_with("HTTP/2 302"), "{sent}");
    let location = sent.lines().find(|line| line.starts_with("location: ")).unwrap();
    assert!(location.contains("127.0.0.1:5556/authorize?"), "{sent}");
    assert!(sent.to_lowercase().contains("set-cookie: "), "{sent}");
    let public = machine.run(&guide.command("https://example.com/public/"));
    assert!(public.starts_with("HTTP/2 200"), "{public}");
    let forged = machine.run("curl --silent --header 'X-Auth-Request-User: root' https://example.com/public/");
    assert_eq!(forged, "user: '' 127.0.0.1\n");
}
