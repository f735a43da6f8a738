//! Runs `litequic manual`: writes the manual pages, from the command line's definition, the texts in Markdown, and the
//! reference of the configuration.

mod markdown;

use super::exit::{Exit, exit_with_error};
use clap::Command;
use clap_mangen::{Man, roff::Roff};
use litequic_config as config;
use std::{
    env, fs, io,
    path::Path,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Name of the page that describes the configuration.
const KEYS_PAGE: &str = "litequic.toml";

/// Name and description of the configuration's page, which the reference does not have.
const KEYS_INTRODUCTION: &str = include_str!("manual/keys.md");

/// Title of the manual that the pages belong to.
const MANUAL: &str = "litequic manual";

/// Writes `litequic.1`, a page for each command, and `litequic.toml.5` into the folder `out`, which is created if
/// missing.
pub fn write_manual(out: &Path, command: Command) -> ExitCode {
    // The page of `litequic help` would repeat the others.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let date = page_date();
    let written = fs::create_dir_all(out).and_then(|()| {
        fs::write(out.join(format!("{KEYS_PAGE}.5")), keys_page(&date).render())?;
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
    let mut page = Vec::new();
    // The footer of each page has the version: no section of its own.
    let man = Man::new(command.clone().version(None)).title(name.to_uppercase());
    man.date(date).source(page_source()).manual(MANUAL).render(&mut page)?;
    let mut sections = Roff::new();
    markdown::append_sections(&mut sections, name);
    sections.to_writer(&mut page)?;
    fs::write(out.join(format!("{name}.1")), page)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, date, out)?;
    }
    Ok(())
}

/// Page litequic.toml(5): introduction, every key of the reference, examples.
fn keys_page(date: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [&KEYS_PAGE.to_uppercase(), "5", date, &page_source(), MANUAL]);
    markdown::append_markdown(&mut page, KEYS_INTRODUCTION);
    if let Some((_, sections)) = config::reference_page().split_once("\n## ") {
        markdown::append_markdown(&mut page, &format!("## {sections}"));
    }
    markdown::append_sections(&mut page, KEYS_PAGE);
    page
}

/// Program that the pages describe, with its version.
fn page_source() -> String {
    format!("litequic {}", super::version::VERSION)
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

    #[test]
    fn every_key_of_the_reference_is_on_the_page() {
        let (reference, page) = (config::reference_page(), keys_page("2026-05-04").to_roff());
        let keys: Vec<&str> =
            reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert!(keys.len() > 100, "keys were found");
        for key in keys {
            assert!(page.contains(&format!("\n.TP\n\\fB{}\\fR\n", key.replace('-', "\\-"))), "{key}");
        }
        assert!(page.starts_with(".TH LITEQUIC.TOML 5 2026-05-04 \"litequic "), "{page}");
    }

    #[test]
    fn the_examples_are_valid() {
        let examples = markdown::SECTIONS.split("```toml\n").skip(1).filter_map(|example| example.split_once("```"));
        let faults: Vec<_> =
            examples.map(|(text, _)| config::parse_config(text, Path::new(KEYS_PAGE), |_| None).err()).collect();
        assert!(faults.len() == 2 && faults.iter().all(Option::is_none), "{faults:?}");
    }
}
