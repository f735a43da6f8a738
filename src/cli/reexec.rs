//! Starts this program again, to take over: by the same path, looked up anew, as a link in it may point to another
//! version by then. SIGUSR2 does so if this process has a handover socket (`run`).

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    thread,
};

/// The kernel's link to the executable of this process.
const OWN_EXECUTABLE: &str = "/proc/self/exe";
/// Any execute permission.
const EXECUTE_BITS: u32 = 0o111;

/// Command line and working directory of this process.
pub(super) struct Reexec {
    program: ReexecProgram,
    /// Directory of the start, by its logical name: links in it are not resolved.
    directory: PathBuf,
    arguments: Vec<OsString>,
}

/// Environment variable with the handover socket of the process that has started this one.
pub(super) const PREDECESSOR_VARIABLE: &str = "LITEQUIC_PREDECESSOR";

/// Program to start.
enum ReexecProgram {
    /// The given name (argv[0]): a path, or a name to look for in `PATH`.
    Named(OsString),
    /// The target of the kernel's link, if the given name leads elsewhere: argv[0] may be any name.
    File(io::Result<PathBuf>),
}

impl Reexec {
    pub(super) fn new() -> Self {
        let mut arguments = env::args_os();
        let directory = working_directory(env::var_os("PWD"));
        let named = arguments.next().filter(|name| {
            look_up_program(name, &directory, env::var_os("PATH"))
                .is_some_and(|found| is_same_file(&found, Path::new(OWN_EXECUTABLE)))
        });
        let program = named.map_or_else(|| ReexecProgram::File(env::current_exe()), ReexecProgram::Named);
        Self { program, directory, arguments: arguments.collect() }
    }

    /// Starts the program again. The new process takes over from this one at `socket`.
    pub(super) fn start_new_process(&self, socket: &Path) {
        let version = env!("CARGO_PKG_VERSION");
        let (program, spawned) = match self.build_command(socket) {
            Ok(mut command) => (command.get_program().to_owned(), command.spawn()),
            Err(error) => (OsString::new(), Err(error)),
        };
        let program = Path::new(&program).display();
        match spawned {
            Ok(mut child) => {
                tracing::info!(process = child.id(), %program, version, "started a new process");
                // Each call starts one thread, which ends with its process or with this one.
                thread::spawn(move || match child.wait().as_ref().map(ExitStatus::success) {
                    Ok(true) => {}
                    _ => tracing::error!(process = child.id(), "the new process ended"),
                });
            }
            Err(error) => tracing::error!(%program, %error, "cannot start a new process"),
        }
    }

    fn build_command(&self, socket: &Path) -> io::Result<Command> {
        let mut command = match &self.program {
            ReexecProgram::Named(name) => {
                let found = look_up_program(name, &self.directory, env::var_os("PATH"));
                let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{} was not found", name.display()));
                let mut command = Command::new(found.ok_or_else(missing)?);
                // The new process gets the same argv[0], so that it can start the program again, too.
                command.arg0(name);
                command
            }
            ReexecProgram::File(Ok(path)) => Command::new(path),
            ReexecProgram::File(Err(error)) => return Err(io::Error::new(error.kind(), error.to_string())),
        };
        // The new process sends the service manager's watchdog notifications (sd_watchdog_enabled(3)).
        command.args(&self.arguments).current_dir(&self.directory).env_remove("WATCHDOG_PID");
        command.env(PREDECESSOR_VARIABLE, socket);
        Ok(command)
    }
}

/// Working directory: `logical`, the shell's `PWD`, if that names it.
fn working_directory(logical: Option<OsString>) -> PathBuf {
    let here = Path::new(".");
    let logical = logical.map(PathBuf::from).filter(|logical| logical.is_absolute() && is_same_file(logical, here));
    logical.unwrap_or_else(|| here.into())
}

/// Program that `name` resolves to: as a path from `directory`, or in the folders of `path` if it has no slash
/// (execvp(3)).
fn look_up_program(name: &OsStr, directory: &Path, path: Option<OsString>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(directory.join(name)).filter(|program| is_program(program));
    }
    let path = path?;
    env::split_paths(&path).map(|folder| directory.join(folder).join(name)).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & EXECUTE_BITS != 0)
}

/// Returns whether both paths resolve to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_program_name_is_looked_up_anew() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for release in ["one", "two"] {
            fs::create_dir(at(release)).unwrap();
            fs::write(at(release).join("litequic"), release).unwrap();
            fs::set_permissions(at(release).join("litequic"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(at("litequic"), "no program").unwrap();
        let path = Some(env::join_paths([folder.path().to_owned(), at("absent"), at("current")]).unwrap());
        let absolute = at("current/litequic").into_os_string();
        for release in ["one", "two"] {
            // The link is absent at first, and replaced later.
            let _ = fs::remove_file(at("current"));
            symlink(at(release), at("current")).unwrap();
            for (name, directory) in [
                (absolute.as_os_str(), Path::new("/")),
                (OsStr::new("current/litequic"), folder.path()),
                (OsStr::new("./litequic"), &at("current")),
                (OsStr::new("litequic"), Path::new("/")),
            ] {
                let found = look_up_program(name, directory, path.clone()).unwrap();
                assert_eq!(fs::read_to_string(found).unwrap(), release, "{}", name.display());
            }
        }
        assert_eq!(look_up_program(OsStr::new("litequic"), Path::new("/"), None), None);
        assert_eq!(look_up_program(OsStr::new("./litequic"), folder.path(), path), None, "no program");
    }

    #[test]
    fn the_working_directory_is_pwd_if_valid() {
        let here = env::current_dir().unwrap();
        assert_eq!(working_directory(Some(here.clone().into())), here);
        for wrong in [None, Some("/".into()), Some(".".into()), Some("/absent".into())] {
            assert_eq!(working_directory(wrong), Path::new("."));
        }
    }
}
