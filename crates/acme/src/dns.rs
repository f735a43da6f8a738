//! Sets records in the DNS: by the operator's command for DNS-01; for dns-persist-01 it formats the record.

use super::plan::bounded_line;
use litequic_config::{Acme, AcmeHost};
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};

/// Longest time that the command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Time for which the command's outputs are read after its end: the last lines may still be in the pipes.
const OUTPUT_DRAIN_TIME: Duration = Duration::from_millis(100);
/// Bytes of the command's outputs that a failure reports, standard error first.
const MAX_OUTPUT_BYTES: usize = 4096;
/// Environment variables by which a service manager speaks to litequic alone.
const OWN_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Returns the name of a record below `label` for `host`, with the root's dot.
pub(super) fn record_name(host: &AcmeHost, label: &str) -> String {
    match host {
        AcmeHost::Name(name) | AcmeHost::Wildcard(name) => format!("{label}.{name}."),
        AcmeHost::Address(address) => format!("{label}.{address}."),
    }
}

/// Returns the record of dns-persist-01 for `host` as a line of a zone file, by which `issuer` may issue certificates
/// to `account`.
pub(super) fn persistent_record_line(host: &AcmeHost, issuer: Option<&str>, account: &str) -> String {
    let policy = if matches!(host, AcmeHost::Wildcard(_)) { "; policy=wildcard" } else { "" };
    let issuer = issuer.unwrap_or("NAME-OF-THE-CA");
    bounded_line(&format!(
        "{} IN TXT \"{issuer}; accounturi={account}{policy}\"",
        record_name(host, "_validation-persist")
    ))
}

/// Runs the command of `table` for the record `name` with `value`. `action` is a word of lego's `exec` provider,
/// `present` or `cleanup`.
///
/// # Errors
///
/// The reason of the failure, with the beginning of the command's output.
pub(super) async fn run_dns_command(table: &Acme, action: &str, name: &str, value: &str) -> Result<(), String> {
    let [program, first @ ..] = &table.dns_command[..] else { return Err("dns_command is not set".into()) };
    let mut command = Command::new(program);
    OWN_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    command
        .args(first)
        .args([action, name, value])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let failed = |problem: String| format!("{program} {}: {problem}", action);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // A child of the command may hold the outputs open, so only the command's own end counts.
    let ended = timeout(COMMAND_TIMEOUT, async {
        let (mut output, mut error) = (Vec::new(), Vec::new());
        let status = {
            let both = async { tokio::join!(read_output(stdout, &mut output), read_output(stderr, &mut error)) };
            tokio::pin!(both);
            tokio::select! {
                status = child.wait() => {
                    // The timeout has no effect on the result: a child may hold the outputs open for ever.
                    let _ = timeout(OUTPUT_DRAIN_TIME, &mut both).await;
                    status
                }
                _ = &mut both => child.wait().await,
            }
        };
        (status, output, error)
    });
    match ended.await {
        Ok((Ok(status), ..)) if status.success() => Ok(()),
        Ok((Ok(status), output, error)) => {
            let mut text = [error, output].concat();
            text.truncate(MAX_OUTPUT_BYTES);
            Err(failed(format!("{status}: {}", String::from_utf8_lossy(&text).trim_end())))
        }
        Ok((Err(error), ..)) => Err(failed(error.to_string())),
        Err(_) => {
            // Dropping `child` kills the command.
            Err(failed(format!("it did not end within {COMMAND_TIMEOUT:?}")))
        }
    }
}

/// Reads a stream to its end, and retains the first [`MAX_OUTPUT_BYTES`].
async fn read_output(from: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len()).min(read);
        kept.extend(chunk.iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(script: &str) -> Acme {
        Acme { dns_command: ["/bin/sh", "-c", script, "hook"].map(str::to_owned).to_vec(), ..Acme::default() }
    }

    #[tokio::test]
    async fn the_dns_command_gets_the_record_and_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let script = format!("{{ echo \"$@\"; env; }} >{}", seen.display());
        run_dns_command(&table(&script), "present", "_acme-challenge.a.test.", "value").await.unwrap();
        let seen = std::fs::read_to_string(&seen).unwrap();
        assert!(seen.starts_with("present _acme-challenge.a.test. value\n"), "{seen}");
        let names: Vec<_> = seen.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert!(names.contains(&"CARGO_PKG_NAME") && names.contains(&"PATH"), "{names:?}");
        assert!(OWN_VARIABLES.iter().all(|name| !names.contains(name)), "{names:?}");
    }

    #[tokio::test]
    async fn a_command_that_fails_is_reported_with_the_beginning_of_its_output() {
        let long = "echo reason >&2; head -c 100000 /dev/zero | tr '\\0' x; exit 3";
        let problem = run_dns_command(&table(long), "cleanup", "a.", "b").await.unwrap_err();
        assert!(problem.starts_with("/bin/sh cleanup: exit status: 3: reason\nxxx"), "{problem}");
        assert!((MAX_OUTPUT_BYTES..MAX_OUTPUT_BYTES + 100).contains(&problem.len()), "{}", problem.len());
        let absent = Acme { dns_command: vec!["/nonexistent/hook".into()], ..Acme::default() };
        let problem = run_dns_command(&absent, "present", "a.", "b").await.unwrap_err();
        assert!(problem.starts_with("/nonexistent/hook present: No such file"), "{problem}");
    }

    #[tokio::test]
    async fn the_dns_commands_last_output_is_reported_despite_a_child() {
        for _ in 0..5 {
            let problem = run_dns_command(&table("sleep 1 & echo reason >&2; exit 3"), "present", "a.", "b").await;
            assert_eq!(problem.unwrap_err(), "/bin/sh present: exit status: 3: reason");
        }
    }

    #[test]
    fn a_record_that_stays_names_the_ca_and_the_account() {
        let wildcard = AcmeHost::Wildcard("a.test".into());
        assert_eq!(
            persistent_record_line(&wildcard, Some("ca.test"), "https://ca.test/1"),
            "_validation-persist.a.test. IN TXT \"ca.test; accounturi=https://ca.test/1; policy=wildcard\""
        );
        assert_eq!(record_name(&wildcard, "_acme-challenge"), "_acme-challenge.a.test.");
    }
}
