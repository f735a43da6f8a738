//! A page by each protocol, with curl: the thinnest way through all layers.

use crate::support::prelude::*;
use std::io::Write;

/// What curl, with `options`, gets from `path`, after a line with the version of HTTP and the status.
async fn curl(litequic: &Litequic, path: &str, options: &[&str]) -> Option<String> {
    let curl = needs::program("curl")?;
    let mut trusted = tempfile::NamedTempFile::new().unwrap();
    trusted.write_all(litequic.cert_pem.as_bytes()).unwrap();
    let mut command = Command::new(curl);
    command.args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "*", "--cacert"]).arg(trusted.path());
    command.args(["--write-out", "\n%{http_version} %{http_code}"]).args(options);
    command.arg(format!("https://localhost:{}{path}", litequic.tcp[0].port()));
    let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn curl_gets_one_response_by_http1_and_http2_with_alt_svc() {
    let litequic = Litequic::demo(|_| {}).await;
    assert_eq!(litequic.tcp, litequic.addresses, "one number for both");
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let Some(got) = curl(&litequic, "/headers", &[option, "--include"]).await else { return };
        assert!(got.ends_with(&format!("\n{version} 200")), "{got}");
        assert!(got.contains("x-forwarded-proto: https"), "{got}");
        assert!(got.contains(&format!("alt-svc: h3=\":{}\"; ma=86400", litequic.address.port())), "{got}");
    }
    assert_eq!(litequic.sum(|worker| worker.tcp.requests_h1.get()), 1);
    assert_eq!(litequic.sum(|worker| worker.tcp.requests_h2.get()), 1);
    litequic.stop().await;
}
