//! Guides about files and commands of an operator: docs/how-to/split-the-configuration.md,
//! log-to-journald-or-syslog.md, downgrade-or-uninstall.md, monitor-with-prometheus.md, move-from-traefik.md.

use super::{Guide, adapted, machine::Machine};
use crate::support::prelude::*;

/// A machine with the guides' certificate.
fn machine() -> Option<Machine> {
    Machine::with_certificate(&["example.com", "shop.example.com", "grafana.internal"])
}

#[test]
fn parts_make_a_configuration_and_a_wrong_part_replaces_nothing() {
    let Some(_) = needs::program("curl") else { return };
    let guide = Guide::read("split-the-configuration");
    let Some(machine) = machine() else { return };
    machine.write("/etc/litequic/conf.d/00-base.toml", &guide.block("toml", "handover"));
    machine.write("/etc/litequic/conf.d/50-shop.toml", &guide.block("text", "shop.example.com"));
    machine.write("/usr/local/sbin/litequic-assemble", &guide.block("shell", "litequic check"));
    machine.run("chmod 0755 /usr/local/sbin/litequic-assemble");
    let assemble = guide.command("/usr/local/sbin/litequic-assemble");
    machine.run(&assemble);
    machine.run(&guide.command("litequic check"));
    let assembled = machine.run("cat /etc/litequic/litequic.toml");
    let litequic = machine.litequic(&assembled);
    assert!(machine.run(&guide.command("litequic ctl config")).contains("origins.shop"));

    machine.write(
        "/etc/litequic/conf.d/60-docs.toml",
        "[[routes]]\nhost = \"docs.example.com\"\nrespond = { body = \"docs\" }\n",
    );
    machine.run(&assemble);
    litequic.await_stderr("reloaded");
    machine.write("/etc/litequic/conf.d/70-wrong.toml", "[[routes]]\nhost = \"x.example.com\"\norigin = \"absent\"\n");
    let before = machine.run("cat /etc/litequic/litequic.toml");
    let refused = machine.end(&assemble);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert_eq!(machine.run("cat /etc/litequic/litequic.toml"), before);
}

#[test]
fn both_logs_are_json_and_a_reload_enables_debug() {
    let Some(()) = needs::programs(&["jq", "curl"]) else { return };
    let guide = Guide::read("log-to-journald-or-syslog");
    let Some(machine) = machine() else { return };
    let litequic = machine.litequic(&guide.block("toml", "level = \"info\""));
    machine.run(&guide.command("curl --silent"));
    litequic.await_stderr("\"path\":\"/\"");
    // The journal of a unit has lines of systemd, too.
    machine.write("/var/log/all", &format!("Started litequic.service - litequic.\n{}", litequic.stderr()));
    // Nothing listens where the origin should be: 502.
    let command = guide.command("| jq ");
    let (_, filter) = command.split_once(" | ").unwrap();
    let failed = machine.run(&format!("cat /var/log/all | {filter}"));
    assert!(failed.contains("\"status\": 502"), "{failed}");

    machine.write("/etc/litequic/litequic.toml", &guide.block("toml", "level = \"debug\""));
    litequic.await_stderr("log.level");
    for part in ["RUST_LOG=info", "--log-level debug"] {
        let command = guide.command(part).replace("litequic.toml", "/etc/litequic/litequic.toml");
        // The addresses are held: it reads its options, and ends.
        let ended = machine.end(&command);
        assert_eq!(ended.code, Some(69), "{ended:?}");
    }
}

#[test]
fn rsyslog_forwards_the_access_log() {
    let Some(()) = needs::programs(&["rsyslogd", "python3", "curl"]) else { return };
    let guide = Guide::read("log-to-journald-or-syslog");
    let Some(machine) = machine() else { return };
    machine.run("printf '127.0.0.1 logs.example.com\\n' >>/etc/hosts; mkdir -p /var/spool/rsyslog");
    machine.write("/etc/rsyslog.d/litequic.conf", &guide.block("text", "imfile"));
    let drop_in = "$IncludeConfig /etc/rsyslog.d/litequic.conf\n";
    machine.write("/etc/rsyslog.conf", &format!("global(workDirectory=\"/var/spool/rsyslog\")\n{drop_in}"));
    let collector = machine.spawn(
        "exec python3 -c 'import socket\nlistener = socket.create_server((\"127.0.0.1\", 514))\n\
         print(\"listens\", flush=True)\nconnection, _ = listener.accept()\n\
         for line in connection.makefile():\n    print(line, flush=True)'",
    );
    collector.await_stdout("listens");
    let configuration = guide.block("toml", "level = \"info\"");
    let file = "path = \"/var/log/litequic/access.log\"";
    let _litequic = machine.litequic(&adapted(&configuration, &[("path = \"stderr\"", file)]));
    let _rsyslog = machine.spawn("exec rsyslogd -n -i NONE -f /etc/rsyslog.conf");
    machine.run(&guide.command("curl --silent"));
    collector.await_stdout("\"path\":\"/\"");
    assert!(collector.stdout().contains("litequic: {\"time\":"), "{}", collector.stdout());
}

#[test]
fn uninstalling_the_tarball_removes_its_files_alone() {
    let Some(_) = needs::program("ss") else { return };
    let guide = Guide::read("downgrade-or-uninstall");
    let Some(machine) = machine() else { return };
    machine.run(
        "cd /root; mkdir -p litequic-0.1.0/bin litequic-0.1.0/share/man/man1\n\
         touch litequic-0.1.0/bin/litequic litequic-0.1.0/share/man/man1/litequic.1 /usr/local/bin/other\n\
         tar --create --gzip --file litequic-0.1.0-x86_64-unknown-linux-gnu.tar.gz litequic-0.1.0\n\
         tar --extract --gzip --file litequic-*.tar.gz --directory /usr/local --strip-components 1\n\
         test -e /usr/local/bin/litequic",
    );
    let remove = guide.command("tar --list").replace("sudo ", "");
    machine.run(&format!("cd /root; {remove}"));
    machine.run("cd /usr/local; test ! -e bin/litequic; test ! -e share/man/man1/litequic.1; test -e bin/other");
    assert_eq!(machine.run(&guide.command("ss --no-header")), "");
}

#[test]
fn the_dashboard_is_imported_by_grafanas_api() {
    let Some(()) = needs::programs(&["jq", "curl", "python3"]) else { return };
    let guide = Guide::read("monitor-with-prometheus");
    let Some(machine) = machine() else { return };
    let dashboard = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/litequic-sidecar/files/dashboard.json");
    machine.write("/root/helm/litequic-sidecar/files/dashboard.json", &fs::read_to_string(dashboard).unwrap());
    // Stands for Grafana's interface: prints what it gets.
    machine.write(
        "/root/grafana.py",
        "import http.server, json\n\
         class Handler(http.server.BaseHTTPRequestHandler):\n    \
             def do_POST(self):\n        \
                 body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))\n        \
                 print(self.path, self.headers['Authorization'], body['dashboard']['id'], body['overwrite'], flush=True)\n        \
                 self.send_response(200)\n        \
                 self.end_headers()\n\
         http.server.HTTPServer(('127.0.0.1', 3000), Handler).serve_forever()\n",
    );
    let grafana = machine.spawn("exec python3 /root/grafana.py");
    machine.wait("curl --silent --output /dev/null http://grafana.internal:3000/");
    machine.run(&format!("cd /root; GRAFANA_TOKEN=glsa_x; {}", guide.command("api/dashboards/db")));
    grafana.await_stdout("/api/dashboards/db Bearer glsa_x None True");
}

/// The ports that compose publishes are mapped by nftables.
#[test]
fn traefiks_labels_become_a_configuration_that_serves_behind_published_ports() {
    let Some(()) = needs::programs(&["nft", "nginx", "curl"]) else { return };
    let guide = Guide::read("move-from-traefik");
    let Some(machine) = machine() else { return };
    machine.run("printf '127.0.0.1 app\\n' >>/etc/hosts; mkdir -p /tls; cp /etc/litequic/tls.* /tls/");
    let compose = guide.block("yaml", "stop_grace_period");
    let ports: Vec<(&str, &str)> = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- \"")?.strip_suffix('"')?.split_once(':'))
        .filter(|(outside, _)| outside.parse::<u16>().is_ok())
        .collect();
    assert_eq!(ports, [("443", "8443/udp"), ("443", "8443/tcp"), ("80", "8080/tcp")]);
    let mut rules = "table ip published {\nchain output {\ntype nat hook output priority -100;\n".to_owned();
    for (outside, inside) in ports {
        let (port, protocol) = inside.split_once('/').unwrap();
        rules += &format!("{protocol} dport {outside} redirect to :{port}\n");
    }
    machine.write("/root/published.nft", &format!("{rules}}}\n}}\n"));
    machine.run("nft --file /root/published.nft");
    // The application has a machine of its own behind compose.
    let _app = machine.nginx(8081, "$host $request_uri");
    machine.run("mkdir -p /root/litequic");
    let configuration = adapted(&guide.block("toml", "advertised_port"), &[("http://app:8080", "http://app:8081")]);
    machine.write("/root/litequic/litequic.toml", &configuration);
    machine.run(&format!("cd /root; {}", guide.command("litequic check")));
    let _litequic = machine.litequic(&configuration);
    let head = machine.run(&guide.command("litequic get --head"));
    assert!(head.starts_with("HTTP/3 200") && head.contains("strict-transport-security: max-age=31536000"), "{head}");
    assert_eq!(machine.run("curl --silent https://example.com/api/users"), "example.com /users\n");
    let redirect = machine.run("curl --silent --head http://example.com/a");
    assert!(redirect.contains("308") && redirect.contains("location: https://example.com/a"), "{redirect}");
}
