//! Which program an upgrade starts: the one that was started, by the name that it was started by.

use super::{PATIENCE, Service, ended, terminate};
use crate::support::{prelude::*, process::litequic_program};
use std::os::unix::{fs::symlink, process::CommandExt};

/// Two releases, and `current`, which leads to the first.
struct Releases(tempfile::TempDir);

impl Releases {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for release in ["one", "two"] {
            fs::create_dir(folder.path().join(release)).unwrap();
            fs::copy(litequic_program(), folder.path().join(release).join("litequic")).unwrap();
        }
        symlink("one", folder.path().join("current")).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn lead_to(&self, release: &str) {
        let new = self.path().join("new");
        symlink(release, &new).unwrap();
        fs::rename(new, self.path().join("current")).unwrap();
    }

    /// Which release the process `id` runs.
    fn of(&self, id: u64) -> String {
        let program = fs::read_link(format!("/proc/{id}/exe")).unwrap();
        program.strip_prefix(self.path().canonicalize().unwrap()).unwrap().display().to_string()
    }
}

/// The one event in `log` whose message is `message`.
fn event(log: &str, message: &str) -> serde_json::Value {
    let events = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let found: Vec<_> = events.filter(|event| event["message"] == message).collect();
    assert_eq!(found.len(), 1, "{message:?} in {log}");
    found.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_successor_is_what_was_started_looked_up_anew() {
    let config = |service: &Service| service.directory.path().join("litequic.toml");
    type Start = fn(&Releases, &Path) -> Command;
    let starts: [(&str, Start, &str); 4] = [
        (
            "by a path with a link in it",
            |releases, config| {
                let mut command = Command::new(releases.path().join("current/litequic"));
                command.args(["run", "--config"]).arg(config);
                command
            },
            "two/litequic",
        ),
        (
            "by its name",
            |releases, config| {
                let mut command = Command::new("sh");
                command.args(["-c", "PATH=$0:$PATH; exec litequic run --config \"$1\""]);
                command.arg(releases.path().join("current")).arg(config);
                command
            },
            "two/litequic",
        ),
        (
            "in a folder that a link led to",
            |releases, config| {
                let mut command = Command::new("sh");
                command.args(["-c", "cd \"$0\" && exec ./litequic run --config \"$1\""]);
                command.arg(releases.path().join("current")).arg(config);
                command
            },
            "two/litequic",
        ),
        (
            "by a name that leads nowhere",
            |releases, config| {
                let mut command = Command::new(releases.path().join("current/litequic"));
                command.arg0("proxy").args(["run", "--config"]).arg(config);
                command
            },
            "one/litequic",
        ),
    ];
    for (how, start, expected) in starts {
        let (service, releases) = (Service::new().await, Releases::new());
        let mut command = start(&releases, &config(&service));
        command.env_remove("RUST_LOG");
        let process = Process::spawn(command);
        let process = spawn_blocking(|| {
            process.address();
            process
        });
        let process = process.await.unwrap();
        assert_eq!(releases.of(process.id().into()), "one/litequic", "{how}");
        releases.lead_to("two");
        process.signal("USR2");
        service.until("generation", 1).await;
        service.until("older_processes", 0).await;
        let log = process.stderr();
        let started = event(&log, "started a new process");
        let successor = started["process"].as_u64().unwrap();
        assert_eq!(releases.of(successor), expected, "{how}");
        // Of either process, and in the successor's own words.
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(started["version"], version);
        let told = event(&log, "took over: the previous process drains and ends");
        assert_eq!((&told["version"], &told["version_before"]), (&version.into(), &version.into()), "{how}");
        assert_eq!(told["process"], process.id(), "{how}");
        let gone = event(&log, "a new process has taken over");
        assert_eq!((&gone["version"], &gone["version_after"]), (&version.into(), &version.into()), "{how}");
        let kill = format!("kill -TERM {successor}");
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        ended(process).await;
    }
}

#[tokio::test]
async fn a_missing_successor_program_is_reported_and_the_process_continues() {
    let (service, releases) = (Service::new().await, Releases::new());
    let mut command = Command::new(releases.path().join("current/litequic"));
    command.args(["run", "--config"]).arg(service.directory.path().join("litequic.toml")).env_remove("RUST_LOG");
    let process = Process::spawn(command);
    let process = spawn_blocking(move || {
        process.address();
        releases.lead_to("absent");
        process.signal("USR2");
        process.await_stderr("cannot start a new process");
        process
    });
    let process = process.await.unwrap();
    assert_eq!(service.status().await["generation"], 0);
    terminate(process).await;
}

/// `handover` is in the configuration, and an operator starts a second process by mistake.
#[tokio::test]
async fn a_second_run_says_itself_whose_place_it_takes() {
    let service = Service::new().await;
    let first = service.start().await;
    let second = service.start().await;
    let log = second.stderr();
    for message in ["taking over from the running process", "took over: the previous process drains and ends"] {
        assert_eq!(event(&log, message)["process"], first.id(), "{log}");
    }
    ended(first).await;
    second.signal("TERM");
    let end = spawn_blocking(|| second.end_within(PATIENCE)).await.unwrap();
    assert_eq!(end.code, Some(0), "{end:?}");
}
