//! docs/how-to/obtain-certificates-with-certbot.md: certbot and lego obtain certificates of Pebble, Let's Encrypt's CA
//! for tests, while litequic has ports 80 and 443.

use super::{Guide, machine::Machine};
use crate::support::prelude::*;

/// Pebble's answers, certbot's waits between them, and a Python that starts.
const DEADLINE: Duration = Duration::from_secs(120);

/// What the guide does not say because the default is right: which CA, and that it may go on without a terminal.
const CERTBOT: &str = "server = https://localhost:14000/dir\nagree-tos = true\nnon-interactive = true\n\
    register-unsafely-without-email = true\nno-random-sleep-on-renew = true\n";

/// Of the certificate that litequic serves; what is to be printed follows.
const SERVED: &str = "openssl s_client -connect example.com:443 -servername example.com </dev/null 2>/dev/null | \
    openssl x509 -noout";

/// A machine with Pebble, litequic and the guide's first certificate.
fn prepared(guide: &Guide) -> Option<(Machine, Process, Process)> {
    let (machine, pebble) = Machine::with_pebble()?;
    machine.run(&guide.command("openssl req -x509"));
    machine.run(&guide.command("chgrp litequic"));
    let litequic = machine.litequic(&guide.block("toml", "origins.acme"));
    Some((machine, pebble, litequic))
}

/// Who signed the certificate that litequic serves, by the guide's command.
fn issuer(guide: &Guide, machine: &Machine) -> String {
    machine.run(&guide.command("openssl s_client"))
}

fn run(machine: &Machine, command: &str) -> String {
    let ended = machine.spawn(command).end_within(DEADLINE);
    assert_eq!(ended.code, Some(0), "{command}\n{}{}", ended.stdout, ended.stderr);
    ended.stdout + &ended.stderr
}

#[test]
fn certbot_obtains_and_renews_a_certificate_while_litequic_has_both_ports() {
    let Some(()) = needs::programs(&["certbot", "pebble", "openssl", "curl"]) else { return };
    let guide = Guide::read("obtain-certificates-with-certbot");
    let Some((machine, pebble, litequic)) = prepared(&guide) else { return };
    assert!(issuer(&guide, &machine).contains("CN = example.com"), "a self-signed one");

    machine.write("/etc/letsencrypt/cli.ini", CERTBOT);
    machine.write("/etc/letsencrypt/litequic-deploy", &guide.block("shell", "RENEWED_LINEAGE"));
    machine.run("chmod 0755 /etc/letsencrypt/litequic-deploy");
    let certbot = guide.command("certbot certonly --standalone");
    run(&machine, &format!("export REQUESTS_CA_BUNDLE=$SSL_CERT_FILE\n{certbot}"));
    litequic.await_stderr("reloaded");
    machine.wait(&format!("{SERVED} -issuer | grep -q Pebble"));
    assert_eq!(machine.run("stat --format '%a %G' /etc/litequic/tls.key").trim(), "640 litequic");
    let first = issuer(&guide, &machine);
    assert!(first.contains("Pebble Intermediate CA"), "{first}");

    // The CA came over http, and followed the redirect to https.
    assert!(pebble.stdout().contains("set VALID by completed challenge"), "{}", pebble.stdout());
    let metrics = machine.run("litequic ctl metrics");
    assert!(!metrics.contains("litequic_tcp_redirects_total 0\n"), "{metrics}");

    let serial = "openssl x509 -noout -serial -in /etc/litequic/tls.crt";
    let before = machine.run(serial);
    run(&machine, &format!("export REQUESTS_CA_BUNDLE=$SSL_CERT_FILE\n{}", guide.command("certbot renew --dry-run")));
    assert_eq!(machine.run(serial), before, "a dry run changes nothing");
    run(&machine, "export REQUESTS_CA_BUNDLE=$SSL_CERT_FILE\ncertbot renew --force-renewal");
    let renewed = machine.run(serial);
    assert_ne!(renewed, before);
    machine.wait(&format!("test \"$({SERVED} -serial)\" = \"{}\"", renewed.trim()));

    // No client listens at port 8402 now.
    let idle = machine.end("curl --silent --insecure --head https://example.com/.well-known/acme-challenge/x").stdout;
    assert!(idle.starts_with("HTTP/2 502"), "{idle}");
}

#[test]
fn lego_obtains_a_certificate_in_the_same_way() {
    let Some(()) = needs::programs(&["lego", "pebble", "openssl", "curl"]) else { return };
    let guide = Guide::read("obtain-certificates-with-certbot");
    let Some((machine, _pebble, litequic)) = prepared(&guide) else { return };
    let hook = guide.block("shell", "RENEWED_LINEAGE");
    let hook = hook
        .replace("$RENEWED_LINEAGE/privkey.pem", "$LEGO_CERT_KEY_PATH")
        .replace("$RENEWED_LINEAGE/fullchain.pem", "$LEGO_CERT_PATH");
    machine.write("/etc/lego/litequic-deploy", &hook);
    machine.run("chmod 0755 /etc/lego/litequic-deploy");
    let lego = guide
        .command("lego --accept-tos")
        .replace("lego --accept-tos", "lego --server https://localhost:14000/dir --accept-tos");
    run(&machine, &format!("export LEGO_CA_CERTIFICATES=$SSL_CERT_FILE\n{lego}"));
    litequic.await_stderr("reloaded");
    machine.wait(&format!("{SERVED} -issuer | grep -q Pebble"));
}
