//! Recognizes authentication of a connection rather than of a request (RFC 4559): what follows on such a connection
//! counts as the same client's. Pure.

use http::StatusCode;
use litequic_exchange::{Fields, name};

/// Authentication schemes by which an origin may authenticate a connection.
const CONNECTION_SCHEMES: [&[u8]; 2] = [b"ntlm", b"negotiate"];

/// Whether the origin may authenticate the connection: the `request` has such credentials, or the `response` wants
/// some.
pub(super) fn binds_connection(request: &Fields, status: StatusCode, response: &Fields) -> bool {
    let has_scheme = |value: &[u8]| {
        let scheme = value.split(|byte| *byte == b' ' || *byte == b',').next().unwrap_or_default();
        CONNECTION_SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known))
    };
    request.all_values(name::AUTHORIZATION).any(has_scheme)
        || status == StatusCode::UNAUTHORIZED && response.list_members(name::WWW_AUTHENTICATE).any(has_scheme)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_exchange::FieldNameRef;

    #[test]
    fn ntlm_and_negotiate_bind_a_connection() {
        let fields = |lines: &[(&'static str, &str)]| -> Fields {
            lines.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect()
        };
        for (request, status, response, expected) in [
            ("NTLM TlRMTVNTUAAB", 401, "NTLM TlRMTVNTUAAC", true),
            ("ntlm TlRMTVNTUAAD", 200, "", true),
            ("Negotiate YII=", 200, "", true),
            ("", 401, "NTLM", true),
            ("", 401, "Basic realm=\"a\", Negotiate", true),
            ("", 200, "NTLM", false),
            ("Basic YTpi", 401, "Basic realm=\"NTLM\"", false),
            ("Bearer ntlm", 200, "", false),
            ("", 401, "", false),
        ] {
            let request = fields(&[("authorization", request)]);
            let response = fields(&[("www-authenticate", response)]);
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(binds_connection(&request, status, &response), expected, "{request:?} {response:?}");
        }
    }
}
