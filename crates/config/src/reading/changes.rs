//! Collects the differences of two configurations, key by key; `diff` starts the comparison, and tables add to the
//! list. Pure.

/// The differences found so far.
#[derive(Default)]
pub(crate) struct Changes {
    /// Whether equal values are listed as well.
    pub(crate) lists_all: bool,
    /// Path and description of each difference.
    pub(crate) found: Vec<(String, String)>,
}

impl Changes {
    pub(crate) fn push_change(&mut self, key: &str, what: String) {
        self.found.push((key.into(), what));
    }

    /// Compares a value, and formats it by `show`.
    pub(crate) fn compare_shown<T: PartialEq>(&mut self, key: &str, old: &T, new: &T, show: impl Fn(&T) -> String) {
        if self.lists_all {
            self.push_change(key, show(new));
        } else if old != new {
            let (old, new) = (shorten_list(&show(old)), shorten_list(&show(new)));
            // The values look equal: they are hidden, or were shortened.
            self.push_change(
                key,
                if old == new { format!("{new}, with other values") } else { format!("{old} → {new}") },
            );
        }
    }
}

/// Shortens a long list for a line of the log.
pub(crate) fn shorten_list(shown: &str) -> String {
    const MAX_SHOWN_VALUES: usize = 4;
    let values: Vec<&str> = shown.split(", ").collect();
    match values.get(..MAX_SHOWN_VALUES) {
        Some(first) if values.len() > MAX_SHOWN_VALUES => {
            format!("{}, and {} more", first.join(", "), values.len() - MAX_SHOWN_VALUES)
        }
        _ => shown.into(),
    }
}
