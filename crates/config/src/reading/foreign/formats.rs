//! Recognizes configuration files of other programs.

use std::fmt;
use toml::de::DeTable;

/// Program or format of a foreign file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignFormat {
    Apache,
    Caddyfile,
    Compose,
    Haproxy,
    Json,
    Nginx,
    Traefik,
    /// Labels of containers, in a compose file or as they are.
    TraefikLabels,
    Yaml,
}

/// Describes the file, to follow "is".
impl fmt::Display for ForeignFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Apache => "a configuration of Apache",
            Self::Caddyfile => "a Caddyfile",
            Self::Compose => "a compose file",
            Self::Haproxy => "a configuration of HAProxy",
            Self::Json => "JSON",
            Self::Nginx => "a configuration of nginx",
            Self::Traefik => "a configuration of Traefik",
            Self::TraefikLabels => "a file with labels for Traefik",
            Self::Yaml => "YAML",
        })
    }
}

impl ForeignFormat {
    /// Describes what to write instead, to follow "expected".
    pub(crate) fn describe_expected(self) -> String {
        let sections = match self {
            Self::TraefikLabels => " with [[routes]] for routers and [origins.NAME] for services",
            _ => "",
        };
        format!(
            "litequic's TOML{sections}: `litequic example` prints examples, `litequic reference configuration` prints all keys"
        )
    }
}

/// Top-level keys of Traefik, in lower case, that are not litequic's as well, such as `log`.
const TRAEFIK_KEYS: [&str; 11] = [
    "accesslog",
    "api",
    "certificatesresolvers",
    "entrypoints",
    "experimental",
    "http",
    "ping",
    "providers",
    "serverstransport",
    "tcp",
    "tls",
];
/// Keys of litequic that define a server: a file with one of them is for litequic.
const OWN_KEYS: [&str; 5] = ["certificates", "listen", "origin", "origins", "routes"];
/// Sections of HAProxy (its configuration manual, 2 to 4, 12), alone or before a name.
const HAPROXY_SECTIONS: [&str; 10] =
    ["global", "defaults", "frontend", "backend", "listen", "resolvers", "peers", "userlist", "traces", "program"];
/// Directives of a Caddyfile without blocks: one site, named by the first line.
const CADDY_DIRECTIVES: [&str; 12] = [
    "encode",
    "file_server",
    "handle",
    "handle_path",
    "import",
    "php_fastcgi",
    "redir",
    "request_header",
    "respond",
    "reverse_proxy",
    "root",
    "vars",
];

/// Returns the foreign program of a TOML file, and the position of the key that shows it.
pub(crate) fn detect_by_keys(root: &DeTable<'_>) -> Option<(ForeignFormat, usize)> {
    if OWN_KEYS.iter().any(|own| root.contains_key(*own)) {
        return None;
    }
    let format = |name: &str| match name.to_lowercase() {
        name if name == "traefik" || is_label(&name) => Some(ForeignFormat::TraefikLabels),
        name => TRAEFIK_KEYS.contains(&name.as_str()).then_some(ForeignFormat::Traefik),
    };
    let foreign = root.keys().filter_map(|key| Some((format(key.get_ref())?, key.span().start)));
    foreign.min_by_key(|(_, at)| *at)
}

/// Whether the text begins with a label for Traefik, such as `traefik.enable=true`. `traefik.example.com` is a host.
fn is_label(text: &str) -> bool {
    let rest = text.strip_prefix("traefik.").unwrap_or_default();
    ["enable", "docker.", "http.", "tcp.", "udp."].iter().any(|word| rest.starts_with(word))
}

/// Returns the foreign format of a file that is not TOML, and the position of its first line with content; `None` if it
/// is TOML with faults.
pub(crate) fn detect_by_lines(text: &str) -> Option<(ForeignFormat, usize)> {
    let lines = LineCounts::count_lines(text);
    Some(match lines.label {
        Some(at) => (ForeignFormat::TraefikLabels, at),
        None => (lines.guess_format(text)?, lines.first),
    })
}

/// Number of lines by their syntax, without comments and blank lines.
#[derive(Debug, Default)]
struct LineCounts {
    /// Position of the first line in the file.
    first: usize,
    /// Position of the first line with a label for Traefik.
    label: Option<usize>,
    all: usize,
    /// Lines of TOML: `key = …`, `[table]`.
    toml: usize,
    /// Lines with semicolons: `… ;`, `… { … ; }`.
    semicolon: usize,
    /// Lines that open a block: `… {`, `… {}`.
    opening: usize,
    /// Lines that begin with `}`.
    closing: usize,
    /// Lines of YAML: `key: …`, `- …`, `---`.
    yaml: usize,
    /// Sections of a compose file that hold its containers.
    compose: usize,
    /// Sections of HAProxy.
    haproxy: usize,
    /// Sections of Apache: `<Section …>`.
    apache: usize,
    /// Directives of Caddy without a block.
    caddy: usize,
}

impl LineCounts {
    fn count_lines(text: &str) -> Self {
        let mut lines = Self::default();
        let mut at = 0;
        for whole in text.split_inclusive('\n') {
            let line = without_comment(whole);
            if !line.trim().is_empty() {
                let start = at + (line.len() - line.trim_start().len());
                if lines.all == 0 {
                    lines.first = start;
                }
                if lines.label.is_none() && is_label(line.trim_start_matches([' ', '\t', '-', '"', '\''])) {
                    lines.label = Some(start);
                }
                lines.classify_line(line);
            }
            at += whole.len();
        }
        lines
    }

    fn classify_line(&mut self, line: &str) {
        let is_indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        let mut count = |is: bool, counter: fn(&mut Self) -> &mut usize| *counter(self) += usize::from(is);
        count(true, |lines| &mut lines.all);
        count(is_toml(line), |lines| &mut lines.toml);
        count(line.ends_with(';') || (line.ends_with('}') && line.contains(';')), |lines| &mut lines.semicolon);
        count(line.ends_with('{') || line.ends_with(" {}"), |lines| &mut lines.opening);
        count(line.starts_with('}'), |lines| &mut lines.closing);
        count(is_yaml(line), |lines| &mut lines.yaml);
        count(!is_indented && line == "services:", |lines| &mut lines.compose);
        count(!is_indented && is_haproxy(line), |lines| &mut lines.haproxy);
        count(line.starts_with('<') && line.ends_with('>'), |lines| &mut lines.apache);
        count(CADDY_DIRECTIVES.contains(&first), |lines| &mut lines.caddy);
    }

    fn guess_format(&self, text: &str) -> Option<ForeignFormat> {
        let is_most = |number: usize| number > 0 && number * 2 >= self.all;
        if self.all == 0 || self.toml * 4 > self.all {
            return None;
        }
        if is_json(text.get(self.first..).unwrap_or_default()) {
            return Some(ForeignFormat::Json);
        }
        if self.semicolon > 0 && is_most(self.semicolon + self.opening + self.closing) {
            return Some(ForeignFormat::Nginx);
        }
        if self.apache >= 2 && self.closing == 0 {
            return Some(ForeignFormat::Apache);
        }
        if self.haproxy > 0 && self.closing == 0 && !is_most(self.yaml) {
            return Some(ForeignFormat::Haproxy);
        }
        if is_most(self.yaml) {
            if self.compose > 0 {
                return Some(ForeignFormat::Compose);
            }
            let is_traefik = ["entryPoints", "entrypoints", "certificatesResolvers", "traefik"];
            let is_traefik = is_traefik.iter().any(|word| text.contains(word));
            return Some(if is_traefik { ForeignFormat::Traefik } else { ForeignFormat::Yaml });
        }
        let is_caddyfile = (self.opening > 0 && self.closing > 0) || self.caddy > 0;
        is_caddyfile.then_some(ForeignFormat::Caddyfile)
    }
}

/// Removes a comment at the beginning of the line, or after a blank.
fn without_comment(line: &str) -> &str {
    let comment = line.match_indices('#').map(|(at, _)| at);
    let mut comment =
        comment.filter(|at| line.get(..*at).is_none_or(|before| before.is_empty() || before.ends_with([' ', '\t'])));
    let line = comment.next().and_then(|at| line.get(..at)).unwrap_or(line);
    line.trim_end()
}

/// Whether the line is TOML: `key = …`, `[table]`, `[[table]]`.
fn is_toml(line: &str) -> bool {
    if line.starts_with('[') {
        return line.ends_with(']') && !line.contains([',', '{']);
    }
    let Some((key, _)) = line.split_once('=') else { return false };
    let key = key.trim_end();
    !key.is_empty() && key.chars().all(|char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | '"' | '\''))
}

/// Whether the line is YAML: `key: …`, `- …`, `---`.
fn is_yaml(line: &str) -> bool {
    if line == "-" || line == "---" || line.starts_with("- ") {
        return true;
    }
    let Some((key, value)) = line.split_once(':') else { return false };
    let is_key = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | '/' | '"' | '\'' | '$');
    !key.is_empty() && key.chars().all(is_key) && (value.is_empty() || value.starts_with(' '))
}

fn is_haproxy(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let is_section = words.next().is_some_and(|first| HAPROXY_SECTIONS.contains(&first));
    is_section && words.count() <= 3 && !line.contains(['=', '{', ';', '"'])
}

/// Whether the text begins like a JSON object, or an array of objects: `{ "`, `{}`, `[{`.
fn is_json(text: &str) -> bool {
    let mut chars = text.chars().filter(|char| !char.is_whitespace());
    match chars.next() {
        Some('{') => matches!(chars.next(), Some('"' | '}')),
        Some('[') => chars.next() == Some('{'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_program_is_recognized_by_its_lines() {
        for (text, expected) in [
            ("server {\n  listen 443 ssl;\n}\n", Some(ForeignFormat::Nginx)),
            ("events {}\nhttp { server { listen 443 ssl; } }\n", Some(ForeignFormat::Nginx)),
            ("fastcgi_param QUERY_STRING $query_string;\n", Some(ForeignFormat::Nginx)),
            ("global\n  maxconn 10\nfrontend web\n  bind :443 ssl crt /a\n", Some(ForeignFormat::Haproxy)),
            ("example.com {\n  reverse_proxy 127.0.0.1:8080\n}\n", Some(ForeignFormat::Caddyfile)),
            ("{\n  email a@example.com\n}\nexample.com {\n}\n", Some(ForeignFormat::Caddyfile)),
            ("traefik.example.com {\n  reverse_proxy a:80\n}\n", Some(ForeignFormat::Caddyfile)),
            ("localhost\n\nreverse_proxy 127.0.0.1:8080\n", Some(ForeignFormat::Caddyfile)),
            ("<VirtualHost *:443>\n  ProxyPass / http://a/\n</VirtualHost>\n", Some(ForeignFormat::Apache)),
            ("services:\n  web:\n    image: \"nginx\"\n", Some(ForeignFormat::Compose)),
            ("services:\n  proxy:\n    image: \"traefik:v3\"\n", Some(ForeignFormat::Compose)),
            ("http:\n  services:\n    web: {}\n", Some(ForeignFormat::Yaml)),
            ("services:\n  a:\n    labels:\n      traefik.enable: true\n", Some(ForeignFormat::TraefikLabels)),
            ("services:\n  a:\n    labels:\n      - \"traefik.enable=true\"\n", Some(ForeignFormat::TraefikLabels)),
            ("[listen]\ntraefik.http.routers.a.rule=Host(`a`)\n", Some(ForeignFormat::TraefikLabels)),
            ("entryPoints:\n  web:\n    address: \":80\"\n", Some(ForeignFormat::Traefik)),
            ("---\n- a\n- b\n", Some(ForeignFormat::Yaml)),
            ("{\"apps\": {}}", Some(ForeignFormat::Json)),
            ("[{\"a\": 1}]", Some(ForeignFormat::Json)),
            ("", None),
            ("# a comment\n", None),
            ("[listen]\nudp = \"[::]:8443\n", None),
            ("[listen\ncongestion = {}\nrespond = { body = \";\" }\n", None),
            ("[[routes]\npath = [\n  \"/a\",\n  \"/b\",\n]\n", None),
            ("some words\nof no known program\n", None),
        ] {
            assert_eq!(detect_by_lines(text).map(|(foreign, _)| foreign), expected, "{text}");
        }
    }

    #[test]
    fn the_fault_is_at_the_first_line_that_is_no_comment() {
        assert_eq!(detect_by_lines("# nginx\n\n  user www;\n"), Some((ForeignFormat::Nginx, 11)));
        let labels = "labels:\n  - 'traefik.enable=true'\n";
        assert_eq!(detect_by_lines(labels), Some((ForeignFormat::TraefikLabels, 10)));
    }

    #[test]
    fn a_file_of_toml_is_traefiks_unless_a_key_is_litequics() {
        let table = |text| DeTable::parse(text).unwrap().into_inner();
        assert_eq!(detect_by_keys(&table("[log]\n[entryPoints.web]\n")), Some((ForeignFormat::Traefik, 7)));
        assert_eq!(detect_by_keys(&table("[http.routers]\n")), Some((ForeignFormat::Traefik, 1)));
        for text in ["traefik.enable = true\n", "\"traefik.enable\" = true\n"] {
            assert_eq!(detect_by_keys(&table(text)), Some((ForeignFormat::TraefikLabels, 0)));
        }
        assert_eq!(detect_by_keys(&table("[log]\n")), None);
        assert_eq!(detect_by_keys(&table("[entryPoints.web]\n[origin]\n")), None);
    }
}
