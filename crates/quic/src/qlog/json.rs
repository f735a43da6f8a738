//! Writes JSON member by member into a buffer: an event needs no allocation for each of its values. Pure.

use std::{io::Write as _, time::Duration};

/// Writer of an object, which is complete when the writer is dropped.
pub(super) struct JsonObject<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

/// Writer of an array, which is complete when the writer is dropped.
pub(super) struct JsonArray<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> JsonObject<'a> {
    /// Begins an object at the end of `out`.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    fn write_name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Adds a text of litequic's own, without characters that JSON escapes.
    pub(super) fn add_word(&mut self, name: &str, word: &str) -> &mut Self {
        let out = self.write_name(name);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
        self
    }

    /// Adds a text of any characters.
    pub(super) fn add_text(&mut self, name: &str, text: &str) -> &mut Self {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(self.write_name(name), text);
        self
    }

    pub(super) fn add_number(&mut self, name: &str, number: impl Into<u64>) -> &mut Self {
        write_formatted(self.write_name(name), format_args!("{}", number.into()));
        self
    }

    /// Adds a time in milliseconds, with three decimals.
    pub(super) fn add_millis(&mut self, name: &str, time: Duration) -> &mut Self {
        let micros = time.as_micros();
        write_formatted(self.write_name(name), format_args!("{}.{:03}", micros / 1_000, micros % 1_000));
        self
    }

    pub(super) fn add_flag(&mut self, name: &str, is_on: bool) -> &mut Self {
        self.write_name(name).extend_from_slice(if is_on { b"true" } else { b"false" });
        self
    }

    /// Adds bytes in hexadecimal.
    pub(super) fn add_hex(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        let out = self.write_name(name);
        out.push(b'"');
        for byte in bytes {
            write_formatted(out, format_args!("{byte:02x}"));
        }
        out.push(b'"');
        self
    }

    /// Adds an object, whose members `members` writes.
    pub(super) fn add_object(&mut self, name: &str, members: impl FnOnce(&mut JsonObject<'_>)) -> &mut Self {
        members(&mut JsonObject::new(self.write_name(name)));
        self
    }

    /// Adds an array, whose items `items` writes.
    pub(super) fn add_array(&mut self, name: &str, items: impl FnOnce(&mut JsonArray<'_>)) -> &mut Self {
        items(&mut JsonArray::new(self.write_name(name)));
        self
    }
}

impl Drop for JsonObject<'_> {
    fn drop(&mut self) {
        self.out.push(b'}');
    }
}

impl<'a> JsonArray<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'[');
        Self { out, is_empty: true }
    }

    fn begin_item(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out
    }

    /// Appends an object, whose members `members` writes.
    pub(super) fn push_object(&mut self, members: impl FnOnce(&mut JsonObject<'_>)) {
        members(&mut JsonObject::new(self.begin_item()));
    }

    /// Appends a text of litequic's own, without characters that JSON escapes.
    pub(super) fn push_word(&mut self, word: &str) {
        let out = self.begin_item();
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    /// Appends an array of one number, or of both if they differ.
    pub(super) fn push_range(&mut self, low: u64, high: u64) {
        let out = self.begin_item();
        match low == high {
            true => write_formatted(out, format_args!("[{low}]")),
            false => write_formatted(out, format_args!("[{low},{high}]")),
        }
    }
}

impl Drop for JsonArray<'_> {
    fn drop(&mut self) {
        self.out.push(b']');
    }
}

fn write_formatted(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_items_are_separated_and_texts_escaped() {
        let mut out = Vec::new();
        JsonObject::new(&mut out)
            .add_word("a", "b")
            .add_text("t", "\"\n\u{1}ü")
            .add_number("n", 7_u32)
            .add_millis("m", Duration::from_micros(1_002_003))
            .add_flag("f", true)
            .add_hex("h", &[0, 0xab])
            .add_object("o", |_| {})
            .add_array("r", |ranges| {
                ranges.push_range(1, 1);
                ranges.push_range(3, 9);
                ranges.push_word("w");
                ranges.push_object(|one| _ = one.add_flag("x", false));
            });
        let expected = r#"{"a":"b","t":"\"\n\u0001ü","n":7,"m":1002.003,"f":true,"h":"00ab","o":{},"r":[[1],[3,9],"w",{"x":false}]}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
