//! docs/how-to/obtain-certificates-by-acme.md: one command, and the configuration, with Pebble as the CA.

use super::{Guide, machine::Machine};
use crate::support::prelude::*;

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
    let Some(()) = needs::programs(&["pebble", "curl"]) else { return };
    let guide = Guide::read("obtain-certificates-by-acme");
    let Some((machine, _pebble)) = prepared() else { return };
    let command = guide.command("litequic run --host");
    // A user who may not bind these ports is told what lets them.
    let refused =
        machine.end(&format!("exec setpriv --bounding-set=-net_bind_service {command} --state /var/lib/acme"));
    assert!(refused.code == Some(69) && refused.stderr.contains("CAP_NET_BIND_SERVICE"), "{refused:?}");
    let litequic = machine.spawn(&format!(
        "export STATE_DIRECTORY=/var/lib/litequic; exec {command} --acme-directory https://localhost:14000/dir --log-format json"
    ));
    litequic.await_stderr("\"host\":\"www.example.com\",\"expires\"");
    for host in ["example.com", "www.example.com"] {
        is_served(&machine, host);
    }
    assert_eq!(machine.run("stat --format %a /var/lib/litequic/acme").trim(), "700");
}

/// A page that shows the protocol that it came by.
const PAGE: &str = r#"events {}
http { server { listen 127.0.0.1:8080; default_type text/html; location / {
    return 200 "<!doctype html><p id=o></p><script>o.textContent = 'by ' +
        performance.getEntriesByType('navigation')[0].nextHopProtocol + '.'</script>"; } } }
"#;

/// From an empty folder to a page in a browser, over HTTP/3, that trusts Pebble's root as its operator's own.
#[test]
fn one_command_is_a_page_over_http3_in_a_browser() {
    let [Some(_), Some(_), Some(_), Some(_), Some(_)] =
        ["pebble", "curl", "nginx", "chromium", "certutil"].map(needs::program)
    else {
        return;
    };
    let guide = Guide::read("obtain-certificates-by-acme");
    let Some((machine, _pebble)) = prepared() else { return };
    machine.write("/etc/nginx/nginx.conf", PAGE);
    let _nginx = machine.spawn("exec nginx -g 'daemon off;'");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:8080/");
    let command = guide.command("litequic run --host");
    let litequic = machine.spawn(&format!(
        "export STATE_DIRECTORY=/var/lib/litequic; exec {command} --acme-directory https://localhost:14000/dir --log-format json"
    ));
    litequic.await_stderr("\"host\":\"example.com\",\"expires\"");
    machine.run(
        "mkdir -p /root/.pki/nssdb; certutil -d sql:/root/.pki/nssdb -N --empty-password\n\
         certutil -d sql:/root/.pki/nssdb -A -n pebble -t C,, -i /etc/pebble/root.pem",
    );
    // QUIC is forced: by default Chromium takes no certificate over QUIC that no public authority signed.
    let page = machine.spawn(
        "HOME=/root exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
         --disable-background-networking --disable-component-update --enable-quic --user-data-dir=/var/profile \
         --origin-to-force-quic-on=example.com:443 --host-resolver-rules='MAP example.com 127.0.0.1, MAP * ~NOTFOUND' \
         --virtual-time-budget=10000 --dump-dom https://example.com/",
    );
    let page = page.end_within(Duration::from_secs(60)).success();
    assert!(page.contains("by h3."), "{page}\n{}", litequic.stderr());
}

#[test]
fn a_configuration_obtains_certificates_and_says_what_is_stored() {
    let Some(()) = needs::programs(&["pebble", "curl"]) else { return };
    let guide = Guide::read("obtain-certificates-by-acme");
    let Some((machine, _pebble)) = prepared() else { return };
    let config = guide
        .block("toml", "contact = ")
        .replace("terms_agreed = true", "terms_agreed = true\ndirectory = \"https://localhost:14000/dir\"");
    machine.write("/etc/litequic/litequic.toml", &config);
    let check = guide.command("litequic check");
    let checked = machine.run(&check);
    assert!(checked.contains("example.com: no certificate is stored; an order begins at the start"), "{checked}");
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
