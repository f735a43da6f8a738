//! What a comparison of two configurations finds, key by key. Tables add to it (`table`), `diff` begins it. Pure.

/// The changes found.
#[derive(Default)]
pub(crate) struct Changes {
    /// What is the same too, with its value.
    pub(crate) lists_all: bool,
    /// The path of each key that was found, and from what to what.
    pub(crate) found: Vec<(String, String)>,
}

impl Changes {
    pub(crate) fn push_change(&mut self, key: &str, what: String) {
        self.found.push((key.into(), what));
    }

    /// Compares a value, which is shown by `show`.
    pub(crate) fn compare_shown<T: PartialEq>(&mut self, key: &str, old: &T, new: &T, show: impl Fn(&T) -> String) {
        if self.lists_all {
            self.push_change(key, show(new));
        } else if old != new {
            let (old, new) = (shorten_list(&show(old)), shorten_list(&show(new)));
            // A value that is not shown, or was cut off.
            self.push_change(
                key,
                if old == new { format!("{new}, with other values") } else { format!("{old} → {new}") },
            );
        }
    }
}

/// The beginning of a long list: a line of the log is limited.
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
