//! Recognizes variables of other programs in a value, which litequic would send unchanged.

/// Beginnings of nginx's variables.
const NGINX_VARIABLES: [&str; 20] = [
    "arg_",
    "args",
    "binary_remote_addr",
    "cookie_",
    "document_",
    "host",
    "http",
    "is_args",
    "proxy_",
    "query_string",
    "remote_",
    "request",
    "scheme",
    "sent_http_",
    "server_",
    "ssl_",
    "status",
    "time_",
    "upstream_",
    "uri",
];
/// Beginnings of Caddy's placeholders. Placeholders of one word are rejected by `Template::parse_variables`.
const CADDY_PLACEHOLDERS: [&str; 4] = ["{http.", "{env.", "{tls_", "{$"];

/// Returns the first variable of nginx (`$remote_addr`), HAProxy (`%[src]`) or Caddy (`{http.request.host}`) in `text`.
pub fn find_foreign_variable(text: &str) -> Option<&str> {
    text.char_indices().find_map(|(at, char)| {
        let rest = text.get(at..)?;
        let end = match char {
            '$' => {
                let name = rest.get(1..)?;
                let length = name.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(name.len());
                NGINX_VARIABLES.iter().any(|known| name.starts_with(known)).then_some(1 + length)
            }
            '%' if rest.starts_with("%[") => rest.find(']').map(|end| end + 1),
            '{' if CADDY_PLACEHOLDERS.iter().any(|known| rest.starts_with(known)) => rest.find('}').map(|end| end + 1),
            _ => None,
        };
        rest.get(..end?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_other_programs_are_found() {
        for (text, expected) in [
            ("$remote_addr", Some("$remote_addr")),
            ("for=$http_x_forwarded_for;", Some("$http_x_forwarded_for")),
            ("%[src]", Some("%[src]")),
            ("{http.request.host}", Some("{http.request.host}")),
            ("{client}", None),
            ("costs $5", None),
            ("$", None),
            ("100 %", None),
            ("%[src", None),
            ("", None),
        ] {
            assert_eq!(find_foreign_variable(text), expected, "{text}");
        }
    }
}
