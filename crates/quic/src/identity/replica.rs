//! The name of a replica among those that share `listen.secret_file`. Stateless reset tokens belong to it: a packet
//! that reaches another replica is answered with a token that ends no connection of this one (RFC 9000 §21.11).

/// Names that a kernel has until the host gets one: Linux's is `(none)`.
const UNSET_HOST_NAMES: [&str; 2] = ["", "(none)"];

/// Scope of stateless reset tokens within a secret. Empty for a process that has neither a configured name nor a host
/// name, and a secret of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replica(String);

impl Replica {
    /// The replica `name`.
    pub fn with_name(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name of the host (gethostname(2)), which a container and a pod keep when they are restarted. `None` if it
    /// has none, or one that is not UTF-8.
    pub fn from_host() -> Option<Self> {
        let host = rustix::system::uname();
        let name = host.nodename().to_str().ok()?;
        (!UNSET_HOST_NAMES.contains(&name)).then(|| Self(name.to_owned()))
    }

    /// The name as it is configured, or the host's.
    pub fn replica_name(&self) -> &str {
        &self.0
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
        assert_eq!(Replica::from_host().as_ref().map(Replica::replica_name), host);
    }
}
