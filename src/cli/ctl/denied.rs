//! Formats `/denied` as text. Pure.

use super::status::{grouped_number, strip_controls};
use litequic_admin::DeniedList;
use litequic_base::short_duration::format_short_duration;
use std::time::Duration;

/// Formats a line for each network, and one with their number.
pub(super) fn render_denied(list: &DeniedList) -> String {
    let names: Vec<String> =
        list.denied.iter().map(|one| one.network.as_deref().map_or_else(|| "-".into(), strip_controls)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let line = |(name, seconds): (&String, Option<u64>)| {
        let left = seconds.map(|seconds| format_short_duration(Duration::from_secs(seconds)));
        format!("{name:<width$}  {}\n", left.unwrap_or_else(|| "-".into()))
    };
    let lines: String = names.iter().zip(list.denied.iter().map(|one| one.seconds)).map(line).collect();
    let most = list.most.map_or_else(|| "-".into(), grouped_number);
    match list.denied.len() {
        0 => "no network is denied\n".into(),
        count => format!("{lines}{} of {most} networks are denied\n", grouped_number(count as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_admin::DeniedStatus;

    #[test]
    fn each_network_has_a_line_with_the_time_that_is_left() {
        let one = |network: &str, seconds| DeniedStatus { network: Some(network.into()), seconds: Some(seconds) };
        let denied = vec![one("2001:db8::/32", 86_461), one("192.0.2.1/32", 59)];
        let list = DeniedList { denied, most: Some(1_024) };
        let text = "2001:db8::/32  1 d 0 h\n192.0.2.1/32   59 s\n2 of 1,024 networks are denied\n";
        assert_eq!(render_denied(&list), text);
        assert_eq!(render_denied(&DeniedList::default()), "no network is denied\n");
    }
}
