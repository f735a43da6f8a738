//! Renewal while the configuration is rejected: an invalid edit does not prevent renewal of files in force.

use crate::{
    drain::ask,
    reload::{Setup, saying},
    support::prelude::*,
};

fn made() -> SelfSigned {
    make_self_signed(["localhost"]).unwrap()
}

/// That clients get `made`, and nothing else.
async fn is_served(setup: &Setup, made: &SelfSigned) {
    until("the new certificate", async || setup.quic(made).await.is_ok()).await;
}

async fn status(setup: &Setup) -> serde_json::Value {
    serde_json::from_str(&ask(setup.admin, "GET /status").await.1).unwrap()
}

#[tokio::test]
async fn a_refused_configuration_keeps_no_certificate_from_being_renewed() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    assert_eq!(status(&setup).await["configuration"]["refused_since"], 0);

    setup.write(origin.address, "timeouts.idle = \"30x\"");
    process.await_stderr("timeouts.idle = \\\"30x\\\": unknown unit");
    let renewed = made();
    setup.project("..v2", &renewed);
    process.await_stderr("renewed, under the configuration that was already in force");
    is_served(&setup, &renewed).await;
    assert!(setup.quic(&setup.made).await.is_err(), "the old certificate is still served");
    let configuration = status(&setup).await["configuration"].take();
    assert!(configuration["refused_since"].as_u64().unwrap() > 0, "{configuration}");
    assert!(configuration["renewed_at"].as_u64() >= configuration["refused_since"].as_u64(), "{configuration}");
    assert!(setup.metric("litequic_renewals_total").await >= 1);
    assert!(setup.metric("litequic_config_refused_since_timestamp_seconds").await > 0);

    // The answer has both.
    let again = made();
    setup.project("..v3", &again);
    let (code, answer) = setup.reload().await;
    assert_eq!(code, 422);
    let (faults, rest) = answer.split_once("not reloaded\n").unwrap();
    assert!(faults.contains("timeouts.idle"), "{answer}");
    // The watch may have been faster.
    assert!(rest.is_empty() || rest.starts_with("certificates[0]: "), "{answer}");
    is_served(&setup, &again).await;

    setup.write(origin.address, "");
    assert_eq!(setup.reload().await.0, 200);
    assert_eq!(status(&setup).await["configuration"]["refused_since"], 0);
}

#[tokio::test]
async fn an_invalid_configuration_file_does_not_stop_renewals() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let process = setup.start(origin.address).await;
    let file = setup.path("litequic.toml");
    let good = fs::read_to_string(&file).unwrap();
    for (n, bad) in [
        (2, "this is no TOML = [".to_owned()),
        (3, good.replace("tls/tls.crt", "tls/absent.crt")),
        (4, good.replace("tls/tls.crt", "tls/absent.crt").replace("url", "ulr")),
    ] {
        fs::write(&file, bad).unwrap();
        assert_eq!(setup.reload().await.0, 422);
        let renewed = made();
        setup.project(&format!("..v{n}"), &renewed);
        is_served(&setup, &renewed).await;
    }
    fs::remove_file(&file).unwrap();
    let renewed = made();
    setup.project("..v5", &renewed);
    is_served(&setup, &renewed).await;
    process.await_stderr("cannot be read: No such file");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_keeps_no_other_from_being_renewed() {
    let (setup, origin) = (Setup::new(), saying("").await);
    let other = make_self_signed(["other.test"]).unwrap();
    let write = |name: &str, made: &SelfSigned| {
        fs::write(setup.path(&format!("{name}.crt")), &made.cert_pem).unwrap();
        fs::write(setup.path(&format!("{name}.key")), &made.key_pem).unwrap();
    };
    write("other", &other);
    fs::write(setup.path("oops.html"), "old").unwrap();
    let file = setup.path("litequic.toml");
    let text = |top: &str| {
        setup.write(origin.address, top);
        let more = "[[certificates]]\ncert = \"other.crt\"\nkey = \"other.key\"\n[error_pages]\n5xx = \"oops.html\"\n";
        fs::write(&file, fs::read_to_string(&file).unwrap() + more).unwrap();
    };
    text("");
    let process = Process::start(["run", "--config", &file]);
    process.address();
    assert_eq!(setup.reload().await.0, 200);

    // A good configuration with a certificate that was broken, another that was renewed, and a page.
    fs::write(setup.path("other.crt"), "no PEM").unwrap();
    fs::write(setup.path("oops.html"), "new").unwrap();
    let renewed = made();
    setup.project("..v2", &renewed);
    assert_eq!(setup.reload().await.0, 422);
    is_served(&setup, &renewed).await;
    process.await_stderr("oops.html renewed");
    process.await_stderr("not renewed: the previous content stays in force");
    process.await_stderr("other.crt contains no certificate");
}

#[tokio::test]
async fn authorities_and_revocation_lists_are_renewed_while_the_configuration_is_refused() {
    let (setup, closed) = (Setup::new(), origin::closed_port());
    let (one, other) = (make_self_signed(["one"]).unwrap(), make_self_signed(["other"]).unwrap());
    let ca = setup.path("ca.crt");
    fs::write(&ca, &one.cert_pem).unwrap();
    let asks = "client_certificates.ca = \"ca.crt\"\nclient_certificates.verify = \"optional\"";
    setup.write(closed, asks);
    let process = Process::start(["run", "--config", &setup.path("litequic.toml")]);
    process.address();
    assert_eq!(setup.reload().await.0, 200);
    setup.write(closed, &format!("{asks}\ntimeouts.idle = \"30x\""));
    assert_eq!(setup.reload().await.0, 422);
    fs::write(&ca, one.cert_pem + &other.cert_pem).unwrap();
    process.await_stderr("renewed, certificates: 2");
    // What cannot be read leaves those that were.
    fs::write(&ca, "no PEM").unwrap();
    process.await_stderr("ca.crt contains no certificate");
    let quic = setup.quic(&setup.made).await.unwrap();
    assert_eq!(Client::over(quic, "localhost").await.get("/").await.status, 502);
}
