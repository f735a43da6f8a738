//! The verdict of a server's health checks: it takes several in a row to change it, but for the very first.

/// Checks of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streak {
    healthy: u32,
    unhealthy: u32,
    up: bool,
    /// No result yet: the next check decides by itself.
    unknown: bool,
    /// Consecutive checks with another result than `up`.
    against: u32,
}

impl Streak {
    /// The streak of a server that is presumed `up`; `healthy` consecutive checks that succeed, or `unhealthy` that
    /// fail, change that.
    pub(crate) const fn new(healthy: u32, unhealthy: u32, up: bool, unknown: bool) -> Self {
        Self { healthy, unhealthy, up, unknown, against: 0 }
    }

    /// A check succeeded (`well`), or failed. Returns the new state if it has changed.
    pub(crate) fn add(&mut self, well: bool) -> Option<bool> {
        let first = std::mem::replace(&mut self.unknown, false);
        if well == self.up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if well { self.healthy } else { self.unhealthy };
        if self.against < needed && !first {
            return None;
        }
        (self.up, self.against) = (well, 0);
        Some(well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_changes_its_state_after_a_streak_of_checks() {
        for (what, unknown, checks, expected) in [
            ("two failures of three", false, "--", ".."),
            ("three failures", false, "---", "..d"),
            ("interrupted", false, "--+--", "....."),
            ("down and up again", false, "---++", "..d.u"),
            ("half way up", false, "---+-+", "..d..."),
            ("the first fails", true, "-", "d"),
            ("the first goes well", true, "+---", "...d"),
            ("the first fails, the next goes well", true, "-++", "d.u"),
        ] {
            let mut streak = Streak::new(2, 3, true, unknown);
            let said: String = checks
                .chars()
                .map(|check| match streak.add(check == '+') {
                    None => '.',
                    Some(true) => 'u',
                    Some(false) => 'd',
                })
                .collect();
            assert_eq!(said, expected, "{what}");
        }
    }
}
