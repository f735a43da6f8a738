//! Folders that are full, or that have files of others.

use super::{HTTP_01, LOOK_AGAIN, OBTAINED, RENEWAL, pebble_and_site, wait_for};
use crate::support::prelude::*;
use std::os::unix::fs::PermissionsExt;
use tokio::time::Instant;

const FULL: &str = "No space left on device";
const STORED: &str = "the certificate is stored now";

#[tokio::test]
async fn a_damaged_certificate_is_renamed_and_ordered_once() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    fs::create_dir_all(site.file("state")).unwrap();
    fs::set_permissions(site.file("state"), fs::Permissions::from_mode(0o700)).unwrap();
    let other = make_self_signed(["b.test"]).unwrap();
    // Empty, no PEM, the certificate of another host.
    for (n, damaged) in ["", "someone else's", &(other.cert_pem + &other.key_pem)].into_iter().enumerate() {
        fs::write(site.file("state/a.test.pem"), damaged).unwrap();
        for _ in 0..2 {
            let litequic = site.start();
            site.await_served("a.test", &pebble.root().await).await;
            site.await_stored("a.test").await;
            litequic.end_by("TERM").success();
        }
        assert_eq!(fs::read_to_string(site.file("state/a.test.pem.damaged")).unwrap(), damaged);
        assert_eq!(pebble.orders(), n + 1, "{}", pebble.log());
    }

    // An account whose file is damaged is registered anew.
    let account = fs::read_dir(site.file("state")).unwrap().map(|file| file.unwrap().path());
    let mut account = account.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let account = account.find(|path| path.display().to_string().contains("account-")).unwrap();
    fs::write(account, "").unwrap();
    fs::remove_file(site.file("state/a.test.pem")).unwrap();
    let litequic = site.start();
    litequic.await_stderr("the file contains no account");
    site.await_served("a.test", &pebble.root().await).await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_stored_is_not_ordered() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    fs::create_dir_all(site.file("state/a.test.pem")).unwrap();
    fs::set_permissions(site.file("state"), fs::Permissions::from_mode(0o700)).unwrap();
    let litequic = site.start();
    litequic.await_stderr("a.test.pem: Is a directory");
    assert!(site.ctl(&["certificates", "renew", "a.test"]).answer().starts_with("ordering"));
    wait_for("the list", || site.ctl(&["certificates"]).stdout.contains("a.test.pem: Is a directory")).await;
    assert_eq!(pebble.orders(), 0, "{}", litequic.stderr());
    fs::remove_dir(site.file("state/a.test.pem")).unwrap();
    // The folder is read again after a minute.
    wait_for("the certificate", || litequic.stderr().contains(OBTAINED)).await;
}

/// A file system of 256 KiB is full when litequic starts, and again before the certificate is to be stored: the DNS hook
/// fills it when it is to remove the record.
#[tokio::test]
async fn a_certificate_obtained_on_a_full_disk_is_stored_later() {
    let [Some(unshare), Some(nsenter), Some(curl)] = ["unshare", "nsenter", "curl"].map(needs::program) else { return };
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    let state = site.file("state");
    let fill = format!("head -c 1000000 /dev/zero >{}/fill 2>/dev/null || true", state.display());
    let more = site.write_hook(&pebble, &curl, &fill);
    site.write(&pebble, "\"a.test\"", &more);
    fs::create_dir(&state).unwrap();
    let namespace = |script: &str| {
        let mut inside = Command::new(&unshare);
        inside.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        let mount = "mount -t tmpfs -o size=256k,mode=0700 none \"$1\"";
        inside.arg(format!("{mount} && {{ {script}; }} && shift && exec \"$@\"")).arg("sh").arg(&state);
        inside.env_remove("RUST_LOG").env_remove("SSLKEYLOGFILE");
        inside
    };
    if !namespace("true").arg("true").output().unwrap().status.success() {
        return needs::skip("there may be no mount namespace here");
    }
    let mut inside = namespace(&fill);
    let run = site.command();
    inside.arg(run.get_program()).args(run.get_args());
    let litequic = Process::spawn(inside);
    let in_namespace = |arguments: &[&str]| {
        let mut command = Command::new(&nsenter);
        command.args(["--target", &litequic.id().to_string(), "--user", "--mount", "--"]).args(arguments);
        command.output().unwrap()
    };
    let path = |name: &str| state.join(name).display().to_string();

    litequic.await_stderr(FULL);
    assert_eq!(pebble.orders(), 0);
    assert!(in_namespace(&["rm", &path("fill")]).status.success());
    wait_for("the certificate", || litequic.stderr().contains(OBTAINED)).await;
    site.await_served("a.test", &pebble.root().await).await;
    let deadline = Instant::now() + RENEWAL;
    while litequic.stderr().matches(FULL).count() < 2 {
        assert!(Instant::now() < deadline, "{}", litequic.stderr());
        sleep(LOOK_AGAIN).await;
    }
    assert!(!in_namespace(&["test", "-e", &path("a.test.pem")]).status.success());
    let listed = site.certificates();
    assert!(listed[0]["state"] == "valid" && listed[0]["problem"].as_str().unwrap().contains(FULL), "{listed}");

    assert!(in_namespace(&["rm", &path("fill")]).status.success());
    litequic.await_stderr(STORED);
    let stored = in_namespace(&["cat", &path("a.test.pem")]).stdout;
    assert!(String::from_utf8(stored).unwrap().contains("PRIVATE KEY"));
    assert_eq!(pebble.orders(), 1, "{}", litequic.stderr());
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_no_start() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    fs::write(site.file("state"), "").unwrap();
    let ended = Process::spawn(command(["run".as_ref(), site.file("litequic.toml").as_os_str()])).end();
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.stderr.contains("acme[0].folder = \"state\": cannot be written: not a directory"), "{ended:?}");
}
