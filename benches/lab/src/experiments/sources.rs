//! What an honest client sees while others attack from several addresses: is a limit for each client a limit for an
//! attacker who has many?

use super::{
    Options,
    attacks::{case, length, perform},
};
use crate::{
    attack::{Attack, Sources, Spread},
    bench::{Act, Assault, Lab, Trial},
};
use anyhow::{Result, bail};
use clap::Args;

/// Numbers of sources in networks of their own.
const COUNTS: [u32; 5] = [1, 2, 5, 16, 64];
/// Sources of one /24, and /64s of one /48.
const NEIGHBOURS: u32 = 64;
const SUBNETS: u32 = 1_000;
/// Descriptors of a shell's or a container's default, and the attack that they are for.
const FEW_DESCRIPTORS: u32 = 1_024;
/// Duration of each attack.
const SECONDS: f64 = 10.0;

/// Further options of `sources`.
#[derive(Debug, Args)]
pub(crate) struct SourcesOptions {
    #[command(flatten)]
    options: Options,
    /// Only these attacks.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ATTACK")]
    attacks: Vec<Attack>,
    /// From so many addresses, in place of 1, 2, 5, 16 and 64 addresses in networks of their own, 64 of one /24 and
    /// 1,000 /64s of one /48.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    sources: Vec<u32>,
    /// How the addresses of --sources are related.
    #[arg(long, value_enum, default_value_t)]
    spread: Spread,
    /// Duration of each attack in seconds.
    #[arg(long, value_name = "N")]
    seconds: Option<u16>,
    /// File descriptors of each contender.
    #[arg(long, value_name = "N", default_value_t = super::attacks::DESCRIPTORS)]
    descriptors: u32,
}

/// Runs the command.
pub(super) fn run(arguments: SourcesOptions) -> Result<()> {
    if arguments.options.plan {
        bail!("--plan: each attack takes its duration, and 5 s around it, for each contender and case");
    }
    super::check_names(&[], &arguments.options)?;
    let most = Sources::most(arguments.spread);
    if let Some(count) = arguments.sources.iter().find(|count| !(1..=most).contains(*count)) {
        bail!("--sources: {count} is not between 1 and {most}");
    }
    perform(&mut Lab::new(arguments.options.clone())?, &assault(&arguments))
}

/// Runs it in a laboratory that is set up.
pub(super) fn conduct(lab: &mut Lab) -> Result<()> {
    let (options, descriptors) = (lab.options().clone(), super::attacks::DESCRIPTORS);
    let arguments = SourcesOptions {
        options,
        attacks: Vec::new(),
        sources: Vec::new(),
        spread: Spread::default(),
        seconds: None,
        descriptors,
    };
    perform(lab, &assault(&arguments))
}

fn assault(arguments: &SourcesOptions) -> Assault {
    let SourcesOptions { options, attacks, sources, spread, seconds, descriptors } = arguments;
    let seconds = length(options, *seconds, SECONDS);
    let attacks = if attacks.is_empty() { &Attack::EACH[..] } else { attacks };
    let given = sources.iter().map(|count| Sources { count: *count, spread: *spread });
    let given: Vec<Sources> = if sources.is_empty() { usual() } else { given.collect() };
    let trial = |attack, sources: Sources, descriptors: u32, name: String| {
        let mut case = case(Some(attack));
        case.group = case.name;
        (case.name, case.x) = (name, (sources.spread == Spread::Networks).then_some(f64::from(sources.count)));
        Trial { case, act: Act::Attack { attack: Some(attack), sources, seconds }, descriptors }
    };
    let mut trials: Vec<Trial> = Vec::new();
    for attack in attacks {
        for sources in &given {
            trials.push(trial(*attack, *sources, *descriptors, format!("{}, {}", attack.name(), sources.describe())));
        }
    }
    if sources.is_empty() && attacks.contains(&Attack::SilentTcp) {
        let name = format!("{}, 1 source, {FEW_DESCRIPTORS} descriptors", Attack::SilentTcp.name());
        let mut few = trial(Attack::SilentTcp, Sources::ONE, FEW_DESCRIPTORS, name);
        few.case.x = None;
        trials.push(few);
    }
    if options.quick {
        let quick = [(Attack::SlowWindows, Spread::Networks, 5), (Attack::All, Spread::Nested, SUBNETS)];
        trials.retain(|trial| {
            matches!(trial.act, Act::Attack { attack: Some(attack), sources: Sources { count, spread }, .. }
                if quick.contains(&(attack, spread, count)))
        });
    }
    Assault {
        experiment: "sources",
        about: format!(
            "What does an honest client see while others attack from several addresses? The same as *attacks*: a new connection and a small \
             request every 200 ms over HTTP/3, HTTP/2 and HTTP/1.1, each from an address of its own in a /24 of its own (over IPv6: in one \
             /64). The volume of an attack is the same from any number of sources, and each source has at least one connection. Sources are \
             IPv4 addresses in a /24 each, unless a case says otherwise. Contenders have their defaults and {descriptors} file descriptors."
        ),
        trials,
        names: &super::attacks::THREE,
        hardened: false,
        limit: None,
    }
}

/// The sources that an attack is made from by default.
fn usual() -> Vec<Sources> {
    let networks = COUNTS.map(|count| Sources { count, spread: Spread::Networks });
    let others = [(NEIGHBOURS, Spread::OneNetwork), (SUBNETS, Spread::Nested)];
    networks.into_iter().chain(others.map(|(count, spread)| Sources { count, spread })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::collections::BTreeSet;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: SourcesOptions,
    }

    fn names(line: &[&str]) -> Vec<String> {
        let arguments = Line::parse_from([&["lab"], line].concat()).arguments;
        assault(&arguments).trials.into_iter().map(|trial| trial.case.name).collect()
    }

    #[test]
    fn each_attack_is_made_from_each_number_of_sources() {
        let all = names(&[]);
        assert_eq!(all.len(), Attack::EACH.len() * 7 + 1);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for wanted in ["slow windows, 5 sources", "resets, 64 of one /24", "event streams, 1000 /64s of one /48"] {
            assert!(all.iter().any(|name| name == wanted), "{wanted}");
        }
        assert_eq!(names(&["--quick"]), ["slow windows, 5 sources", "all at once, 1000 /64s of one /48"]);
        let some = names(&["--attacks", "slow-uploads", "--sources", "3,4", "--spread", "one-network"]);
        assert_eq!(some, ["slow uploads, 3 of one /24", "slow uploads, 4 of one /24"]);
    }
}
