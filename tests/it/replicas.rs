//! Processes that share `listen.secret_file` and are different replicas: what one of them can do to the connections of
//! another. Always the real process.

use crate::{
    crash::{SILENCE, Setup, end},
    support::prelude::*,
};
use quinn::ConnectionError;

const SECRET: &str = "listen.secret_file = \"secret\"\n";

fn setup() -> Setup {
    let setup = Setup::new();
    setup.write("secret", &"0123456789abcdef".repeat(4));
    setup
}

#[tokio::test]
async fn a_replica_resets_the_clients_of_its_own_predecessor_and_no_others() {
    let origin = origin::demo().await;
    let setup = setup();
    let replica = |name: &str| format!("{SECRET}listen.replica = \"{name}\"");
    for (after, expected) in [("edge-1", Some(ConnectionError::Reset)), ("edge-2", None)] {
        let old = setup.start(origin, &replica("edge-1")).await;
        let client = setup.client().await;
        old.end_by("KILL");
        let new = setup.start(origin, &replica(after)).await;
        let patience = if expected.is_some() { DEADLINE } else { SILENCE };
        assert_eq!(end(&client, patience).await, expected, "{after}");
        setup.client().await;
        drop(new);
    }
}

/// `litequic` with `arguments` on a host called `name`. `None` where that needs more rights than the test has.
fn on_host(name: &str, arguments: &[&str]) -> Option<Ended> {
    let unshare = needs::program("unshare")?;
    let python = needs::program("python3")?;
    let program = command(arguments);
    let host = |uts: &Command| {
        let script = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])";
        let mut all = Command::new(uts.get_program());
        all.args(uts.get_args()).arg(&python).args(["-c", script, name]);
        all
    };
    let mut uts = Command::new(unshare);
    uts.args(["--user", "--map-root-user", "--uts"]);
    if !host(&uts).arg("true").output().is_ok_and(|output| output.status.success()) {
        needs::skip("no other host name can be set here (unshare --user --uts)");
        return None;
    }
    let mut all = host(&uts);
    all.arg(program.get_program()).args(program.get_args()).env_remove("RUST_LOG");
    Some(Process::spawn(all).end())
}

#[test]
fn a_secret_needs_a_replica_with_a_name() {
    let setup = setup();
    let path = setup.path("litequic.toml");
    let configure = |more: &str| setup.configure((Ipv4Addr::LOCALHOST, 80).into(), more);
    configure(SECRET);
    for command in ["check", "run"] {
        let Some(ended) = on_host("", &[command, "--config", &path]) else { return };
        assert_eq!(ended.code, Some(78));
        let problem = "listen.secret_file = \"secret\": this host has no name; set listen.replica";
        assert!(ended.stderr.contains(problem), "{}", ended.stderr);
    }
    let check = |host: &str| on_host(host, &["check", "--config", &path]).unwrap();
    let warning = "another host may have this name too";
    for (host, warned) in [("localhost", true), ("localhost.localdomain", true), ("edge-1", false)] {
        let ended = check(host);
        assert_eq!(ended.code, Some(0));
        assert_eq!(ended.stderr.contains(warning), warned, "{host}: {}", ended.stderr);
    }
    configure(&format!("{SECRET}listen.replica = \"edge-1\""));
    for host in ["", "localhost"] {
        let ended = check(host);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{host}");
    }
    configure(&format!("{SECRET}listen.replica = \"localhost\""));
    assert!(check("edge-1").stderr.contains(warning));
    // No other process has a random secret.
    configure("");
    let ended = check("");
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}
