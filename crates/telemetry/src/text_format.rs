//! Chooses between the formats of `/metrics` by `Accept`, and converts OpenMetrics text to Prometheus' text format
//! 0.0.4, which older tools read. Pure.

use std::collections::BTreeSet;

/// `Content-Type` of the text of [`to_prometheus_text`].
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a client with this `Accept` prefers Prometheus' text format: it names `text/plain`, and OpenMetrics not at
/// all or with a lower weight (RFC 9110 §12.5.1). Of two equal weights, OpenMetrics wins, as the richer format.
pub fn prefers_prometheus_text(accept: &str) -> bool {
    let weight = |media_type: &str| {
        let parameters = accept.split(',').find_map(|range| {
            let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
            name.trim().eq_ignore_ascii_case(media_type).then_some(parameters)
        });
        let weight =
            |parameters: &str| parameters.split(';').find_map(|one| one.trim().strip_prefix("q=")?.parse().ok());
        parameters.map_or(0.0, |parameters| weight(parameters).unwrap_or(1.0_f32))
    };
    weight("text/plain") > weight("application/openmetrics-text")
}

/// Converts `text` in OpenMetrics 1.0: a counter has the name of its samples, an info metric is a gauge, and there are
/// no units, exemplars and `# EOF`.
pub fn to_prometheus_text(text: &str) -> String {
    let types: BTreeSet<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let comment = line.strip_prefix("# ").and_then(|line| line.split_once(' '));
        let described = comment.and_then(|(keyword, rest)| Some((keyword, rest.split_once(' ')?)));
        let parts = match described {
            Some((keyword @ ("TYPE" | "HELP"), (family, rest))) => {
                let (suffix, kind) = match () {
                    () if types.contains(&(family, "counter")) => ("_total", rest),
                    () if types.contains(&(family, "info")) => ("_info", "gauge"),
                    () => ("", rest),
                };
                ["# ", keyword, " ", family, suffix, " ", if keyword == "TYPE" { kind } else { rest }]
            }
            _ if line.starts_with('#') => continue,
            _ => [line.split_once(" # {").map_or(line, |(sample, _)| sample), "", "", "", "", "", ""],
        };
        parts.into_iter().chain(["\n"]).for_each(|part| out.push_str(part));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_decides_between_the_two_formats() {
        for (accept, expected) in [
            ("", false),
            ("*/*", false),
            ("text/plain", true),
            ("Text/Plain; version=0.0.4", true),
            ("text/plain;q=0", false),
            ("application/openmetrics-text; version=1.0.0, text/plain", false),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", false),
            ("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1", true),
            ("text/plainer", false),
        ] {
            assert_eq!(prefers_prometheus_text(accept), expected, "{accept}");
        }
    }

    #[test]
    fn openmetrics_becomes_the_older_text_format() {
        let text = "# HELP a_build Version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
                    # HELP b Requests.\n# TYPE b counter\nb_total{x=\"y # z\"} 2\n\
                    # HELP c_seconds Time.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n\
                    c_seconds_bucket{le=\"+Inf\"} 2 # {trace_id=\"ab\"} 2.5 1.500\n\
                    # HELP d Open.\n# TYPE d gauge\nd 1\n# EOF\n";
        let expected = "# HELP a_build_info Version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
                        # HELP b_total Requests.\n# TYPE b_total counter\nb_total{x=\"y # z\"} 2\n\
                        # HELP c_seconds Time.\n# TYPE c_seconds histogram\n\
                        c_seconds_bucket{le=\"+Inf\"} 2\n# HELP d Open.\n# TYPE d gauge\nd 1\n";
        assert_eq!(to_prometheus_text(text), expected);
    }
}
