//! Why there is no certificate: an error of the CA, of the folder or of litequic, in words. Each step at the CA is
//! called again if its nonce was bad.

use super::{ca_client::CaClient, folder::AcmeFolder, plan::bounded_line};
use instant_acme::{Error, Problem};
use std::io;
use tokio::task::spawn_blocking;

/// Times that a step is called which the CA refuses for its nonce (RFC 8555 §6.5). instant-acme itself tries each three
/// times.
pub(super) const MAX_NONCE_ATTEMPTS: u32 = 10;

/// Calls a step until its end is another one than a bad nonce.
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

/// Why there is no certificate.
#[derive(Debug)]
pub(super) struct OrderFailure {
    /// In words, those of the CA if it was the CA's.
    pub(super) problem: String,
    /// Seconds that the CA wants no request for.
    pub(super) retry_after: Option<u64>,
    /// The CA does not know the account.
    pub(super) is_account_unknown: bool,
}

impl OrderFailure {
    pub(super) fn new(problem: String) -> Self {
        Self { problem, retry_after: None, is_account_unknown: false }
    }

    pub(super) fn from_folder_error(folder: &AcmeFolder, error: &io::Error) -> Self {
        Self::new(format!("{} cannot be written or read: {error}", folder.folder_path().display()))
    }

    pub(super) fn from_ca_error(error: &Error, http: &CaClient) -> Self {
        let forgotten = has_problem_type(error, "accountDoesNotExist");
        Self { problem: describe_ca_error(error), retry_after: http.take_retry_after(), is_account_unknown: forgotten }
    }
}

/// Runs `task`, which blocks, beside the runtime's thread.
///
/// # Errors
///
/// `task` did not run to its end.
pub(super) async fn run_blocking<T: Send + 'static>(
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OrderFailure> {
    spawn_blocking(task).await.map_err(|died| OrderFailure::new(died.to_string()))
}

pub(super) fn is_bad_nonce(error: &Error) -> bool {
    has_problem_type(error, "badNonce")
}

/// RFC 8555 §6.7: `urn:ietf:params:acme:error:` and the type.
fn has_problem_type(error: &Error, kind: &str) -> bool {
    matches!(error, Error::Api(problem) if short_problem_type(problem) == Some(kind))
}

pub(super) fn short_problem_type(problem: &Problem) -> Option<&str> {
    problem.r#type.as_deref()?.rsplit(':').next()
}

/// An error in the CA's words, if they are the CA's.
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
    fn a_refusal_has_the_cas_words_and_its_type_unless_that_says_nothing() {
        for (problem, expected) in [
            (r#"{"type": "urn:ietf:params:acme:error:caa", "detail": "no"}"#, "no (caa)"),
            (r#"{"type": "about:blank", "detail": "HTTP status 503"}"#, "HTTP status 503"),
            ("{}", "the CA gives no reason"),
        ] {
            assert_eq!(describe_problem(&serde_json::from_str(problem).unwrap()), expected);
        }
    }
}
