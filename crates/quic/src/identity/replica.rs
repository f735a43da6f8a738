//! Names a replica among those that share `listen.secret_file`. Stateless reset tokens depend on the name: a packet
//! that arrives at another replica gets a token that ends no connection of this one (RFC 9000 §21.11).

/// Names of a kernel before the host gets one: Linux's is `(none)`.
const UNSET_HOST_NAMES: [&str; 2] = ["", "(none)"];

/// Name of a replica, the scope of stateless reset tokens within a secret. Empty for a process that has neither a
/// configured name nor a host name, and a secret of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replica(pub String);

impl Replica {
    /// The replica with `name`.
    pub fn with_name(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The replica named after the host (gethostname(2)): a container and a pod keep that name over restarts. `None`
    /// for a host without a name, or with one that is not UTF-8.
    pub fn from_host() -> Option<Self> {
        let host = rustix::system::uname();
        let name = host.nodename().to_str().ok()?;
        (!UNSET_HOST_NAMES.contains(&name)).then(|| Self(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_default_is_the_name_of_the_host() {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = Some(host.trim_end()).filter(|host| !UNSET_HOST_NAMES.contains(host));
        assert_eq!(Replica::from_host().as_ref().map(|replica| replica.0.as_str()), host);
    }
}
