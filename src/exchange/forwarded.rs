//! What the origin is told about a client, as text that is written once for a connection and an authority rather than
//! for each request. Pure.

use http::HeaderValue;
use std::{cell::RefCell, net::IpAddr};

/// The values of the fields that tell an origin about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// The `forwarded-element` (RFC 7239 §4).
    pub element: HeaderValue,
    /// The client's address alone: `X-Forwarded-For`.
    pub address: HeaderValue,
    /// The authority: `X-Forwarded-Host`.
    pub host: HeaderValue,
}

/// The values that were written last for a client, and for which address and authority.
#[derive(Debug, Clone, Default)]
pub struct LastForwarded(RefCell<Option<(IpAddr, Forwarded)>>);

impl LastForwarded {
    /// The values for `address` and `authority`, in exactly this spelling: the last ones if they are for these, or else
    /// those that `write` returns. `Forwarded::host` is the authority.
    pub fn of(&self, address: IpAddr, authority: &str, write: impl FnOnce() -> Forwarded) -> Forwarded {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some((known, values)) if *known == address && values.host.as_bytes() == authority.as_bytes() => {
                values.clone()
            }
            _ => last.insert((address, write())).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_hold_for_one_address_and_one_spelling_of_an_authority() {
        let last = LastForwarded::default();
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        for (address, authority, is_written) in [
            ([192, 0, 2, 1], "a.test", true),
            ([192, 0, 2, 1], "a.test", false),
            ([192, 0, 2, 2], "a.test", true),
            ([192, 0, 2, 2], "A.test", true),
            ([192, 0, 2, 2], "A.test", false),
            ([192, 0, 2, 2], "a.test", true),
            ([192, 0, 2, 1], "a.test", true),
        ] {
            let mut written = false;
            let address = IpAddr::from(address);
            let values = last.of(address, authority, || {
                written = true;
                let (element, host) = (value(&format!("for={address};host={authority}")), value(authority));
                Forwarded { element, address: value(&address.to_string()), host }
            });
            assert_eq!((written, values.host.to_str().unwrap()), (is_written, authority));
            assert_eq!(values.address, address.to_string());
            assert_eq!(values.element, format!("for={address};host={authority}"));
        }
    }
}
