//! Changes congestion control for the laboratory: a constant window (`window`; LiteQUIC, figure 3), and BBR's gain
//! (`validation`; *Containing the Cambrian Explosion in QUIC Congestion Control*, figure 5). Builds with the feature
//! `laboratory` include this module, and show that in their version.

use s2n_quic::provider::congestion_controller::bbr;
use std::{env, fmt::Display, str::FromStr, sync::LazyLock};

static WINDOW: LazyLock<Option<u32>> = LazyLock::new(|| variable("LITEQUIC_FIXED_WINDOW"));
static GAIN: LazyLock<Option<u32>> = LazyLock::new(|| variable("LITEQUIC_BBR_GAIN"));

/// Reads a number from an environment variable; another value is logged and ignored.
fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let value = text.parse();
    if let Err(error) = &value {
        tracing::error!(%text, %error, "ignoring {name}: not a number");
    }
    value.ok()
}

/// Configured constant window in bytes, if any.
pub(super) fn window() -> Option<u32> {
    *WINDOW
}

/// Sets BBR's window gain in ProbeBW to the configured value, in percent of the estimated bandwidth-delay product.
pub(super) fn scaled(builder: bbr::Builder) -> bbr::Builder {
    match *GAIN {
        Some(gain) => builder.with_probe_bw_cwnd_gain(gain),
        None => builder,
    }
}
