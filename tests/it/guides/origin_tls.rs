//! docs/how-to/connect-to-an-origin-over-tls.md: nginx with a public name, behind a private CA that verifies litequic,
//! and with a certificate that it signed itself.

use super::{Guide, machine::Machine};
use crate::{
    client_certificates::person::{Authority, Shown},
    secure_origins::{pem, server},
    support::prelude::*,
};
use rcgen::SanType;

/// litequic is on the machine of its origin here: at an address of its own. It is reloaded by `litequic ctl`.
const LISTEN: &str = "listen.udp = [\"127.0.0.1:8443\"]\nadmin.listen = \"127.0.0.1:9443\"\n";

/// Writes the configuration of nginx with TLS at each of `listen` and the certificate `/etc/nginx/origin.crt`.
fn configure(machine: &Machine, listen: &str, more: &str) {
    machine.write(
        "/etc/nginx/nginx.conf",
        &format!(
            "error_log stderr;\nevents {{}}\nhttp {{ server {{ {listen}\nssl_protocols TLSv1.3;\n\
             ssl_certificate origin.crt;\nssl_certificate_key origin.key;\n{more}\n\
             location / {{ return 200 \"the origin $ssl_client_s_dn\\n\"; }} }} }}\n"
        ),
    );
}

fn nginx(machine: &Machine, listen: &str, more: &str) -> Process {
    configure(machine, listen, more);
    let nginx = machine.spawn("exec nginx -g 'daemon off;'");
    machine.wait("test -s /run/nginx.pid");
    nginx
}

fn put(machine: &Machine, path: &str, shown: &Shown) {
    machine.write(&format!("{path}.crt"), &pem(shown));
    machine.write(&format!("{path}.key"), &shown.key);
}

fn answers(machine: &Machine, text: &str) {
    let body = machine.run("litequic get https://example.com:8443/");
    assert!(body.ends_with(text), "{body}");
}

#[test]
fn an_origins_certificate_is_verified_and_failures_are_in_the_status() {
    let Some(()) = needs::programs(&["nginx", "openssl"]) else { return };
    let guide = Guide::read("connect-to-an-origin-over-tls");
    let Some(machine) = Machine::with_certificate(&["example.com", "origin.example.com"]) else { return };
    machine
        .run("mkdir -p /etc/nginx; for name in crt key; do cp /etc/litequic/tls.$name /etc/nginx/origin.$name; done");
    let _origin = nginx(&machine, "listen 443 ssl;", "");
    let configuration = guide.block("toml", "https://origin.example.com");
    let _litequic = machine.litequic(&configuration);
    let checked = machine.end(&guide.command("litequic check"));
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let shaken = machine.end(&guide.command("openssl s_client -connect origin.example.com:443"));
    assert!(shaken.stderr.contains("Verification: OK"), "{shaken:?}");
    answers(&machine, "\n\nthe origin \n");
    let status = machine.run(&guide.command("litequic ctl status"));
    assert!(!status.contains("refused"), "{status}");

    // Another name's certificate: what the document promises of the status page, the log and the metrics.
    put(&machine, "/etc/nginx/origin", &server(&Authority::new("other"), |_| {}));
    machine.run("nginx -s reload");
    machine.wait(&format!("{} | grep -q 'unknown issuer'", guide.command("litequic ctl status")));
    machine.wait("litequic ctl metrics | grep -q '^litequic_origin_server_up{.*} 0'");
    let metrics = machine.run("litequic ctl metrics");
    for metric in ["origin_tls_failures_total{reason=\"certificate\"", "origin_tls_handshakes_total{kind=\"full\""] {
        assert!(metrics.contains(&format!("litequic_{metric}")), "{metrics}");
    }
}

#[test]
fn private_cas_and_pinned_certificates_authenticate_origins_mutually() {
    let Some(()) = needs::programs(&["nginx", "openssl"]) else { return };
    let guide = Guide::read("connect-to-an-origin-over-tls");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    machine.run("ip address add 10.0.0.5/32 dev lo; ip address add 10.0.0.6/32 dev lo");
    let authority = Authority::new("origin CA");
    let issued = server(&authority, |one| {
        one.subject_alt_names = vec![SanType::DnsName("app.internal".try_into().unwrap())];
    });
    put(&machine, "/etc/nginx/origin", &issued);
    machine.write("/etc/nginx/ca.pem", &authority.pem());
    machine.write("/etc/litequic/origin-ca.pem", &authority.pem());
    machine.write("/etc/litequic/origin.crl", &authority.crl(&[]));
    put(&machine, "/etc/litequic/client", &authority.client());
    let both = "listen 10.0.0.5:8443 ssl; listen 10.0.0.6:8443 ssl;";
    let _origin = nginx(&machine, both, "ssl_verify_client on; ssl_client_certificate ca.pem;");
    let private = format!("{LISTEN}{}", guide.block("toml", "app.internal"));
    let _litequic = machine.litequic(&private);
    let body = machine.run("litequic get https://example.com:8443/");
    assert!(body.contains("the origin CN="), "{body}");

    let device = machine.run(
        "cd /etc/nginx; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
         -subj /CN=device -addext subjectAltName=IP:10.0.0.5 -keyout origin.key -out origin.crt 2>/dev/null; \
         openssl x509 -in origin.crt -noout -fingerprint -sha256",
    );
    // Another process: after a reload the old workers go on accepting for a moment.
    machine.run("nginx -s stop");
    machine.wait("! test -e /run/nginx.pid");
    let _device = nginx(&machine, "listen 10.0.0.5:8443 ssl;", "");
    machine.run(&guide.command("openssl s_client -showcerts"));
    let shown = machine.run(&guide.command("openssl x509 -in /etc/litequic/device.pem"));
    assert!(shown.starts_with(device.trim()) && shown.contains("IP Address:10.0.0.5"), "{shown} {device}");
    let trusting = guide.text.split('`').find(|code| code.contains("device.pem\"")).unwrap();
    let trusting = format!("[origin]\nurl = \"https://10.0.0.5:8443\"\n[origin.tls]\n{trusting}\n");
    let certificate = guide.block("toml", "app.internal");
    let certificate = certificate.split("[origin]").next().unwrap();
    machine.write("/etc/litequic/litequic.toml", &format!("{LISTEN}{certificate}{trusting}"));
    machine.run("litequic ctl reload");
    answers(&machine, "\n\nthe origin \n");
}
