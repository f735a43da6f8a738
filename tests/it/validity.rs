//! Certificates that can be served and that clients reject: expired, not yet valid, weak, of another name. They are
//! served with a warning, and stop neither a start nor a reload.

use crate::{
    drain::ask,
    reload::Setup,
    support::{prelude::*, process::litequic},
};
use std::time::SystemTime;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Writes `NAME.crt` and `NAME.key` for `host`, valid from `from` to `until`.
fn write(directory: &Path, name: &str, host: &str, from: SystemTime, until: SystemTime) {
    let mut parameters = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
    (parameters.not_before, parameters.not_after) = (from.into(), until.into());
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(directory.join(format!("{name}.crt")), parameters.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// One expired, one that is not valid yet.
fn write_expired_and_early(directory: &Path) {
    let now = SystemTime::now();
    write(directory, "expired", "expired.test", now - 10 * DAY, now - DAY);
    write(directory, "early", "early.test", now + DAY, now + 10 * DAY);
}

const BOTH: &str = "[[certificates]]\ncert = \"expired.crt\"\nkey = \"expired.key\"\n\
                    [[certificates]]\ncert = \"early.crt\"\nkey = \"early.key\"\n";

#[tokio::test]
async fn an_expired_certificate_is_served_with_a_warning() {
    let (setup, origin) = (Setup::new(), Always::new(Always::EMPTY_200).await);
    let directory = setup.path("");
    write_expired_and_early(Path::new(&directory));
    let file = setup.path("litequic.toml");
    setup.write(origin.address, "");
    fs::write(&file, fs::read_to_string(&file).unwrap() + BOTH).unwrap();

    let process = Process::start(["run", "--config", &file]);
    process.address();
    for warning in ["certificates[1].cert = \\\"expired.crt\\\": the certificate expired on ", "certificates[2].cert"] {
        process.await_stderr(warning);
    }
    assert_eq!(setup.client().await.get("/").await.status, 200);
    let (_, metrics) = ask(setup.admin, "GET /metrics").await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let time = |name: &str, n: usize| -> u64 {
        let key = format!("litequic_certificates_{name}_timestamp_seconds{{certificate=\"certificates[{n}]\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&key)?.parse().ok()).unwrap()
    };
    assert!(time("expiry", 1) < now && time("not_before", 1) < now && now < time("not_before", 2), "{metrics}");
    let (_, status) = ask(setup.admin, "GET /status").await;
    assert!(status.contains("the certificate expired on ") && status.contains("is not valid before "), "{status}");

    // A reload of something else, without a fault.
    setup.write(origin.address, "limits.max_headers = 50");
    fs::write(&file, fs::read_to_string(&file).unwrap() + BOTH).unwrap();
    let (status, answer) = setup.reload().await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("certificates[1].cert = \"expired.crt\": the certificate expired on "), "{answer}");
}

#[test]
fn check_says_every_warning_with_its_place_and_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    write_expired_and_early(directory.path());
    let good = make_self_signed(["localhost", "*.example.com"]).unwrap();
    fs::write(path("good.crt"), good.cert_pem).unwrap();
    fs::write(path("good.key"), good.key_pem).unwrap();
    let text = format!(
        "origin.url = \"http://127.0.0.1:9\"\n{BOTH}[[certificates]]\ncert = \"good.crt\"\nkey = \"good.key\"\n\
         [[routes]]\nhost = \"a.example.com\"\norigin = \"origin\"\n\
         [[routes]]\nhost = \"other.test\"\norigin = \"origin\"\n"
    );
    fs::write(path("litequic.toml"), text).unwrap();
    let file = path("litequic.toml").display().to_string();
    let ended = litequic(["check", "--config", &file]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<_> = ended.stderr.lines().map(|line| line.strip_prefix(&file).unwrap()).collect();
    let expected = [
        ":3:8: warning: certificates[0].cert = \"expired.crt\": the certificate expired on ",
        ":6:8: warning: certificates[1].cert = \"early.crt\": the certificate is not valid before ",
        ":15:8: warning: routes[1].host = \"other.test\": no certificate has the name other.test: clients that request it get",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn weak_signatures_are_warnings_and_weak_keys_faults() {
    let Some(openssl) = needs::program("openssl") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    for (bits, digest, authority, code, expected) in [
        ("2048", "-sha256", "FALSE", 0, ""),
        (
            "2048",
            "-sha1",
            "FALSE",
            0,
            ":2:8: warning: certificates[0].cert = \"tls.crt\": the certificate is signed with SHA-1",
        ),
        (
            "2048",
            "-md5",
            "FALSE",
            0,
            ":2:8: warning: certificates[0].cert = \"tls.crt\": the certificate is signed with MD5",
        ),
        (
            "2048",
            "-sha256",
            "TRUE",
            0,
            ":2:8: warning: certificates[0].cert = \"tls.crt\": the certificate is a CA certificate",
        ),
        ("1024", "-sha256", "FALSE", 78, ":3:7: certificates[0].key = \"tls.key\": the RSA key in "),
    ] {
        let made = Command::new(&openssl)
            .args(["req", "-x509", "-newkey", &format!("rsa:{bits}"), "-nodes", digest, "-days", "5"])
            .args(["-addext", &format!("basicConstraints=critical,CA:{authority}")])
            .args([
                "-addext",
                "subjectAltName=DNS:localhost",
                "-subj",
                "/CN=localhost",
                "-keyout",
                &path("tls.key"),
                "-out",
                &path("tls.crt"),
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let text = "[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n[origin]\nurl = \"http://127.0.0.1:9\"\n";
        fs::write(path("litequic.toml"), text).unwrap();
        let ended = litequic(["check", "--config", &path("litequic.toml")]);
        assert_eq!(ended.code, Some(code), "{bits} {digest}: {ended:?}");
        assert!(ended.stderr.contains(expected) && ended.stderr.is_empty() == expected.is_empty(), "{ended:?}");
        assert!(bits != "1024" || ended.stderr.contains("has 1024 bits; at least 2048"), "{ended:?}");
    }
}
