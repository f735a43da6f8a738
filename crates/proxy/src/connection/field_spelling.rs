//! Spells the names of a request's fields for an origin that compares bytes: `origin.field_names`. Pure.

use litequic_config::OriginConfig;

/// Spellings of field names.
#[derive(Debug)]
pub(crate) struct FieldSpelling {
    is_title_case: bool,
    exact: Vec<String>,
}

impl FieldSpelling {
    /// The spellings that `origin` has; `None` if all names are in lower case.
    pub(crate) fn from_config(origin: &OriginConfig) -> Option<Self> {
        let (title, exact): (Vec<_>, Vec<_>) =
            origin.field_names.iter().cloned().partition(|name| name == OriginConfig::TITLE_CASE);
        (!origin.field_names.is_empty()).then_some(Self { is_title_case: !title.is_empty(), exact })
    }

    /// Spells the names in `head`, which has a first line.
    pub(super) fn respell_names(&self, head: &mut [u8]) {
        for line in head.split_mut(|byte| *byte == b'\n').skip(1) {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or_default();
            let Some(name) = line.get_mut(..colon) else { continue };
            if let Some(exact) = self.exact.iter().find(|exact| exact.as_bytes().eq_ignore_ascii_case(name)) {
                name.copy_from_slice(exact.as_bytes());
            } else if self.is_title_case {
                for part in name.split_mut(|byte| *byte == b'-') {
                    part.iter_mut().take(1).for_each(|byte| byte.make_ascii_uppercase());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_and_values_stay() {
        let head = "POST /a:b HTTP/1.1\r\nhost: a:80\r\ncontent-length: 5\r\nsoapaction: \"x-y: z\"\r\nx--a-: \r\n\r\n";
        for (names, expected) in [
            (&["title"][..], "Host: a:80\r\nContent-Length: 5\r\nSoapaction: \"x-y: z\"\r\nX--A-: \r\n\r\n"),
            (&["SOAPAction", "title"], "Host: a:80\r\nContent-Length: 5\r\nSOAPAction: \"x-y: z\"\r\nX--A-: \r\n\r\n"),
            (&["SOAPAction"], "host: a:80\r\ncontent-length: 5\r\nSOAPAction: \"x-y: z\"\r\nx--a-: \r\n\r\n"),
        ] {
            let field_names = names.iter().map(|name| (*name).to_owned()).collect();
            let origin = OriginConfig { field_names, ..OriginConfig::default() };
            let mut head = head.as_bytes().to_vec();
            FieldSpelling::from_config(&origin).unwrap().respell_names(&mut head);
            assert_eq!(String::from_utf8(head).unwrap(), format!("POST /a:b HTTP/1.1\r\n{expected}"));
        }
        assert!(FieldSpelling::from_config(&OriginConfig::default()).is_none());
    }
}
