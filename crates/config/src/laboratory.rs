//! `[laboratory]`: guards with one right value, for tests and measurements that have to reach them. They are neither in
//! the schema nor in the reference, and may change in any version (docs/adr/0041-fewer-keys.md).

use super::limits::{Limits, Sources};
use super::origin::Origin;
use crate::reading::table::{keys, optional};
use crate::reading::values::{COUNT, TIMEOUT, duration, number, size};
use std::{ops::RangeInclusive, time::Duration};

/// More is better left to the client, which can wait.
const REQUEST_BUFFER: RangeInclusive<u64> = 0..=1024 * 1024;

/// What stands for the value of a key that is not set.
const DEFAULT: &str = "default";

keys! {
    /// Values in place of constants; without a key, the constant.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Laboratory {
        /// [`Limits::max_control_frames`].
        max_control_frames: Option<u32> = None, optional(number(COUNT), DEFAULT);

        /// [`Limits::max_small_frames`].
        max_small_frames: Option<u32> = None, optional(number(COUNT), DEFAULT);

        /// [`Limits::max_resets`].
        max_resets: Option<u32> = None, optional(number(COUNT), DEFAULT);

        /// [`Limits::rate_grace`].
        rate_grace: Option<Duration> = None, optional(duration(TIMEOUT), DEFAULT);

        /// [`Sources::ipv4_prefix`].
        source_ipv4_prefix: Option<u8> = None, optional(number(1..=32), DEFAULT);

        /// [`Origin::request_buffer`], of every origin.
        request_buffer: Option<u64> = None, optional(size(REQUEST_BUFFER), DEFAULT);
    }
}

impl Laboratory {
    /// What a warning says.
    pub(super) const WARNING: &str = "is for experiments: its keys may change or go in any version";

    /// Puts the values in the places of the constants.
    pub(super) fn apply<'o>(
        self,
        limits: &mut Limits,
        sources: &mut Sources,
        origins: impl Iterator<Item = &'o mut Origin>,
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
