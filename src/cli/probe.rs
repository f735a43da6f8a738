//! Runs `litequic probe`: prints the features of this kernel, the process's environment, and the mechanisms that
//! litequic would use.

use super::{
    confinement::confinement_lines,
    exit::{CommandResult, exit_with_faults, print_stdout},
};
use clap::Args;
use litequic_config::{self as config, AckFrequency, Congestion, Io, LiteQuic};
use litequic_net::{self as net, AddressFamily, Feature, ProbeResult};
use litequic_telemetry::Confinement;
use std::{fmt::Write as _, path::PathBuf};

/// Arguments of `litequic probe`.
#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// The configuration file whose `[litequic]` is used; without it, the defaults are.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Prints a line for each finding, and one for the mechanisms that litequic would use. Succeeds even if the kernel
/// lacks features: litequic runs without.
pub fn print_probe(arguments: ProbeArguments) -> CommandResult {
    let config = arguments.config.as_deref().map(config::load_config).transpose();
    let litequic =
        config.map_err(|faults| exit_with_faults(&faults))?.map(|config| config.litequic).unwrap_or_default();
    let surroundings = confinement_lines(&Confinement::read_confinement());
    Ok(print_stdout(probe_report(&net::probe_kernel(), &surroundings, litequic).as_bytes()))
}

fn probe_report(findings: &[ProbeResult], surroundings: &str, litequic: LiteQuic) -> String {
    let mut text = String::new();
    for ProbeResult { feature, family, outcome } in findings {
        let family = match family {
            Some(AddressFamily::V4) => ", IPv4",
            Some(AddressFamily::V6) => ", IPv6",
            None => "",
        };
        let name = format!("{}{family}", feature.feature_name());
        // Writing to a String cannot fail.
        let _ = match outcome {
            Ok(how) => writeln!(text, "{name:32} {how}"),
            Err(why) => writeln!(text, "{name:32} no: {why}"),
        };
    }
    text + "\n" + surroundings + "\nlitequic would use: " + &used_mechanisms(findings, litequic) + "\n"
}

/// Mechanisms that are used: configured, and available over some address family.
fn used_mechanisms(findings: &[ProbeResult], litequic: LiteQuic) -> String {
    let LiteQuic { io, receive_batch, gso, gro, ack_merge, receive_moderation, ack_frequency, congestion, .. } =
        litequic;
    let works = |feature| findings.iter().any(|finding| finding.feature == feature && finding.outcome.is_ok());
    let merge = match (io, ack_merge) {
        (Io::S2nQuic, _) => "no ACK merge",
        (_, true) => "ACK merge",
        (_, false) => "no ACK merge (switched off)",
    };
    let moderation = match (io, receive_moderation) {
        (Io::S2nQuic, _) => "no receive moderation",
        (_, true) => "receive moderation",
        (_, false) => "no receive moderation (switched off)",
    };
    let frequency = match (io, ack_frequency) {
        (Io::S2nQuic, AckFrequency::Adaptive) => "no ACK frequency".into(),
        (_, AckFrequency::Adaptive) => "adaptive ACK frequency".into(),
        (_, AckFrequency::Off) => "no ACK frequency (switched off)".into(),
        (_, AckFrequency::Fixed(packets)) => format!("an ACK every {packets} packets"),
    };
    let segments = match io {
        Io::S2nQuic => "10 segments",
        _ => "64 segments",
    };
    let say = |asked: bool, feature, yes: String, no: &str| match (asked, works(feature)) {
        (true, true) => yes,
        (true, false) => no.to_owned(),
        (false, _) => format!("{no} (switched off)"),
    };
    let io = match io {
        Io::IoUring if works(Feature::IoUring) => format!("io_uring, batches of {receive_batch}"),
        Io::IoUring => format!("epoll (io_uring is unavailable), batches of {receive_batch}"),
        Io::Auto | Io::Epoll => format!("epoll, batches of {receive_batch}"),
        Io::S2nQuic => "s2n-quic's own I/O".into(),
    };
    let gso = say(gso, Feature::Gso, format!("GSO of up to {segments}"), "no GSO");
    let gro = say(gro, Feature::Gro, "GRO".into(), "no GRO");
    let ecn = say(true, Feature::Ecn, "ECN".into(), "no ECN");
    let congestion = match congestion {
        Congestion::Cubic => "CUBIC",
        Congestion::Bbr => "BBR",
    };
    [&io, &gso, &gro, &ecn, merge, moderation, &frequency, congestion].join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(feature: Feature, outcome: Result<&str, &str>) -> ProbeResult {
        ProbeResult { feature, family: Some(AddressFamily::V4), outcome: outcome.map(Into::into).map_err(Into::into) }
    }

    #[test]
    fn used_mechanisms_follow_from_kernel_and_configuration() {
        let all = [Feature::Gso, Feature::Gro, Feature::Ecn].map(|feature| found(feature, Ok("yes")));
        let none = [found(Feature::Gso, Err("ENOPROTOOPT")), found(Feature::Gro, Err("ENOPROTOOPT"))];
        let ring = [Feature::IoUring, Feature::Gso].map(|feature| found(feature, Ok("yes")));
        let defaults = LiteQuic::default();
        let table = [
            (
                &all[..],
                defaults,
                "epoll, batches of 128, GSO of up to 64 segments, GRO, ECN, ACK merge, receive moderation, adaptive ACK frequency, CUBIC",
            ),
            (
                &none[..],
                defaults,
                "epoll, batches of 128, no GSO, no GRO, no ECN, ACK merge, receive moderation, adaptive ACK frequency, CUBIC",
            ),
            (
                &none[..],
                LiteQuic { io: Io::IoUring, ..defaults },
                "epoll (io_uring is unavailable), batches of 128, no GSO, no GRO, no ECN, ACK merge, receive moderation, adaptive ACK frequency, CUBIC",
            ),
            (
                &ring[..],
                LiteQuic { io: Io::IoUring, ..defaults },
                "io_uring, batches of 128, GSO of up to 64 segments, no GRO, no ECN, ACK merge, receive moderation, adaptive ACK frequency, CUBIC",
            ),
            (
                &all[..],
                LiteQuic { io: Io::S2nQuic, gso: true, gro: false, ..defaults },
                "s2n-quic's own I/O, GSO of up to 10 segments, no GRO (switched off), ECN, no ACK merge, no receive moderation, no ACK frequency, CUBIC",
            ),
            (
                &all[..],
                LiteQuic {
                    gso: false,
                    receive_batch: 7,
                    ack_merge: false,
                    receive_moderation: false,
                    ack_frequency: AckFrequency::Fixed(10),
                    ..defaults
                },
                "epoll, batches of 7, no GSO (switched off), GRO, ECN, no ACK merge (switched off), no receive moderation (switched off), an ACK every 10 packets, CUBIC",
            ),
        ];
        for (findings, litequic, expected) in table {
            assert_eq!(used_mechanisms(findings, litequic), expected);
        }
    }

    #[test]
    fn each_finding_is_a_line_with_its_reason() {
        let text = probe_report(
            &[found(Feature::Gso, Err("ENOPROTOOPT")), found(Feature::Ecn, Ok("yes"))],
            "",
            LiteQuic::default(),
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "GSO (UDP_SEGMENT), IPv4          no: ENOPROTOOPT");
        assert_eq!(lines[1], "ECN, IPv4                        yes");
    }
}
