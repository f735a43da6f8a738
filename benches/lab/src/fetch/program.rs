//! curl and `litequic get`: programs that write the body to a file.

use super::{Arguments, Client, Fetched, folder::Folder};
use crate::http::Http;
use anyhow::{Context as _, Result, bail};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// For a whole download, seconds: longer than the lab waits.
const PATIENCE: u32 = 330;

pub(super) fn fetch(arguments: &Arguments) -> Result<Fetched> {
    let folder = Folder::new()?;
    let mut command = command(arguments, &folder.path().join("body"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = || command.spawn().with_context(|| format!("cannot start {}", arguments.program.display()));
    let mut child = arguments.start(start)?;
    let mut ended = None;
    let fetched = folder.watch(arguments, || {
        ended = child.try_wait()?;
        Ok(ended.is_some())
    })?;
    match ended {
        Some(status) if !status.success() => bail!("{} failed: {status}", arguments.client.name()),
        Some(_) => {}
        None => {
            // Abandoned.
            child.kill()?;
            child.wait()?;
        }
    }
    Ok(fetched)
}

fn command(arguments: &Arguments, body: &Path) -> Command {
    let mut command = Command::new(&arguments.program);
    let resolve = format!("localhost:{}:{}", arguments.address.port(), arguments.address.ip());
    match arguments.client {
        Client::Get => {
            command.args(["get", "--timeout", &format!("{PATIENCE}s"), "--resolve", &resolve, "--ca"]);
        }
        Client::Curl | Client::Chromium | Client::ChromiumAsked | Client::Firefox => {
            let version = match arguments.http {
                Http::One => "--http1.1",
                Http::Two => "--http2",
                Http::Three => "--http3-only",
            };
            command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", version]);
            command.args(["--max-time", &PATIENCE.to_string(), "--resolve", &resolve, "--cacert"]);
        }
    }
    command.arg(&arguments.ca).arg("--output").arg(body).arg(arguments.url());
    command
}
