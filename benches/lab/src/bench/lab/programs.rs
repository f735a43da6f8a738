//! The programs that take part: where they are, what they say of themselves, and whether they can do what they must.
//! One that cannot is skipped by name.

use crate::{
    bench::{contender::Contender, namespace::Network, options::Options, process, template::Values},
    fetch::Client,
};
use anyhow::{Context as _, Result, anyhow, bail};
use std::{
    env, fs,
    io::Read as _,
    net::{Ipv4Addr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// For a program to say its version.
const VERSION: Duration = Duration::from_secs(10);
/// Read at a time.
const PIECE: usize = 1 << 20; // bytes

/// A contender's program and version, or why it is skipped.
pub(super) fn find(contender: &Contender, options: &Options) -> Result<(PathBuf, String)> {
    let given = options.given(&contender.name).or_else(|| options.given(&contender.binary));
    let Some(program) = contender.find(given.map(PathBuf::as_path)) else {
        bail!("{} is not installed", given.map_or(contender.binary.clone(), |given| given.display().to_string()));
    };
    if let Some(name) = &contender.congestion_control
        && !Network::has_congestion_control(name)
    {
        bail!("this kernel has no {name} for TCP");
    }
    let mut values = Values::default();
    values.set("BIN", program.display());
    let ask = |command: &[String]| -> Result<String> {
        let arguments = contender.expand(command, &values)?;
        let (name, rest) = arguments.split_first().context("an empty command")?;
        let mut command = Command::new(name);
        command.args(rest);
        let finished = process::finish(process::group(command), VERSION, || Ok(()))?;
        Ok(format!("{}\n{}", finished.stdout.trim(), finished.whole_stderr))
    };
    if let Some(probe) = &contender.probe
        && !ask(&probe.command)?.contains(&probe.says)
    {
        bail!("{} {}", program.display(), probe.otherwise);
    }
    // Some begin with the place from which they were started, which is this machine's business.
    let version = ask(&contender.version)?.replace(&program.display().to_string(), &contender.binary);
    let version = version.trim().lines().next().unwrap_or("unknown").trim().to_owned();
    let control = contender.congestion_control.iter().map(|name| format!(", TCP with {name}"));
    Ok((program, control.fold(version, |version, control| version + &control)))
}

/// h2load with HTTP/3; Debian's has none.
pub(super) fn h2load(options: &Options) -> Result<PathBuf, String> {
    let program = program("h2load", options).ok_or("h2load is not installed")?;
    match sends_quic(&program) {
        Ok(true) => Ok(program),
        Ok(false) => Err(format!("{} was built without HTTP/3", program.display())),
        Err(error) => Err(format!("{}: {error:#}", program.display())),
    }
}

/// A client's program. curl reports whether it has HTTP/3; litequic is beside the lab, as the contender is.
pub(super) fn find_client(client: Client, options: &Options) -> Result<PathBuf, String> {
    let beside = || Some(env::current_exe().ok()?.with_file_name(client.program())).filter(|path| path.is_file());
    let found = program(client.program(), options);
    let found =
        if client == Client::Get && options.given(client.program()).is_none() { beside().or(found) } else { found };
    let found = found.ok_or_else(|| format!("{} is not installed", client.program()))?;
    if client == Client::Curl {
        let mut command = Command::new(&found);
        command.arg("--version");
        let said =
            process::finish(process::group(command), VERSION, || Ok(())).map_err(|error| format!("{error:#}"))?;
        if !said.stdout.contains("HTTP3") {
            return Err(format!("{} was built without HTTP/3", found.display()));
        }
    }
    Ok(found)
}

/// Whether an h2load with the option for HTTP/3 sends a datagram. Its help is the same with and without.
fn sends_quic(h2load: &Path) -> Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let mut command = Command::new(h2load);
    command.args(["--h3", "-n1", &format!("https://{}/", socket.local_addr()?)]);
    let mut sent = false;
    let finished = process::finish(process::group(command), VERSION, || {
        sent = sent || socket.recv(&mut [0; 1]).is_ok();
        if sent { Err(anyhow!("it does")) } else { Ok(()) }
    });
    sent = sent || socket.recv(&mut [0; 1]).is_ok();
    // Ended normally.
    if sent { Ok(true) } else { finished.map(|_| false) }
}

/// A program that is no contender.
pub(super) fn program(name: &str, options: &Options) -> Option<PathBuf> {
    if let Some(given) = options.given(name) {
        return given.is_file().then(|| given.clone());
    }
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// A file's CRC-32, which distinguishes builds of one version.
pub(super) fn crc32(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut hasher, mut piece) = (crc32fast::Hasher::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(format!("{:08x}", hasher.finalize())),
            length => hasher.update(piece.get(..length).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h2load_without_http_3_is_told_from_one_with_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let with = program("with", "port=${3##*:}; echo QUIC >/dev/udp/127.0.0.1/${port%/}; sleep 1000");
        assert!(sends_quic(&with).unwrap());
        let without = program("without", "echo \"unrecognized option '$1'\" >&2; exit 1");
        assert!(!sends_quic(&without).unwrap());
        assert!(sends_quic(&folder.path().join("none")).is_err());
    }
}
