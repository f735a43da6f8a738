//! docs/how-to/serve-old-clients.md.

use super::{Guide, adapted, machine::Machine};
use crate::support::needs;

#[test]
fn clients_of_tls_1_2_are_served_with_the_key() {
    let Some(()) = needs::programs(&["curl", "jq", "nginx", "openssl"]) else { return };
    let guide = Guide::read("serve-old-clients");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    let _origin = machine.nginx(8080, "a page");
    machine.run(
        "cd /etc/litequic; mv tls.crt ecdsa.crt; mv tls.key ecdsa.key\n\
         openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=example.com \
           -addext subjectAltName=DNS:example.com -addext basicConstraints=critical,CA:FALSE \
           -keyout rsa.key -out rsa.crt 2>/dev/null\n\
         cat rsa.crt >>/etc/litequic-test-ca.pem",
    );
    let configuration = guide.block("toml", "tls_min");
    let litequic = machine.litequic(&configuration);
    let (curl, openssl) = (guide.command("--tls-max 1.2"), guide.command("-tls1_2"));
    let head = machine.run(&curl);
    assert!(head.starts_with("HTTP/2 200"), "{head}");
    let shaken = machine.end(&openssl);
    assert!(shaken.code == Some(0) && shaken.stderr.contains("Protocol version: TLSv1.2"), "{shaken:?}");
    let rsa = machine.end(&format!("{openssl} -sigalgs RSA-PSS+SHA256:RSA+SHA256 -cipher ECDHE-RSA-AES128-GCM-SHA256"));
    assert!(rsa.stderr.contains("Signature type: RSA-PSS"), "{rsa:?}");
    let cbc = machine.end(&format!("{openssl} -cipher ECDHE-ECDSA-AES128-SHA"));
    assert!(cbc.code != Some(0) && cbc.stderr.contains("handshake failure"), "{cbc:?}");
    let metrics = machine.run("litequic ctl metrics");
    assert!(metrics.contains("litequic_tcp_handshakes_tls12_total 3\n"), "{metrics}");
    machine.run("curl --silent https://example.com:8443/");
    machine.wait("test $(wc -l </var/log/litequic/access.log) = 2");
    let filter = guide.text.split('`').find(|span| span.starts_with("jq 'select")).unwrap();
    assert_eq!(machine.run(&format!("{filter} </var/log/litequic/access.log")), "\"127.0.0.1\"\n");
    machine.run("kill $(pidof litequic)");
    litequic.end();

    let _litequic = machine.litequic(&adapted(&configuration, &[("tls_min = \"1.2\"\n", "")]));
    assert_eq!(machine.end(&curl).code, Some(35));
    let refused = machine.end(&openssl);
    assert!(refused.code != Some(0) && refused.stderr.contains("alert protocol version"), "{refused:?}");
    let counted = machine.run(&guide.command("litequic ctl metrics"));
    assert!(counted.trim().ends_with("} 2"), "{counted}");
}
