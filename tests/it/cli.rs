//! The command line from outside: what each command prints, and with which code it exits.

use crate::support::{
    nginx::Nginx,
    prelude::*,
    process::{litequic, litequic_program},
};
use serde_json::Value as Json;
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
};

const FIVE_FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config/invalid/five-faults.toml");

/// A directory with a certificate for localhost and 127.0.0.1, as `tls.crt` and `tls.key`.
fn directory() -> (tempfile::TempDir, SelfSigned) {
    let directory = tempfile::tempdir().unwrap();
    let made = make_self_signed(["localhost", "127.0.0.1"]).unwrap();
    write_certificate(directory.path(), &made);
    (directory, made)
}

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

/// `litequic run` without a file, before nothing.
fn run_at(listen: &str, directory: &tempfile::TempDir) -> Vec<String> {
    let (cert, key) = (path(directory, "tls.crt"), path(directory, "tls.key"));
    ["run", "--listen", listen, "--origin", "127.0.0.1:9", "--cert", &cert, "--key", &key].map(Into::into).into()
}

/// `litequic get` of `path` from a demo.
fn get(port: u16, path: &str, more: &[&str]) -> Ended {
    let url = format!("https://127.0.0.1:{port}{path}");
    litequic([&["get", "--insecure", &url], more].concat())
}

/// Waits for a request at `origin`; gives where its answer goes.
fn await_request(origin: &TcpListener) -> TcpStream {
    let (mut stream, _) = origin.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    stream
}

#[test]
fn a_command_line_that_makes_no_sense_exits_with_64() {
    let table: [&[&str]; 9] = [
        &[],
        &["serve"],
        &["run"],
        &["run", "--listen", "127.0.0.1:0"],
        &["run", "--config", "a.toml", "--listen", "127.0.0.1:0"],
        &["run", "--listen", "127.0.0.1:0", "--origin", "ftp://origin", "--cert", "a", "--key", "b"],
        &["check"],
        &["get", "http://127.0.0.1/"],
        &["get", "--insecure", "--ca", "ca.pem", "https://127.0.0.1/"],
    ];
    for arguments in table {
        let ended = litequic(arguments);
        assert_eq!(ended.code, Some(64), "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.is_empty() && ended.stdout.is_empty(), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn run_without_arguments_names_the_configuration() {
    let ended = litequic(["run"]);
    assert_eq!(ended.code, Some(64));
    assert!(ended.stderr.contains("--config <FILE>"), "{}", ended.stderr);
    let ended = litequic(["run", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, Some(64));
    assert!(ended.stderr.contains("--origin <URL>") && ended.stderr.contains("--key <FILE>"), "{}", ended.stderr);
}

#[test]
fn a_log_filter_that_makes_no_sense_exits_with_64() {
    let (directory, _) = directory();
    let mut command = command(run_at("127.0.0.1:0", &directory));
    command.env("RUST_LOG", "rustls=loud");
    let ended = Process::spawn(command).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("RUST_LOG"), "{ended:?}");
}

#[test]
fn rustls_events_are_logged_only_by_rust_log() {
    let (directory, _) = directory();
    for asked in [false, true] {
        let mut command = command(run_at("127.0.0.1:0", &directory));
        if asked {
            command.env("RUST_LOG", "rustls=debug");
        }
        let process = Process::spawn(command);
        // Nothing listens where the origin should be: 502, and a handshake all the same.
        assert_eq!(get(process.address().port(), "/", &[]).code, Some(1));
        let log = process.end_by("TERM").stderr;
        assert_eq!(log.contains("decided upon suite"), asked, "{log}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let ended = litequic(["--version"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), concat!("litequic ", env!("CARGO_PKG_VERSION"), "\n")));
    let ended = litequic(["--help"]);
    assert_eq!(ended.code, Some(0));
    for command in ["run", "check", "demo", "get", "probe", "schema", "completions", "manual"] {
        assert!(ended.stdout.contains(&format!("\n  {command} ")), "{command}: {}", ended.stdout);
    }
}

#[test]
fn a_command_of_nginx_or_haproxy_gets_a_hint_at_litequics() {
    for (words, word, expected) in [
        (&["reload"][..], "reload", "litequic ctl reload"),
        (&["-s", "reload"], "-s", "litequic ctl reload"),
        (&["validate", "a.toml"], "validate", "litequic check FILE"),
        (&["-t"], "-t", "litequic check FILE"),
        (&["test"], "test", "litequic check FILE"),
        (&["stop"], "stop", "litequic ctl drain"),
        (&["status"], "status", "litequic ctl status"),
        (&["start"], "start", "litequic run FILE"),
        (&["-c", "a.toml"], "-c", "litequic run FILE"),
    ] {
        let ended = litequic(words);
        let expected = format!("litequic: there is no `litequic {word}`; did you mean `{expected}`?\n");
        assert_eq!((ended.code, ended.stderr), (Some(64), expected));
    }
    let ended = litequic(["run", "--listen", "127.0.0.1:0", "--origin", "http://127.0.0.1:9"]);
    assert_eq!(ended.code, Some(64));
    assert!(ended.stderr.ends_with("\nfor a test, `litequic demo --origin URL` creates a certificate\n"), "{ended:?}");
    let ended = litequic(["run", "--listen", "127.0.0.1:0"]);
    assert!(!ended.stderr.contains("for tests"), "{ended:?}");
}

#[test]
fn a_configuration_is_named_with_the_option_or_without_it() {
    for words in [&["check", FIVE_FAULTS][..], &["check", "-c", FIVE_FAULTS], &["check", "--config", FIVE_FAULTS]] {
        let ended = litequic(words);
        assert!(ended.code == Some(78) && ended.stderr.contains("limits.max_headers = 0: too small"), "{ended:?}");
    }
    for words in [&["run", FIVE_FAULTS][..], &["run", "-c", FIVE_FAULTS]] {
        let ended = litequic(words);
        assert!(ended.code == Some(78) && ended.stderr.contains("limits.max_headers = 0: too small"), "{ended:?}");
    }
    for words in [&["check", "-c", "a", "b"][..], &["run", "-c", "a", "b"], &["run", "a", "--listen", "[::]:1"]] {
        assert_eq!(litequic(words).code, Some(64), "{words:?}");
    }
}

#[test]
fn examples_are_printed_and_are_sound() {
    let list = litequic(["example"]).success();
    let (directory, _) = directory();
    fs::create_dir(directory.path().join("tls")).unwrap();
    for name in ["sidecar", "edge", "website", "servers", "unix-socket", "full"] {
        assert!(list.contains(&format!("{name} ")), "{list}");
        let example = litequic(["example", name]).success();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/").to_owned() + name + ".toml";
        assert_eq!(example, fs::read_to_string(file).unwrap());
    }
    assert_eq!(litequic(["example", "none"]).code, Some(64));
}

#[test]
fn an_address_on_the_command_line_is_answered_as_in_a_configuration() {
    let (directory, _) = directory();
    for (address, problem) in
        [(":84430", "not an address"), (":+84", "not an address"), ("[::]", "not an address"), ("::1", "has no port")]
    {
        for ended in [litequic(run_at(address, &directory)), litequic(["demo", "--listen", address])] {
            let expected = format!(
                "{problem}; expected an IP address and a port, such as \"[::]:8443\" or \"127.0.0.1:9443\", or"
            );
            assert!(ended.code == Some(64) && ended.stderr.contains(&expected), "{ended:?}");
        }
    }
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for (shell, opens) in [("bash", "_litequic() {"), ("zsh", "#compdef litequic"), ("fish", "complete -c litequic")] {
        let script = litequic(["completions", shell]).success();
        assert!(
            script.contains(opens) && script.contains("check") && script.contains("log-level"),
            "{shell}: {script}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let out = path(&folder, "man/man1");
    assert_eq!(litequic(["manual", "--out", &out]).success(), "");
    let written = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let written: BTreeSet<String> = written.collect();
    let help = litequic(["--help"]).success();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    // Descriptions go on further in.
    let named = commands.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let named = named.map(|rest| rest.split_whitespace().next().unwrap()).filter(|command| *command != "help");
    let (of_ctl, written): (BTreeSet<_>, BTreeSet<_>) =
        written.into_iter().partition(|page| page.starts_with("litequic-ctl-"));
    assert!(of_ctl.contains("litequic-ctl-certificates-renew.1") && of_ctl.len() == 17, "{of_ctl:?}");
    let pages: BTreeSet<_> = named
        .map(|command| format!("litequic-{command}.1"))
        .chain(["litequic.1".into(), "litequic.toml.5".into()])
        .collect();
    assert_eq!(written, pages);
    let page = fs::read_to_string(format!("{out}/litequic-run.1")).unwrap();
    assert!(page.contains(".TH LITEQUIC-RUN 1") && page.contains("SSLKEYLOGFILE"), "{page}");

    let file = path(&folder, "file");
    fs::write(&file, "").unwrap();
    assert_eq!(litequic(["manual", "--out", &file]).code, Some(74));
}

#[test]
fn manual_pages_have_no_fault_for_mandoc_and_for_groff() {
    let [Some(mandoc), Some(groff)] = ["mandoc", "groff"].map(needs::program) else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = path(&folder, "man");
    let mut manual = command(["manual", "--out", &out]);
    assert!(manual.env("SOURCE_DATE_EPOCH", "1777888800").status().unwrap().success());
    for page in fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()) {
        let lint = Command::new(&mandoc).args(["-Tlint", "-Wwarning"]).arg(&page).output().unwrap();
        // clap_mangen breaks a line twice before the values of an option.
        let lint = String::from_utf8_lossy(&lint.stdout);
        let faults: Vec<&str> = lint.lines().filter(|line| !line.contains("skipping paragraph macro: br ")).collect();
        assert!(faults.is_empty(), "{}: {faults:?}", page.display());
        // As `man --warnings` runs it.
        let warnings = Command::new(&groff).args(["-man", "-ww", "-z", "-Tutf8", "-t"]).arg(&page).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&warnings.stderr), "", "{}", page.display());
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains(" 2026-05-04 \"litequic ") && text.contains("\n.SH \"SEE ALSO\"\n"), "{text}");
    }
    for (page, sections) in [
        ("litequic.1", &["EXAMPLES", "FILES", "ENVIRONMENT", "EXIT STATUS"][..]),
        ("litequic-run.1", &["EXAMPLES", "SIGNALS", "FILES", "ENVIRONMENT", "EXIT STATUS"]),
        ("litequic-ctl.1", &["EXAMPLES", "ENVIRONMENT", "EXIT STATUS"]),
        ("litequic.toml.5", &["DESCRIPTION", "EXAMPLES"]),
    ] {
        let text = fs::read_to_string(format!("{out}/{page}")).unwrap();
        for section in sections {
            let heading = if section.contains(' ') { format!("\"{section}\"") } else { (*section).to_owned() };
            assert!(text.contains(&format!("\n.SH {heading}\n")), "{page}: {section}");
        }
    }
}

#[test]
fn the_schema_is_json() {
    let ended = litequic(["schema"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let schema: Json = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["properties"]["listen"]["properties"]["workers"].is_object(), "{schema:#}");
}

#[test]
fn every_fault_is_a_line_and_exits_78() {
    for command in ["check", "run"] {
        let ended = litequic([command, "--config", FIVE_FAULTS]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(78), ""), "{command}");
        let lines: Vec<&str> = ended.stderr.lines().collect();
        // Five are the file's own; the certificate that it names is not there.
        let keys = [
            "listen.udp",
            "listen.wokers",
            "certificates[0].cert",
            "certificates[0].key",
            "max_header_bytes",
            "max_headers",
            "idle",
        ];
        assert_eq!(lines.len(), keys.len() + 1, "{command}: {}", ended.stderr);
        for (line, key) in lines.iter().zip(keys) {
            assert!(line.starts_with(FIVE_FAULTS) && line.contains(key), "{command}: {line}");
        }
        assert_eq!(lines[keys.len()], "7 faults", "{command}");
    }
}

#[test]
fn a_configuration_that_is_not_there_is_named_with_78() {
    for command in ["check", "run"] {
        let ended = litequic([command, "--config", "/nonexistent/litequic.toml"]);
        assert_eq!(ended.code, Some(78), "{command}: {ended:?}");
        assert!(ended.stderr.starts_with("/nonexistent/litequic.toml: "), "{command}: {ended:?}");
    }
}

#[test]
fn check_says_what_a_sound_configuration_holds() {
    let (directory, _) = directory();
    let file = path(&directory, "litequic.toml");
    let text = "[origin]\nurl = \"http://127.0.0.1:8080\"\n[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n";
    fs::write(&file, text).unwrap();
    let ended = litequic(["check", "--config", &file]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let (first, rest) = ended.stdout.split_once('\n').unwrap();
    assert_eq!(first, format!("{file}: ok (1 route, 1 origin, 1 certificate)"));
    assert_eq!(rest, "");
    let verbose = litequic(["check", "--verbose", &file]).success();
    assert!(verbose.starts_with(&ended.stdout) && verbose.lines().nth(1).unwrap().starts_with("file descriptors: "));
}

#[test]
fn an_address_that_is_taken_is_named_with_its_reason_and_69() {
    let (directory, _) = directory();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = litequic(run_at(&address, &directory));
    let process = std::process::id();
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let name = name.trim();
    let beginning = format!(
        "litequic: cannot listen on UDP {address}: Address already in use (os error 98)\n  {name} (process {process}) \
         listens there\n  "
    );
    let next = "only one process can serve HTTP/3 on a port: stop that process, or change udp in [listen]\n";
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.reason().ends_with(&format!("{beginning}{next}")), "{ended:?}");

    let ended = litequic(["demo", "--listen", &address]);
    let expected = format!("{beginning}to use a free port: litequic demo --listen 127.0.0.1:0\n");
    assert_eq!((ended.code, ended.reason()), (Some(69), expected));

    // TCP alone, by a file, in which UDP has another address.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let file = path(&directory, "litequic.toml");
    let text = format!(
        "listen.udp = \"127.0.0.1:{}\"\nlisten.tcp = \"{address}\"\norigin.url = \"http://127.0.0.1:9\"\n\
         [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
        free_udp_port()
    );
    fs::write(&file, text).unwrap();
    let ended = litequic(["run", &file]);
    let expected = format!(
        "litequic: cannot listen on TCP {address}: Address already in use (os error 98)\n  {name} (process {process}) \
         listens there\n  to leave TCP to that process and serve HTTP/3 only, set tcp = [] in [listen], and let that process send the header Alt-Svc\n"
    );
    assert!(ended.code == Some(69) && ended.reason().ends_with(&expected), "{ended:?}");
}

/// `tcp = []` alone, which the error names, makes both serve.
#[test]
fn a_port_in_use_by_nginx_is_reported() {
    let Some(nginx) = Nginx::start("") else { return };
    let (directory, _) = directory();
    let file = path(&directory, "litequic.toml");
    let text = |tcp: &str| {
        format!(
            "listen.udp = \"{0}\"\nlisten.tcp = {tcp}\norigin.url = \"http://{0}\"\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
            nginx.address
        )
    };
    fs::write(&file, text(&format!("\"{}\"", nginx.address))).unwrap();
    let ended = litequic(["run", &file]);
    let beginning = format!(
        "litequic: cannot listen on TCP {}: Address already in use (os error 98)\n  nginx (process ",
        nginx.address
    );
    let end = " listens there\n  to leave TCP to that process and serve HTTP/3 only, set tcp = [] in [listen], and \
               let that process send the header Alt-Svc\n";
    assert!(
        ended.code == Some(69) && ended.reason().contains(&beginning) && ended.reason().ends_with(end),
        "{ended:?}"
    );
    fs::write(&file, text("[]")).unwrap();
    let process = Process::start(["run", &file]);
    assert_eq!(process.address(), nginx.address);
}

/// As a service whose user may not, and as another user than the one who listens.
#[test]
fn a_user_without_the_capability_learns_its_name_and_the_ports_owner() {
    let (Some(setpriv), true) = (needs::program("setpriv"), rustix::process::geteuid().is_root()) else { return };
    let ended = |listen: &str| {
        let mut command = Command::new(&setpriv);
        command.args(["--reuid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
        command.arg(litequic_program()).args(["demo", "--listen", listen]);
        Process::spawn(command).end()
    };
    let start = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if start.trim() == "1024" {
        let expected = "litequic: cannot listen on UDP 127.0.0.1:443: Permission denied (os error 13)\n  ports below \
                        1024 need CAP_NET_BIND_SERVICE (setcap cap_net_bind_service=+ep FILE), a lower \
                        net.ipv4.ip_unprivileged_port_start, or another port and advertised_port in [listen]\n";
        assert_eq!((ended("127.0.0.1:443").code, ended("127.0.0.1:443").reason().as_str()), (Some(69), expected));
    }
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = format!("127.0.0.1:{}", taken.local_addr().unwrap().port());
    let expected = format!(
        "litequic: cannot listen on UDP {address}: Address already in use (os error 98)\n  a process of the user root \
         listens there (as root: ss -lntup)\n  to use a free port: litequic demo --listen 127.0.0.1:0\n"
    );
    assert_eq!(ended(&address).reason(), expected);
}

#[test]
fn an_address_of_another_machine_exits_with_69() {
    let (directory, _) = directory();
    // TEST-NET-1 (RFC 5737).
    let ended = litequic(run_at("192.0.2.1:8443", &directory));
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let beginning =
        "cannot listen on UDP 192.0.2.1:8443: Cannot assign requested address (os error 99)\n  this machine has ";
    assert!(ended.reason().contains(beginning) && ended.reason().contains("127.0.0.1"), "{ended:?}");
    assert!(ended.reason().ends_with("; for all addresses use 0.0.0.0:8443\n"), "{ended:?}");
}

#[test]
fn two_litequics_do_not_share_an_address_without_a_word() {
    let (_first, port) = Process::demo(&[]);
    let ended = litequic(["demo", "--listen", &format!("127.0.0.1:{port}")]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
}

#[test]
fn an_admin_address_in_use_exits_69_with_its_key() {
    let (directory, _) = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for key in ["listen", "probes"] {
        let file = path(&directory, "litequic.toml");
        let text = format!(
            "listen.udp = \"127.0.0.1:{}\"\nadmin.{key} = \"{address}\"\norigin.url = \"http://127.0.0.1:9\"\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
            free_udp_port()
        );
        fs::write(&file, text).unwrap();
        let ended = litequic(["run", "--config", &file]);
        assert_eq!(ended.code, Some(69), "{ended:?}");
        let expected = format!("cannot bind admin.{key} = \"{address}\": ");
        assert!(ended.reason().contains(&expected), "{ended:?}");
    }
}

#[test]
fn run_serves_by_a_file() {
    let (directory, _) = directory();
    // An origin that speaks HTTP and is there: litequic's own admin listener.
    let (udp, probes) = (free_udp_port(), free_tcp_port());
    let file = path(&directory, "litequic.toml");
    let text = format!(
        "{}[listen]\nudp = \"127.0.0.1:{udp}\"\nworkers = 2\n[origin]\nurl = \"http://127.0.0.1:{probes}\"\n\
         [admin]\nprobes = \"127.0.0.1:{probes}\"\n[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n",
        io_key()
    );
    fs::write(&file, text).unwrap();
    let process = Process::start(["run", "--config", &file]);
    assert_eq!(process.address().to_string(), format!("127.0.0.1:{udp}"));
    let ca = path(&directory, "tls.crt");
    let ended = litequic(["get", "--ca", &ca, &format!("https://127.0.0.1:{udp}/readyz")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("HTTP/3 200 OK\n"), "{ended:?}");
    process.end_by("TERM").success();
}

#[test]
fn run_serves_without_a_file_and_logs_json_into_a_pipe() {
    let (directory, _) = directory();
    let process = Process::start(run_at("127.0.0.1:0", &directory));
    let port = process.address().port();
    // Nothing listens on the origin's port.
    let ended = litequic(["get", "--ca", &path(&directory, "tls.crt"), &format!("https://localhost:{port}/")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.starts_with("HTTP/3 502 Bad Gateway\n"), "{ended:?}");
    let ended = process.end_by("INT");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    for line in ended.stderr.lines() {
        let event: Json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(event["timestamp"].is_string() && event["level"].is_string() && event["message"].is_string(), "{line}");
    }
    assert!(ended.stderr.contains("SIGINT") && ended.stderr.lines().count() >= 3, "{}", ended.stderr);
}

/// The events of a log in JSON.
fn events(log: &str) -> Vec<Json> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The event with this message.
fn event<'e>(events: &'e [Json], message: &str) -> &'e Json {
    events.iter().find(|event| event["message"] == message).unwrap_or_else(|| panic!("no {message:?} in {events:#?}"))
}

#[test]
fn the_log_begins_with_the_version_and_ends_startup_with_addresses() {
    let (directory, _) = directory();
    let process = Process::start(run_at("127.0.0.1:0", &directory));
    let port = process.address().port();
    process.await_stderr("limits in force");
    process.signal("INT");
    let events = events(&process.end().stderr);
    assert_eq!(events[0]["message"], format!("litequic {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(events[0]["config"], "the command line");
    assert!(events[0]["process"].is_u64() && events[0]["user"].is_string(), "{}", events[0]);
    let ready = event(&events, "ready");
    assert_eq!(ready["urls"], format!("https://localhost:{port}/"));
    assert_eq!(ready["access_log"], "none: [access_log] path = \"stdout\"");
    let place = |message: &str| events.iter().position(|event| event["message"].as_str().unwrap().starts_with(message));
    assert_eq!(place("ready"), place("listening for HTTP/1.1").map(|place| place + 1));
    assert_eq!(place("limits in force"), place("ready").map(|place| place + 1));
    assert!(event(&events, "limits in force")["changed"].is_null());
}

#[test]
fn the_reason_for_the_end_is_json_in_a_json_log() {
    let (directory, _) = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let ended = Process::start(run_at(&taken.local_addr().unwrap().to_string(), &directory)).end();
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let last = events(&ended.stderr).pop().unwrap();
    assert_eq!(last["level"], "ERROR");
    assert!(last["message"].as_str().unwrap().contains("cannot listen on TCP"), "{last}");
}

#[test]
fn an_answer_of_litequics_own_is_logged_with_its_request() {
    let (directory, _) = directory();
    let process = Process::start(run_at("127.0.0.1:0", &directory));
    let port = process.address().port();
    let url = format!("https://localhost:{port}/a?secret=1");
    // Nothing listens on the origin's port.
    assert_eq!(litequic(["get", "--ca", &path(&directory, "tls.crt"), &url]).code, Some(1));
    process.await_stderr("answered with litequic's own error response");
    process.signal("INT");
    let events = events(&process.end().stderr);
    let answer = event(&events, "answered with litequic's own error response");
    let fields = ["status", "method", "host", "path", "route"].map(|field| answer[field].to_string());
    assert_eq!(fields, ["502", "\"GET\"", &format!("\"localhost:{port}\""), "\"/a\"", "\"*/\""]);
    assert!(answer["request"].is_string() && answer["error"].is_string(), "{answer}");
}

#[test]
fn a_handshake_that_the_client_ends_is_logged_for_debugging() {
    let (directory, _) = directory();
    let debug = ["--log-level", "debug"].map(String::from);
    let process = Process::start([run_at("127.0.0.1:0", &directory), debug.into()].concat());
    let port = process.address().port();
    // The certificate is of no authority that it trusts.
    let failed = litequic(["get", &format!("https://localhost:{port}/")]);
    assert_ne!(failed.code, Some(0), "{failed:?}");
    process.await_stderr("the client ended the handshake");
    process.signal("INT");
    let events = events(&process.end().stderr);
    let ended = event(&events, "the client ended the handshake");
    assert_eq!((&ended["alert"], &ended["name"]), (&"HandshakeFailure".into(), &"localhost".into()));
    assert!(ended["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{ended}");
}

#[test]
fn the_log_is_for_people_when_asked_and_as_loud_as_asked() {
    let (directory, _) = directory();
    let human = ["--log-format", "human"].map(String::from);
    let process = Process::start([run_at("127.0.0.1:0", &directory), human.into()].concat());
    process.await_stderr("listening for HTTP/3");
    let log = process.stderr();
    assert!(log.contains(" INFO ") && !log.contains('{') && !log.contains('\x1b'), "{log}");

    let quiet = ["--log-level", "error"].map(String::from);
    let process = Process::start([run_at("127.0.0.1:0", &directory), quiet.into()].concat());
    let ended = process.end_by("TERM");
    assert_eq!(ended.stderr, "");
}

#[test]
fn get_shows_status_header_and_body() {
    let (_demo, port) = Process::demo(&[]);
    let ended = get(port, "/headers", &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let (head, body) = ended.stdout.split_once("\n\n").unwrap();
    assert!(head.starts_with("HTTP/3 200 OK\n"), "{head}");
    assert!(head.contains("\ncontent-type: text/plain; charset=utf-8"), "{head}");
    assert!(body.starts_with("GET /headers HTTP/1.1\n"), "{body}");
    assert!(body.contains(&format!("\nhost: 127.0.0.1:{port}\n")), "{body}");
}

#[test]
fn get_with_head_shows_the_header_alone() {
    let (_demo, port) = Process::demo(&[]);
    let ended = get(port, "/bytes/1000", &["--head"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("HTTP/3 200 OK\n"), "{ended:?}");
    assert!(ended.stdout.contains("\ncontent-length: 1000\n") && ended.stdout.ends_with("\n\n"), "{ended:?}");
}

#[test]
fn get_shows_early_hints_before_the_response() {
    let (_demo, port) = Process::demo(&[]);
    let ended = get(port, "/early-hints", &[]);
    let hints = ended.stdout.find("HTTP/3 103 Early Hints\nlink: ").unwrap_or_else(|| panic!("{ended:?}"));
    let last = ended.stdout.find("HTTP/3 200 OK\n").unwrap_or_else(|| panic!("{ended:?}"));
    assert!(hints < last, "{ended:?}");
}

#[test]
fn get_writes_the_body_alone_to_a_file_or_to_standard_output() {
    let (_demo, port) = Process::demo(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "body");
    let ended = get(port, "/bytes/300k", &["-o", &file]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
    let body = fs::read(&file).unwrap();
    assert_eq!(body.len(), 300_000);
    assert!(body.iter().enumerate().all(|(i, byte)| usize::from(*byte) == i % 251));

    let ended = get(port, "/sink", &["-o", "-"]);
    assert!(!ended.stdout.contains("HTTP/3"), "{ended:?}");

    let ended = get(port, "/", &["-o", "/nonexistent/body"]);
    assert_eq!(ended.code, Some(74), "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent/body"), "{ended:?}");
}

#[test]
fn get_trusts_the_given_certificates_alone() {
    let (directory, _) = directory();
    let process = Process::start(run_at("127.0.0.1:0", &directory));
    let port = process.address().port();
    let url = format!("https://127.0.0.1:{port}/");
    let other = path(&directory, "other.crt");
    fs::write(&other, make_self_signed(["127.0.0.1"]).unwrap().cert_pem).unwrap();
    let (ca, none) = (path(&directory, "tls.crt"), path(&directory, "tls.key"));
    for (ca, code) in [(&ca, 1), (&other, 69), (&none, 78)] {
        let ended = litequic(["get", "--ca", ca, &url]);
        assert_eq!(ended.code, Some(code), "{ca}: {ended:?}");
    }
}

#[test]
fn get_reaches_a_name_at_the_address_given() {
    let (_demo, port) = Process::demo(&[]);
    let url = format!("https://example.com:{port}/headers");
    let ended = litequic(["get", "--insecure", "--resolve", &format!("example.com:{port}:127.0.0.1"), &url]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(&format!("\nhost: example.com:{port}\n")), "{ended:?}");
}

#[test]
fn get_tries_the_next_address_when_one_is_silent() {
    let (_demo, port) = Process::demo(&[]);
    let _silent = UdpSocket::bind(("127.0.0.2", port)).unwrap();
    let [silent, demo] = ["127.0.0.2", "127.0.0.1"].map(|address| format!("example.com:{port}:{address}"));
    let url = format!("https://example.com:{port}/headers");
    let ended = litequic(["get", "--insecure", "--timeout", "4s", "--resolve", &silent, "--resolve", &demo, &url]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn get_exits_with_1_for_an_error_status() {
    let (_demo, port) = Process::demo(&[]);
    for (status, code) in [(204, 0), (302, 0), (404, 1), (503, 1)] {
        let ended = get(port, &format!("/status/{status}"), &[]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stdout.starts_with(&format!("HTTP/3 {status} ")), "{ended:?}");
    }
}

#[test]
fn get_exits_with_69_without_an_answer_in_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let ended = get(port, "/", &["--timeout", "300ms"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""), "{ended:?}");
    assert!(ended.stderr.contains("300ms"), "{ended:?}");

    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "of yesterday").unwrap();
    let ended = get(port, "/", &["--timeout", "300ms", "-o", file.path().to_str().unwrap()]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "of yesterday", "emptied for a response that never came");

    let (_demo, port) = Process::demo(&[]);
    let ended = get(port, "/slow/60000", &["--timeout", "500ms"]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
}

#[test]
fn the_demo_prints_what_each_request_cost() {
    let (demo, port) = Process::demo(&[]);
    assert!(demo.stdout().contains("--ignore-certificate-errors-spki-list="));
    assert_eq!(get(port, "/bytes/100k", &["-o", "/dev/null"]).code, Some(0));
    demo.await_stdout("GET /bytes/100k 200: 100000 bytes, ");
    demo.await_stdout(" ms of CPU\n");
}

/// Two requests on one connection, of which the second follows at once.
#[test]
fn the_demo_sums_up_requests_that_follow_each_other_at_once() {
    let (demo, port) = Process::demo(&[]);
    let options = ["--silent", "--insecure", "--output", "/dev/null", "--output", "/dev/null"];
    let url = format!("https://127.0.0.1:{port}/bytes/50k");
    let Some(curl) = needs::program("curl") else { return };
    let mut command = Command::new(curl);
    Process::spawn({
        command.args(options).args([&url, &url]).env("NO_PROXY", "*");
        command
    })
    .end()
    .success();
    demo.await_stdout("\n2 requests in 0.");
    let text = demo.stdout();
    let line = text.lines().find(|line| line.starts_with("2 requests in ")).unwrap();
    let (_, cost) = line.split_once(" s, 100 kB: ").unwrap_or_else(|| panic!("{line}"));
    assert!(cost.contains(" ms of CPU, ") && cost.ends_with(" ms each"), "{line}");
    assert!(!text.contains("\nGET /bytes"), "{text}");
}

/// The commands and the address that it names work.
#[test]
fn the_demo_ends_its_welcome_with_the_next_steps() {
    let (demo, _) = Process::demo(&[]);
    let text = demo.stdout();
    let (_, steps) = text.split_once("\nNext steps:\n").unwrap_or_else(|| panic!("{text}"));
    assert!(steps.contains("litequic demo --origin http://127.0.0.1:8080\n"), "{steps}");
    assert!(steps.contains("litequic example edge"), "{steps}");
    let (_, page) =
        steps.split_once("http://127.0.0.1:").map(|_| steps.split_once("the status page:").unwrap()).unwrap();
    let address = page.trim_start().strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("<title>litequic</title>"), "{answer}");

    let (demo, _) = Process::demo(&["--origin", "127.0.0.1:9"]);
    assert!(!demo.stdout().contains("demo --origin"), "{}", demo.stdout());
}

#[test]
fn the_demo_stands_before_an_origin_of_yours() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let (demo, port) = Process::demo(&["--origin", &origin.local_addr().unwrap().to_string()]);
    assert!(demo.stdout().contains("your origin"));
    let client = Process::start(["get", "--insecure", &format!("https://127.0.0.1:{port}/")]);
    let mut stream = await_request(&origin);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nyours").unwrap();
    let ended = client.end();
    assert!(ended.stdout.ends_with("\n\nyours"), "{ended:?}");
}

#[test]
fn an_idle_litequic_ends_at_once_when_told_to() {
    for signal in ["TERM", "INT"] {
        let (demo, _) = Process::demo(&[]);
        demo.signal(signal);
        assert_eq!(demo.end_within(Duration::from_secs(10)).code, Some(0), "{signal}");
    }
}

#[test]
fn the_first_signal_waits_for_requests_and_the_second_does_not() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = origin.local_addr().unwrap().to_string();
    let (mut demo, port) = Process::demo(&["--origin", &at, "--log-level", "info"]);
    let client = Process::start(["get", "--insecure", &format!("https://127.0.0.1:{port}/")]);
    let _unanswered = await_request(&origin);
    demo.signal("TERM");
    demo.await_stderr("draining: requests may finish");
    assert!(demo.is_running());
    demo.signal("TERM");
    let ended = demo.end_within(Duration::from_secs(15));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let client = client.end();
    assert_eq!(client.code, Some(76), "{client:?}");
}

#[test]
fn a_request_that_runs_is_answered_after_the_first_signal() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = origin.local_addr().unwrap().to_string();
    let (demo, port) = Process::demo(&["--origin", &at, "--log-level", "info"]);
    let client = Process::start(["get", "--insecure", &format!("https://127.0.0.1:{port}/")]);
    let mut stream = await_request(&origin);
    demo.signal("INT");
    demo.await_stderr("draining: requests may finish");
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").unwrap();
    let ended = client.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.ends_with("\n\nlate"), "{ended:?}");
    assert_eq!(demo.end_within(Duration::from_secs(15)).code, Some(0));
}
