//! Changes of congestion control for the laboratory: a constant window (`window`; LiteQUIC, figure 3), and BBR's gain
//! (`validation`; *Containing the Cambrian Explosion in QUIC Congestion Control*, figure 5). Builds with the feature
//! `laboratory` have it, and show it in their version.

use s2n_quic::provider::congestion_controller::bbr;
use std::{env, fmt::Display, str::FromStr, sync::LazyLock};

static WINDOW: LazyLock<Option<u32>> = LazyLock::new(|| variable("LITEQUIC_FIXED_WINDOW"));
static GAIN: LazyLock<Option<u32>> = LazyLock::new(|| variable("LITEQUIC_BBR_GAIN"));

/// A variable of the environment; one that is not a number is logged, and ignored.
fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let value = text.parse();
    if let Err(error) = &value {
        tracing::error!(%text, %error, "ignoring {name}: not a number");
    }
    value.ok()
}

/// The window in bytes, where one is set.
pub(super) fn window() -> Option<u32> {
    *WINDOW
}

/// BBR with the gain of its window in ProbeBW that is set, in percent of the estimated bandwidth-delay product.
pub(super) fn scaled(builder: bbr::Builder) -> bbr::Builder {
    match *GAIN {
        Some(gain) => builder.with_probe_bw_cwnd_gain(gain),
        None => builder,
    }
}
