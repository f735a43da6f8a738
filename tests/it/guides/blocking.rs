//! docs/how-to/block-a-client.md and ban-clients-with-fail2ban.md: nftables and fail2ban, over UDP and over TCP.

use super::{Guide, machine::Machine};
use crate::support::prelude::*;

/// A machine with the guide's litequic, the table of block-a-client.md, and an address for a client that is to be
/// blocked.
fn prepared(guide: &Guide) -> Option<(Machine, Process)> {
    let machine = Machine::with_certificate(&["example.com"])?;
    machine.write("/etc/nftables.d/litequic.nft", &Guide::read("block-a-client").block("nft", "table inet"));
    machine.run("ip address add 203.0.113.7/32 dev lo; ip address add 203.0.113.8/32 dev lo");
    // A site that is closed answers without an origin.
    let configuration = guide.block("toml", "udp = ") + "[[routes]]\nrespond = { status = 403 }\n";
    let litequic = machine.litequic(&configuration);
    Some((machine, litequic))
}

/// How a request from `address` ends: over TCP, and over QUIC, whose client comes from the address that it connects to.
fn ends(machine: &Machine, address: &str) -> (Option<i32>, Option<i32>) {
    let tcp = format!("curl --silent --output /dev/null --max-time 3 --interface {address} https://example.com/");
    let quic = format!("litequic get --head --timeout 3s --resolve example.com:443:{address} https://example.com/");
    (machine.end(&tcp).code, machine.end(&quic).code)
}

#[test]
fn an_address_in_the_set_is_blocked_over_udp_and_tcp() {
    let Some(()) = needs::programs(&["nft", "curl", "jq"]) else { return };
    let guide = Guide::read("block-a-client");
    let Some((machine, _litequic)) = prepared(&guide) else { return };
    assert_eq!(ends(&machine, "203.0.113.7"), (Some(0), Some(1)), "both get the 403");
    machine.wait("test $(wc -l </var/log/litequic/access.log) = 2");
    let clients = machine.run(&guide.command("jq --raw-output"));
    assert!(clients.trim().starts_with("2 203.0.113.7"), "{clients}");
    for part in ["nft --file", "203.0.113.7 timeout", "add element inet litequic blocked4 '{ 198", "2001:db8"] {
        let commands = guide.text.lines().filter(|line| line.starts_with("nft ") && line.contains(part));
        for command in commands {
            machine.run(command);
        }
    }
    assert_eq!(ends(&machine, "203.0.113.7"), (Some(28), Some(69)));
    assert_eq!(ends(&machine, "203.0.113.8"), (Some(0), Some(1)), "another address is served");
    let listed = machine.run(&guide.command("nft list table"));
    assert!(listed.contains("198.51.100.0/24") && listed.contains("2001:db8:7::/48"), "{listed}");
    machine.run(&guide.command("nft delete element inet litequic blocked4 '{ 198"));
    assert!(!machine.run(&guide.command("nft list table")).contains("198.51.100.0"));
}

#[test]
fn fail2ban_bans_a_client_that_is_refused_too_often() {
    let Some(()) = needs::programs(&["fail2ban-client", "nft", "curl"]) else { return };
    let guide = Guide::read("ban-clients-with-fail2ban");
    let Some((machine, _litequic)) = prepared(&guide) else { return };
    machine.write("/etc/fail2ban/filter.d/litequic.conf", &guide.block("ini", "failregex"));
    machine.write("/etc/fail2ban/action.d/litequic.conf", &guide.block("ini", "actionban = nft"));
    machine.run("rm -f /etc/fail2ban/jail.d/*");
    machine.write("/etc/fail2ban/jail.d/litequic.conf", &guide.block("ini", "logpath"));
    machine.run("mkdir -p /var/run/fail2ban /var/lib/fail2ban; touch /var/log/fail2ban.log");
    let refused = |count: u32, address: &str| {
        machine.run(&format!(
            "for n in $(seq {count}); do curl --silent --output /dev/null --interface {address} https://example.com/; done"
        ));
    };
    refused(3, "203.0.113.8");
    machine.wait("test $(wc -l </var/log/litequic/access.log) = 3");
    let matched = machine.run(&guide.command("fail2ban-regex"));
    assert!(matched.contains("3 matched") && matched.contains("0 missed"), "{matched}");

    let _server = machine.spawn("exec fail2ban-server -xf --loglevel INFO --logtarget STDOUT start");
    machine.wait(&format!("{} >/dev/null 2>&1", guide.command("fail2ban-client status")));
    refused(20, "203.0.113.7");
    machine.wait("nft list set inet litequic blocked4 | grep -q 203.0.113.7");
    assert_eq!(ends(&machine, "203.0.113.7"), (Some(28), Some(69)));
    assert_eq!(ends(&machine, "203.0.113.8"), (Some(0), Some(1)));
    let status = machine.run(&guide.command("fail2ban-client status"));
    assert!(status.contains("203.0.113.7"), "{status}");
    machine.run("fail2ban-client set litequic unbanip 203.0.113.7");
    assert_eq!(ends(&machine, "203.0.113.7"), (Some(0), Some(1)));
}

/// The same by `litequic ctl deny`: the address is that of the guide's client, whose connections end.
#[test]
fn fail2ban_has_litequic_deny_a_client_that_is_refused_too_often() {
    let Some(()) = needs::programs(&["fail2ban-client", "curl"]) else { return };
    let guide = Guide::read("ban-clients-with-fail2ban");
    let Some((machine, _litequic)) = prepared(&guide) else { return };
    let blocking = Guide::read("block-a-client");
    for line in blocking
        .text
        .lines()
        .filter(|line| line.starts_with("litequic ctl deny") || line.starts_with("litequic ctl allow"))
    {
        machine.run(line);
    }
    assert!(machine.run("litequic ctl denied").starts_with("2001:db8:7::/48  "));
    machine.write("/etc/fail2ban/filter.d/litequic.conf", &guide.block("ini", "failregex"));
    machine.write("/etc/fail2ban/action.d/litequic-deny.conf", &guide.block("ini", "litequic ctl deny"));
    machine.run("rm -f /etc/fail2ban/jail.d/*");
    let jail = guide.block("ini", "logpath").replace("action = litequic", "action = litequic-deny");
    machine.write("/etc/fail2ban/jail.d/litequic.conf", &jail);
    machine.run("mkdir -p /var/run/fail2ban /var/lib/fail2ban; touch /var/log/fail2ban.log");
    machine.run("touch /var/log/litequic/access.log");
    let _server = machine.spawn("exec fail2ban-server -xf --loglevel INFO --logtarget STDOUT start");
    machine.wait(&format!("{} >/dev/null 2>&1", guide.command("fail2ban-client status")));
    // It asks on: fail2ban's polling misses lines of the second in which it has read.
    machine.wait(
        "curl --silent --output /dev/null --max-time 3 --interface 203.0.113.7 https://example.com/; \
         litequic ctl denied | grep 203.0.113.7/32 >/dev/null",
    );
    let (tcp, quic) = ends(&machine, "203.0.113.7");
    assert!(tcp != Some(0) && quic == Some(69), "{tcp:?} {quic:?}");
    assert_eq!(ends(&machine, "203.0.113.8"), (Some(0), Some(1)));
    machine.run("fail2ban-client set litequic unbanip 203.0.113.7");
    assert_eq!(ends(&machine, "203.0.113.7"), (Some(0), Some(1)));
}

#[test]
fn a_network_rule_ignores_a_forged_client_address() {
    let Some(()) = needs::programs(&["curl", "nginx"]) else { return };
    let guide = Guide::read("block-a-client");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    let _origin = machine.nginx(8080, "from $http_x_forwarded_for");
    let _litequic = machine.litequic(&guide.block("toml", "path_prefix = \"/admin\""));
    let denied = machine.run(&guide.command("X-Forwarded-For: 10.1.2.3"));
    assert!(denied.starts_with("HTTP/2 403"), "{denied}");
    let open = machine.run("curl --silent https://example.com:8443/");
    assert_eq!(open, "from 127.0.0.1\n");
    let counted = machine.run(&guide.command("grep route_denied"));
    assert!(counted.contains("litequic_route_denied_total{route=\"*/admin\",by=\"address\"} 1"), "{counted}");
}
