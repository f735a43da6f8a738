//! docs/how-to/obtain-certificates-by-acme.md: one command, and the configuration, with Pebble as the CA.

use super::{Guide, machine::Machine};
use crate::support::{needs, process::Process};
use litequic::tls::self_signed;

/// Pebble with its challenges at the ports of the RFC.
const PEBBLE: &str = r#"{ "pebble": {
    "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
    "certificate": "/etc/pebble/tls.crt", "privateKey": "/etc/pebble/tls.key",
    "httpPort": 80, "tlsPort": 443, "retryAfter": { "authz": 1, "order": 1 },
    "profiles": { "default": { "description": "ninety days", "validityPeriod": 7776000 } }
} }"#;

/// A machine with Pebble, which finds its names in /etc/hosts.
fn prepared() -> Option<(Machine, Process)> {
    let made = self_signed(["localhost"]).unwrap();
    let machine = Machine::start("example.com www.example.com", &made.cert_pem)?;
    machine.write("/etc/pebble/tls.crt", &made.cert_pem);
    machine.write("/etc/pebble/tls.key", &made.key_pem);
    machine.write("/etc/pebble/config.json", PEBBLE);
    let pebble =
        machine.spawn("PEBBLE_VA_NOSLEEP=1 PEBBLE_WFE_NONCEREJECT=0 exec pebble -config /etc/pebble/config.json");
    machine.wait("curl --silent --output /dev/null https://localhost:14000/dir");
    machine.run("curl --silent https://localhost:15000/roots/0 >/etc/pebble/root.pem");
    Some((machine, pebble))
}

/// Whether clients that trust Pebble's root are served, over QUIC too.
fn is_served(machine: &Machine, host: &str) {
    machine.wait(&format!("curl --silent --output /dev/null --cacert /etc/pebble/root.pem https://{host}/"));
    machine.wait(&format!("litequic get --ca /etc/pebble/root.pem https://{host}/ >/dev/null 2>&1 || test $? = 1"));
}

#[test]
fn one_command_is_a_site_with_certificates() {
    let [Some(_), Some(_)] = ["pebble", "curl"].map(needs::program) else { return };
    let guide = Guide::read("obtain-certificates-by-acme");
    let Some((machine, _pebble)) = prepared() else { return };
    let command = guide.command("litequic run --host");
    let litequic = machine.spawn(&format!(
        "export STATE_DIRECTORY=/var/lib/litequic; exec {command} --acme-directory https://localhost:14000/dir --log-format json"
    ));
    litequic.await_stderr("\"host\":\"www.example.com\",\"expires\"");
    for host in ["example.com", "www.example.com"] {
        is_served(&machine, host);
    }
    assert_eq!(machine.run("stat --format %a /var/lib/litequic/acme").trim(), "700");
}

#[test]
fn a_configuration_obtains_certificates_and_says_what_is_stored() {
    let [Some(_), Some(_)] = ["pebble", "curl"].map(needs::program) else { return };
    let guide = Guide::read("obtain-certificates-by-acme");
    let Some((machine, _pebble)) = prepared() else { return };
    let config = guide
        .block("toml", "contact = ")
        .replace("terms_agreed = true", "terms_agreed = true\ndirectory = \"https://localhost:14000/dir\"");
    machine.write("/etc/litequic/litequic.toml", &config);
    let check = guide.command("litequic check");
    let checked = machine.run(&check);
    assert!(checked.contains("example.com: no certificate is stored; one is ordered at the start"), "{checked}");
    let litequic = machine.litequic(&config);
    for host in ["example.com", "www.example.com"] {
        is_served(&machine, host);
    }
    machine.wait(&format!("{} | grep -q '^www.example.com  valid'", guide.command("litequic ctl certificates  ")));
    machine.run(&guide.command("litequic ctl certificates renew"));
    let checked = machine.run(&check);
    assert!(checked.contains("example.com: a certificate is stored, which expires "), "{checked}");
    drop(litequic);
}
