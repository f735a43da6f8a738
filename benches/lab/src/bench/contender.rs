//! Who is measured: a description in TOML, and the templates of its configuration. Those of `contenders/` are built in;
//! `--contender FILE` adds one whose templates lie beside it. Pure but for [`Contender::read`] and [`Contender::find`].

use super::{
    metrics::Metrics,
    template::{Unknown, Values},
    variant::Variant,
};
use crate::{http::Http, report::figures};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

/// The protocol of a contender, which determines its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A proxy with HTTP/3 to clients.
    H3,
    /// A ceiling: a proxy with HTTP/1.1 over TLS to clients.
    H1,
    /// The floor: no protocol at all.
    Floor,
    /// Not measured: what the proxies stand in front of.
    Origin,
}

/// A contender's description.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contender {
    /// How reports call it.
    pub(crate) name: String,
    /// Its protocol.
    pub(crate) kind: Kind,
    /// Protocols to clients beside HTTP/3, by the names of `Http`.
    #[serde(default)]
    pub(crate) fronts: Vec<String>,
    /// The program: a path, or a name to look for on the PATH.
    pub(crate) binary: String,
    /// The command line.
    pub(crate) command: Vec<String>,
    /// A command that prints the program's version, on its first line.
    pub(crate) version: Vec<String>,
    /// More environment for the command.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// Templates of its configuration, by the name that each gets in the folder `@RUN@`.
    #[serde(default)]
    pub(crate) files: Vec<String>,
    /// What `@EXTRA@` stands for.
    #[serde(default)]
    pub(crate) extra: String,
    /// The contender connects to the origin over TLS.
    #[serde(default)]
    pub(crate) https_origin: bool,
    /// The contender sends HTTP/2 to the origin, in plaintext.
    #[serde(default)]
    pub(crate) http2_origin: bool,
    /// The most packets an ACK that it bears on a path without delay, where that is known.
    pub(crate) bears: Option<Bears>,
    /// Its tuning for paths, and the vendor's text that recommends it. `None`: it is measured with defaults.
    pub(crate) tuned: Option<String>,
    /// Packets an ACK of its clients, in place of the load's own.
    pub(crate) ack_threshold: Option<String>,
    /// The protocol of its clients, in place of the load's own.
    pub(crate) front: Option<Http>,
    /// Its viewers are dash.js's, in place of emulated ones.
    #[serde(default)]
    pub(crate) is_watched_by_dash_js: bool,
    /// TCP's congestion control, for those that are measured over TCP and a path.
    pub(crate) congestion_control: Option<String>,
    /// It was given by `--contender`: it takes part in each case of its kind.
    #[serde(skip)]
    pub(crate) is_given: bool,
    /// Its metrics.
    pub(crate) metrics: Option<Metrics>,
    /// What the program must be able to do.
    pub(crate) probe: Option<Probe>,
    /// The templates' texts, by name.
    #[serde(skip)]
    pub(crate) templates: BTreeMap<String, String>,
}

/// How a contender is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Configuration {
    /// Without a path: buffers that keep a large body moving, and GSO.
    Near,
    /// Over a path, as it comes: defaults, but for what all have alike, such as connections that stay open.
    AsItComes,
    /// Over a path, with what its vendor's manual offers for such paths.
    Tuned,
    /// Without a path, and with nothing but what it needs to serve: what a user gets.
    Defaults,
}

impl Configuration {
    /// Of the placeholders that begin lines of templates those whose lines hold.
    pub(crate) fn holds(self) -> [(&'static str, bool); 6] {
        let (near, tuned, raised) = (self == Self::Near, self == Self::Tuned, self != Self::Defaults);
        [
            ("NEAR", near),
            ("TUNED", tuned),
            ("UNTUNED", !tuned),
            ("AMPLE", near || tuned),
            ("RAISED", raised),
            ("UNRAISED", !raised),
        ]
    }
}

/// Beyond so many packets an ACK a contender is skipped.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bears {
    /// Packets an ACK.
    pub(crate) packets_per_ack: u32,
    /// What happens beyond.
    pub(crate) otherwise: String,
}

/// A question to the program before it is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    /// The command.
    pub(crate) command: Vec<String>,
    /// What its output must contain.
    pub(crate) says: String,
    /// What it means when it does not.
    pub(crate) otherwise: String,
}

/// litequic as `packaging/pgo.sh` builds it, with a profile of its loads; skipped if it was not built.
const PROFILED: &str = "litequic-pgo";

/// The descriptions that come with the lab, in the order of reports; litequic's first.
const BUILT_IN: [(&str, &str); 14] = [
    ("litequic.toml", include_str!("../../contenders/litequic.toml")),
    ("nginx.toml", include_str!("../../contenders/nginx.toml")),
    ("haproxy.toml", include_str!("../../contenders/haproxy.toml")),
    ("caddy.toml", include_str!("../../contenders/caddy.toml")),
    ("envoy.toml", include_str!("../../contenders/envoy.toml")),
    ("h2o.toml", include_str!("../../contenders/h2o.toml")),
    ("tokio-quiche.toml", include_str!("../../contenders/tokio-quiche.toml")),
    ("traefik.toml", include_str!("../../contenders/traefik.toml")),
    ("angie.toml", include_str!("../../contenders/angie.toml")),
    ("nginx-h1.toml", include_str!("../../contenders/nginx-h1.toml")),
    ("h1-cubic.toml", include_str!("../../contenders/h1-cubic.toml")),
    ("h1-bbr.toml", include_str!("../../contenders/h1-bbr.toml")),
    ("floor.toml", include_str!("../../contenders/floor.toml")),
    ("origin.toml", include_str!("../../contenders/origin.toml")),
];

const TEMPLATES: [(&str, &str); 9] = [
    ("proxy.conf", include_str!("../../contenders/templates/proxy.conf")),
    ("origin.conf", include_str!("../../contenders/templates/origin.conf")),
    ("haproxy.cfg", include_str!("../../contenders/templates/haproxy.cfg")),
    ("Caddyfile", include_str!("../../contenders/templates/Caddyfile")),
    ("h2o.conf", include_str!("../../contenders/templates/h2o.conf")),
    ("traefik.yaml", include_str!("../../contenders/templates/traefik.yaml")),
    ("routes.yaml", include_str!("../../contenders/templates/routes.yaml")),
    ("envoy.yaml", include_str!("../../contenders/templates/envoy.yaml")),
    ("run.toml", include_str!("../../contenders/templates/run.toml")),
];

impl Contender {
    /// All that come with the lab; litequic twice.
    pub(crate) fn built_in() -> Result<Vec<Self>> {
        let template =
            |name: &str| TEMPLATES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let read = |(file, text): &(&str, &str)| Self::parse(text, template).with_context(|| (*file).to_owned());
        let mut all = BUILT_IN.iter().map(read).collect::<Result<Vec<Self>>>()?;
        let profiled = Self { name: PROFILED.to_owned(), binary: PROFILED.to_owned(), ..read(&BUILT_IN[0])? };
        all.insert(1, profiled);
        Ok(all)
    }

    /// The same where an experiment has variants of litequic.
    pub(crate) fn built_in_varied(variants: &[Variant]) -> Result<Vec<Self>> {
        let mut all = Self::built_in()?;
        let litequic = all.first().cloned().context("litequic is the first")?;
        all.retain(|contender| variants.iter().all(|variant| variant.name != contender.name));
        let varied = variants.iter().map(|variant| match &variant.twin_of {
            None => Some(litequic.vary(variant)),
            Some(of) => all.iter().find(|one| one.name == *of).map(|one| one.twin(variant)),
        });
        let varied: Vec<Self> = varied.flatten().collect();
        all.extend(varied);
        Ok(all)
    }

    /// A variant of it.
    pub(crate) fn vary(&self, variant: &Variant) -> Self {
        let Variant { extra, environment: more, ack_threshold, .. } = variant.clone();
        let environment = self.environment.clone().into_iter().chain(more).collect();
        Self { extra, environment, ack_threshold, ..self.twin(variant) }
    }

    /// The contender by another name, perhaps with TLS or HTTP/2 to the origin, or with clients of another protocol or of dash.js.
    pub(crate) fn twin(&self, variant: &Variant) -> Self {
        let Variant { name, https_origin, http2_origin, front, is_watched_by_dash_js, .. } = variant.clone();
        Self { name, https_origin, http2_origin, front, is_watched_by_dash_js, ..self.clone() }
    }

    /// The kind that reports compare it as: over TCP it is no HTTP/3 proxy.
    pub(crate) fn compared_as(&self) -> Kind {
        if self.front.is_some_and(|front| front != Http::Three) { Kind::H1 } else { self.kind }
    }

    /// One from a file; its templates lie in the same folder.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let contender = Self::parse(&text, |name| fs::read_to_string(folder.join(name)).ok());
        let contender = contender.with_context(|| format!("{}", path.display()))?;
        Ok(Self { is_given: true, ..contender })
    }

    /// From a description's text; `template` has the templates' texts.
    fn parse(text: &str, template: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut contender: Self = toml::from_str(text)?;
        if contender.name.is_empty() || !contender.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            bail!("name = {:?}: letters, digits and hyphens", contender.name);
        }
        if contender.command.is_empty() {
            bail!("command is empty");
        }
        let names = contender.metrics.iter().flat_map(Metrics::names);
        if let Some(unknown) = names.into_iter().find(|figure| !figures::is_shown(figure)) {
            bail!("metrics: pages show no figure {unknown}");
        }
        for name in &contender.files {
            let text = template(name).with_context(|| format!("files: there is no template {name}"))?;
            contender.templates.insert(name.clone(), text);
        }
        Ok(contender)
    }

    /// The program's path: `given` on the command line, or the description's, or one of that name beside this program
    /// or on the PATH.
    pub(crate) fn find(&self, given: Option<&Path>) -> Option<PathBuf> {
        let name = given.unwrap_or(Path::new(&self.binary));
        if name.components().count() > 1 {
            return is_program(name).then(|| name.to_owned());
        }
        let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
        let path = env::var_os("PATH").unwrap_or_default();
        // Debian keeps servers where only root's PATH leads.
        let folders = beside.into_iter().chain(env::split_paths(&path)).chain([PathBuf::from("/usr/sbin")]);
        folders.map(|folder| folder.join(name)).find(|program| is_program(program))
    }

    /// A command line with its placeholders replaced.
    pub(crate) fn expand(&self, command: &[String], values: &Values) -> Result<Vec<String>, Unknown> {
        command.iter().map(|argument| values.expand(argument, &format!("{}'s command", self.name))).collect()
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
        name = "one"
        kind = "h3"
        binary = "sh"
        command = ["@BIN@", "@PORT@"]
        version = ["@BIN@"]
    "#;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn every_built_in_description_reads_and_its_placeholders_are_known() {
        let mut values = Values::default();
        for name in super::super::PLACEHOLDERS {
            values.set(name, "x");
        }
        let all = Contender::built_in().unwrap();
        assert_eq!(all.len(), BUILT_IN.len() + 1, "litequic is there twice");
        for contender in all {
            for command in
                [&contender.command, &contender.version].into_iter().chain(contender.probe.as_ref().map(|p| &p.command))
            {
                contender.expand(command, &values).unwrap();
            }
            if let Some(metrics) = &contender.metrics {
                metrics.expand(&values).unwrap();
            }
            for text in contender.environment.values().chain(contender.templates.values()) {
                let expanded = values.expand(text, &contender.name).unwrap();
                let left = expanded.split('@').skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
                assert_eq!(left, None, "{} has a placeholder that is none", contender.name);
            }
        }
    }

    #[test]
    fn what_is_tuned_is_said_and_is_something() {
        for contender in Contender::built_in().unwrap() {
            let expanded = |configuration: Configuration| {
                let mut values = Values::default();
                for name in super::super::PLACEHOLDERS {
                    values.set(name, "x");
                }
                for (name, holds) in configuration.holds() {
                    values.set(name, if holds { "" } else { "#" });
                }
                let all = contender.templates.values().map(|text| values.expand(text, "x").unwrap());
                let lines: Vec<String> =
                    all.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
                lines.into_iter().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>()
            };
            let differs = expanded(Configuration::Tuned) != expanded(Configuration::AsItComes);
            let is_measured_over_paths = contender.templates.len() == 1 && contender.kind != Kind::Origin;
            assert_eq!(differs, is_measured_over_paths, "{}", contender.name);
            assert_eq!(contender.tuned.is_some(), differs && contender.name != "nginx-h1", "{}", contender.name);
        }
    }

    #[test]
    fn defaults_leave_out_every_limit_that_is_raised_for_one_client() {
        let all = Contender::built_in().unwrap();
        let text = |name: &str, configuration: Configuration| {
            let contender = all.iter().find(|one| one.name == name).unwrap();
            let mut values = Values::default();
            super::super::PLACEHOLDERS.iter().for_each(|name| values.set(name, "x"));
            values.set("EXTRA", "");
            configuration.holds().iter().for_each(|(name, holds)| values.set(name, if *holds { "" } else { "#" }));
            let text = values.expand(contender.templates.values().next().unwrap(), name).unwrap();
            text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
        };
        for (name, raised) in [("litequic", "source_exempt"), ("nginx", "keepalive"), ("h2o", "max-streams-bidi")] {
            assert!(text(name, Configuration::Near).contains(raised), "{name}");
            assert!(!text(name, Configuration::Defaults).contains(raised), "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Contender::built_in().unwrap().into_iter().map(|contender| contender.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_description_with_a_misspelt_key_is_refused() {
        let error = Contender::parse(&format!("{MINIMAL}\nbuffers = 3"), none).unwrap_err().to_string();
        assert!(error.contains("buffers"), "{error}");
    }

    #[test]
    fn a_metric_whose_figure_no_page_shows_is_refused() {
        let metrics =
            |figure: &str| format!("{MINIMAL}\nmetrics = {{ url = \"x\", ratios.{figure} = [\"a\", \"b\"] }}");
        assert!(Contender::parse(&metrics("datagrams_per_batch"), none).is_ok());
        let error = Contender::parse(&metrics("datagrams_per_bath"), none).unwrap_err().to_string();
        assert_eq!(error, "metrics: pages show no figure datagrams_per_bath");
    }

    #[test]
    fn a_template_that_is_missing_is_named() {
        let error = Contender::parse(&format!("{MINIMAL}\nfiles = [\"a.conf\"]"), none).unwrap_err().to_string();
        assert_eq!(error, "files: there is no template a.conf");
    }

    #[test]
    fn a_name_that_could_be_a_path_is_refused() {
        let text = MINIMAL.replace("\"one\"", "\"../one\"");
        assert!(Contender::parse(&text, none).unwrap_err().to_string().contains("letters, digits"));
    }

    #[test]
    fn a_program_is_found_by_path_or_option() {
        let one = Contender::parse(MINIMAL, none).unwrap();
        let found = one.find(None).unwrap();
        assert!(found.ends_with("sh") && found.is_absolute(), "{}", found.display());
        assert_eq!(one.find(Some(Path::new("/bin/sh"))), Some(PathBuf::from("/bin/sh")));
        assert_eq!(one.find(Some(Path::new("/bin/nothing/of/the/kind"))), None);
        assert_eq!(one.find(Some(Path::new("/etc/passwd"))), None, "not a program");
    }
}
