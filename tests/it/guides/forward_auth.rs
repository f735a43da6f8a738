//! docs/how-to/sign-in-with-forward-auth.md, with a server that stands for the products: it reads the fields that they
//! read, and answers at their paths as they do.

use super::{Guide, adapted, machine::Machine};
use crate::support::needs;

/// Endpoints with the fields that their answers have. A session is the cookie `session=NAME`. Without one, a client that
/// accepts text/html is redirected, as by Authelia (internal/handlers/handler_authz_util.go).
const SERVER: &str = r#"import http.server, sys, urllib.parse
PATHS = {
    "/api/authz/forward-auth": ["Remote-User", "Remote-Groups", "Remote-Email", "Remote-Name"],
    "/outpost.goauthentik.io/auth/traefik": ["X-authentik-" + name for name in ["username", "groups", "email", "name", "uid"]],
    "/api/auth/traefik": ["Remote-User", "Remote-Groups", "Remote-Email", "Remote-Name"],
    "/": ["X-Auth-Request-User", "X-Auth-Request-Email"],
}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        fields = [self.headers["X-Forwarded-" + name] for name in ["Method", "Proto", "Host", "Uri"]]
        if self.headers["Host"] == "auth.example.com" or self.path not in PATHS:
            self.answer(200, {}, b"the sign-in\n")
        elif not all(fields) or self.headers["X-Original-URL"]:
            self.answer(400, {})
        elif "session=" in self.headers.get("Cookie", ""):
            name = self.headers["Cookie"].split("session=")[1]
            self.answer(200, {field: name for field in PATHS[self.path]})
        elif "text/html" in self.headers.get("Accept", ""):
            method, proto, host, uri = fields
            target = urllib.parse.urlencode({"rd": f"{proto}://{host}{uri}", "rm": method})
            self.answer(302, {"Location": "https://auth.example.com/?" + target, "Set-Cookie": "begun=1; Secure"})
        else:
            self.answer(401, {})
    def answer(self, status, fields, body=b""):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

const HOSTS: [&str; 2] = ["www.example.com", "auth.example.com"];

#[test]
fn the_sign_in_server_decides_and_names_the_user() {
    let Some(()) = needs::programs(&["curl", "nginx", "python3"]) else { return };
    let guide = Guide::read("sign-in-with-forward-auth");
    let Some(machine) = Machine::with_certificate(&HOSTS) else { return };
    let _origin = machine.nginx(8080, "user: '$http_remote_user' groups: '$http_remote_groups'");
    machine.write("/etc/server.py", SERVER);
    let _server = machine.spawn("exec python3 /etc/server.py 9091");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:9091/");
    let configuration = guide.block("toml", "forward-auth");
    let _litequic = machine.litequic(&configuration);

    let sent = machine.run(&guide.command("Accept: text/html"));
    assert!(sent.starts_with("HTTP/2 302"), "{sent}");
    let target = "location: https://auth.example.com/?rd=https%3A%2F%2Fwww.example.com%2F&rm=HEAD";
    assert!(sent.contains(target) && sent.contains("set-cookie: begun=1"), "{sent}");
    let refused = machine.run(&guide.command("--head https://www.example.com/  "));
    assert!(refused.starts_with("HTTP/2 401"), "{refused}");
    let public = machine.run(&guide.command("https://www.example.com/public/"));
    assert!(public.starts_with("HTTP/2 200"), "{public}");

    let forged = "--header 'Remote-User: root' --header 'Remote_Groups: admins'";
    let curl = |more: &str| machine.run(&format!("curl --silent {forged} {more}"));
    assert_eq!(curl("--cookie session=alice https://www.example.com/"), "user: 'alice' groups: 'alice'\n");
    assert_eq!(curl("https://www.example.com/public/"), "user: '' groups: ''\n");
    assert_eq!(curl("https://auth.example.com/"), "the sign-in\n");
    assert_eq!(curl("https://www.example.com/"), "");
    let metrics = machine.run("litequic ctl metrics");
    assert!(metrics.contains("litequic_auth_requests_total{result=\"redirected\"} 1\n"), "{metrics}");
}

/// Each row of the guide's table, in place of the first configuration's server.
#[test]
fn other_sign_in_servers_answer_at_the_paths_of_the_table() {
    let Some(()) = needs::programs(&["curl", "nginx", "python3"]) else { return };
    let guide = Guide::read("sign-in-with-forward-auth");
    let Some(machine) = Machine::with_certificate(&HOSTS) else { return };
    machine.write("/etc/server.py", SERVER);
    let _server = machine.spawn("exec python3 /etc/server.py 9091");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:9091/");
    let rows: Vec<Vec<&str>> = guide
        .text
        .lines()
        .filter(|line| line.starts_with("| [") && line.contains("port "))
        .map(|row| row.trim_end_matches(" |").split(" | ").skip(1).collect())
        .collect();
    assert_eq!(rows.len(), 3);
    let fields = |copy: &str| copy.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect::<Vec<String>>();
    let variables: Vec<String> = rows
        .iter()
        .flat_map(|row| fields(row[1]))
        .map(|name| format!("$http_{}", name.to_lowercase().replace('-', "_")))
        .collect();
    let _origin = machine.nginx(8080, &variables.join(" "));
    let first = guide.block("toml", "forward-auth");
    let _litequic = machine.litequic(&first);
    for row in rows {
        let (path, copied) = (row[0].trim().trim_matches('`'), fields(row[1]));
        let quoted = "[\"Remote-User\", \"Remote-Groups\", \"Remote-Email\", \"Remote-Name\"]";
        let configuration = adapted(&first, &[("/api/authz/forward-auth", path), (quoted, &format!("{copied:?}"))]);
        machine.write("/etc/litequic/litequic.toml", &configuration);
        machine.run("litequic ctl reload");
        let body = machine.run("curl --silent --cookie session=alice https://www.example.com/");
        assert_eq!(body.split_whitespace().count(), copied.len(), "{path}: {body}");
    }
}
