//! What the packaging scripts say twice, or share with the program, as text. What they make is tested by
//! `packaging/verify`.

use litequic_config as config;
use std::{fs, path::Path, process::Command};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

#[test]
fn the_packages_configuration_names_what_their_scripts_and_the_unit_make() {
    let file = "packaging/etc/litequic.toml";
    let config =
        config::parse_config(&read(file), Path::new(file), |_| None).unwrap_or_else(|faults| panic!("{faults}"));
    let scripts = read("packaging/maintainer.sh");
    for path in [&config.certificates[0].cert, &config.certificates[0].key] {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(scripts.contains(&format!("/etc/litequic/{name} ")), "{name}");
    }
    assert_eq!(config.admin.handover.as_deref(), Some(Path::new("/run/litequic/handover.sock")));
    assert!(read("packaging/systemd/litequic.service").contains("\nRuntimeDirectory=litequic\n"));
}

#[test]
fn the_unit_executes_only_the_packaged_program() {
    const PROGRAM: &str = "/usr/libexec/litequic/litequic";
    let unit = read("packaging/systemd/litequic.service");
    let values = |key: &str| unit.lines().filter_map(|line| line.strip_prefix(key)).collect::<Vec<_>>();
    for line in values("ExecStart=").into_iter().chain(values("ExecReload=").into_iter().take(1)) {
        assert_eq!(line.split(' ').next(), Some(PROGRAM), "{line}");
    }
    let [paths] = values("ExecPaths=")[..] else { panic!("one ExecPaths=") };
    let libraries = ["-/usr/lib/x86_64-linux-gnu", "-/usr/lib/aarch64-linux-gnu", "-/usr/lib64"];
    let (folder, rest) = paths.split_once(' ').unwrap();
    assert_eq!(Path::new(PROGRAM).parent(), Some(Path::new(folder)));
    assert_eq!(rest.split(' ').collect::<Vec<_>>(), libraries);
    let manifest = read("Cargo.toml");
    assert!(manifest.contains(&format!(r#"["target/stage/root{PROGRAM}", "usr/libexec/litequic/", "755"]"#)));
    assert!(manifest.contains(&format!(r#"dest = "{PROGRAM}", mode = "755""#)));
    assert!(read("packaging/maintainer.sh").contains(&format!("{PROGRAM} check ")));
}

#[test]
fn the_packages_require_the_glibc_that_the_program_is_held_to() {
    let script = read("packaging/program.sh");
    let glibc = script.lines().find_map(|line| line.strip_prefix("readonly GLIBC=")).unwrap();
    let manifest = read("Cargo.toml");
    for requirement in [format!("libc6 (>= {glibc})"), format!("libc.so.6(GLIBC_{glibc})(64bit)")] {
        assert!(manifest.contains(&requirement), "{requirement}");
    }
}

#[test]
fn image_and_release_use_one_version_of_the_sbom_tool() {
    let of = |file: &str, key: &str| {
        let text = read(file);
        let value = text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::to_owned);
        value.unwrap().split(' ').next().unwrap().to_owned()
    };
    assert_eq!(of("Dockerfile", "ARG CARGO_CYCLONEDX="), of("packaging/tools.sh", "CARGO_CYCLONEDX="));
}

#[test]
fn the_seccomp_profiles_are_what_their_script_writes() {
    let script = Path::new(ROOT).join("packaging/seccomp/profile.py");
    // Without Python there is nothing to compare with.
    let Ok(output) = Command::new("python3").arg(script).arg("--check").output() else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_packages_have_the_version_of_the_program() {
    let script = ". packaging/reproducible.sh; version_of_sources";
    let output = Command::new("sh").args(["-c", script]).current_dir(ROOT).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_entry_for_httparena_is_complete() {
    const ENTRY: &str = "benches/httparena/frameworks/litequic";
    let meta: serde_json::Value = serde_json::from_str(&read(&format!("{ENTRY}/meta.json"))).unwrap();
    assert_eq!((&meta["type"], &meta["enabled"]), (&"infrastructure".into(), &true.into()));
    for key in ["display_name", "language", "engine", "description", "repo"] {
        assert!(meta[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    for profile in meta["tests"].as_array().unwrap() {
        let compose = read(&format!("{ENTRY}/compose.{}.yml", profile.as_str().unwrap()));
        assert!(compose.contains("\n  proxy:\n") && compose.contains("\n  server:\n"), "{profile}");
    }
    let file = format!("{ENTRY}/proxy/litequic.toml");
    config::parse_config(&read(&file), Path::new(&file), |_| None).unwrap_or_else(|faults| panic!("{faults}"));
    let recipe = read(&format!("{ENTRY}/proxy/Dockerfile"));
    assert!(recipe.contains(concat!("\nARG VERSION=", env!("CARGO_PKG_VERSION"), "\n")));
    // The board wants images that a number or a release's name pins.
    for base in recipe.lines().filter_map(|line| line.strip_prefix("FROM ")) {
        assert!(base.starts_with("debian:bookworm-slim"), "{base}");
    }
}
