//! What a comparison of two configurations finds, key by key. Tables add to it (`table`), `diff` begins it. Pure.

/// The changes found.
#[derive(Default)]
pub(crate) struct Changes {
    /// What is the same too, with its value.
    pub(crate) all: bool,
    /// The path of each key that was found, and from what to what.
    pub(crate) found: Vec<(String, String)>,
}

impl Changes {
    pub(crate) fn push(&mut self, key: &str, what: String) {
        self.found.push((key.into(), what));
    }

    /// Compares a value, which is shown by `show`.
    pub(crate) fn value<T: PartialEq>(&mut self, key: &str, old: &T, new: &T, show: impl Fn(&T) -> String) {
        if self.all {
            self.push(key, show(new));
        } else if old != new {
            let (old, new) = (cut(&show(old)), cut(&show(new)));
            // A value that is not shown, or was cut off.
            self.push(key, if old == new { format!("{new}, with other values") } else { format!("{old} → {new}") });
        }
    }
}

/// The beginning of a long list: a line of the log is limited.
pub(crate) fn cut(shown: &str) -> String {
    const SHOWN: usize = 4;
    let values: Vec<&str> = shown.split(", ").collect();
    match values.get(..SHOWN) {
        Some(first) if values.len() > SHOWN => format!("{}, and {} more", first.join(", "), values.len() - SHOWN),
        _ => shown.into(),
    }
}
