//! Networks of addresses.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::IpAddr,
};

/// Addresses with a common prefix, in CIDR notation (RFC 4632). A configuration has no IPv4-mapped network: such a one
/// is read as IPv4, and a shorter prefix that contains mapped addresses, such as `::/0`, has no IPv4 client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The network's address; bits past the prefix are zero.
    pub address: IpAddr,
    /// The prefix's length in bits: at most 32 or 128.
    pub prefix: u8,
}

/// By the address's bits, in one piece: it is hashed for every request. Those of one pool have one prefix a family.
impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.address {
            IpAddr::V4(address) => state.write_u32(address.to_bits()),
            IpAddr::V6(address) => state.write_u128(address.to_bits()),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Network {
    /// Whether `address` is in it; an IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(u32::from(self.prefix));
                u32::from(network).checked_shr(shift) == u32::from(address).checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(u32::from(self.prefix));
                u128::from(network).checked_shr(shift) == u128::from(address).checked_shr(shift)
            }
            _ => false,
        }
    }
}
