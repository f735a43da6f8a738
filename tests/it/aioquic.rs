//! An HTTP/3 client that shares no code with litequic: aioquic, in Python (`aioquic.py`).

use crate::support::prelude::*;

/// More than the script's own, whose message is the better one.
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_independent_client_gets_and_uploads_every_byte() {
    let Some(python) = needs::python_module("aioquic.h3.connection") else { return };
    let (_demo, port) = Process::demo(&["--origin", &origin::demo().await.to_string()]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/aioquic.py");
    let mut command = Command::new(python);
    command.arg(script).arg(port.to_string());
    let said = Process::spawn(command).end_within(DEADLINE).success();
    assert_eq!(said.lines().filter(|line| line.starts_with("ok: ")).count(), 12, "{said}");
}
