//! Runs `litequic manual`: writes the manual pages, from the command line's definition, the additional sections, and
//! the table of keys.

mod keys;
mod roff;
mod sections;

use super::exit::{Exit, exit_with_error};
use clap::Command;
use clap_mangen::Man;
use std::{
    env, fs, io,
    path::Path,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Name of the page that describes the configuration.
const KEYS_PAGE: &str = "litequic.toml.5";

/// Writes `litequic.1`, a page for each command, and `litequic.toml.5` into the folder `out`, which is created if
/// missing.
pub fn write_manual(out: &Path, command: Command) -> ExitCode {
    // The page of `litequic help` would repeat the others.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let date = page_date();
    let written = fs::create_dir_all(out).and_then(|()| {
        fs::write(out.join(KEYS_PAGE), keys::keys_page(&date))?;
        write_pages(&command, &date, out)
    });
    match written {
        Ok(()) => Exit::Success.into(),
        Err(error) => {
            exit_with_error(Exit::Output, format!("cannot write manual pages into {}: {error}", out.display()))
        }
    }
}

/// Writes the page of `command`, and those of its subcommands.
fn write_pages(command: &Command, date: &str, out: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(out.join(format!("{name}.1")), command_page(command, name, date)?)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, date, out)?;
    }
    Ok(())
}

/// Page `name`, about `command`.
fn command_page(command: &Command, name: &str, date: &str) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut made = Vec::new();
    man.render_name_section(&mut made)?;
    man.render_synopsis_section(&mut made)?;
    man.render_description_section(&mut made)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut made)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut made)?;
    }
    if command.get_after_long_help().or_else(|| command.get_after_help()).is_some() {
        man.render_extra_section(&mut made)?;
    }
    let made = String::from_utf8_lossy(&made);
    Ok(roff::title_line(name, 1, date) + &roff::tidy_mangen(&made) + &sections::page_sections(name))
}

/// Date of the pages, as `YYYY-MM-DD`: `SOURCE_DATE_EPOCH` of a reproducible build, else today.
fn page_date() -> String {
    let given = env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let time = given.map_or_else(SystemTime::now, |seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    humantime::format_rfc3339_seconds(time).to_string().chars().take("YYYY-MM-DD".len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_date_has_ten_characters() {
        assert!(page_date().len() == 10 && page_date().starts_with("20"), "{}", page_date());
    }
}
