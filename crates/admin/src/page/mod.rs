//! Builds the status page: one document with style and script, which may load nothing else.

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderValue;
use std::sync::LazyLock;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const PAGE: &str = include_str!("page.html");

/// The complete document, with style and script.
pub(super) static DOCUMENT: LazyLock<String> =
    LazyLock::new(|| PAGE.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT));

/// Content security policy (CSP3): the page's style and script, by their hashes, and requests to its own origin.
pub(super) static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    // Base64 is valid in any field value.
    HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_document_that_loads_nothing_else() {
        assert!(DOCUMENT.contains(STYLE) && DOCUMENT.contains(SCRIPT));
        for load in ["http:", "https:", "src=", "href=", "url(", "@import", "innerHTML", "eval("] {
            assert!(!DOCUMENT.contains(load), "{load}");
        }
        // Inline event handlers and style attributes would violate the policy.
        assert!(!DOCUMENT.contains(" onclick=") && !PAGE.contains(" style="));
        assert!(POLICY.to_str().unwrap().starts_with("default-src 'none'; style-src 'sha256-"));
    }

    #[test]
    fn every_table_has_a_caption_and_every_section_a_name() {
        assert_eq!(PAGE.matches("<table").count(), PAGE.matches("<caption>").count());
        assert_eq!(PAGE.matches("<section").count(), PAGE.matches("<section aria-labelledby=").count());
        assert_eq!(PAGE.matches("<th ").count(), PAGE.matches("<th scope=").count());
    }
}
