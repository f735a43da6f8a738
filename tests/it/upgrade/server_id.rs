//! An upgrade of a process whose connection IDs have a server ID: its connections go on if the next one has the same
//! layout, and it stays if not.

use super::{Download, PATIENCE, Service, ended, terminate};
use crate::support::process::Process;
use tokio::task::spawn_blocking;

#[tokio::test]
async fn connections_survive_an_upgrade_that_changes_the_server_id() {
    let service = Service::new().await;
    std::fs::write(service.directory.path().join("key"), "30313233343536373839616263646566").unwrap();
    for key in ["", ", key_file = \"key\""] {
        let table = |id: &str, rotation: u8| format!("server_id = {{ id = \"0x{id} rotation={rotation}\"{key} }}\n");
        let (before, after) = (table("0102", 0), table("0103", 1));
        service.edit("[listen]\n", &format!("[listen]\n{before}"));
        let old = service.start().await;
        let mut downloads = Vec::new();
        for _ in 0..4 {
            downloads.push(Download::begin(&service, 1_000_000).await);
        }
        service.edit(&before, &after);
        let new = service.start().await;
        // The old process' connections are steered to it by the new one's program.
        for mut download in downloads {
            assert!(!download.read_to(usize::MAX).await);
        }
        ended(old).await;
        Download::begin(&service, 1000).await.read_to(usize::MAX).await;
        assert_eq!(service.status().await["server_id"]["id"], "0x0103");
        terminate(new).await;
        service.edit(&after, "");
    }
}

#[tokio::test]
async fn a_process_whose_server_id_has_another_layout_does_not_take_over() {
    let service = Service::new().await;
    let layouts = ["", "server_id.id = \"0x01\"\n", "server_id.id = \"0x0102\"\n"];
    let names = [
        "16 bytes: no server ID",
        "16 bytes: server ID 1, nonce 14, no key",
        "16 bytes: server ID 2, nonce 13, no key",
    ];
    for (first, second) in [(0, 1), (1, 0), (1, 2)] {
        let [first_line, second_line] = [first, second].map(|n: usize| format!("[listen]\n{}udp", layouts[n]));
        service.edit("[listen]\nudp", &first_line);
        let old = service.start().await;
        let mut download = Download::begin(&service, 1_000_000).await;
        service.edit(&first_line, &second_line);
        let command = service.command();
        let refused = spawn_blocking(|| Process::spawn(command).end_within(PATIENCE)).await.unwrap();
        assert_eq!(refused.code, Some(69), "{refused:?}");
        let (its, own) = (names[first], names[second]);
        let problem = format!(
            "its connection IDs have a different layout ({its}; this configuration has {own}), \
                               which needs a restart"
        );
        assert!(refused.stderr.contains(&problem), "{refused:?}");
        assert!(!download.read_to(usize::MAX).await);
        assert_eq!(service.status().await["generation"], 0);
        terminate(old).await;
        service.edit(&second_line, "[listen]\nudp");
    }
}
