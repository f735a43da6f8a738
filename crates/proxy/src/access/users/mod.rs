//! Authenticates users of `routes[].users` by name and password (Basic, RFC 7617). Threads of their own verify
//! passwords (`password_checker`); the rest is pure but for reading the file.

mod credentials;
mod password_cache;
mod password_checker;
mod stored_hash;
mod users_file;

pub(crate) use credentials::{Credentials, MAX_PASSWORD};
pub(crate) use password_checker::{PasswordCheck, PasswordChecker};
pub use users_file::{Users, UsersError, create_user_line};

use litequic_config as config;
use std::sync::Arc;

/// The users of a route.
#[derive(Debug)]
pub(crate) struct UsersRule {
    pub(crate) users: Arc<Users>,
    /// Value of `WWW-Authenticate`.
    pub(crate) challenge: String,
}

impl UsersRule {
    /// The rule of `route` with the content of its file, without which there are no users; `None` if the route asks for
    /// no password.
    pub(crate) fn new(route: &config::RouteConfig, users: Option<Arc<Users>>) -> Option<Self> {
        route.users.as_ref()?;
        // The name of a route has no character that would have to be escaped.
        let realm = route.name.as_deref().unwrap_or("restricted");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        Some(Self { users: users.unwrap_or_default(), challenge })
    }
}
