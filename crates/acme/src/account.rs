//! Keeps the account at a CA: a key, which is stored before the CA receives it, and the account's URL.

use super::ca_client::CaClient;
use super::failure::{OrderFailure, nonce, run_blocking};
use super::folder::{AcmeFolder, LockError};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use instant_acme::{Account, AccountBuilder, ExternalAccountKey, Key, NewAccount};
use litequic_config::{Acme, Eab};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value as Json, json};
use std::{fs, path::Path, time::Duration};
use tokio::time::sleep;

/// Hexadecimal digits of a directory's hash in the name of its account's file.
const HASH_DIGITS: usize = 12;
/// Time between two attempts to lock the account's file, which another process holds while it creates the account.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Attempts to lock the account's file: an exchange with the CA is limited to 30 seconds.
const MAX_LOCK_ATTEMPTS: u32 = 300;

/// An account at a CA, as stored in the folder.
pub(super) struct StoredAccount {
    key: KeyPair,
    /// The account's URL; `None` until the CA has named it.
    id: Option<String>,
    contact: Vec<String>,
}

/// Returns the name of the account's file for the directory of `table`.
pub(super) fn account_file_name(table: &Acme) -> String {
    let kid = table.eab.as_ref().map_or(String::new(), |eab| format!("\0{}", eab.kid));
    let hash = digest(&SHA256, format!("{}{kid}", table.directory).as_bytes());
    let digits: String = hash.as_ref().iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect();
    format!("account-{digits}.json")
}

/// Returns the thumbprint of the stored key (RFC 7638), a part of HTTP-01 responses; `None` without an account.
pub(super) fn stored_thumbprint(folder: &AcmeFolder, table: &Acme) -> Option<String> {
    let stored = StoredAccount::from_account_text(&folder.read_stored_file(&account_file_name(table)).ok()??)?;
    Some(stored.key_thumbprint())
}

impl StoredAccount {
    fn from_account_text(text: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(text).ok()?;
        let contact = json.get("contact").and_then(Json::as_array).into_iter().flatten();
        Some(Self {
            key: KeyPair::from_pem(json.get("key")?.as_str()?)
                .ok()
                .filter(|key| key.algorithm() == &PKCS_ECDSA_P256_SHA256)?,
            id: json.get("id").and_then(Json::as_str).map(str::to_owned),
            contact: contact.filter_map(|one| Some(one.as_str()?.to_owned())).collect(),
        })
    }

    fn to_account_text(&self, directory: &str) -> String {
        let Self { key, id, contact } = self;
        let json = json!({ "directory": directory, "id": id, "contact": contact, "key": key.serialize_pem() });
        format!("{json:#}\n")
    }

    /// Returns the thumbprint of the key: a hash of an EC key's members in the order of their names (RFC 7638 §3).
    fn key_thumbprint(&self) -> String {
        let point = self.key.public_key_raw().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        let [x, y] = [x, y].map(|half| BASE64_URL_SAFE_NO_PAD.encode(half));
        let key = format!("{{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"{x}\",\"y\":\"{y}\"}}");
        BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, key.as_bytes()))
    }

    fn key_der(&self) -> PrivatePkcs8KeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der())
    }
}

/// Opens the account at the directory of `table`. The account is created if the folder has none, or if the CA has
/// `forgotten` the stored one.
///
/// # Errors
///
/// [`OrderFailure`] of the folder or the CA.
pub(super) async fn open_account(
    folder: &AcmeFolder,
    table: &Acme,
    http: &CaClient,
    forgotten: bool,
) -> Result<Account, OrderFailure> {
    let name = account_file_name(table);
    let _locked = lock_account(folder, &name).await?;
    let (read, of) = (folder.clone(), name.clone());
    let parse = |text: String| StoredAccount::from_account_text(&text).ok_or("the file contains no account".into());
    let read = run_blocking(move || read.load_stored_file(&of, parse)).await?;
    let mut stored = match read.map_err(OrderFailure::new)? {
        Some(stored) => stored,
        None => {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
            let key = key.map_err(|error| OrderFailure::new(format!("cannot make a key: {error}")))?;
            StoredAccount { key, id: None, contact: Vec::new() }
        }
    };
    if forgotten {
        stored.id = None;
    }
    let builder = || Account::builder_with_http(Box::new(http.clone()));
    let account = match &stored.id {
        Some(id) => {
            let account = builder().from_parts(id.clone(), stored.key_der(), table.directory.clone()).await;
            account.map_err(|error| OrderFailure::from_ca_error(&error, http))?
        }
        None => {
            let account = match &table.eab {
                Some(eab) => {
                    let (account, made) = register_with_eab(&builder, table, eab, http).await?;
                    stored = made;
                    account
                }
                None => {
                    store_account(folder, &name, &stored, table).await?;
                    stored.contact = Vec::new();
                    nonce!(create_account(builder(), &stored, table))
                        .map_err(|error| OrderFailure::from_ca_error(&error, http))?
                }
            };
            stored.id = Some(account.id().to_owned());
            store_account(folder, &name, &stored, table).await?;
            tracing::info!(directory = table.directory, account = account.id(), "registered an account at the CA");
            account
        }
    };
    if stored.contact != table.contact {
        let contact: Vec<&str> = table.contact.iter().map(String::as_str).collect();
        nonce!(account.update_contacts(&contact)).map_err(|error| OrderFailure::from_ca_error(&error, http))?;
        stored.contact.clone_from(&table.contact);
        store_account(folder, &name, &stored, table).await?;
    }
    Ok(account)
}

async fn create_account(
    builder: AccountBuilder,
    stored: &StoredAccount,
    table: &Acme,
) -> Result<Account, instant_acme::Error> {
    let key = Key::from_pkcs8_der(stored.key_der())?;
    let key = (key, PrivateKeyDer::Pkcs8(stored.key_der()));
    let (account, _) = builder.create_from_key(key, table.directory.clone()).await?;
    Ok(account)
}

/// Registers an account with an External Account Binding; instant-acme generates the key.
async fn register_with_eab(
    builder: &impl Fn() -> AccountBuilder,
    table: &Acme,
    eab: &Eab,
    http: &CaClient,
) -> Result<(Account, StoredAccount), OrderFailure> {
    let file = eab.key_file.clone();
    let read = run_blocking(move || read_eab_key(&file)).await?;
    let key = ExternalAccountKey::new(eab.kid.clone(), &read.map_err(OrderFailure::new)?);
    let contact: Vec<&str> = table.contact.iter().map(String::as_str).collect();
    let new =
        NewAccount { contact: &contact, terms_of_service_agreed: table.terms_agreed, only_return_existing: false };
    let created = nonce!(builder().create(&new, table.directory.clone(), Some(&key)));
    let (account, credentials) = created.map_err(|error| OrderFailure::from_ca_error(&error, http))?;
    let key = KeyPair::try_from(credentials.private_key()).map_err(|error| OrderFailure::new(error.to_string()))?;
    Ok((account, StoredAccount { key, id: None, contact: table.contact.clone() }))
}

/// Reads the HMAC key of an External Account Binding, in base64url with or without padding.
///
/// # Errors
///
/// A message that names the file and its fault.
pub(super) fn read_eab_key(file: &Path) -> Result<Vec<u8>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let key = BASE64_URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('='));
    key.ok().filter(|key| !key.is_empty()).ok_or_else(|| format!("{} has no key in base64url", file.display()))
}

async fn store_account(
    folder: &AcmeFolder,
    name: &str,
    stored: &StoredAccount,
    table: &Acme,
) -> Result<(), OrderFailure> {
    let (into, name, text) = (folder.clone(), name.to_owned(), stored.to_account_text(&table.directory));
    run_blocking(move || into.write_stored_file(&name, &text))
        .await?
        .map_err(|error| OrderFailure::from_folder_error(folder, &error))
}

/// Locks the account's file: of the processes that share the folder, one at a time creates an account.
async fn lock_account(folder: &AcmeFolder, name: &str) -> Result<super::folder::FolderLock, OrderFailure> {
    for _ in 0..MAX_LOCK_ATTEMPTS {
        let (of, name) = (folder.clone(), name.to_owned());
        match run_blocking(move || of.try_lock_file(&name)).await? {
            Ok(locked) => return Ok(locked),
            Err(LockError::Io(error)) => return Err(OrderFailure::from_folder_error(folder, &error)),
            Err(LockError::Taken) => sleep(LOCK_RETRY_DELAY).await,
        }
    }
    Err(OrderFailure::new("another process holds the account's lock".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbprint_is_the_one_of_instant_acme() {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let stored = StoredAccount { key, id: None, contact: vec!["mailto:a@a.test".into()] };
        let read = StoredAccount::from_account_text(&stored.to_account_text("https://ca.test/")).unwrap();
        assert_eq!((read.key_thumbprint(), &read.contact), (stored.key_thumbprint(), &stored.contact));
        // 32 bytes without padding.
        assert_eq!(stored.key_thumbprint().len(), 43);
        assert!(StoredAccount::from_account_text("{}").is_none() && StoredAccount::from_account_text("").is_none());
    }

    #[test]
    fn each_directory_has_an_account_of_its_own() {
        let table = |directory: &str| Acme { directory: directory.into(), ..Acme::default() };
        let name = account_file_name(&table("https://ca.test/"));
        assert!(name.starts_with("account-") && name.len() == "account-.json".len() + HASH_DIGITS, "{name}");
        assert_ne!(name, account_file_name(&table("https://other.test/")));
    }
}
