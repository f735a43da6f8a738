//! docs/how-to/set-security-headers.md.

use super::{Guide, machine::Machine};
use crate::support::needs;

#[test]
fn every_response_has_the_fields_and_litequics_own_errors_too() {
    let Some(()) = needs::programs(&["curl", "nginx"]) else { return };
    let guide = Guide::read("set-security-headers");
    let Some(machine) = Machine::with_certificate(&["example.com"]) else { return };
    let _origin = machine.nginx(8080, "a page");
    let _litequic = machine.litequic(&guide.block("toml", "strict-transport-security"));
    for (command, status) in [("https://example.com:8443/  ", "200"), ("https://example.com:8443/%zz", "400")] {
        let head = machine.run(&guide.command(command)).to_lowercase();
        assert!(head.starts_with(&format!("http/2 {status}")), "{head}");
        for field in [
            "strict-transport-security: max-age=300",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: strict-origin-when-cross-origin",
            "content-security-policy: default-src 'self'; frame-ancestors 'none'",
        ] {
            assert!(head.contains(field), "{field}: {head}");
        }
        assert!(!head.contains("\nserver: "), "{head}");
    }
}
