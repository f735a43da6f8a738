//! A panic, wherever it happens, ends the process with one last line that has place and reason: a supervisor can start
//! it anew, which it cannot for a process that is half dead.

use crate::support::prelude::*;

/// Runs litequic, which is to panic in `place`, until it ends; with a request if that is what it takes.
async fn panicked_in(place: &str, format: &str) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let made = make_self_signed(["localhost"]).unwrap();
    let (cert, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    fs::write(&cert, &made.cert_pem).unwrap();
    fs::write(&key, &made.key_pem).unwrap();
    let origin = origin::demo().await.to_string();
    let mut run = command(["run", "--listen", "127.0.0.1:0", "--origin", &origin, "--log-format", format]);
    run.arg("--cert").arg(cert).arg("--key").arg(key).env("LITEQUIC_PANIC_IN", place);
    let process = Process::spawn(run);
    if place == "request" {
        let transport = quinn::TransportConfig::default();
        let quic = Quic::connect(process.address(), "localhost", &made.cert_pem, transport).await;
        let client = Client::over(quic, "localhost").await;
        let mut stream = client.open(client.request(Method::GET, "/")).await;
        let ended = spawn_blocking(|| process.end()).await.unwrap();
        stream.stop_stream(h3::error::Code::H3_NO_ERROR);
        return ended;
    }
    spawn_blocking(|| process.end()).await.unwrap()
}

#[tokio::test]
async fn a_panic_in_any_thread_ends_the_process_with_a_log_line() {
    for (place, thread, file) in [
        ("request", "worker-", "lifecycle.rs"),
        ("worker", "worker-", "lifecycle.rs"),
        ("control", "main", "lifecycle.rs"),
    ] {
        let ended = panicked_in(place, "json").await;
        assert_eq!(ended.code, Some(70), "{place}: {ended:?}");
        let last: serde_json::Value = serde_json::from_str(ended.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "ERROR", "{place}: {last}");
        assert_eq!(last["message"], "internal error: a thread panicked, stopping", "{place}");
        assert!(last["thread"].as_str().unwrap().starts_with(thread), "{place}: {last}");
        assert!(last["place"].as_str().unwrap().contains(file), "{place}: {last}");
        assert_eq!(last["panic"], format!("panic requested by the environment, in {place}"));
    }
}

#[tokio::test]
async fn a_person_reads_the_same_of_a_panic() {
    let ended = panicked_in("control", "human").await;
    let last = ended.stderr.lines().last().unwrap();
    assert_eq!(ended.code, Some(70), "{last}");
    assert!(
        last.contains("a thread panicked") && last.contains("panic requested by the environment, in control"),
        "{last}"
    );
}
