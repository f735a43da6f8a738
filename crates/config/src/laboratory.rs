//! Defines `[laboratory]`: limits with one right value, which tests and measurements have to change. They are neither
//! in the schema nor in the reference, and may change in any version (docs/adr/0041-fewer-keys.md).

use super::acme::Acme;
use super::limits::{Limits, Sources};
use super::origin::OriginConfig;
use crate::reading::table::{keys, optional_key};
use crate::reading::value_kinds::{COUNT_RANGE, DAY, TIMEOUT_RANGE, duration_kind, number_kind, size_kind};
use std::{ops::RangeInclusive, time::Duration};

/// Larger buffers gain nothing: the client can wait.
const REQUEST_BUFFER_RANGE: RangeInclusive<u64> = 0..=1024 * 1024;

/// Shown value of an unset key.
const UNSET_TEXT: &str = "default";

keys! {
    /// Values that replace constants in experiments: `[laboratory]`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Laboratory {
        /// [`Limits::max_handshakes`].
        max_handshakes: Option<u32> = None, optional_key(number_kind(COUNT_RANGE), UNSET_TEXT);

        /// [`Limits::max_control_frames`].
        max_control_frames: Option<u32> = None, optional_key(number_kind(COUNT_RANGE), UNSET_TEXT);

        /// [`Limits::max_small_frames`].
        max_small_frames: Option<u32> = None, optional_key(number_kind(COUNT_RANGE), UNSET_TEXT);

        /// [`Limits::max_resets`].
        max_resets: Option<u32> = None, optional_key(number_kind(COUNT_RANGE), UNSET_TEXT);

        /// [`Limits::rate_grace`].
        rate_grace: Option<Duration> = None, optional_key(duration_kind(TIMEOUT_RANGE), UNSET_TEXT);

        /// [`Sources::ipv4_prefix`].
        source_ipv4_prefix: Option<u8> = None, optional_key(number_kind(1..=32), UNSET_TEXT);

        /// [`OriginConfig::dns_interval`], of every origin.
        dns_interval: Option<Duration> = None, optional_key(duration_kind(TIMEOUT_RANGE), UNSET_TEXT);

        /// [`Acme::dns_wait`], of every table.
        dns_wait: Option<Duration> = None, optional_key(duration_kind(Duration::ZERO..=DAY), UNSET_TEXT);

        /// [`OriginConfig::request_buffer`], of every origin.
        request_buffer: Option<u64> = None, optional_key(size_kind(REQUEST_BUFFER_RANGE), UNSET_TEXT);
    }
}

impl Laboratory {
    /// Warning about every file with this table.
    pub(super) const EXPERIMENT_WARNING: &str = "is for experiments: its keys may change or be removed in any version";

    /// Replaces the constants by the values that are set.
    pub(super) fn apply_overrides<'o>(
        self,
        limits: &mut Limits,
        sources: &mut Sources,
        acme: &mut [Acme],
        origins: impl Iterator<Item = &'o mut OriginConfig>,
    ) {
        let Self {
            max_handshakes,
            max_control_frames,
            max_small_frames,
            max_resets,
            rate_grace,
            source_ipv4_prefix,
            dns_interval,
            dns_wait,
            request_buffer,
        } = self;
        *limits = limits.with_max_handshakes(max_handshakes.unwrap_or(limits.max_handshakes));
        limits.max_control_frames = max_control_frames.unwrap_or(limits.max_control_frames);
        limits.max_small_frames = max_small_frames.unwrap_or(limits.max_small_frames);
        limits.max_resets = max_resets.unwrap_or(limits.max_resets);
        limits.rate_grace = rate_grace.unwrap_or(limits.rate_grace);
        sources.ipv4_prefix = source_ipv4_prefix.unwrap_or(sources.ipv4_prefix);
        for table in acme {
            table.dns_wait = dns_wait.unwrap_or(table.dns_wait);
        }
        for origin in origins {
            origin.dns_interval = dns_interval.unwrap_or(origin.dns_interval);
            origin.request_buffer = request_buffer.unwrap_or(origin.request_buffer);
        }
    }
}
