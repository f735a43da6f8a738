//! A process that undoes what a lab set up when that lab ends without doing so itself: killed (SIGKILL, out of memory),
//! by a second signal, or by a panic. Otherwise its servers would serve on, and their namespaces and the machine's
//! sysctls stay, until the next lab.
//!
//! The kernel's signal on a parent's death (`PR_SET_PDEATHSIG`) does not suffice: a contender's own children, as
//! nginx's workers, do not get it.

use super::{namespace, process};
use anyhow::{Context as _, Result};
use clap::Args;
use std::{
    env,
    io::{self, Read as _},
    process::{Child, Command, Stdio, id},
};

/// The guard's process; its standard input ends when the lab does.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The process ID of the lab.
    #[arg(long, value_name = "N")]
    lab: u32,
}

/// Waits for the end of the lab, then removes what that left.
pub(crate) fn wait(arguments: &Arguments) -> Result<()> {
    // What is read is nothing; an error is the end as well.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    namespace::remove_all_of(arguments.lab);
    Ok(())
}

/// The guard of this lab, until it is dropped: after the network, of which nothing is left then.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts it, in a process group of its own: what a terminal or a time limit sends to the lab's group ends the lab
    /// alone.
    pub(crate) fn start() -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["guard", "--lab", &id().to_string()]);
        let mut command = process::group(command);
        // The only writing end is this process's, and closed on exec.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).context("cannot start the guard")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
