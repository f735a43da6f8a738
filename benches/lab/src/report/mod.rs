//! What an experiment found, as JSON keeps it: every run with its noise, voids included. Pages and plots are made of it
//! (`markdown`, `plot`), by the experiment itself or later by `litequic-lab report`.

mod attacks;
mod bars;
mod carried;
mod compare;
mod envelopes;
pub(crate) mod figures;
mod heat;
mod markdown;
mod memory;
mod overview;
mod plot;
mod strip;
mod trace;
mod verdict;
mod write;

pub(crate) use self::{
    carried::Bound,
    figures::Per,
    memory::MemoryTrace,
    plot::distribution,
    write::{against, earlier, join, keep, regenerate, save, save_memory, save_trace, save_views, summarize},
};
use crate::bench::{
    contender::Kind,
    machine::Machine,
    namespace::Topology,
    noise::Noise,
    stats::{Interval, Summary},
};
use crate::link::Sample;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// An experiment's results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Its name.
    pub(crate) experiment: String,
    /// Its question.
    pub(crate) about: String,
    /// Whether it only showed that it works.
    pub(crate) quick: bool,
    /// When it began, RFC 3339.
    pub(crate) started: String,
    /// The command line.
    pub(crate) command: String,
    /// On what.
    pub(crate) machine: Machine,
    /// The path between client and server.
    pub(crate) topology: Topology,
    /// The contender that others are compared with.
    pub(crate) reference: String,
    /// Who took part.
    pub(crate) contenders: Vec<Participant>,
    /// Who or what did not.
    pub(crate) skipped: Vec<Skipped>,
    /// What they were made to do, in order.
    pub(crate) cases: Vec<Case>,
    /// How it went.
    pub(crate) runs: Vec<Run>,
}

/// A contender that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Participant {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The first line of its version.
    pub(crate) version: String,
    /// The CRC-32 of its program's file: builds of one version differ.
    #[serde(default)]
    pub(crate) crc32: Option<String>,
    /// Its command line, as it was in the first run.
    pub(crate) command: String,
    /// What is tuned where it is tuned.
    #[serde(default)]
    pub(crate) tuned: Option<String>,
}

/// A contender, or a part of an experiment, that was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Something that contenders were made to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Unique in its experiment.
    pub(crate) name: String,
    /// The load, in words.
    pub(crate) load: String,
    /// What costs are counted by.
    pub(crate) per: Per,
    /// The figure that contenders are compared by.
    pub(crate) primary: String,
    /// Further ones.
    #[serde(default)]
    pub(crate) judged: Vec<String>,
    /// A rival took half of the servers' core.
    pub(crate) saturated: bool,
    /// Cases of one group are drawn into one plot.
    pub(crate) group: String,
    /// Figures beside the primary one that get such plots, too.
    #[serde(default)]
    pub(crate) drawn: Vec<String>,
    /// Where the case stands in its group's plot; without it each case is a bar.
    pub(crate) x: Option<f64>,
    /// With both, the group is drawn as a heat map of how far contenders are behind the reference.
    #[serde(default)]
    pub(crate) y: Option<f64>,
    /// The emulated path, as the command line spells it.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// The contender that others loaded over the same path meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<String>,
    /// What figures are to keep to as `x` grows; the second one besides the first, and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bounds: Vec<Bound>,
    /// The contender whose envelope of delay and throughput those of all others are compared with.
    #[serde(default)]
    pub(crate) conforms_to: Option<String>,
    /// A contender that others are compared with beside the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) also_to: Option<String>,
}

impl Case {
    /// The figures that contenders are compared by.
    pub(crate) fn figures(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.primary).chain(&self.judged).map(String::as_str)
    }
}

/// Fewer rounds conclude nothing.
pub(crate) const ROUNDS: usize = 3;

/// One try of one contender in one case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) contender: String,
    pub(crate) case: String,
    /// From 1.
    pub(crate) round: usize,
    /// From 1; disturbed runs are repeated.
    pub(crate) attempt: usize,
    /// Whether it stands for its round: of a round's tries the least disturbed one that is not void.
    pub(crate) counts: bool,
    /// Why it means nothing.
    pub(crate) void: Option<String>,
    pub(crate) noise: Noise,
    /// Figures by name.
    #[serde(serialize_with = "finite")]
    pub(crate) figures: BTreeMap<String, f64>,
    /// The client's command line.
    pub(crate) client: String,
    /// Delay and throughput over time, where they are sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) samples: Vec<Sample>,
    /// Its trace's plot, beside the results; the series have the same name.
    #[serde(default)]
    pub(crate) trace: Option<String>,
}

/// JSON has no number for what a GB takes where there was none, and what it has instead could not be read again.
fn finite<S: Serializer>(figures: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().filter(|(_, figure)| figure.is_finite()))
}

impl Run {
    /// Whether nothing went on beside it that spoils this figure.
    pub(crate) fn is_quiet(&self, figure: &str) -> bool {
        self.noise.disturbance(std::iter::once(figure)).is_none()
    }
}

impl Results {
    /// The runs that stand for a contender in a case.
    pub(crate) fn counting<'a>(&'a self, case: &'a str, contender: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs
            .iter()
            .filter(move |run| run.counts && run.void.is_none() && run.case == case && run.contender == contender)
    }

    /// A figure of a contender in a case, over all rounds.
    pub(crate) fn summary(&self, case: &str, contender: &str, figure: &str) -> Option<Summary> {
        let figures: Vec<f64> =
            self.counting(case, contender).filter_map(|run| run.figures.get(figure).copied()).collect();
        Summary::of(&figures)
    }

    /// The reference of a case's contenders: the reference, then its own further one, the ceiling and the floor where
    /// they took part.
    pub(crate) fn references<'a>(&'a self, case: &'a Case) -> Vec<&'a str> {
        let bounds = self.contenders.iter().filter(|one| matches!(one.kind, Kind::H1 | Kind::Floor));
        let bounds = bounds.map(|one| one.name.as_str()).filter(|name| *name != self.reference);
        let bounds = case.also_to.as_deref().into_iter().chain(bounds);
        let took_part = |name: &&str| self.runs.iter().any(|run| run.case == case.name && run.contender == *name);
        [self.reference.as_str()].into_iter().chain(bounds.filter(took_part)).collect()
    }

    /// A contender's figure as a multiple of another's, paired within rounds: what drifts from round to round is in
    /// both. Rounds in which either run was disturbed do not count. An error has the reason if there is no conclusion.
    pub(crate) fn ratio(&self, case: &str, contender: &str, reference: &str, figure: &str) -> Result<Interval, String> {
        let of = |name| {
            let runs: BTreeMap<usize, &Run> = self.counting(case, name).map(|run| (run.round, run)).collect();
            if runs.is_empty() { Err(format!("{name} has no valid run")) } else { Ok(runs) }
        };
        let (own, other) = (of(contender)?, of(reference)?);
        let rounds: Vec<(&Run, &Run)> =
            own.iter().filter_map(|(round, run)| Some((*run, *other.get(round)?))).collect();
        let quiet = rounds.iter().filter(|(own, other)| own.is_quiet(figure) && other.is_quiet(figure));
        let ratios: Vec<f64> =
            quiet.filter_map(|(own, other)| Some(own.figures.get(figure)? / other.figures.get(figure)?)).collect();
        if !ratios.iter().all(|ratio| ratio.is_finite()) {
            return Err(format!("{reference} is 0"));
        }
        if ratios.len() < ROUNDS {
            let disturbed =
                rounds.iter().filter(|(own, other)| !own.is_quiet(figure) || !other.is_quiet(figure)).count();
            let disturbed = if disturbed > 0 { format!(", {disturbed} disturbed") } else { String::new() };
            return Err(format!("{} of at least {ROUNDS} rounds{disturbed}", ratios.len()));
        }
        Interval::of(&ratios).ok_or_else(|| "no figures".to_owned())
    }

    /// Takes over the runs of an earlier part of the same experiment. An error says why it is another one.
    pub(crate) fn go_on(&mut self, earlier: Self) -> Result<(), String> {
        if self.quick != earlier.quick || self.machine != earlier.machine || self.topology != earlier.topology {
            return Err("it is of another machine, topology or kind of run".to_owned());
        }
        if self.cases != earlier.cases {
            return Err("its cases are others".to_owned());
        }
        let ran = |one: &&Participant| earlier.runs.iter().any(|run| run.contender == one.name);
        for then in earlier.contenders.iter().filter(ran) {
            match self.contenders.iter().find(|now| now.name == then.name) {
                None => return Err(format!("{} took part, and is not there", then.name)),
                Some(now) if now != then => return Err(format!("{} is another program", then.name)),
                Some(_) => {}
            }
        }
        (self.command, self.started, self.runs) = (earlier.command, earlier.started, earlier.runs);
        Ok(())
    }

    /// Whether a contender had its turn.
    pub(crate) fn has(&self, case: &str, contender: &str, round: usize) -> bool {
        self.runs.iter().any(|run| run.case == case && run.contender == contender && run.round == round)
    }

    /// Runs that mean nothing: who, in which case and round, why.
    pub(crate) fn voids(&self) -> impl Iterator<Item = (&Run, &str)> {
        self.runs.iter().filter_map(|run| Some((run, run.void.as_deref()?)))
    }

    /// Names of those who took part, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.contenders.iter().map(|contender| contender.name.as_str())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An experiment with one case, in which each contender has a run for each figure.
    pub(crate) fn results(contenders: &[(&str, &[f64])]) -> Results {
        let case = Case {
            name: "large".to_owned(),
            load: "GET 1 GB".to_owned(),
            per: Per::Gigabyte,
            primary: "cpu".to_owned(),
            judged: vec![],
            saturated: false,
            group: "large bodies".to_owned(),
            drawn: vec![],
            x: None,
            y: None,
            path: None,
            beside: None,
            bounds: vec![],
            conforms_to: None,
            also_to: None,
        };
        let run = |contender: &str, round: usize, cpu: f64| Run {
            contender: contender.to_owned(),
            case: "large".to_owned(),
            round,
            attempt: 1,
            counts: true,
            void: None,
            noise: Noise::default(),
            figures: BTreeMap::from([("cpu".to_owned(), cpu), ("rate".to_owned(), 100.0)]),
            client: "litequic-lab load download".to_owned(),
            samples: vec![],
            trace: None,
        };
        let participant = |name: &str| Participant {
            name: name.to_owned(),
            kind: Kind::H3,
            version: format!("{name} 1.0"),
            command: format!("{name} run"),
            crc32: None,
            tuned: None,
        };
        Results {
            experiment: "peers".to_owned(),
            about: "What does it cost?".to_owned(),
            quick: false,
            started: "2026-01-01T00:00:00Z".to_owned(),
            command: "litequic-lab peers".to_owned(),
            machine: Machine::default(),
            topology: Topology::Lo,
            reference: contenders[0].0.to_owned(),
            contenders: contenders.iter().map(|(name, _)| participant(name)).collect(),
            skipped: vec![],
            cases: vec![case],
            runs: contenders
                .iter()
                .flat_map(|(name, figures)| figures.iter().enumerate().map(|(at, cpu)| run(name, at + 1, *cpu)))
                .collect(),
        }
    }

    fn ratio(results: &Results, contender: &str, reference: &str) -> Result<f64, String> {
        results.ratio("large", contender, reference, "cpu").map(|ratio| ratio.median)
    }

    #[test]
    fn ratios_are_of_runs_of_the_same_round() {
        // Every round is slower than the one before: medians of all would say 0.4.
        let results = results(&[("a", &[2.0, 4.0, 10.0]), ("b", &[1.0, 2.0, 4.0])]);
        assert_eq!(ratio(&results, "b", "a"), Ok(0.5));
        assert_eq!(ratio(&results, "a", "a"), Ok(1.0));
    }

    #[test]
    fn ceiling_and_floor_are_references_where_they_took_part() {
        let mut results = results(&[("a", &[2.0]), ("b", &[1.0]), ("ceiling", &[1.0]), ("floor", &[1.0])]);
        (results.contenders[2].kind, results.contenders[3].kind) = (Kind::H1, Kind::Floor);
        assert_eq!(results.references(&results.cases[0]), ["a", "ceiling", "floor"]);
        results.reference = "floor".to_owned();
        results.runs.retain(|run| run.contender != "ceiling");
        assert_eq!(results.references(&results.cases[0]), ["floor"]);
    }

    #[test]
    fn too_few_quiet_rounds_conclude_nothing() {
        let mut results = results(&[("a", &[2.0, 2.0, 2.0]), ("b", &[1.0, 1.0, 1.0, 1.0])]);
        assert_eq!(ratio(&results, "b", "a"), Ok(0.5));
        results.runs[0].noise.server_core = 50.0;
        assert_eq!(ratio(&results, "b", "a"), Err("2 of at least 3 rounds, 1 disturbed".to_owned()));
        assert_eq!(ratio(&results, "b", "c"), Err("c has no valid run".to_owned()));
        results.runs[1].figures.insert("cpu".to_owned(), 0.0);
        assert_eq!(ratio(&results, "b", "a"), Err("a is 0".to_owned()));
    }

    #[test]
    fn a_void_run_is_named_and_never_averaged_in() {
        let mut results = results(&[("a", &[2.0, 2.0, 2.0]), ("b", &[1.0, 1.0, 1.0, 900.0])]);
        results.runs.last_mut().unwrap().void = Some("it died".to_owned());
        let summary = results.summary("large", "b", "cpu").unwrap();
        assert_eq!((summary.max, summary.runs), (1.0, 3));
        assert_eq!(
            results.voids().map(|(run, why)| (run.contender.as_str(), why)).collect::<Vec<_>>(),
            [("b", "it died")]
        );
    }

    #[test]
    fn a_try_that_was_repeated_does_not_count() {
        let mut results = results(&[("a", &[2.0, 2.0, 2.0, 9.0])]);
        results.runs.last_mut().unwrap().counts = false;
        assert_eq!(results.summary("large", "a", "cpu").unwrap().max, 2.0);
    }

    #[test]
    fn an_earlier_part_is_gone_on_with_if_nothing_else_changed() {
        let earlier = results(&[("a", &[2.0])]);
        let mut now = results(&[("a", &[]), ("b", &[])]);
        now.started = "later".to_owned();
        assert_eq!(now.go_on(earlier.clone()), Ok(()));
        assert!(now.has("large", "a", 1) && !now.has("large", "a", 2) && !now.has("large", "b", 1));
        assert_eq!(now.started, earlier.started);
        let mut other = earlier.clone();
        other.contenders[0].crc32 = Some("1".to_owned());
        assert_eq!(now.go_on(other).unwrap_err(), "a is another program");
        let mut other = earlier.clone();
        other.cases[0].load.clear();
        assert_eq!(now.go_on(other).unwrap_err(), "its cases are others");
        let gone = results(&[("c", &[2.0])]);
        assert_eq!(now.go_on(gone).unwrap_err(), "c took part, and is not there");
    }

    #[test]
    fn results_survive_their_file() {
        let before = results(&[("a", &[2.0])]);
        let text = serde_json::to_string(&before).unwrap();
        let after: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&after).unwrap(), text);
    }
}
