//! Defines the errors of certificate files and files of authorities.

use std::{
    fmt,
    path::{self, Path, PathBuf},
};

/// Reason why a certificate cannot be served. Always the operator's fault.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct CertificateError {
    /// The file at fault.
    pub file: PathBuf,
    problem: String,
}

impl CertificateError {
    /// Creates the error of `file`; `problem` makes the message with the file's path.
    pub(super) fn new(file: &Path, problem: impl FnOnce(path::Display<'_>) -> String) -> Self {
        Self { file: file.into(), problem: problem(file.display()) }
    }
}

/// All errors of files that belong together; at least one.
#[derive(Debug)]
pub struct CertificateErrors(pub Vec<CertificateError>);

impl From<CertificateError> for CertificateErrors {
    fn from(error: CertificateError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for CertificateErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

impl std::error::Error for CertificateErrors {}
