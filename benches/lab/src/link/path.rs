//! A path as the command line spells it: `rate=20M,rtt=50ms,buffer=0.5bdp,loss=0.5%`. Pure but for a trace's file.
//!
//! `rate`, `rtt` and `buffer` hold in both directions, faults from server to client; `up.` before a key sets it for the
//! direction from client to server.

use super::model::{DelayParameters, LossParameters, Parameters, Rate, Step};
use anyhow::{Context as _, Result, bail};
use std::{collections::BTreeMap, fs, str::FromStr, time::Duration};

/// Where super-packets begin to pay: below, the kernel segments them, as for a network card without offloads.
const SUPER_PACKETS_FROM: u64 = 500_000_000; // bits a second
/// A queue that is given in BDP holds two packets at least.
const LEAST_BUFFER: u64 = 3_000; // bytes
/// A packet that is held back comes so much later.
const HOLD: Duration = Duration::from_millis(5);

const KEYS: [&str; 12] =
    ["rate", "rtt", "buffer", "loss", "burst", "bad", "jitter", "reorder", "hold", "duplicate", "above", "ce"];
/// Of the whole path, not of a direction.
const WHOLE: [&str; 2] = ["super", "gro"];

/// A path between client and server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path {
    text: String,
    /// From server to client.
    pub(crate) down: Parameters,
    /// From client to server.
    pub(crate) up: Parameters,
    /// Both directions' delays.
    pub(crate) rtt: Duration,
    /// The kernel hands super-packets over, to be split in user space.
    pub(crate) super_packets: bool,
    /// Packets are handed over at multiples of this time, and neighbours of a flow joined: interrupts moderated by a
    /// network card, and GRO by its driver.
    pub(crate) gro: Option<Duration>,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Path {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut keys = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').with_context(|| format!("{part}: KEY=VALUE is wanted"))?;
            if !KEYS.contains(&key.strip_prefix("up.").unwrap_or(key)) && !WHOLE.contains(&key) {
                bail!("there is no key {key}; known are {}, {}", KEYS.join(", "), WHOLE.join(", "));
            }
            if keys.insert(key, value).is_some() {
                bail!("{key} stands twice");
            }
        }
        if keys.contains_key("up.rtt") {
            bail!("rtt is both directions'");
        }
        let get = |key: &str| keys.get(key).copied();
        let rtt = get("rtt").map(duration).transpose()?.unwrap_or_default();
        let down = direction(&|key| get(key), rtt)?;
        // Faults are one direction's, unless the other one has some of its own.
        let both = ["rate", "buffer", "hold"];
        let up = direction(
            &|key| get(&format!("up.{key}")).or_else(|| if both.contains(&key) { get(key) } else { None }),
            rtt,
        )?;
        let super_packets = match get("super") {
            None => None,
            Some("on") => Some(true),
            Some("off") => Some(false),
            Some(other) => bail!("super={other}: on or off"),
        };
        let highest = [&down, &up].map(|way| way.bottleneck.as_ref().map_or(u64::MAX, |(rate, _)| rate.highest()));
        let is_fast = highest.into_iter().max() >= Some(SUPER_PACKETS_FROM);
        Ok(Self {
            text: text.to_owned(),
            rtt,
            super_packets: super_packets.unwrap_or(is_fast),
            gro: get("gro").map(duration).transpose()?.filter(|time| !time.is_zero()),
            down,
            up,
        })
    }
}

fn direction<'a>(get: &dyn Fn(&str) -> Option<&'a str>, rtt: Duration) -> Result<Parameters> {
    let chance = |key: &str| get(key).map(probability).transpose().with_context(|| key.to_owned());
    let time = |key: &str| get(key).map(duration).transpose().with_context(|| key.to_owned());
    let rate = get("rate").map(rate).transpose().context("rate")?;
    let bdp = rate.as_ref().map(|rate| rate.first() as f64 * rtt.as_secs_f64() / 8.0);
    let size = |key: &str| get(key).map(|text| bytes(text, bdp)).transpose().with_context(|| key.to_owned());
    let buffer = size("buffer")?;
    let bottleneck = match rate {
        None if get("buffer").is_some() || get("ce").is_some() => bail!("without a rate there is no queue"),
        None => None,
        Some(rate) => {
            let limit = match buffer {
                Some(limit) => limit,
                None => bytes("1bdp", bdp)?,
            };
            Some((rate, limit))
        }
    };
    let burst: f64 = get("burst").map(str::parse).transpose().context("burst: a number of packets")?.unwrap_or(1.0);
    let loss = LossParameters { mean: chance("loss")?.unwrap_or(0.0), burst, in_bad: chance("bad")?.unwrap_or(1.0) };
    if !(1.0..=1e6).contains(&loss.burst) || loss.mean > loss.in_bad || loss.in_bad == 0.0 {
        bail!("burst is 1 or more, and loss at most what is lost in the bad state");
    }
    Ok(Parameters {
        loss,
        bottleneck,
        delay: DelayParameters {
            delay: rtt / 2,
            jitter: time("jitter")?.unwrap_or_default(),
            reorder: chance("reorder")?.unwrap_or(0.0),
            hold: time("hold")?.unwrap_or(HOLD),
        },
        duplicate: chance("duplicate")?.unwrap_or(0.0),
        faults_above: size("above")?.unwrap_or(0),
        mark_above: size("ce")?,
    })
}

/// `20M`, or `50M:10s+2M`, a trace: rates and for how long; or `@FILE` with one of these in each line.
fn rate(text: &str) -> Result<Rate> {
    let file;
    let steps: Vec<&str> = if let Some(name) = text.strip_prefix('@') {
        file = fs::read_to_string(name).with_context(|| format!("cannot read the trace {name}"))?;
        file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    } else {
        text.split('+').collect()
    };
    let steps = steps.into_iter().map(|step| {
        let (rate, lasts) = match step.split_once(':') {
            Some((rate, lasts)) => (rate, duration(lasts)?),
            None => (step, Duration::MAX),
        };
        let rate = scaled(rate, &[("k", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)])
            .with_context(|| format!("{rate}: bits a second, such as 20M"))?;
        Ok(Step { rate, lasts })
    });
    Rate::steps(steps.collect::<Result<_>>()?).with_context(|| format!("{text}: nothing would be sent for ever"))
}

/// `50kB`, `1500`, `0.5bdp`.
fn bytes(text: &str, bdp: Option<f64>) -> Result<u64> {
    if let Some(factor) = text.strip_suffix("bdp") {
        let bdp = bdp.context("without a rate there is no bandwidth-delay product")?;
        let factor: f64 = factor.parse().with_context(|| text.to_owned())?;
        return Ok(whole(factor * bdp).with_context(|| text.to_owned())?.max(LEAST_BUFFER));
    }
    scaled(text, &[("kB", 1e3), ("MB", 1e6), ("B", 1.0), ("", 1.0)])
        .with_context(|| format!("{text}: bytes, such as 50kB or 0.5bdp"))
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    whole(number.parse::<f64>().ok()? * factor)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be positive and below 2^53")]
fn whole(value: f64) -> Option<u64> {
    (0.0..9e15).contains(&value).then_some(value.round() as u64)
}

/// `0.5%`, or `0.005`.
fn probability(text: &str) -> Result<f64> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let probability = number.parse::<f64>().with_context(|| text.to_owned())? / scale;
    if !(0.0..=1.0).contains(&probability) {
        bail!("{text}: from 0 to 100 %");
    }
    Ok(probability)
}

fn duration(text: &str) -> Result<Duration> {
    let time = humantime::parse_duration(text).with_context(|| format!("{text}: a time, such as 50ms"))?;
    if time > Duration::from_secs(3600) {
        bail!("{text}: an hour at most");
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn limit(parameters: &Parameters) -> u64 {
        parameters.bottleneck.as_ref().unwrap().1
    }

    #[test]
    fn a_path_shapes_both_directions_and_loses_towards_the_client() {
        let path = path("rate=20M,rtt=50ms,buffer=0.5bdp,loss=0.5%");
        assert_eq!(path.rtt, Duration::from_millis(50));
        for way in [&path.down, &path.up] {
            assert_eq!(way.bottleneck, Some((Rate::constant(20_000_000).unwrap(), 62_500)));
            assert_eq!(way.delay.delay, Duration::from_millis(25));
        }
        assert_eq!((path.down.loss.mean, path.up.loss.mean), (0.005, 0.0));
        assert_eq!(path.to_string(), "rate=20M,rtt=50ms,buffer=0.5bdp,loss=0.5%");
        assert!(!path.super_packets && path.gro.is_none());
    }

    #[test]
    fn a_direction_can_have_keys_of_its_own() {
        let path = path("rate=100M,up.rate=1M,rtt=50ms,up.loss=2%,up.burst=4,up.buffer=20kB,above=1440,ce=10kB");
        assert_eq!((path.down.faults_above, path.up.faults_above), (1_440, 0));
        assert_eq!(path.up.bottleneck, Some((Rate::constant(1_000_000).unwrap(), 20_000)));
        assert_eq!((limit(&path.down), path.down.mark_above, path.up.mark_above), (625_000, Some(10_000), None));
        assert_eq!((path.up.loss.mean, path.up.loss.burst, path.down.loss), (0.02, 4.0, LossParameters::NONE));
    }

    #[test]
    fn a_buffer_in_bdp_holds_two_packets_at_least() {
        assert_eq!(limit(&path("rate=1M,rtt=1ms,buffer=0.25bdp").down), LEAST_BUFFER);
        assert_eq!(limit(&path("rate=1M,rtt=1ms,buffer=1500").down), 1500, "what is said is meant");
    }

    #[test]
    fn a_trace_is_a_list_of_rates_or_a_file() {
        let down = path("rate=50M:10s+0:1s+2M:500ms,rtt=50ms").down;
        let step = |rate, lasts| Step { rate, lasts: Duration::from_millis(lasts) };
        let trace = Rate::steps(vec![step(50_000_000, 10_000), step(0, 1_000), step(2_000_000, 500)]).unwrap();
        assert_eq!(down.bottleneck.as_ref().unwrap().0, trace);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        fs::write(&file, "# a comment\n50M:10s\n0:1s\n\n2M:500ms\n").unwrap();
        assert_eq!(path(&format!("rate=@{},rtt=50ms", file.display())).down, down);
    }

    #[test]
    fn super_packets_come_with_the_rate_or_are_asked_for() {
        assert!(path("rate=500M").super_packets && path("rtt=10ms").super_packets);
        assert!(!path("rate=500M,super=off").super_packets && path("rate=1M,super=on").super_packets);
        assert_eq!(path("gro=50us").gro, Some(Duration::from_micros(50)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (text, why) in [
            ("speed=1M", "there is no key speed"),
            ("rate", "KEY=VALUE"),
            ("rate=1M,rate=2M", "twice"),
            ("rate=fast", "bits a second"),
            ("rate=0", "nothing would be sent"),
            ("rate=1M:1s+0", "nothing would be sent"),
            ("rtt=50", "a time"),
            ("rtt=2h", "an hour at most"),
            ("rtt=1ms,up.rtt=1ms", "both directions"),
            ("buffer=5kB", "without a rate"),
            ("rate=1M,buffer=much", "bytes"),
            ("loss=101%", "from 0 to 100"),
            ("loss=50%,burst=3,bad=20%", "bad state"),
            ("burst=0", "burst is 1"),
            ("super=perhaps", "on or off"),
            ("gro=on", "a time"),
        ] {
            let error = format!("{:#}", text.parse::<Path>().unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
