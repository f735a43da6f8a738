//! `[laboratory]`: guards with one right value, for tests and measurements that have to reach them. They are neither in
//! the schema nor in the reference, and may change in any version (docs/adr/0041-fewer-keys.md).

use super::limits::{Limits, Sources};
use super::origin::OriginConfig;
use crate::reading::table::{keys, optional_key};
use crate::reading::value_kinds::{COUNT_RANGE, TIMEOUT_RANGE, duration_kind, number_kind, size_kind};
use std::{ops::RangeInclusive, time::Duration};

/// More is better left to the client, which can wait.
const REQUEST_BUFFER_RANGE: RangeInclusive<u64> = 0..=1024 * 1024;

/// What stands for the value of a key that is not set.
const UNSET_TEXT: &str = "default";

keys! {
    /// Values in place of constants; without a key, the constant.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Laboratory {
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

        /// [`Origin::request_buffer`], of every origin.
        request_buffer: Option<u64> = None, optional_key(size_kind(REQUEST_BUFFER_RANGE), UNSET_TEXT);
    }
}

impl Laboratory {
    /// What a warning says.
    pub(super) const EXPERIMENT_WARNING: &str = "is for experiments: its keys may change or go in any version";

    /// Puts the values in the places of the constants.
    pub(super) fn apply_overrides<'o>(
        self,
        limits: &mut Limits,
        sources: &mut Sources,
        origins: impl Iterator<Item = &'o mut OriginConfig>,
    ) {
        let Self { max_control_frames, max_small_frames, max_resets, rate_grace, source_ipv4_prefix, request_buffer } =
            self;
        limits.max_control_frames = max_control_frames.unwrap_or(limits.max_control_frames);
        limits.max_small_frames = max_small_frames.unwrap_or(limits.max_small_frames);
        limits.max_resets = max_resets.unwrap_or(limits.max_resets);
        limits.rate_grace = rate_grace.unwrap_or(limits.rate_grace);
        sources.ipv4_prefix = source_ipv4_prefix.unwrap_or(sources.ipv4_prefix);
        for origin in origins {
            origin.request_buffer = request_buffer.unwrap_or(origin.request_buffer);
        }
    }
}
