//! docs/how-to/reach-an-origin-on-another-machine.md: WireGuard, stunnel and SSH between litequic and its origin.

use super::{Guide, adapted, machine::Machine};
use crate::support::prelude::*;

/// An origin for tests: answers with its folder's files.
fn origin(machine: &Machine, address: &str) -> Process {
    machine.write("/var/site/index.html", "the origin\n");
    let origin = machine.spawn(&format!("exec python3 -m http.server --bind {address} --directory /var/site 8080"));
    machine.wait(&format!("curl --silent --output /dev/null http://{address}:8080/"));
    origin
}

/// A machine with a certificate for litequic, and one for `origin.example.com`.
fn machine() -> Option<Machine> {
    let machine = Machine::with_certificate(&["example.com", "origin.example.com"])?;
    machine.run(
        "mkdir -p /etc/stunnel; for name in crt key; do cp /etc/litequic/tls.$name /etc/stunnel/origin.$name; done",
    );
    Some(machine)
}

fn is_the_origins(guide: &Guide, machine: &Machine) {
    let head = machine.run(&guide.command("litequic get --head"));
    assert!(head.starts_with("HTTP/3 200"), "{head}");
    let body = machine.run("litequic get https://example.com:8443/");
    assert!(body.ends_with("\n\nthe origin\n"), "{body}");
}

#[test]
fn stunnel_verifies_the_origin_and_carries_requests() {
    let Some(()) = needs::programs(&["stunnel4", "curl", "python3"]) else { return };
    let guide = Guide::read("reach-an-origin-on-another-machine");
    let Some(machine) = machine() else { return };
    let _origin = origin(&machine, "127.0.0.1");
    // litequic has port 8443 on this machine.
    let server = adapted(&guide.block("ini", "accept = 8443"), &[("8443", "8444")]);
    machine.write("/etc/stunnel/origin.conf", &format!("foreground = yes\npid =\n{server}"));
    let client = adapted(&guide.block("ini", "client = yes"), &[("8443", "8444")]);
    machine.write("/etc/stunnel/litequic.conf", &format!("foreground = yes\npid = /run/near.pid\n{client}"));
    machine.run("cp /etc/stunnel/origin.crt /etc/stunnel/origin-ca.pem");
    let _server = machine.spawn("exec stunnel4 /etc/stunnel/origin.conf");
    let mut near = machine.spawn("exec stunnel4 /etc/stunnel/litequic.conf");
    machine.wait("curl --silent --fail --output /dev/null http://127.0.0.1:8081/");
    assert!(near.is_running());
    let configuration = adapted(&guide.block("toml", "10.9.0.2"), &[("http://10.9.0.2:8080", "http://127.0.0.1:8081")]);
    let _litequic = machine.litequic(&configuration);
    is_the_origins(&guide, &machine);

    // Another certificate is not accepted, and the health check notices.
    let other = make_self_signed(["elsewhere.example.com"]).unwrap();
    machine.write("/etc/stunnel/origin-ca.pem", &other.cert_pem);
    machine.run("kill -HUP $(cat /run/near.pid)");
    machine.wait("! curl --silent --fail --output /dev/null http://127.0.0.1:8081/");
    machine.wait("litequic ctl metrics | grep -q '^litequic_origin_server_up{.*} 0'");
}

#[test]
fn ssh_forwards_requests_to_the_origin() {
    let Some(()) = needs::programs(&["sshd", "ssh", "curl", "python3"]) else { return };
    let guide = Guide::read("reach-an-origin-on-another-machine");
    let Some(machine) = machine() else { return };
    let _origin = origin(&machine, "127.0.0.1");
    machine.run(
        "useradd --create-home --home-dir /var/tunnel --shell /bin/sh tunnel; usermod --password '*' tunnel\n\
         mkdir -p /run/sshd /root/.ssh /var/tunnel/.ssh; chmod 0700 /root/.ssh\n\
         ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/host; ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519\n\
         printf 'origin.example.com %s\\n' \"$(cat /etc/ssh/host.pub)\" >/root/.ssh/known_hosts",
    );
    let restricted = guide.text.split('`').find(|span| span.starts_with("restrict,")).unwrap().to_owned();
    machine.run(&format!(
        "printf '%s %s\\n' '{restricted}' \"$(cat /root/.ssh/id_ed25519.pub)\" >/var/tunnel/.ssh/authorized_keys\n\
         chown -R tunnel /var/tunnel/.ssh; chmod 0700 /var/tunnel/.ssh; chmod 0600 /var/tunnel/.ssh/authorized_keys"
    ));
    let server = machine.spawn(
        "exec $(command -v sshd) -D -e -f /dev/null -h /etc/ssh/host -o ListenAddress=127.0.0.1 -o UsePAM=no \
         -o PidFile=none -o PasswordAuthentication=no",
    );
    server.await_stderr("Server listening");
    let _ssh = machine.spawn(&format!("HOME=/root exec {}", guide.command("ssh -N")));
    machine.wait("curl --silent --fail --output /dev/null http://127.0.0.1:8081/");
    let configuration = adapted(&guide.block("toml", "10.9.0.2"), &[("http://10.9.0.2:8080", "http://127.0.0.1:8081")]);
    let _litequic = machine.litequic(&configuration);
    is_the_origins(&guide, &machine);
}

/// Two machines with a cable between them. Where the kernel has no WireGuard, wg-quick(8) uses wireguard-go.
#[test]
fn wireguard_connects_two_machines() {
    let Some(()) = needs::programs(&["wg", "wg-quick", "curl", "python3"]) else { return };
    let guide = Guide::read("reach-an-origin-on-another-machine");
    let (Some(near), Some(far)) = (machine(), machine()) else { return };
    let cable = Command::new("nsenter")
        .args([format!("--net=/proc/{}/ns/net", near.id()), "ip".into(), "link".into(), "add".into(), "cable".into()])
        .args(["type", "veth", "peer", "name", "cable", "netns", &far.id().to_string()])
        .status();
    assert!(cable.unwrap().success());
    for (machine, address) in [(&near, "192.0.2.1/24"), (&far, "192.0.2.2/24")] {
        machine.run(&format!("ip address add {address} dev cable; ip link set cable up"));
    }
    near.write("/etc/hosts", "127.0.0.1 localhost example.com\n192.0.2.2 origin.example.com\n");
    let key = |machine: &Machine| machine.run("umask 077; cd /root; wg genkey | tee privatekey").trim().to_owned();
    let public = |machine: &Machine| machine.run("wg pubkey </root/privatekey").trim().to_owned();
    let (near_key, far_key) = (key(&near), key(&far));
    let (near_public, far_public) = (public(&near), public(&far));
    let filled = |block: String| {
        let keys = [
            ("LITEQUIC_PRIVATE_KEY", &near_key),
            ("LITEQUIC_PUBLIC_KEY", &near_public),
            ("ORIGIN_PRIVATE_KEY", &far_key),
            ("ORIGIN_PUBLIC_KEY", &far_public),
        ];
        keys.iter().fold(block, |block, (name, key)| block.replace(name, key))
    };
    near.write("/etc/wireguard/wg0.conf", &filled(guide.block("ini", "Endpoint")));
    far.write("/etc/wireguard/wg0.conf", &filled(guide.block("ini", "ListenPort")));
    for machine in [&far, &near] {
        let up = machine.end("chmod 0600 /etc/wireguard/wg0.conf; wg-quick up wg0");
        if up.code != Some(0) {
            return needs::skip(&format!("WireGuard cannot be had here: {}", up.stderr));
        }
    }
    let _origin = origin(&far, "10.9.0.2");
    let _litequic = near.litequic(&guide.block("toml", "10.9.0.2"));
    is_the_origins(&guide, &near);
    let handshake = near.run(&guide.command("latest-handshakes"));
    assert!(handshake.contains(&far_public) && !handshake.trim().ends_with("\t0"), "{handshake}");
}
