//! docs/how-to/obtain-certificates-by-acme.md: one command, and the configuration, with Pebble as the CA.

use super::{Guide, machine::Machine};
use crate::support::{needs, process::Process};

/// A machine with Pebble, which finds its names in /etc/hosts.
fn prepared() -> Option<(Machine, Process)> {
    let (machine, pebble) = Machine::with_pebble()?;
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
