//! docs/how-to/run-on-macos-or-windows.md, without its container: a machine of Linux, with the container's paths.

use super::{Guide, adapted, machine::Machine};
use crate::support::needs;

#[test]
fn a_server_of_the_host_is_served_with_a_certificate_for_tests() {
    let Some(()) = needs::programs(&["curl", "nginx", "openssl"]) else { return };
    let guide = Guide::read("run-on-macos-or-windows");
    let Some(machine) = Machine::start("host.docker.internal", "") else { return };
    machine.run("mkdir -p /root/tls");
    machine.run(&format!("cd /root; {}", guide.command("openssl req -x509")));
    machine.run(&format!("cd /root; {}", guide.command("chmod 644")));
    let fingerprint = machine.run(&format!("cd /root; {}", guide.command("openssl base64")));
    assert_eq!(fingerprint.trim().len(), 44, "SHA-256 in base64: {fingerprint}");
    let _origin = machine.nginx(8080, "the server of the laptop");
    let configuration = adapted(&guide.block("toml", "host.docker.internal"), &[("\"/tls/", "\"/root/tls/")]);
    let litequic = machine.litequic(&configuration);
    let get = guide.command("docker exec").replace("docker exec litequic ", "");
    let head = machine.run(&get);
    assert!(head.starts_with("HTTP/3 200"), "{head}");
    let head = machine.run(&format!("{} --silent", guide.command("curl --insecure")));
    assert!(head.starts_with("HTTP/2 200"), "{head}");
    litequic.await_stdout("\"protocol\":\"HTTP/3\"");
}
