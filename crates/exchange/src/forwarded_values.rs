//! Caches the fields that describe a client to an origin: the text is written once for a connection and an authority,
//! not for each request. Pure.

use std::{cell::RefCell, net::IpAddr};

/// Values of the fields that describe a client to an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedValues {
    /// The `forwarded-element` (RFC 7239 §4).
    pub element: String,
    /// Value of `X-Forwarded-For`: the client's address alone.
    pub address: String,
    /// Value of `X-Forwarded-Host`: the authority.
    pub host: String,
}

/// The last values written for a client, with their address and authority.
#[derive(Debug, Clone, Default)]
pub struct LastForwarded(RefCell<Option<(IpAddr, ForwardedValues)>>);

impl LastForwarded {
    /// Updates the values for `address` and `authority`, in exactly this spelling: calls `write` unless the last values
    /// have both. `ForwardedValues::host` is the authority.
    pub fn update_values(&self, address: IpAddr, authority: &str, write: impl FnOnce() -> ForwardedValues) {
        let mut last = self.0.borrow_mut();
        if !matches!(&*last, Some((known, values)) if *known == address && values.host == authority) {
            *last = Some((address, write()));
        }
    }

    /// Calls `read` with the last values, if any were written.
    pub fn read_values(&self, read: impl FnOnce(&ForwardedValues)) {
        if let Some((_, values)) = &*self.0.borrow() {
            read(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_hold_for_one_address_and_one_spelling_of_an_authority() {
        let last = LastForwarded::default();
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
            let write = || {
                written = true;
                let (element, host) = (format!("for={address};host={authority}"), authority.to_owned());
                ForwardedValues { element, address: address.to_string(), host }
            };
            last.update_values(address, authority, write);
            let mut values = None;
            last.read_values(|read| values = Some(read.clone()));
            let values = values.unwrap();
            assert_eq!((written, values.host.as_str()), (is_written, authority));
            assert_eq!(values.address, address.to_string());
            assert_eq!(values.element, format!("for={address};host={authority}"));
        }
    }
}
