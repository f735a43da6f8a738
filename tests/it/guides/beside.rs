//! docs/how-to/add-http3-beside-nginx.md: nginx, Caddy and Apache have TCP port 443, litequic has UDP port 443.

use super::{Guide, adapted, machine::Machine};
use crate::support::prelude::*;

/// A page that requests more until the browser uses HTTP/3, and shows the protocols.
const PAGE: &str = r"<!doctype html><p id=o>waiting</p><script>
    (async () => {
        const seen = [performance.getEntriesByType('navigation')[0].nextHopProtocol];
        for (let i = 0; i < 40 && !seen.includes('h3'); i++) {
            await (await fetch('/?' + i, { cache: 'no-store' })).text();
            seen.push(performance.getEntriesByName(location.origin + '/?' + i)[0].nextHopProtocol);
            await new Promise(next => setTimeout(next, 100));
        }
        document.getElementById('o').textContent = 'by ' + [...new Set(seen)].join(', then ') + '.';
    })();
</script>";

/// A machine with the guide's certificate, page and litequic.
fn prepared(guide: &Guide) -> Option<(Machine, SelfSigned)> {
    let made = make_self_signed(["example.com"]).unwrap();
    let machine = Machine::start("example.com", &made.cert_pem)?;
    machine.write("/etc/letsencrypt/live/example.com/fullchain.pem", &made.cert_pem);
    machine.write("/etc/letsencrypt/live/example.com/privkey.pem", &made.key_pem);
    machine.run("rm -rf /var/www/html");
    machine.write("/var/www/html/index.html", PAGE);
    machine.write("/etc/litequic/litequic.toml", &guide.block("toml", "tcp = []"));
    Some((machine, made))
}

/// Both commands of the guide, with `server` as it calls itself over TCP.
fn both_answer(guide: &Guide, machine: &Machine, server: &str) {
    let tcp = machine.run(&guide.command("curl --silent --head"));
    assert!(tcp.starts_with("HTTP/2 200"), "{tcp}");
    let fields = tcp.to_lowercase();
    assert!(fields.contains("alt-svc: h3=\":443\"; ma=86400"), "{tcp}");
    assert!(fields.contains(server), "{tcp}");
    let udp = machine.run(&guide.command("litequic get --head"));
    assert!(udp.starts_with("HTTP/3 200"), "{udp}");
    assert!(!udp.to_lowercase().contains("alt-svc"), "{udp}");
}

fn nginx(guide: &Guide, machine: &Machine, change: impl Fn(String) -> String) -> Process {
    let server = change(guide.block("nginx", "add_header Alt-Svc"));
    machine.write(
        "/etc/nginx/nginx.conf",
        &format!("error_log stderr;\nevents {{}}\nhttp {{\ninclude mime.types;\n{server}\n}}\n"),
    );
    let nginx = machine.spawn("exec nginx -g 'daemon off;'");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:8080/");
    nginx
}

#[test]
fn a_browser_follows_the_alt_svc_of_nginx_to_http3() {
    let Some(()) = needs::programs(&["nginx", "curl", "chromium"]) else { return };
    let guide = Guide::read("add-http3-beside-nginx");
    let Some((machine, made)) = prepared(&guide) else { return };
    let _nginx = nginx(&guide, &machine, |server| server);
    let _litequic = machine.litequic(&guide.block("toml", "tcp = []"));
    both_answer(&guide, &machine, "server: nginx");

    // QUIC is forced for another port: without the option Chromium takes no certificate over QUIC that no public
    // authority signed.
    let chromium = machine.spawn(&format!(
        "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
         --disable-background-networking --disable-component-update --enable-quic --user-data-dir=/var/profile \
         --origin-to-force-quic-on=example.com:1 --ignore-certificate-errors-spki-list={} \
         --virtual-time-budget=10000 --dump-dom https://example.com/",
        made.spki_sha256
    ));
    let page = chromium.end_within(Duration::from_secs(60)).success();
    assert!(page.contains("by h2, then h3."), "{page}");
    machine.wait("grep -q '\"protocol\":\"HTTP/3\"' /var/log/litequic/access.log");
    let metrics = machine.run("litequic ctl metrics");
    assert!(!metrics.contains("litequic_requests_total{protocol=\"h2\"} 1"), "{metrics}");
}

#[test]
fn behind_nginx_the_client_is_known_and_a_redirect_stays_at_https() {
    let Some(()) = needs::programs(&["nginx", "curl"]) else { return };
    let guide = Guide::read("add-http3-beside-nginx");
    let Some((machine, _)) = prepared(&guide) else { return };
    let _nginx = nginx(&guide, &machine, |server| {
        adapted(
            &server,
            &[(
                "location / {",
                "location = /who { return 200 \"$remote_addr $http_x_forwarded_proto\\n\"; }\n    location / {",
            )],
        )
    });
    let _litequic = machine.litequic(&guide.block("toml", "tcp = []"));
    machine.run("mkdir /var/www/html/folder");
    let redirect = machine.end("litequic get --head https://example.com/folder").stdout;
    assert!(redirect.contains("301") && redirect.contains("location: /folder/"), "{redirect}");
    let who = machine.run(
        "ip address add 127.9.9.9/8 dev lo; litequic get --resolve example.com:443:127.9.9.9 https://example.com/who",
    );
    assert!(who.trim().ends_with(" https"), "{who}");
}

/// Whose port it is: nginx of this build lacks QUIC, so another program stands for one that has it.
#[test]
fn a_server_that_has_udp_port_443_keeps_it() {
    let Some(_) = needs::program("python3") else { return };
    let guide = Guide::read("add-http3-beside-nginx");
    let Some((machine, _)) = prepared(&guide) else { return };
    let holder = machine.spawn(
        "exec python3 -c 'import socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
         s.bind((\"::\", 443))\nprint(\"bound\", flush=True)\ns.recv(1)'",
    );
    holder.await_stdout("bound");
    let ended = machine.end("exec litequic run --config /etc/litequic/litequic.toml");
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.contains("Address already in use"), "{ended:?}");
}

#[test]
fn caddy_keeps_tcp_and_litequic_adds_http3() {
    let Some(()) = needs::programs(&["caddy", "curl"]) else { return };
    let guide = Guide::read("add-http3-beside-nginx");
    let Some((machine, _)) = prepared(&guide) else { return };
    // Its own authority would be asked for a certificate.
    let files = "/etc/letsencrypt/live/example.com/fullchain.pem /etc/letsencrypt/live/example.com/privkey.pem";
    let caddyfile = adapted(
        &guide.block("caddy", "protocols h1 h2"),
        &[("    header Alt-Svc", &format!("    tls {files}\n    header Alt-Svc"))],
    );
    machine.write("/etc/caddy/Caddyfile", &caddyfile);
    let _caddy = machine.spawn("HOME=/root exec caddy run --config /etc/caddy/Caddyfile");
    machine.wait("curl --silent --fail --output /dev/null --header 'Host: example.com:8080' http://127.0.0.1:8080/");
    let _litequic = machine.litequic(&guide.block("toml", "tcp = []"));
    both_answer(&guide, &machine, "server: caddy");
}

#[test]
fn apache_keeps_tcp_and_litequic_adds_http3() {
    let Some(()) = needs::programs(&["apache2", "curl"]) else { return };
    let guide = Guide::read("add-http3-beside-nginx");
    let Some((machine, _)) = prepared(&guide) else { return };
    let plain = guide.block("apache", "Listen 127.0.0.1:8080");
    let header = plain.lines().find_map(|line| line.strip_prefix("#     Header")).unwrap();
    let modules = ["mpm_event", "authz_core", "dir", "headers", "http2", "mime", "remoteip", "socache_shmcb", "ssl"];
    let mut configuration = "ServerName example.com\nUser www-data\nGroup www-data\nDefaultRuntimeDir /run\n\
         PidFile /run/apache.pid\nErrorLog /dev/stderr\nTypesConfig /etc/mime.types\nProtocols h2 http/1.1\n"
        .to_owned();
    for module in modules {
        configuration += &format!("LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so\n");
    }
    let live = "/etc/letsencrypt/live/example.com";
    configuration += &format!(
        "{plain}Listen 443\n<VirtualHost *:443>\nServerName example.com\nDocumentRoot /var/www/html\nSSLEngine on\n\
         SSLCertificateFile {live}/fullchain.pem\nSSLCertificateKeyFile {live}/privkey.pem\nHeader{header}\n</VirtualHost>\n"
    );
    machine.write("/etc/apache.conf", &configuration);
    machine.run("touch /etc/mime.types");
    let _apache = machine.spawn("exec apache2 -f /etc/apache.conf -D FOREGROUND");
    machine.wait("curl --silent --fail --output /dev/null http://127.0.0.1:8080/");
    let _litequic = machine.litequic(&guide.block("toml", "tcp = []"));
    both_answer(&guide, &machine, "server: apache");
}
