//! Defines the priority of one response (RFC 9218 §4).

/// Priority of one response among the responses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// Urgency from 0, the most urgent, to [`MAX_URGENCY`] (RFC 9218 §4.1).
    pub urgency: u8,
    /// Whether the client can use a part of the response before the whole has arrived (RFC 9218 §4.2).
    pub incremental: bool,
}

/// The least urgent value (RFC 9218 §4.1).
pub const MAX_URGENCY: u8 = 7;

impl Priority {
    /// Default of a request without a signal (RFC 9218 §4), on a connection that has brought one.
    pub const DEFAULT: Self = Self { urgency: 3, incremental: false };
    /// Priority of a request on a connection that has brought no signal. The client may not support priorities, so its
    /// responses share the connection.
    pub const UNSIGNALLED: Self = Self { urgency: 3, incremental: true };

    /// Whether all bytes at hand of the stream `id` with this priority are sent before those of `other_id` with
    /// `other`.
    pub const fn precedes(self, id: u64, other: Self, other_id: u64) -> bool {
        self.urgency < other.urgency
            || self.urgency == other.urgency && !self.incremental && !other.incremental && id < other_id
    }

    /// Encodes the priority as a number.
    pub fn pack(self) -> u64 {
        u64::from(self.urgency) | u64::from(self.incremental) << 3
    }

    /// Decodes a priority that [`pack`](Self::pack) has encoded.
    pub fn unpack(number: u64) -> Self {
        Self { urgency: u8::try_from(number & 7).unwrap_or(MAX_URGENCY), incremental: number & 8 > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_a_number_and_back() {
        for urgency in 0..=MAX_URGENCY {
            for incremental in [false, true] {
                let priority = Priority { urgency, incremental };
                assert_eq!(Priority::unpack(priority.pack()), priority);
            }
        }
    }

    #[test]
    fn precedence_is_by_urgency_then_by_stream_unless_incremental() {
        let of = |urgency, incremental| Priority { urgency, incremental };
        for (first, second, precedes) in [
            ((of(0, false), 8), (of(1, false), 4), true),
            ((of(0, true), 8), (of(1, false), 4), true),
            ((of(1, false), 4), (of(0, true), 8), false),
            ((of(3, false), 4), (of(3, false), 8), true),
            ((of(3, false), 8), (of(3, false), 4), false),
            ((of(3, true), 4), (of(3, false), 8), false),
            ((of(3, false), 4), (of(3, true), 8), false),
            ((of(3, true), 4), (of(3, true), 8), false),
        ] {
            assert_eq!(first.0.precedes(first.1, second.0, second.1), precedes, "{first:?} {second:?}");
        }
    }
}
