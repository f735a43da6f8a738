//! Networks of IP addresses in CIDR notation. Pure.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::IpAddr,
    str::FromStr,
};

/// Bits of `::ffff:0:0/96`, the prefix of IPv4-mapped IPv6 addresses (RFC 4291 §2.5.5.2).
const MAPPED_PREFIX: u32 = 96;

/// Addresses with a common prefix, in CIDR notation (RFC 4632). An IPv4-mapped network is read as its IPv4 network. A
/// shorter prefix that contains mapped addresses, such as `::/0`, contains no IPv4 client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Network address, whose bits past the prefix are zero.
    pub address: IpAddr,
    /// Length of the prefix in bits: at most 32 or 128.
    pub prefix: u8,
}

/// Hashes the address alone, as one integer, because a network is hashed for every request: the networks of one pool
/// have one prefix length for each address family.
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
    /// The network of `address` with a prefix of `prefix` bits, at most 32 or 128. An IPv4-mapped IPv6 address counts
    /// as IPv4.
    pub fn from_address(address: IpAddr, prefix: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let prefix = prefix.min(32);
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
                Self { address: IpAddr::V4((address.to_bits() & mask).into()), prefix }
            }
            IpAddr::V6(address) => {
                let prefix = prefix.min(128);
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or(0);
                Self { address: IpAddr::V6((address.to_bits() & mask).into()), prefix }
            }
        }
    }

    /// Whether the network contains all addresses of `other`.
    pub fn contains_network(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains_address(other.address)
    }

    /// Whether the network is larger than a network operator's usual allocation: an IPv4 /16 or an IPv6 /32.
    pub const fn is_wide(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.prefix < 16,
            IpAddr::V6(_) => self.prefix < 32,
        }
    }

    /// Whether the network contains `address`; an IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains_address(&self, address: IpAddr) -> bool {
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

    /// Whether any address is in both networks.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains_address(other.address) || other.contains_address(self.address)
    }
}

/// Error of parsing a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkError {
    /// The problem, as the end of a sentence.
    pub problem: String,
    /// The valid network that is closest to the text.
    pub nearest: Option<String>,
}

impl<S: Into<String>> From<S> for NetworkError {
    fn from(problem: S) -> Self {
        Self { problem: problem.into(), nearest: None }
    }
}

/// Reads a network or a single address. An IPv4-mapped network is read as its IPv4 network, because clients at mapped
/// addresses count as IPv4.
impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| "not a network")?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(digits) if !digits.bytes().all(|b| b.is_ascii_digit()) => return Err("not a network".into()),
            Some(digits) => match digits.parse() {
                Ok(prefix) if prefix <= bits => prefix,
                _ => return Err(format!("the prefix is longer than {bits} bits").into()),
            },
        };
        let (address, prefix) = match address {
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(_) if prefix < MAPPED_PREFIX => {
                    return Err(NetworkError {
                        problem: format!("has IPv4-mapped addresses, whose prefix is at least {MAPPED_PREFIX} bits"),
                        nearest: Some("0.0.0.0/0".into()),
                    });
                }
                Some(v4) => (IpAddr::V4(v4), prefix.saturating_sub(MAPPED_PREFIX)),
                None => (address, prefix),
            },
            IpAddr::V4(_) => (address, prefix),
        };
        // The prefix is at most 128.
        let network = Self::from_address(address, u8::try_from(prefix).unwrap_or(u8::MAX));
        if network.address != address {
            return Err(NetworkError {
                problem: "has bits beyond its prefix".into(),
                nearest: Some(network.to_string()),
            });
        }
        Ok(network)
    }
}
