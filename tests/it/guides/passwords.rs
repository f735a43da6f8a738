//! docs/how-to/protect-a-path-with-a-password.md.

use super::{Guide, machine::Machine};
use crate::support::needs;

#[test]
fn a_protected_path_needs_a_password_and_passes_the_name_alone() {
    let Some(()) = needs::programs(&["curl", "nginx"]) else { return };
    let guide = Guide::read("protect-a-path-with-a-password");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    let _origin = machine.nginx(8080, "'$http_remote_user' '$http_authorization' $http_x_forwarded_proto");
    machine.write("/etc/litequic/litequic.toml", &guide.block("toml", "users = "));
    let asks = format!("printf 'PASSWORD\\nPASSWORD\\n' | {}", guide.command("litequic password guest"));
    machine.run(&asks);
    machine.run(&guide.command("chmod 640"));
    machine.run(&guide.command("litequic check"));
    let _litequic = machine.litequic(&guide.block("toml", "users = "));

    let asked = machine.run(&guide.command("curl --silent --head https://example.com:8443/staging/  "));
    assert!(asked.starts_with("HTTP/2 401"), "{asked}");
    assert!(asked.contains("www-authenticate: Basic realm=\"staging\", charset=\"UTF-8\""), "{asked}");
    let let_in = machine.run(&guide.command("--head --user guest"));
    assert!(let_in.starts_with("HTTP/2 200"), "{let_in}");
    let times = machine.run(&guide.block("bash", "time_starttransfer"));
    assert!(times.lines().count() == 2 && times.lines().all(|line| line.contains(" 0.")), "{times}");
    let fields = machine
        .run("curl --silent --header 'Remote-User: root' --user guest:PASSWORD https://example.com:8443/staging/");
    assert_eq!(fields, "'guest' '' https\n");
    let wrong = machine.run("curl --silent --head --user guest:wrong https://example.com:8443/staging/");
    assert!(wrong.starts_with("HTTP/2 401"), "{wrong}");
    // The rest of the site asks for none.
    let open = machine.run("curl --silent --head https://example.com:8443/");
    assert!(open.starts_with("HTTP/2 200"), "{open}");
    machine.wait("curl --silent --head --user guest:wrong https://example.com:8443/staging/ | grep -q '^HTTP/2 429'");
    let remembered = machine.run(&guide.command("--head --user guest"));
    assert!(remembered.starts_with("HTTP/2 200"), "{remembered}");
}
