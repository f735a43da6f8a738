//! docs/how-to/serve-wordpress-and-php.md: nginx and Caddy between litequic and a FastCGI server that stands for PHP-FPM.

use super::{Guide, machine::Machine};
use crate::support::prelude::*;

/// Answers each request with the parameters that WordPress reads: whether the connection is encrypted, the client, the
/// script.
const FASTCGI: &str = r#"import os, socketserver, struct
PATH = "/run/php/php-fpm.sock"
def size(data):
    if data[0] >> 7:
        return struct.unpack("!I", data[:4])[0] & 0x7fffffff, data[4:]
    return data[0], data[1:]
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        data, kind, content = b"", None, b"-"
        while kind != 5 or content: # until the end of the body
            _, kind, request, length, padding, _ = struct.unpack("!BBHHBB", self.rfile.read(8))
            content = self.rfile.read(length + padding)[:length]
            if kind == 4:
                data += content
        values = {}
        while data:
            name, data = size(data)
            value, data = size(data)
            values[data[:name].decode()] = data[name:name + value].decode()
            data = data[name + value:]
        text = " ".join(values.get(name, "-") for name in ["HTTPS", "REMOTE_ADDR", "SCRIPT_FILENAME"])
        body = f"Content-Type: text/plain\r\n\r\n{text}\n".encode()
        self.wfile.write(struct.pack("!BBHHBB", 1, 6, request, len(body), 0, 0) + body)
        self.wfile.write(struct.pack("!BBHHBBQ", 1, 3, request, 8, 0, 0, 0))
server = socketserver.ThreadingUnixStreamServer(PATH, Handler)
os.chmod(PATH, 0o666)
server.serve_forever()
"#;

/// A machine with a site, the FastCGI server, and a client's address.
fn prepared() -> Option<(Machine, Process)> {
    let machine = Machine::with_certificate(&["example.com"])?;
    for file in ["index.php", "wp-login.php", "xmlrpc.php", "wp-admin/index.php", "wp-content/uploads/evil.php"] {
        machine.write(&format!("/var/www/wordpress/{file}"), "<?php\n");
    }
    machine.write("/var/www/wordpress/style.css", "p {}\n");
    machine.run("mkdir -p /run/php; ip address add 203.0.113.7/32 dev lo");
    machine.write("/etc/php-fpm.py", FASTCGI);
    let fastcgi = machine.spawn("exec python3 /etc/php-fpm.py");
    machine.wait("test -S /run/php/php-fpm.sock");
    Some((machine, fastcgi))
}

/// The guide's commands, and what PHP sees of a client.
fn serves(guide: &Guide, machine: &Machine) {
    machine.run(&guide.command("litequic check"));
    let login = machine.run(&guide.command("litequic get --head"));
    assert!(login.starts_with("HTTP/3 200"), "{login}");
    let redirect = machine.run(&guide.command("http://example.com/wp-admin/")).to_lowercase();
    assert!(redirect.contains(" 308 ") && redirect.contains("location: https://example.com/wp-admin/"), "{redirect}");
    let refused = machine.run(&guide.command("https://example.com/xmlrpc.php"));
    assert!(refused.starts_with("HTTP/2 403"), "{refused}");

    let get = |path: &str| {
        let forged = "--header 'X-Forwarded-For: 192.0.2.1' --interface 203.0.113.7";
        machine.run(&format!("curl --silent {forged} https://example.com{path}"))
    };
    assert_eq!(get("/"), "on 203.0.113.7 /var/www/wordpress/index.php\n");
    assert_eq!(get("/2026/11/hello/?p=1"), "on 203.0.113.7 /var/www/wordpress/index.php\n");
    assert_eq!(get("/wp-admin/"), "on 203.0.113.7 /var/www/wordpress/wp-admin/index.php\n");
    assert_eq!(get("/style.css"), "p {}\n");
    machine.wait("curl --silent --head https://example.com/wp-login.php | grep -q '^HTTP/2 429'");
}

#[test]
fn nginx_between_litequic_and_php_knows_the_client_and_its_scheme() {
    let Some(()) = needs::programs(&["curl", "nginx", "python3"]) else { return };
    let guide = Guide::read("serve-wordpress-and-php");
    let Some((machine, _fastcgi)) = prepared() else { return };
    machine.write("/etc/nginx/conf.d/wordpress.conf", &guide.block("nginx", "fastcgi_pass"));
    let main = "events {}\nhttp { include mime.types; include conf.d/wordpress.conf; }\n";
    machine.write("/etc/nginx/nginx.conf", main);
    let _nginx = machine.spawn("exec nginx -g 'daemon off;'");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:8080/");
    let _litequic = machine.litequic(&guide.block("toml", "wp-login"));
    serves(&guide, &machine);
    for path in ["/wp-content/uploads/evil.php", "/.git/config"] {
        let head = machine.run(&format!("curl --silent --head https://example.com{path}"));
        assert!(head.starts_with("HTTP/2 403"), "{path}: {head}");
    }
    let folder = machine.run("curl --silent --head https://example.com/wp-admin");
    assert!(folder.starts_with("HTTP/2 301") && folder.contains("location: /wp-admin/"), "{folder}");
}

#[test]
fn caddy_between_litequic_and_php_knows_the_client_and_its_scheme() {
    let Some(()) = needs::programs(&["curl", "caddy", "python3"]) else { return };
    let guide = Guide::read("serve-wordpress-and-php");
    let Some((machine, _fastcgi)) = prepared() else { return };
    machine.write("/etc/caddy/Caddyfile", &guide.block("caddy", "php_fastcgi"));
    let _caddy = machine.spawn("HOME=/root exec caddy run --config /etc/caddy/Caddyfile");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:8080/");
    let _litequic = machine.litequic(&guide.block("toml", "wp-login"));
    serves(&guide, &machine);
}
