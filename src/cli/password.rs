//! `litequic password`: a line for a file of users.

use super::exit::{Exit, fail, print};
use crate::proxy;
use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
};

/// Arguments of `litequic password`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The user's name.
    name: String,
}

/// The character that a terminal sends for Ctrl-C.
const INTERRUPT: u8 = 3;

/// Asks for the password twice, and prints a line for `routes[].users`.
pub fn run(Arguments { name }: &Arguments) -> ExitCode {
    let ask = |question: &str| ask(question).map_err(|error| format!("the password cannot be read: {error}"));
    let asked = ask(&format!("Password for {name}: ")).and_then(|first| Ok((first, ask("The same again: ")?)));
    let (first, second) = match asked {
        Ok(asked) => asked,
        Err(problem) => return fail(Exit::Input, problem),
    };
    if first != second {
        return fail(Exit::Usage, "the two passwords differ");
    }
    match proxy::user_line(name, first.as_bytes()) {
        Ok(line) => print(format!("{line}\n").as_bytes()),
        Err(problem) => fail(Exit::Usage, problem),
    }
}

/// A line of standard input, which a terminal does not show.
fn ask(question: &str) -> io::Result<String> {
    let mut stdin = io::stdin().lock();
    let hidden = if stdin.is_terminal() { Some(Hidden::begin()?) } else { None };
    if hidden.is_some() {
        // Standard output is for the line.
        write!(io::stderr(), "{question}")?;
        io::stderr().flush()?;
    }
    let mut line = String::new();
    let read = stdin.read_line(&mut line);
    if hidden.is_some() {
        // The end of the line was not shown either.
        let _ = writeln!(io::stderr());
    }
    drop(hidden);
    match read? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ if line.bytes().any(|byte| byte == INTERRUPT) => Err(io::ErrorKind::Interrupted.into()),
        _ => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

/// A terminal that does not show what is typed, until this is dropped. Ctrl-C ends the line instead of the process, which
/// would leave the terminal so.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        hidden.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // Without a terminal there is none to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
