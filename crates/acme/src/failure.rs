//! Describes why an order failed: an error of the CA, of the folder or of litequic. Each request to the CA is repeated
//! if its nonce was bad.

use super::{ca_client::CaClient, folder::AcmeFolder, plan::bounded_line};
use instant_acme::{Error, Problem};
use std::io;
use tokio::task::spawn_blocking;

/// Attempts at a request that the CA refuses because of its nonce (RFC 8555 §6.5). instant-acme itself makes three per
/// attempt.
pub(super) const MAX_NONCE_ATTEMPTS: u32 = 10;

/// Repeats a request until it ends with anything but a bad nonce.
macro_rules! nonce {
    ($call:expr) => {{
        let mut left = $crate::failure::MAX_NONCE_ATTEMPTS;
        loop {
            left -= 1;
            match $call.await {
                Err(error) if left > 0 && $crate::failure::is_bad_nonce(&error) => {}
                other => break other,
            }
        }
    }};
}
pub(super) use nonce;

/// Reason why an order failed.
#[derive(Debug)]
pub(super) struct OrderFailure {
    /// Message for the operator, in the CA's words if the CA refused.
    pub(super) problem: String,
    /// Seconds for which the CA wants no request.
    pub(super) retry_after: Option<u64>,
    /// The CA does not know the account.
    pub(super) is_account_unknown: bool,
}

impl OrderFailure {
    pub(super) fn new(problem: String) -> Self {
        Self { problem, retry_after: None, is_account_unknown: false }
    }

    pub(super) fn from_folder_error(folder: &AcmeFolder, error: &io::Error) -> Self {
        Self::new(format!("{} cannot be written or read: {error}", folder.0.display()))
    }

    pub(super) fn from_ca_error(error: &Error, http: &CaClient) -> Self {
        let forgotten = has_problem_type(error, "accountDoesNotExist");
        Self { problem: describe_ca_error(error), retry_after: http.take_retry_after(), is_account_unknown: forgotten }
    }
}

/// Runs the blocking `task` outside the runtime's thread.
///
/// # Errors
///
/// The task panicked or was cancelled.
pub(super) async fn run_blocking<T: Send + 'static>(
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OrderFailure> {
    spawn_blocking(task).await.map_err(|died| OrderFailure::new(died.to_string()))
}

pub(super) fn is_bad_nonce(error: &Error) -> bool {
    has_problem_type(error, "badNonce")
}

/// Whether the CA's problem has the type `urn:ietf:params:acme:error:` and `kind` (RFC 8555 §6.7).
fn has_problem_type(error: &Error, kind: &str) -> bool {
    matches!(error, Error::Api(problem) if short_problem_type(problem) == Some(kind))
}

pub(super) fn short_problem_type(problem: &Problem) -> Option<&str> {
    problem.r#type.as_deref()?.rsplit(':').next()
}

/// Describes an error, in the CA's words if the CA sent it.
pub(super) fn describe_ca_error(error: &Error) -> String {
    match error {
        Error::Api(problem) => describe_problem(problem),
        other => bounded_line(&other.to_string()),
    }
}

pub(super) fn describe_problem(problem: &Problem) -> String {
    let kind = short_problem_type(problem).filter(|kind| *kind != "blank").map(|kind| format!(" ({kind})"));
    let detail = problem.detail.as_deref().unwrap_or("the CA gives no reason");
    let parts: Vec<_> = problem.subproblems.iter().map(ToString::to_string).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    bounded_line(&format!("{detail}{}{parts}", kind.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_in_the_cas_words_with_its_type() {
        for (problem, expected) in [
            (r#"{"type": "urn:ietf:params:acme:error:caa", "detail": "no"}"#, "no (caa)"),
            (r#"{"type": "about:blank", "detail": "HTTP status 503"}"#, "HTTP status 503"),
            ("{}", "the CA gives no reason"),
        ] {
            assert_eq!(describe_problem(&serde_json::from_str(problem).unwrap()), expected);
        }
    }
}
