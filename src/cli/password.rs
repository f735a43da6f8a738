//! Runs `litequic password`: prints a line for a file of users.

use super::exit::{CommandResult, Exit, exit_with_error, print_stdout};
use clap::Args;
use litequic_proxy as proxy;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufRead, IsTerminal, Write};

/// Arguments of `litequic password`.
#[derive(Debug, Args)]
pub struct PasswordArguments {
    /// The user's name.
    name: String,
}

/// Character that a terminal sends for Ctrl-C.
const INTERRUPT: u8 = 3;

/// Maximum number of bytes of a line: far above the 1,024 bytes of a password that `routes[].users` accepts.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Asks for the password, twice at a terminal, and prints a line for `routes[].users`.
pub fn print_password_line(PasswordArguments { name }: &PasswordArguments) -> CommandResult {
    let ask = |question: &str| ask_password(question).map_err(|error| format!("cannot read the password: {error}"));
    let repeat = |first: String| match io::stdin().is_terminal() {
        true => Ok((first, ask("Repeat the password: ")?)),
        false => Ok((first.clone(), first)),
    };
    let asked = ask(&format!("Password for {name}: ")).and_then(repeat);
    let (first, second) = asked.map_err(|problem| exit_with_error(Exit::Input, problem))?;
    if first != second {
        return Err(exit_with_error(Exit::Usage, "the two passwords differ"));
    }
    let line = proxy::create_user_line(name, first.as_bytes());
    let line = line.map_err(|problem| exit_with_error(Exit::Usage, problem))?;
    Ok(print_stdout(format!("{line}\n").as_bytes()))
}

/// Reads a line of standard input, which a terminal does not show.
fn ask_password(question: &str) -> io::Result<String> {
    let mut stdin = io::stdin().lock();
    let hidden = if stdin.is_terminal() { Some(HiddenInput::hide_input()?) } else { None };
    if hidden.is_some() {
        // Standard output is only for the resulting line.
        write!(io::stderr(), "{question}")?;
        io::stderr().flush()?;
    }
    let read = read_line(&mut stdin);
    if hidden.is_some() {
        // The terminal did not show the end of the line either.
        let _ = writeln!(io::stderr());
    }
    drop(hidden);
    let line = String::from_utf8(read?).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    match line.as_bytes().last() {
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(&INTERRUPT) => Err(io::ErrorKind::Interrupted.into()),
        Some(_) => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

/// Reads up to the end of a line or to Ctrl-C, both included, or to the end of `input`.
fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let end = buffer.iter().position(|byte| [b'\n', INTERRUPT].contains(byte));
        let length = end.map_or(buffer.len(), |end| end + 1);
        line.extend(buffer.iter().take(length));
        input.consume(length);
        match (end, length) {
            (Some(_), _) | (None, 0) => return Ok(line),
            (None, _) if line.len() > MAX_LINE_BYTES => return Err(io::ErrorKind::InvalidData.into()),
            (None, _) => {}
        }
    }
}

/// Hides the input of a terminal until this is dropped. Ctrl-C ends the line instead of the process, which would leave
/// the terminal hidden.
struct HiddenInput(Termios);

impl HiddenInput {
    fn hide_input() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        hidden.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // Without a terminal there is none to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
