//! Answers with fixed responses.

use crate::answer::StaticPage;
use http::StatusCode;
use litequic_config::{self as config, FixedBody};
use litequic_exchange::{Body, Response, name};

/// Fixed response of a route.
#[derive(Debug)]
pub(crate) struct RespondRule {
    status: StatusCode,
    page: Option<StaticPage>,
}

impl RespondRule {
    /// The response of `respond`; `file` is the content of its file.
    pub(super) fn new(respond: &config::FixedResponse, file: Option<StaticPage>) -> Self {
        let page = match &respond.body {
            FixedBody::None => None,
            FixedBody::Text(text) => Some(StaticPage::from_text(text)),
            FixedBody::File(_) => file,
        };
        Self { status: respond.status, page }
    }

    /// Whether a client that requested a protocol switch by extended CONNECT would take it for success (RFC 9220 §3).
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// The response. Its length is that of the whole body, also if the front end leaves that out, as with HEAD (RFC
    /// 9110 §8.6).
    pub(crate) fn fixed_response(&self, id: &str) -> Response {
        let mut response = Response::new(self.status, Body::empty());
        match &self.page {
            Some(page) => page.set_page_body(&mut response),
            None if config::FixedResponse::may_have_body(self.status) => {
                response.fields.set_number_field(name::CONTENT_LENGTH, 0);
            }
            None => {}
        }
        response.fields.set_field(name::X_REQUEST_ID, id.as_bytes());
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use litequic_exchange::FieldNameRef;

    fn response(status: u16, body: FixedBody) -> Response {
        let respond = config::FixedResponse { status: StatusCode::from_u16(status).unwrap(), body };
        RespondRule::new(&respond, Some(StaticPage::from_text("a file"))).fixed_response("7f3a")
    }

    #[test]
    fn the_length_and_the_type_are_the_bodys() {
        for (status, body, length, kind) in [
            (200, FixedBody::Text("ok\n".into()), Some("3"), Some("text/plain; charset=utf-8")),
            (503, FixedBody::File("x.txt".into()), Some("6"), Some("text/plain; charset=utf-8")),
            (200, FixedBody::Text(String::new()), Some("0"), Some("text/plain; charset=utf-8")),
            (404, FixedBody::None, Some("0"), None),
            (204, FixedBody::None, None, None),
            (304, FixedBody::None, None, None),
        ] {
            let response = response(status, body);
            let field = |name| {
                response
                    .fields
                    .get(FieldNameRef::from_lower_case_token(name))
                    .map(|value| str::from_utf8(value).unwrap())
            };
            assert_eq!((response.status.as_u16(), field("content-length")), (status, length), "{status}");
            assert_eq!(field("content-type"), kind, "{status}");
            assert_eq!(field("x-request-id"), Some("7f3a"));
            let size = response.body.size_hint().exact().unwrap();
            assert_eq!(size.to_string(), length.unwrap_or("0"), "{status}");
        }
    }
}
