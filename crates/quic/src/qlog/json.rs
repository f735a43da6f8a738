//! JSON, member by member, into a buffer: an event is written without an allocation for each of its values. Pure.

use std::{io::Write as _, time::Duration};

/// An object that is being written; complete once it is dropped.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

/// An array that is being written; complete once it is dropped.
pub(super) struct Array<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object at the end of `out`.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A text of litequic's own, which has no character that JSON escapes.
    pub(super) fn word(&mut self, name: &str, word: &str) -> &mut Self {
        let out = self.name(name);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
        self
    }

    /// A text of any characters.
    pub(super) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        // Writing a text to memory does not fail.
        let _ = serde_json::to_writer(self.name(name), text);
        self
    }

    /// A number.
    pub(super) fn number(&mut self, name: &str, number: impl Into<u64>) -> &mut Self {
        write(self.name(name), format_args!("{}", number.into()));
        self
    }

    /// A time in milliseconds, with the microseconds behind the point.
    pub(super) fn millis(&mut self, name: &str, time: Duration) -> &mut Self {
        let micros = time.as_micros();
        write(self.name(name), format_args!("{}.{:03}", micros / 1_000, micros % 1_000));
        self
    }

    /// True or false.
    pub(super) fn flag(&mut self, name: &str, is_on: bool) -> &mut Self {
        self.name(name).extend_from_slice(if is_on { b"true" } else { b"false" });
        self
    }

    /// Bytes, in hexadecimal.
    pub(super) fn hex(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        let out = self.name(name);
        out.push(b'"');
        for byte in bytes {
            write(out, format_args!("{byte:02x}"));
        }
        out.push(b'"');
        self
    }

    /// An object.
    pub(super) fn object(&mut self, name: &str, members: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        members(&mut Object::new(self.name(name)));
        self
    }

    /// An array.
    pub(super) fn array(&mut self, name: &str, items: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        items(&mut Array::new(self.name(name)));
        self
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        self.out.push(b'}');
    }
}

impl<'a> Array<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'[');
        Self { out, is_empty: true }
    }

    fn next(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out
    }

    /// An object.
    pub(super) fn object(&mut self, members: impl FnOnce(&mut Object<'_>)) {
        members(&mut Object::new(self.next()));
    }

    /// A text of litequic's own.
    pub(super) fn word(&mut self, word: &str) {
        let out = self.next();
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    /// One number, or two.
    pub(super) fn range(&mut self, low: u64, high: u64) {
        let out = self.next();
        match low == high {
            true => write(out, format_args!("[{low}]")),
            false => write(out, format_args!("[{low},{high}]")),
        }
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        self.out.push(b']');
    }
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_items_are_separated_and_texts_escaped() {
        let mut out = Vec::new();
        Object::new(&mut out)
            .word("a", "b")
            .text("t", "\"\n\u{1}ü")
            .number("n", 7_u32)
            .millis("m", Duration::from_micros(1_002_003))
            .flag("f", true)
            .hex("h", &[0, 0xab])
            .object("o", |_| {})
            .array("r", |ranges| {
                ranges.range(1, 1);
                ranges.range(3, 9);
                ranges.word("w");
                ranges.object(|one| _ = one.flag("x", false));
            });
        let expected = r#"{"a":"b","t":"\"\n\u0001ü","n":7,"m":1002.003,"f":true,"h":"00ab","o":{},"r":[[1],[3,9],"w",{"x":false}]}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
