//! An HTTP/3 client that shares no code with litequic: aioquic, in Python (`aioquic.py`).

use crate::support::{demo::Demo, needs, process};
use std::{process::Command, time::Duration};

/// More than the script's own, whose message is the better one.
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn an_independent_client_gets_and_uploads_every_byte() {
    let Some(python) = needs::python_module("aioquic.h3.connection") else { return };
    let demo = Demo::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/aioquic.py");
    let said = process::output(Command::new(python).arg(script).arg(demo.port.to_string()), DEADLINE);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok: ")).count(), 12, "{said}");
}
