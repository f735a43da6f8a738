//! A copy of a request's head for a retry while hyper has it. Most are never used: the fields are in one piece of
//! memory, as a [`HeaderMap`] of their own would cost a clone of each name and value. Pure.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, request};

/// Everything of a head that the origin sees.
#[derive(Debug)]
pub(super) struct Copy {
    method: Method,
    uri: Uri,
    version: Version,
    /// Names and values, one after the other.
    text: Vec<u8>,
    /// The offsets of its names' and values' ends.
    ends: Vec<(usize, usize)>,
}

impl Copy {
    /// A copy of `head`.
    pub(super) fn of(head: &request::Parts) -> Self {
        let fields = &head.headers;
        let room = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let (mut text, mut ends) = (Vec::with_capacity(room), Vec::with_capacity(fields.len()));
        for (name, value) in fields {
            text.extend_from_slice(name.as_str().as_bytes());
            let end = text.len();
            text.extend_from_slice(value.as_bytes());
            ends.push((end, text.len()));
        }
        Self { method: head.method.clone(), uri: head.uri.clone(), version: head.version, text, ends }
    }

    /// The head again.
    pub(super) fn restore(self) -> request::Parts {
        let mut head = Request::new(()).into_parts().0;
        (head.method, head.uri, head.version) = (self.method, self.uri, self.version);
        head.headers = HeaderMap::with_capacity(self.ends.len());
        let mut begin = 0;
        for (middle, end) in self.ends {
            let name = self.text.get(begin..middle).and_then(|name| HeaderName::from_bytes(name).ok());
            let value = self.text.get(middle..end).and_then(|value| HeaderValue::from_bytes(value).ok());
            // They were a name and a value before.
            if let (Some(name), Some(value)) = (name, value) {
                head.headers.append(name, value);
            }
            begin = end;
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_restored_is_what_was_copied() {
        let request = Request::builder()
            .method("PURGE")
            .uri("/a?b")
            .header("host", "one")
            .header("x-list", "1")
            .header("accept", "")
            .header("x-list", HeaderValue::from_bytes(b"\xe4\t2").unwrap());
        let head = request.body(()).unwrap().into_parts().0;
        let again = Copy::of(&head).restore();
        assert_eq!((&again.method, &again.uri, again.version), (&head.method, &head.uri, head.version));
        assert_eq!(again.headers, head.headers);
        assert_eq!(again.headers.get_all("x-list").iter().count(), 2);
    }
}
