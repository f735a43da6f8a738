//! docs/how-to/publish-an-https-record.md: `litequic check` prints the records, and by one of them Chromium's first
//! request is HTTP/3.

use super::{Guide, machine::Machine};
use crate::support::prelude::*;

/// A name server for example.com: its address, and the HTTPS record whose priority and protocols are in a file.
const NAME_SERVER: &str = r#"import socket, struct
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.bind(("127.0.0.1", 53))
print("listens", flush=True)
while True:
    query, client = listener.recvfrom(512)
    priority, names = open("/etc/record").read().split()
    protocols = b"".join(bytes([len(name)]) + name.encode() for name in names.split(","))
    record = struct.pack("!HBHH", int(priority), 0, 1, len(protocols)) + protocols
    end = query.index(0, 12) + 5
    name, kind = query[12:end - 4], struct.unpack("!H", query[end - 4:end - 2])[0]
    data = {1: bytes([127, 0, 0, 1]), 65: record}.get(kind) if name == b"\7example\3com\0" else None
    answer = b"" if data is None else struct.pack("!HHHIH", 0xc00c, kind, 1, 300, len(data)) + data
    flags = 0x8580 if name == b"\7example\3com\0" else 0x8583
    listener.sendto(query[:2] + struct.pack("!HHHHH", flags, 1, len(answer) > 0, 0, 0) + query[12:end] + answer, client)
    print(name, kind, flush=True)
"#;

#[test]
fn check_prints_the_records_of_the_guide() {
    let guide = Guide::read("publish-an-https-record");
    let Some(machine) = Machine::with_certificate(&["example.com", "www.example.com"]) else { return };
    machine.write("/etc/litequic/litequic.toml", &guide.block("toml", "certificates"));
    let checked = machine.run(&guide.command("litequic check"));
    assert!(checked.ends_with(&guide.block("text", "first visit")), "{checked}");
}

/// Starts of Chromium, one of which begins with HTTP/3: on a busy machine some begin with TCP.
const ATTEMPTS: usize = 8;

/// Chromium with a profile of its own, and the machine's name server: the protocol of the page's own request.
#[test]
fn chromiums_first_request_is_http3_by_the_record_alone() {
    let Some(()) = needs::programs(&["chromium", "nginx", "curl", "python3"]) else { return };
    let guide = Guide::read("publish-an-https-record");
    let made = make_self_signed(["example.com"]).unwrap();
    let Some(machine) = Machine::start("unused.example", &made.cert_pem) else { return };
    machine.write("/etc/litequic/tls.crt", &made.cert_pem);
    machine.write("/etc/litequic/tls.key", &made.key_pem);
    let page = "events {}\nhttp { server { listen 127.0.0.1:8080; default_type text/html; location / {\n\
        return 200 \"<!doctype html><p id=o></p><script>o.textContent = 'by ' +\n\
        performance.getEntriesByType('navigation')[0].nextHopProtocol + '.'</script>\"; } } }\n";
    machine.write("/etc/nginx/nginx.conf", page);
    let _nginx = machine.spawn("exec nginx -g 'daemon off;'");
    machine.wait("curl --silent --output /dev/null http://127.0.0.1:8080/");
    let _litequic = machine.litequic(&guide.block("toml", "certificates"));
    machine.write("/etc/nsswitch.conf", "hosts: files dns\n");
    machine.write("/etc/resolv.conf", "nameserver 127.0.0.1\n");
    machine.write("/etc/name-server.py", NAME_SERVER);
    let zone = guide.text.lines().find(|line| line.starts_with("example.com.      300")).unwrap();
    let (priority, protocols) = zone.split_once("HTTPS  ").unwrap().1.split_once(" . alpn=").unwrap();
    let names = machine.spawn("exec python3 /etc/name-server.py");
    names.await_stdout("listens");
    let begins_with = |protocols: &str| {
        machine.write("/etc/record", &format!("{priority} {protocols}"));
        // QUIC is forced for another port: without the option Chromium takes no certificate over QUIC that no public
        // authority signed.
        let chromium = machine.spawn(&format!(
            "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
             --disable-background-networking --disable-component-update --enable-quic \
             --user-data-dir=$(mktemp -d /var/profile-XXXXXX) \
             --origin-to-force-quic-on=example.com:1 --ignore-certificate-errors-spki-list={} \
             --virtual-time-budget=10000 --dump-dom https://example.com/",
            made.spki_sha256
        ));
        let page = chromium.end_within(Duration::from_secs(60)).success();
        let (_, protocol) = page.split_once("<p id=\"o\">by ").unwrap_or_else(|| panic!("{page}\n{}", names.stdout()));
        protocol.split('.').next().unwrap().to_owned()
    };
    assert_eq!(begins_with("h2"), "h2");
    let protocols = protocols.trim_matches('"');
    assert!((0..ATTEMPTS).any(|_| begins_with(protocols) == "h3"), "{}", names.stdout());
}
