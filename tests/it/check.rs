//! `litequic check`: one round, every fault with its place, and the same that `run` and a reload report.

use crate::{
    reload::{Setup, saying},
    support::{prelude::*, process::litequic},
};
use std::os::unix::fs::PermissionsExt;

/// Whatever a file can name, each of it wrong, among faults of the file itself.
const EVERYTHING: &str = r#"[listen]
udp = "127.0.0.1:0"
secret_file = "short"

[[certificates]]
cert = "absent.crt"
key = "absent.key"

[[certificates]]
cert = "good.crt"
key = "other.key"

[[certificates]]
cert = "good.crt"

[client_certificates]
ca = "empty"
crl = "absent.crl"

[origin]
url = "http://127.0.0.1:9"

[error_pages]
404 = "absent.html"
5xx = "folder.html"

[[routes]]
host = "example.com"
origin = "nope"
error_pages = { 500 = "absent.html" }
[[routes]]
path = "/robots.txt"
respond = { body_file = "absent.txt" }

[timeouts]
idle = "30x"

[admin]
listen = "127.0.0.1:9443"
token_file = "empty"
handover = "absent/socket"

[access_log]
path = "absent/access.log"
"#;

const EXPECTED: &[&str] = &[
    "2:7: listen.udp = \"127.0.0.1:0\": the port is 0; expected ",
    "3:15: listen.secret_file = \"short\": /DIR/short has 5; expected 32 to 4096 bytes",
    "6:8: certificates[0].cert = \"absent.crt\": cannot read /DIR/absent.crt: No such file",
    "7:7: certificates[0].key = \"absent.key\": cannot read /DIR/absent.key: No such file",
    "11:7: certificates[1].key = \"other.key\": the key in /DIR/other.key does not match the certificate in /DIR/good.crt",
    "13:1: certificates[2].key: missing; expected the path of a PEM file",
    "17:6: client_certificates.ca = \"empty\": /DIR/empty contains no certificate",
    "18:7: client_certificates.crl = \"absent.crl\": cannot read /DIR/absent.crl: No such file",
    "24:7: error_pages.404 = \"absent.html\": the error page /DIR/absent.html cannot be read: No such file",
    "25:7: error_pages.5xx = \"folder.html\": the error page /DIR/folder.html cannot be read: Is a directory",
    "29:10: routes[0].origin = \"nope\": no origin has this name; expected ",
    "30:23: routes[0].error_pages.500 = \"absent.html\": the error page /DIR/absent.html cannot be read: No such file",
    "33:25: routes[1].respond.body_file = \"absent.txt\": the body file /DIR/absent.txt cannot be read: No such file",
    "36:8: timeouts.idle = \"30x\": unknown unit \"x\"",
    "40:14: admin.token_file = \"empty\": the token of \"/DIR/empty\" must be 16 to 1024 printable characters",
    "41:12: admin.handover = \"absent/socket\": cannot be created: No such file",
    "44:8: access_log.path = \"absent/access.log\": cannot be written: No such file",
];

/// A folder with what [`EVERYTHING`] counts on.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let (good, other) = (make_self_signed(["localhost"]).unwrap(), make_self_signed(["localhost"]).unwrap());
    write("good.crt", &good.cert_pem);
    write("good.key", &good.key_pem);
    write("other.key", &other.key_pem);
    write("short", "short");
    write("empty", "");
    fs::create_dir(folder.path().join("folder.html")).unwrap();
    folder
}

fn are_expected(folder: &Path, lines: &[&str]) {
    let file = folder.join("litequic.toml").display().to_string();
    assert_eq!(lines.len(), EXPECTED.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(EXPECTED) {
        let expected = format!("{file}:{}", expected.replace("/DIR", &folder.display().to_string()));
        assert!(line.starts_with(&expected), "{line}\n{expected}");
    }
}

#[test]
fn one_check_reports_all_faults_of_all_files() {
    let folder = folder();
    let file = folder.path().join("litequic.toml");
    fs::write(&file, EVERYTHING).unwrap();
    let said = ["check", "run"].map(|command| {
        let ended = litequic([command, "--config", file.to_str().unwrap()]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(78), ""), "{command}: {ended:?}");
        ended.stderr
    });
    assert_eq!(said[0], said[1]);
    let mut lines: Vec<_> = said[0].lines().collect();
    assert_eq!(lines.pop(), Some(format!("{} faults", EXPECTED.len()).as_str()));
    are_expected(folder.path(), &lines);
}

/// What the order of the file decides is worth a warning, and no fault.
#[test]
fn routes_that_only_their_order_tells_apart_have_a_warning() {
    let folder = folder();
    let file = folder.path().join("litequic.toml");
    let text = "[[certificates]]\ncert = \"good.crt\"\nkey = \"good.key\"\n[origin]\nurl = \"http://127.0.0.1:9\"\n\
                [[routes]]\nname = \"one\"\nmatch.headers = { x-a = \"1\" }\norigin = \"origin\"\n\
                [[routes]]\nmatch = { headers = { x-b = \"1\" } }\norigin = \"origin\"\n\
                [[routes]]\nmatch = { headers = { x-a = \"2\" } }\norigin = \"origin\"\n";
    fs::write(&file, text).unwrap();
    let ended = litequic(["check", "--config", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<_> = ended.stderr.lines().collect();
    let alike = |place: &str, second: usize, first: usize, name: &str| {
        format!(
            "{}:{place}: warning: routes[{second}].match: a request can match both this and \
             routes[{first}] ({name}), which comes first in the file and gets the request",
            file.display()
        )
    };
    // The third excludes the first, and not the second.
    assert_eq!(lines, [alike("11:9", 1, 0, "one"), alike("14:9", 2, 1, "*/[x-b]")]);
}

/// The warnings of `check` for a configuration with `more`, without the file's name.
fn warnings(more: &str) -> Vec<String> {
    let folder = folder();
    let file = folder.path().join("litequic.toml");
    let text = format!(
        "{more}\n[[certificates]]\ncert = \"good.crt\"\nkey = \"good.key\"\n[origin]\nurl = \"http://127.0.0.1:9\"\n"
    );
    fs::write(&file, text).unwrap();
    let ended = litequic(["check", "--config", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let name = format!("{}:", file.display());
    ended.stderr.lines().map(|line| line.strip_prefix(&name).unwrap_or(line).to_owned()).collect()
}

#[test]
fn upgrades_before_http2_without_tls_have_a_warning() {
    let route = |path: &str, origin: &str, more: &str| {
        format!("[[routes]]\npath_prefix = \"/{path}\"\norigin = \"{origin}\"\n{more}\n")
    };
    let websocket = "upgrade = \"websocket\"";
    let more = [
        route("a", "calls", websocket),
        route("b", "calls", ""),
        route("c", "calls", "upgrade = []"),
        route("d", "secure", websocket),
        route("e", "origin", websocket),
        "[origins.calls]\nurl = \"unix:/run/calls\"\nprotocol = \"h2\"\n".to_owned(),
        "[origins.secure]\nurl = \"https://127.0.0.1:9\"\nprotocol = \"h2\"\n".to_owned(),
    ];
    let expected = "4:11: warning: routes[0].upgrade = \"websocket\": has no effect: the origin has protocol = \"h2\" \
                    without https, so that requests to switch protocols get 501";
    assert_eq!(warnings(&more.concat()), [expected]);
}

#[test]
fn variables_of_other_programs_have_a_warning() {
    let rules = "[[routes]]\norigin = \"origin\"\n\
                 request_headers.set = { x-real-ip = \"$remote_addr\", x-price = \"$5\", x-client = \"{client}\" }\n\
                 response_headers.add = { via = \"%[src]\" }\n\
                 [[routes]]\npath = \"/old\"\nredirect = \"https://example.com/new$request_uri\"\n\
                 [[routes]]\npath = \"/fixed\"\nrespond.status = 404\nresponse_headers.set = { x-host = \"{http.request.host}\" }\n";
    let fields = "is no variable, so the text is sent unchanged; the variables of this key are {client}, {host} and {request_id}";
    let paths = "is no variable, so the text is sent unchanged; the variables of this key are {host} and {path}";
    assert_eq!(
        warnings(rules),
        [
            format!("3:37: warning: routes[0].request_headers.set.x-real-ip = \"$remote_addr\": $remote_addr {fields}"),
            format!("4:32: warning: routes[0].response_headers.add.via = \"%[src]\": %[src] {fields}"),
            format!(
                "7:12: warning: routes[1].redirect = \"https://example.com/new$request_uri\": $request_uri {paths}"
            ),
            format!(
                "11:35: warning: routes[2].response_headers.set.x-host = \"{{http.request.host}}\": \
                 {{http.request.host}} {fields}"
            ),
        ]
    );
}

#[test]
fn access_rules_that_a_clients_own_header_could_meet_have_a_warning() {
    let keys = |mode: &str| {
        format!(
            "listen.proxy_protocol_from = \"192.0.2.1\"\nlisten.proxy_protocol_udp = \"{mode}\"\n\
             [[routes]]\norigin = \"origin\"\nallow = \"192.0.2.0/24\""
        )
    };
    let problem = "warning: routes[0].allow = \"192.0.2.0/24\": depends on the client's address, which a client may choose behind a load \
                   balancer with listen.proxy_protocol_udp = \"first\"";
    assert_eq!(warnings(&keys("first:2m")), [format!("5:9: {problem}")]);
    assert_eq!(warnings(&keys("every")), [""; 0]);
}

#[test]
fn an_access_log_path_such_as_off_gets_a_warning() {
    for word in ["syslog", "off", "none", "journal"] {
        let expected = format!(
            "1:19: warning: access_log.path = \"{word}\": names a file in the folder of the configuration; for the \
             journal write \"stdout\" or \"stderr\", for no access log remove the key"
        );
        assert_eq!(warnings(&format!("access_log.path = \"{word}\"")), [expected]);
    }
    for path in ["stdout", "-", "stderr", "./off", "access.log"] {
        assert_eq!(warnings(&format!("access_log.path = \"{path}\"")), [""; 0], "{path}");
    }
}

#[tokio::test]
async fn a_reload_names_the_same_as_check() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    let (folder, target) = (folder(), setup.path(""));
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), Path::new(&target).join(entry.file_name())).unwrap();
    }
    fs::write(setup.path("litequic.toml"), EVERYTHING).unwrap();
    let (status, answer) = setup.reload().await;
    assert_eq!(status, 422, "{answer}");
    let (faults, _) = answer.split_once("not reloaded\n").unwrap();
    are_expected(Path::new(target.trim_end_matches('/')), &faults.lines().collect::<Vec<_>>());
    drop(process);
}

/// What the check of a path must not do is make it, and what it must not miss is what `run` fails on.
#[test]
fn what_is_to_be_written_is_checked_and_not_made() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("logs")).unwrap();
    fs::write(path("file"), "").unwrap();
    fs::write(path("readable.log"), "").unwrap();
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    // Who is root may write everywhere.
    let is_root = may_everything();
    if !is_root {
        fs::set_permissions(path("readable.log"), fs::Permissions::from_mode(0o444)).unwrap();
    }
    let text = |key: &str| {
        format!(
            "{key}\norigin.url = \"http://127.0.0.1:9\"\n[[certificates]]\ncert = \"good.crt\"\nkey = \"good.key\"\n"
        )
    };
    for (key, fault) in [
        ("access_log.path = \"logs/access.log\"", None),
        ("access_log.path = \"/dev/null\"", None),
        ("access_log.path = \"stderr\"", None),
        ("access_log.path = \"logs\"", Some("cannot be written: is a directory")),
        ("access_log.path = \"file/access.log\"", Some("cannot be written: Not a directory")),
        ("access_log.path = \"readable.log\"", (!is_root).then_some("cannot be written: Permission denied")),
        // Read once, by `run`; nothing writes to it here.
        ("listen.secret_file = \"pipe\"", None),
        ("admin.token_file = \"pipe\"", None),
        ("admin.handover = \"logs/socket\"", None),
        ("admin.handover = \"file\"", Some("exists and is not a socket")),
        ("admin.handover = \"file/socket\"", Some("cannot be created: not a directory")),
    ] {
        fs::write(path("litequic.toml"), text(key)).unwrap();
        let ended = litequic(["check", "--config", path("litequic.toml").to_str().unwrap()]);
        assert_eq!(ended.code, Some(if fault.is_some() { 78 } else { 0 }), "{key}: {ended:?}");
        assert!(ended.stderr.contains(fault.unwrap_or_default()), "{key}: {ended:?}");
    }
    assert_eq!(fs::read_dir(path("logs")).unwrap().count(), 0);
}

/// Whether nothing is forbidden to this process.
fn may_everything() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_configuration_that_check_accepts_with_warnings_runs() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(path("logs")).unwrap();
    let port = free_udp_port();
    let text = format!(
        "listen.udp = \"127.0.0.1:{port}\"\naccess_log.path = \"logs/access.log\"\norigin.url = \"http://127.0.0.1:9\"\n\
         [[certificates]]\ncert = \"good.crt\"\nkey = \"good.key\"\n\
         [[routes]]\nhost = \"other.test\"\norigin = \"origin\"\n"
    );
    fs::write(path("litequic.toml"), text).unwrap();
    let ended = litequic(["check", "--config", &path("litequic.toml")]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains(":8:8: warning: routes[0].host = \"other.test\": "), "{ended:?}");
    let process = Process::start(["run", "--config", &path("litequic.toml")]);
    process.address();
    process.await_stderr("no certificate has the name other.test");
    process.end_by("TERM").success();
}

#[test]
fn check_reports_acme_faults_and_stored_certificates_offline() {
    let folder = folder();
    let made = make_self_signed(["localhost"]).unwrap();
    fs::write(folder.path().join("site.crt"), &made.cert_pem).unwrap();
    fs::write(folder.path().join("site.key"), &made.key_pem).unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    let stored = make_self_signed(["stored.test"]).unwrap();
    fs::write(state.join("stored.test.pem"), stored.cert_pem + &stored.key_pem).unwrap();
    fs::write(state.join("broken.test.pem"), "no certificate").unwrap();
    let config = |more: &str| {
        format!(
            "[listen]\nudp = \"127.0.0.1:8443\"\n[[certificates]]\ncert = \"site.crt\"\nkey = \"site.key\"\n\
             [[acme]]\nhosts = [\"localhost\", \"192.0.2.1\", \"stored.test\", \"broken.test\"]\nfolder = \"state\"\n\
             terms_agreed = true\n{more}\n[origin]\nurl = \"http://127.0.0.1:9\"\n"
        )
    };
    let file = folder.path().join("acme.toml");
    let check = |more: &str| {
        fs::write(&file, config(more)).unwrap();
        litequic(["check".as_ref(), file.as_os_str()])
    };
    let checked = check("");
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    for expected in [
        "acme[0].hosts[0] = \"localhost\": a certificate of [[certificates]] has the name localhost: litequic serves \
         that certificate, and obtains none by ACME",
        "acme[0].hosts[1] = \"192.0.2.1\": Let's Encrypt issues certificates for IP addresses only with profile = \
         \"shortlived\"",
        "acme[0].folder = \"state\": users other than its owner can read the folder, which contains private keys; \
         chmod it to 0700",
        "acme[0]: a CA validates a host on its ports 443 and 80",
    ] {
        assert!(checked.stderr.contains(&format!("warning: {expected}")), "{expected}\n{}", checked.stderr);
    }
    for expected in [
        "ok (1 route, 1 origin, 1 certificate); certificates for 4 hosts by ACME\n",
        "192.0.2.1: no certificate is stored; an order begins at the start, from \
         https://acme-v02.api.letsencrypt.org/directory\n",
        "stored.test: a certificate is stored, which expires ",
        "broken.test.pem: the file contains no certificate; the start renames it, and an order begins\n",
    ] {
        assert!(checked.stdout.contains(expected), "{expected}\n{}", checked.stdout);
    }
    let more = "ca = \"absent\"\neab = \"k empty\"\nchallenges = [\"tls-alpn-01\", \"dns-01\"]\n\
                dns_command = [\"/nonexistent/hook\"]";
    let checked = check(more);
    assert_eq!(checked.code, Some(78));
    for expected in [
        "acme[0].ca = \"absent\": cannot read ",
        "acme[0].eab = \"k empty\": ",
        "acme[0].dns_command[0] = \"/nonexistent/hook\": cannot be executed: No such file",
    ] {
        assert!(checked.stderr.contains(expected), "{expected}\n{}", checked.stderr);
    }
    // A file in the place of the folder.
    fs::write(&file, config("").replace("\"state\"", "\"site.crt\"")).unwrap();
    let checked = litequic(["check".as_ref(), file.as_os_str()]);
    assert!(
        checked.stderr.contains("acme[0].folder = \"site.crt\": cannot be written: not a directory"),
        "{}",
        checked.stderr
    );
}
