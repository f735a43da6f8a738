//! What an honest client sees while a proxy is attacked; and the same in a small memory cgroup.

use super::{Options, worked};
use crate::{
    attack::{Attack, Sources},
    bench::{Act, Assault, Lab, Trial, say},
    report::{self, Case, Per},
};
use anyhow::{Result, bail};
use clap::Args;

/// For how long each attack lasts, and all of them in a memory cgroup.
const SECONDS: f64 = 10.0;
const SECONDS_IN_MEMORY: f64 = 120.0;
/// The client alone in a memory cgroup: some hundred requests over each protocol.
const SECONDS_ALONE: f64 = 30.0;
const SECONDS_QUICK: f64 = 0.6;
/// File descriptors of every contender: the hard limit that many distributions and container engines give at least.
pub(super) const DESCRIPTORS: u32 = 16_384;
/// The contenders that are compared in many cases.
pub(super) const THREE: [&str; 3] = ["litequic", "nginx", "haproxy"];
/// How the case without attackers is called.
const ALONE: &str = "no attack";

/// Further options of `attacks`.
#[derive(Debug, Args)]
pub(crate) struct AttackOptions {
    #[command(flatten)]
    options: Options,
    /// Instead: each contender in a memory cgroup with this limit, all attackers at once for two minutes; memory over
    /// time.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// How long each attack lasts; 10, or 120 with --memory.
    #[arg(long, value_name = "N")]
    seconds: Option<u16>,
}

/// Runs the command.
pub(super) fn run(arguments: AttackOptions) -> Result<()> {
    let AttackOptions { options, memory, seconds } = arguments;
    if options.plan {
        bail!("--plan: attacks take what each lasts, and 5 s around it, for each contender, case and round");
    }
    super::check_names(&[], &options)?;
    conduct(&mut Lab::new(options)?, memory, seconds)
}

/// Runs it in a laboratory that is set up.
pub(super) fn conduct(lab: &mut Lab, memory: Option<u64>, seconds: Option<u16>) -> Result<()> {
    let options = lab.options().clone();
    let assault = match memory {
        None => attacks(&options, seconds),
        Some(limit) => in_memory(&options, limit, seconds),
    };
    perform(lab, &assault)
}

/// Runs an assault in a laboratory that is set up, and writes down what came of it.
pub(super) fn perform(lab: &mut Lab, assault: &Assault) -> Result<()> {
    let Some(results) = lab.assault(assault)? else {
        say(&format!("{}: stopped on request; --resume continues", assault.experiment));
        return Ok(());
    };
    let page = report::save(&results, &lab.options().out)?;
    say(&format!("{}: {}", assault.experiment, page.display()));
    if lab.options().quick {
        worked(&results)?;
    }
    Ok(())
}

fn attacks(options: &Options, seconds: Option<u16>) -> Assault {
    let attacks = if options.quick { &[Attack::All][..] } else { &Attack::EACH };
    let alone = (!options.quick).then_some(None);
    let seconds = length(options, seconds, SECONDS);
    let trials = alone.into_iter().chain(attacks.iter().copied().map(Some)).map(|attack| trial(attack, seconds));
    Assault {
        experiment: "attacks",
        about: "What does an honest client see while others attack? Every 200 ms a new connection and a small request over HTTP/3, \
                HTTP/2 and HTTP/1.1, and to the status port, each with a patience of 2 s: the share that was served, and latencies, in \
                which a request that failed counts as 2 s. Each comes from another address; attackers from one. Contenders as they come, and, \
                *hardened*, with what their manuals offer."
            .to_owned(),
        trials: trials.collect(),
        names: &[],
        hardened: !options.quick,
        limit: None,
    }
}

fn in_memory(options: &Options, limit: u64, seconds: Option<u16>) -> Assault {
    let seconds = length(options, seconds, SECONDS_IN_MEMORY);
    let trials = [trial(None, seconds.min(SECONDS_ALONE)), trial(Some(Attack::All), seconds)];
    Assault {
        experiment: "attacks-memory",
        about: format!(
            "What does an honest client see while others attack a proxy that has {} MiB of memory? The same as *attacks*, in a \
             memory cgroup with that limit: OOM kills, latencies beside those alone, memory over time.",
            limit >> 20
        ),
        trials: trials.into(),
        names: &[],
        hardened: false,
        limit: Some(limit),
    }
}

pub(super) fn length(options: &Options, seconds: Option<u16>, otherwise: f64) -> f64 {
    if options.quick { SECONDS_QUICK } else { seconds.map_or(otherwise, f64::from) }
}

fn trial(attack: Option<Attack>, seconds: f64) -> Trial {
    Trial { case: case(attack), act: Act::Attack { attack, sources: Sources::ONE, seconds }, descriptors: DESCRIPTORS }
}

pub(super) fn case(attack: Option<Attack>) -> Case {
    // Of an attack on the status port, the answers of that port count.
    let primary = if attack == Some(Attack::SilentProbes) { "served_status" } else { "served" };
    let load = attack.map_or_else(|| "the honest client alone".to_owned(), Attack::about);
    super::case("attacks", attack.map_or(ALONE, Attack::name).to_owned(), load, Per::Request, primary)
}

/// Bytes: a number, or one with K, M or G behind it (1024).
fn size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) if text.ends_with('K') => (number, 10),
        Some(number) if text.ends_with('M') => (number, 20),
        Some(number) => (number, 30),
        None => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| "a size such as 128M is wanted".to_owned())?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number && number > 0).ok_or("too large, or 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!((size("128M"), size("4096"), size("1G")), (Ok(128 << 20), Ok(4096), Ok(1 << 30)));
        assert!(size("128MB").is_err() && size("0").is_err() && size("-1").is_err() && size("99999999999G").is_err());
    }

    #[test]
    fn each_attack_is_a_case_with_its_own_name() {
        let names: std::collections::BTreeSet<_> = Attack::EACH.into_iter().map(|one| case(Some(one)).name).collect();
        assert_eq!(names.len(), Attack::EACH.len());
        assert_eq!(case(None).name, ALONE);
        assert_eq!(case(Some(Attack::SilentProbes)).primary, "served_status");
    }
}
