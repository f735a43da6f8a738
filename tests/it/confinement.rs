//! Confinement: keys stay out of core dumps, and litequic shows what surrounds it. Always the real process.

use crate::support::{prelude::*, process::litequic};

/// Whether a core dump would be a file in the working directory of the process (core(5)).
fn core_dumps_are_files() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let are = pattern.starts_with("core");
    if !are {
        needs::skip(&format!("core dumps go elsewhere: {pattern}"));
    }
    are
}

/// `run` in `folder`, where it may write core dumps of any size, with `more` options.
async fn run(folder: &Path, more: &[&str]) -> Option<Command> {
    let hard = Command::new("sh").args(["-c", "ulimit -c unlimited"]).stderr(Stdio::null()).status().unwrap();
    if !hard.success() {
        needs::skip("core dumps are limited");
        return None;
    }
    let made = make_self_signed(["localhost"]).unwrap();
    write_certificate(folder, &made);
    let origin = origin::demo().await.to_string();
    let run = command(["run", "--listen", "127.0.0.1:0", "--origin", &origin, "--cert", "tls.crt", "--key", "tls.key"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited && exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    shell.args(more).current_dir(folder).env_remove("LITEQUIC_CORE");
    Some(shell)
}

/// Names of the core dumps in `folder`.
fn dumps(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("core")).collect()
}

#[tokio::test]
async fn core_dumps_are_written_only_if_requested() {
    if !core_dumps_are_files() {
        return;
    }
    for (variable, option, expected) in
        [(None, None, 0), (Some("0"), None, 0), (Some("1"), None, 1), (None, Some("--key-log"), 1)]
    {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut command) = run(folder.path(), option.as_slice()).await else { return };
        command.env("SSLKEYLOGFILE", folder.path().join("secrets"));
        if let Some(value) = variable {
            command.env("LITEQUIC_CORE", value);
        }
        let process = Process::spawn(command);
        process.address();
        let ended = spawn_blocking(|| process.end_by("ABRT")).await.unwrap();
        assert_eq!(ended.code, None, "{ended:?}");
        let dumps = dumps(folder.path());
        assert_eq!(dumps.len(), expected, "{variable:?} {option:?}: {dumps:?}");
    }
}

/// Panics of development builds abort where the test asks for it, as those of release builds do.
#[tokio::test]
async fn a_panic_writes_no_core_dump_unless_the_environment_asks_for_it() {
    if !core_dumps_are_files() {
        return;
    }
    for (variable, expected) in [(None, 0), (Some("1"), 1)] {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut command) = run(folder.path(), &[]).await else { return };
        command.env("LITEQUIC_PANIC_IN", "abort:worker");
        if let Some(value) = variable {
            command.env("LITEQUIC_CORE", value);
        }
        let process = Process::spawn(command);
        let ended = spawn_blocking(|| process.end()).await.unwrap();
        assert!(ended.stderr.contains("panic requested by the environment, in worker"), "{ended:?}");
        assert_eq!(ended.code, None, "SIGABRT: {ended:?}");
        let dumps = dumps(folder.path());
        assert_eq!(dumps.len(), expected, "{variable:?}: {dumps:?}");
    }
}

#[tokio::test]
async fn the_log_begins_with_what_surrounds_the_process_and_probe_prints_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(command) = run(folder.path(), &["--log-format", "json"]).await else { return };
    let process = Process::spawn(command);
    process.address();
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let ended = spawn_blocking(|| process.end_by("TERM")).await.unwrap();
    let mut events = ended.stderr.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let event = events.find(|event| event["message"] == "confinement").unwrap();
    assert_eq!(event["core_dumps"], false, "{event}");

    let has = |line: &str| status.lines().any(|other| other == line);
    assert_eq!(event["no_new_privileges"], has("NoNewPrivs:\t1"), "{event}");
    assert_eq!(event["seccomp"] == "filter", has("Seccomp:\t2"), "{event}");
    let warns = ended.stderr.contains("an attacker who controls litequic controls the machine");

    let probe = litequic(["probe"]).success();
    assert!(
        probe.contains(&format!("\nuser                             {}\n", event["user"].as_str().unwrap())),
        "{probe}"
    );
    let capabilities = event["capabilities"].as_str().unwrap();
    assert!(probe.contains(&format!("\neffective capabilities           {capabilities}\n")), "{probe}");
    assert_eq!(probe.contains("an attacker who controls litequic controls the machine"), warns, "{probe}");
}
