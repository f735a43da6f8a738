//! Formats an IP address.

use std::{fmt::Write as _, net::IpAddr};

/// Appends `address` to `text`. IPv4 is formatted here: the standard library's formatting costs as much as the rest of
/// a `Forwarded` element.
pub fn write_address(text: &mut String, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // Writing to a String cannot fail.
        let _ = write!(text, "{address}");
        return;
    };
    for (place, byte) in address.octets().into_iter().enumerate() {
        if place > 0 {
            text.push('.');
        }
        for (unit, above) in [(100, 100), (10, 10), (1, 0)] {
            if byte >= above {
                text.push(char::from(b'0' + byte / unit % 10));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        let all = (0..=255).flat_map(|n| [[n, 0, 10, 255], [1, n, n, 99]]).map(IpAddr::from);
        for address in all.chain(["2001:db8::1", "::", "::ffff:192.0.2.1"].map(|text| text.parse().unwrap())) {
            let mut text = String::from("for=");
            write_address(&mut text, address);
            assert_eq!(text, format!("for={address}"));
        }
    }
}
