//! The files of what certificate authorities have issued (ACME): `acme` in the state directory.
//!
//! `acme/certificates/DOMAIN.pem` is a certificate with its key, and two lines about its origin; `*` is `_` in the name.
//! `acme/accounts/…` is an account with its key. Each file belongs to its owner alone, and is replaced whole.

use crate::store::state_directory::{remove_access_of_others, replace_file};
use howdah_protocol::messages::acme::Secret;
use howdah_protocol::trusted_path;
use serde::{Deserialize, Serialize};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folders.
#[derive(Debug)]
pub struct IssuedStorage {
    certificates: PathBuf,
    accounts: PathBuf,
}

/// The origin of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateOrigin {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The kind of challenge that worked.
    pub challenge: String,
    /// Whether a client has asked for the name, which is not in the configuration.
    pub on_demand: bool,
}

/// An account at an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAccount {
    /// The URL of the authority's directory.
    pub directory: String,
    /// The identifier of the external account.
    pub key_id: Option<String>,
    /// The account and its key.
    pub credentials: Secret<String>,
}

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const DIRECTORY_LINE: &str = "directory: ";
const CHALLENGE_LINE: &str = "challenge: ";
const ON_DEMAND_LINE: &str = "on demand: ";
const MAX_NAME_CHARS: usize = 200;

// === impl IssuedStorage ===

impl IssuedStorage {
    /// The folders in the state directory. They are created when there is something to store.
    pub fn of(state_directory: &Path) -> IssuedStorage {
        let folder = state_directory.join("acme");
        IssuedStorage { certificates: folder.join("certificates"), accounts: folder.join("accounts") }
    }

    /// The certificates by domain, with their origins. Files that cannot be read are logged.
    pub fn certificates(&self) -> Vec<(String, CertificateOrigin, String)> {
        let texts = read_all(&self.certificates);
        let certificate = |(name, text): (String, String)| {
            let domain = name.strip_suffix(".pem")?.replacen("_.", "*.", 1);
            let line = |prefix| text.lines().find_map(|line| line.strip_prefix(prefix)).unwrap_or_default().to_owned();
            let origin = CertificateOrigin {
                directory: line(DIRECTORY_LINE),
                challenge: line(CHALLENGE_LINE),
                on_demand: line(ON_DEMAND_LINE) == "yes",
            };
            Some((domain, origin, text))
        };
        texts.into_iter().filter_map(certificate).collect()
    }

    /// The accounts.
    pub fn accounts(&self) -> Vec<StoredAccount> {
        let texts = read_all(&self.accounts);
        let account = |(name, text): (String, String)| match serde_json::from_str(&text) {
            Ok(account) => Some(account),
            Err(error) => {
                tracing::error!(
                    "the account {:?} cannot be used, and is made again: {error}",
                    self.accounts.join(name)
                );
                None
            }
        };
        texts.into_iter().filter_map(account).collect()
    }

    /// Stores a certificate with its key.
    ///
    /// # Errors
    /// A sentence. The former file is unchanged.
    pub fn write_certificate(&self, domain: &str, origin: &CertificateOrigin, pem: &str) -> Result<(), String> {
        let CertificateOrigin { directory, challenge, on_demand } = origin;
        let on_demand = if *on_demand { format!("{ON_DEMAND_LINE}yes\n") } else { String::new() };
        let text = format!("{DIRECTORY_LINE}{directory}\n{CHALLENGE_LINE}{challenge}\n{on_demand}{pem}");
        write(&self.certificates, &file_name(domain), &text)
    }

    /// Removes a certificate with its key. A file that does not exist is no error.
    ///
    /// # Errors
    /// A sentence.
    pub fn remove_certificate(&self, domain: &str) -> Result<(), String> {
        let path = self.certificates.join(file_name(domain));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("cannot remove {path:?}: {error}")),
            _ => Ok(()),
        }
    }

    /// Stores an account.
    ///
    /// # Errors
    /// A sentence. The former file is unchanged.
    pub fn write_account(&self, account: &StoredAccount) -> Result<(), String> {
        let name = format!("{} {}", account.directory, account.key_id.as_deref().unwrap_or_default());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let name: String =
            name.trim().chars().map(|c| if is_plain(c) { c } else { '_' }).take(MAX_NAME_CHARS).collect();
        let text = serde_json::to_string(account).map_err(|error| error.to_string())?;
        write(&self.accounts, &name, &text)
    }
}

fn file_name(domain: &str) -> String {
    format!("{}.pem", domain.replacen('*', "_", 1))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = folder.join(name);
    let created = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
    created
        .and_then(|()| replace_file(&path, text.as_bytes()))
        .map_err(|error| format!("cannot write {path:?}: {error}; make room, or choose another --state-dir"))
}

/// The files that are not hidden: a crash has left those.
fn read_all(folder: &Path) -> Vec<(String, String)> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::error!("cannot read {folder:?}: {error}");
            return Vec::new();
        }
    };
    remove_access_of_others(folder, FOLDER_MODE);
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let read = |name: String| {
        let path = folder.join(&name);
        remove_access_of_others(&path, FILE_MODE);
        match trusted_path::read(&path).and_then(io::read_to_string) {
            Ok(text) => Some((name, text)),
            Err(error) => {
                tracing::error!("cannot read {path:?}: {error}");
                None
            }
        }
    };
    names.filter(|name| !name.starts_with('.')).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn certificates_and_accounts_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let storage = IssuedStorage::of(folder.path());
        assert!(storage.certificates().is_empty() && storage.accounts().is_empty());
        let origin = CertificateOrigin {
            directory: "https://ca.example/dir".to_owned(),
            challenge: "dns-01".to_owned(),
            on_demand: false,
        };
        let asked_for = CertificateOrigin { on_demand: true, ..origin.clone() };
        storage.write_certificate("a.example", &asked_for, "PEM\n").unwrap();
        assert_eq!(storage.certificates()[0].1, asked_for);
        storage.remove_certificate("a.example").unwrap();
        storage.remove_certificate("a.example").unwrap();
        storage.write_certificate("*.shop.example", &origin, "PEM\n").unwrap();
        let account = StoredAccount {
            directory: origin.directory.clone(),
            key_id: Some("../x".to_owned()),
            credentials: Secret("{}".to_owned()),
        };
        storage.write_account(&account).unwrap();
        storage.write_account(&account).unwrap();
        let [(domain, known, text)] = &storage.certificates()[..] else { panic!("one certificate") };
        assert_eq!((domain.as_str(), known), ("*.shop.example", &origin));
        assert!(text.ends_with("PEM\n"));
        assert_eq!(storage.accounts(), [account]);
        let mode = |path: &str| folder.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("acme/certificates"), mode("acme/certificates/_.shop.example.pem")), (0o700, 0o600));
        std::fs::write(folder.path().join("acme/accounts/broken"), "x").unwrap();
        assert_eq!(storage.accounts().len(), 1);
    }
}
