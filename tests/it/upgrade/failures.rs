//! Failures of a process that takes over, and what the running one does about them.

use super::{Download, Load, PATIENCE, Service, ended, terminate};
use crate::support::{prelude::*, process};

/// With its sockets in the groups: what it hangs at, the token, is read after them.
#[tokio::test]
async fn a_process_that_hangs_is_killed_and_the_next_one_takes_over() {
    if env::var_os("LITEQUIC_TEST_IO").is_some() {
        // A minute and more of waiting: once is enough.
        return;
    }
    let service = Arc::new(Service::new().await);
    let old = service.start().await;
    let load = Load::begin(&service);

    let pipe = service.directory.path().join("token");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let token = "token_file = \"token\"\nhandover = ";
    service.edit("handover = ", token);
    let hung = Process::spawn(service.command());
    let id = hung.id();
    let end = spawn_blocking(|| hung.end_within(PATIENCE)).await.unwrap();
    assert_eq!(end.code, None, "{end:?}");
    let log = old.stderr();
    let said = |text: &str| {
        let line = log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text:?} in {log}"));
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["process"], id, "{line}");
    };
    said("a new process failed to take over");
    said("killed a new process that hung");
    load.goes_on(6).await;

    service.edit(token, "handover = ");
    let new = service.start().await;
    assert_eq!(service.status().await["generation"], 1);
    load.goes_on(6).await;
    load.end().await;
    ended(old).await;
    terminate(new).await;
}

/// The kernel's hash alone spreads datagrams over the old process' sockets: it must not get more of them.
#[tokio::test]
async fn without_kernel_steering_a_successor_leaves_the_predecessor_alone() {
    let service = Arc::new(Service::new().await);
    let unsteered = || process::without("steering", &service.command());
    let Some(command) = unsteered() else { return };
    let old = spawn_blocking(|| {
        let old = Process::spawn(command);
        old.await_stderr("the kernel does not steer packets");
        old.address();
        old
    });
    let old = old.await.unwrap();
    let mut download = Download::begin(&service, 1_000_000).await;
    let load = Load::begin(&service);
    load.goes_on(6).await;

    let Some(command) = unsteered() else { return };
    let failed = spawn_blocking(|| Process::spawn(command).end()).await.unwrap();
    assert_eq!(failed.code, Some(69), "{failed:?}");
    assert!(failed.stderr.contains("the kernel does not steer datagrams"), "{failed:?}");
    load.goes_on(6).await;
    assert!(!download.read_to(usize::MAX).await);
    drop(download);
    load.end().await;
    terminate(old).await;
}
