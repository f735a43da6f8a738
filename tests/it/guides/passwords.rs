//! docs/how-to/protect-a-path-with-a-password.md.

use super::{Guide, machine::Machine};
use crate::support::needs;

#[test]
fn a_path_asks_for_a_password_and_the_origin_gets_none() {
    let [Some(_), Some(_), Some(_)] = ["curl", "openssl", "nginx"].map(needs::program) else { return };
    let guide = Guide::read("protect-a-path-with-a-password");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    let _origin = machine.nginx(8080, "at the origin: '$http_authorization' $http_x_forwarded_proto");
    let password = machine.run(&format!("cd /root; {}", guide.command("printf 'guest:%s'")));
    machine.write("/etc/litequic/litequic.toml", &guide.block("toml", "STAGING_PASSWORD"));
    let litequic =
        machine.spawn(&format!("STAGING_PASSWORD='{password}' exec litequic run --config /etc/litequic/litequic.toml"));
    litequic.address();

    let asked = machine.run(&guide.command("curl --silent --head https://example.com:8443/staging/"));
    assert!(asked.starts_with("HTTP/2 401"), "{asked}");
    assert!(asked.contains("www-authenticate: Basic realm=\"staging\", charset=\"UTF-8\""), "{asked}");
    let let_in = machine.run(&format!("cd /root; {}", guide.command("--user")));
    assert!(let_in.starts_with("HTTP/2 200"), "{let_in}");
    let fields =
        machine.run("cd /root; curl --silent --user \"$(cat staging-password)\" https://example.com:8443/staging/");
    assert_eq!(fields, "at the origin: '' https\n");
    let wrong = machine.run("curl --silent --head --user guest:wrong https://example.com:8443/staging/");
    assert!(wrong.starts_with("HTTP/2 401"), "{wrong}");
    // The rest of the site asks for none.
    let open = machine.run("curl --silent --head https://example.com:8443/");
    assert!(open.starts_with("HTTP/2 200"), "{open}");
    // Ten wrong ones a minute.
    machine.wait("curl --silent --head --user guest:wrong https://example.com:8443/staging/ | grep -q '^HTTP/2 429'");
    let shown = machine.run("litequic ctl config");
    assert!(!shown.contains(&password), "{shown}");
}
