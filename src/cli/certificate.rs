//! Runs `litequic certificate`: writes a certificate for development, and the authority of this machine that signs it.

use super::exit::{Exit, exit_with_error, print_stdout};
use clap::Args;
use litequic_tls::LocalAuthority;
use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Permissions of a private key.
const KEY_MODE: u32 = 0o600;
/// Permissions of a certificate.
const CERTIFICATE_MODE: u32 = 0o644;

/// Arguments of `litequic certificate`.
#[derive(Debug, Args)]
pub struct CertificateArguments {
    /// Names and IP addresses of the certificate.
    #[arg(value_name = "NAME", default_values = ["localhost", "127.0.0.1", "::1"])]
    names: Vec<String>,
    /// The folder of the files; it is created if missing.
    #[arg(long, value_name = "DIR", default_value = "tls")]
    out: PathBuf,
    /// Name of the files: FILE.crt and FILE.key.
    #[arg(long, value_name = "FILE", default_value = "tls")]
    file: String,
}

/// Writes the certificate, and the authority unless the folder has one, and prints what to do with them.
pub fn write_certificate(arguments: CertificateArguments) -> ExitCode {
    let CertificateArguments { names, out, file } = arguments;
    match write_files(&names, &out, &file) {
        Ok(text) => print_stdout(text.as_bytes()),
        Err((path, error)) => exit_with_error(Exit::Output, format_args!("{}: {error}", path.display())),
    }
}

/// Path of a file, and why it cannot be read or written.
type FileFailure = (PathBuf, io::Error);

fn write_files(names: &[String], out: &Path, file: &str) -> Result<String, FileFailure> {
    let at = |name: &str| out.join(name);
    let (cert_path, key_path) = (at(&format!("{file}.crt")), at(&format!("{file}.key")));
    let (authority_path, authority_key_path) = (at("ca.crt"), at("ca.key"));
    fs::create_dir_all(out).map_err(|error| (out.to_owned(), error))?;
    let authority = match fs::read_to_string(&authority_key_path) {
        Ok(key) => LocalAuthority::from_key_pem(&key),
        // Without the authority's key, a certificate there has another issuer.
        Err(error) if error.kind() == ErrorKind::NotFound && cert_path.exists() => {
            return Err((
                cert_path,
                io::Error::new(ErrorKind::AlreadyExists, "exists, and is not of a local authority"),
            ));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => LocalAuthority::generate(),
        Err(error) => return Err((authority_key_path, error)),
    };
    let authority = authority.map_err(|error| (authority_key_path.clone(), io::Error::other(error)))?;
    let issued = authority.issue_certificate(names.to_vec());
    let (cert, key, end) = issued.map_err(|error| (cert_path.clone(), io::Error::other(error)))?;
    for (path, text, mode) in [
        (&authority_key_path, &*authority.key_pem, KEY_MODE),
        (&authority_path, &*authority.cert_pem, CERTIFICATE_MODE),
        (&key_path, &key, KEY_MODE),
        (&cert_path, &cert, CERTIFICATE_MODE),
    ] {
        write_file(path, text, mode).map_err(|error| (path.clone(), error))?;
    }
    let [cert, key, authority] = [&cert_path, &key_path, &authority_path].map(|path| path.display());
    let (names, end) = (names.join(", "), humantime::format_rfc3339_seconds(end));
    Ok(format!(
        "{cert} and {key}: for {names}, until {end}\n{authority}: the authority, for clients to trust:\n  curl --cacert \
         {authority}, litequic get --ca {authority}, or a browser's settings\n"
    ))
}

/// Replaces the file at `path`.
fn write_file(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}
