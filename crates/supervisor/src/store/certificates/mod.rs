//! Certificates by name, in memory and in the state directory.
//!
//! Each certificate is a [`Bundle`]: a chain and its private key, or certificates of authorities. Its name is a file
//! name in the folder `certs`. The file belongs to its owner alone; it is written beside the old one, synced, and
//! renamed. A stored certificate is never changed: a renewed certificate gets another name, or the old one is deleted
//! first. Without a state directory, certificates live as long as the supervisor.
//!
//! A file that cannot be used at the start is logged, and there is no certificate with its name. An error of a client
//! of the control API is a [`Refusal`]. No error and no `Debug` output contains any part of a key.

mod bundle;
mod description;
mod issued;
mod storage;

use crate::policy::renewal::Validity;
use bundle::Bundle;
pub use description::time_text;
pub use issued::{CertificateOrigin, StoredAccount};

use howdah_config::answer::text;
use howdah_config::{CertificateNames, Configuration, Document, ProxyTls, Refusal, Tls};
use issued::IssuedStorage;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use storage::Storage;

/// All certificates.
#[derive(Debug, Default)]
pub struct Certificates {
    by_name: BTreeMap<String, Bundle>,
    storage: Option<Storage>,
    /// The certificates that authorities have issued, by domain.
    issued: BTreeMap<String, IssuedCertificate>,
    issued_storage: Option<IssuedStorage>,
    unstored: Unstored,
}

/// Certificates and accounts that could not be stored, because the disk was full, for instance. They are used, and storing
/// is tried again.
#[derive(Debug, Default)]
struct Unstored {
    /// Domains of issued certificates.
    domains: BTreeSet<String>,
    accounts: Vec<StoredAccount>,
}

/// A certificate that an authority has issued.
#[derive(Debug)]
pub struct IssuedCertificate {
    /// Its origin.
    pub origin: CertificateOrigin,
    bundle: Bundle,
}

/// The longest name. File systems still accept the name of the temporary file, which is longer.
const MAX_NAME_BYTES: usize = 240;

// === impl Certificates ===

impl Certificates {
    /// Loads the certificates of the state directory, and stores new ones there.
    ///
    /// # Errors
    /// A sentence, if the folder cannot be created.
    pub fn load(state_directory: &Path) -> Result<Certificates, String> {
        let storage = Storage::open(state_directory)?;
        let mut by_name = BTreeMap::new();
        for (name, content) in storage.read() {
            let bundle = check_name(&name)
                .map_err(|refusal| refusal.to_string())
                .and_then(|()| Bundle::parse(&content.map_err(|error| error.to_string())?));
            match bundle {
                Ok(bundle) => {
                    warn_of_expiry(&name, &bundle);
                    by_name.insert(name, bundle);
                }
                Err(reason) => tracing::error!("cannot use the stored certificate {name:?}: {reason}"),
            }
        }
        let certificates = Certificates { by_name, storage: Some(storage), ..Certificates::default() };
        Ok(certificates.with_issued(state_directory))
    }

    /// With the certificates that authorities have issued, which are stored in this folder.
    #[must_use]
    pub fn with_issued(mut self, folder: &Path) -> Certificates {
        let storage = IssuedStorage::of(folder);
        for (domain, origin, text) in storage.certificates() {
            match check_issued(&domain, &text) {
                Ok(bundle) => drop(self.issued.insert(domain, IssuedCertificate { origin, bundle })),
                Err(reason) => tracing::error!("cannot use the stored certificate of {domain}: {reason}"),
            }
        }
        Certificates { issued_storage: Some(storage), ..self }
    }

    /// The names, for [`howdah_config`] to check what listeners and upstreams refer to.
    pub fn names(&self) -> CertificateNames {
        let mut names = CertificateNames::default();
        for (name, bundle) in &self.by_name {
            let of_kind = if bundle.has_key() { &mut names.with_key } else { &mut names.authorities };
            of_kind.insert(name.clone());
        }
        names
    }

    /// Adds or replaces a certificate: a chain and its private key, or certificates of authorities, as PEM, in any order.
    /// `used_with_key` holds the names that the configuration uses with their key. Returns whether it replaced another
    /// certificate.
    ///
    /// # Errors
    /// 400 for an invalid name or bundle, and for a missing key; 500 if it cannot be stored. The former certificate is
    /// unchanged then.
    pub fn put(&mut self, name: &str, pem: &[u8], used_with_key: &BTreeSet<&str>) -> Result<bool, Refusal> {
        check_name(name)?;
        let bundle = Bundle::parse(pem).map_err(|reason| Refusal::new(400, text::INVALID_CERTIFICATE, reason))?;
        if !bundle.has_key() && used_with_key.contains(name) {
            let detail = "the configuration uses the certificate of this name, so its private key is needed: cat chain.pem key.pem";
            return Err(Refusal::new(400, text::INVALID_CERTIFICATE, detail));
        }
        if let Some(storage) = &self.storage {
            storage.write(name, bundle.pem()).map_err(not_stored)?;
        }
        warn_of_expiry(name, &bundle);
        Ok(self.by_name.insert(name.to_owned(), bundle).is_some())
    }

    /// The certificate that an authority has issued for this domain.
    pub fn issued(&self, domain: &str) -> Option<&IssuedCertificate> {
        self.issued.get(domain)
    }

    /// The uploaded certificates with this name, as PEM, without a key.
    pub fn authorities(&self, name: &str) -> Option<String> {
        self.by_name.get(name).map(|bundle| bundle.certificates().to_owned())
    }

    /// Keeps a certificate that an authority has issued. One that cannot be stored is used, too, until
    /// [`Self::store_again`] succeeds: the result is a warning.
    ///
    /// # Errors
    /// A phrase, if it is no certificate for the domain and its key. The former one stays.
    pub fn put_issued(&mut self, domain: &str, origin: CertificateOrigin, pem: &str) -> Result<Option<String>, String> {
        let bundle = check_issued(domain, pem)?;
        // A wrong clock of the authority costs no client. If it is ours, the former one has expired by it, too.
        let has_valid = self.issued.get(domain).is_some_and(|former| !former.bundle.has_expired());
        if has_valid && let Some(problem) = bundle.expiry_problem().filter(|_| bundle.has_expired()) {
            return Err(format!("it {problem}, and the former one is still valid"));
        }
        let storage = self.issued_storage.as_ref();
        let stored = storage.map_or(Ok(()), |storage| storage.write_certificate(domain, &origin, bundle.pem()));
        self.issued.insert(domain.to_owned(), IssuedCertificate { origin, bundle });
        match &stored {
            Ok(()) => self.unstored.domains.remove(domain),
            Err(_) => self.unstored.domains.insert(domain.to_owned()),
        };
        Ok(stored.err())
    }

    /// The domains of stored certificates that clients have asked for.
    pub fn issued_on_demand(&self) -> impl Iterator<Item = &str> {
        self.issued.iter().filter(|(_, issued)| issued.origin.on_demand).map(|(domain, _)| domain.as_str())
    }

    /// Removes a certificate that an authority has issued.
    ///
    /// # Errors
    /// A sentence, if its file stays.
    pub fn remove_issued(&mut self, domain: &str) -> Result<(), String> {
        self.issued.remove(domain);
        self.unstored.domains.remove(domain);
        self.issued_storage.as_ref().map_or(Ok(()), |storage| storage.remove_certificate(domain))
    }

    /// The issued certificate of this domain, with its key, as PEM.
    pub fn issued_pem(&self, domain: &str) -> Option<&str> {
        self.issued.get(domain).map(|issued| issued.bundle.pem())
    }

    /// The accounts at authorities.
    pub fn accounts(&self) -> Vec<StoredAccount> {
        self.issued_storage.as_ref().map(IssuedStorage::accounts).unwrap_or_default()
    }

    /// Stores an account at an authority.
    ///
    /// # Errors
    /// A sentence, if it cannot be stored, until [`Self::store_again`] succeeds.
    pub fn put_account(&mut self, account: &StoredAccount) -> Result<(), String> {
        let stored = self.issued_storage.as_ref().map_or(Ok(()), |storage| storage.write_account(account));
        let is_same = |other: &StoredAccount| other.directory == account.directory && other.key_id == account.key_id;
        self.unstored.accounts.retain(|other| !is_same(other));
        if stored.is_err() {
            self.unstored.accounts.push(account.clone());
        }
        stored
    }

    /// Whether something could not be stored.
    pub fn has_unstored(&self) -> bool {
        !self.unstored.domains.is_empty() || !self.unstored.accounts.is_empty()
    }

    /// Tries again to store what could not be stored. Returns what is stored now, as phrases.
    pub fn store_again(&mut self) -> Vec<String> {
        let Some(storage) = &self.issued_storage else { return Vec::new() };
        let mut stored = Vec::new();
        self.unstored.domains.retain(|domain| {
            let Some(IssuedCertificate { origin, bundle }) = self.issued.get(domain) else { return false };
            let written = storage.write_certificate(domain, origin, bundle.pem());
            stored.extend(written.is_ok().then(|| format!("the certificate of {domain}")));
            written.is_err()
        });
        self.unstored.accounts.retain(|account| {
            let written = storage.write_account(account);
            stored.extend(written.is_ok().then(|| format!("the account at {}", account.directory)));
            written.is_err()
        });
        stored
    }

    /// Removes a certificate. `used` holds the names that the configuration uses.
    ///
    /// # Errors
    /// 404 if it does not exist, 400 if it is used, 500 if its file cannot be removed.
    pub fn delete(&mut self, name: &str, used: &BTreeSet<&str>) -> Result<(), Refusal> {
        // A file that could not be used at the start is not in `by_name`, but it blocks its name.
        let is_a_file = check_name(name).is_ok() && self.storage.as_ref().is_some_and(|storage| storage.has(name));
        if !is_a_file {
            self.get(name)?;
        }
        if Tls::acme_domain(name).is_some() {
            let detail = "howdah has obtained it, and stops to renew it when no listener has its domain in \"acme\"";
            return Err(Refusal::new(400, text::CERTIFICATE_IN_USE, detail));
        }
        if used.contains(name) {
            let detail = "a \"tls\" of the configuration names it; name another one there before";
            return Err(Refusal::new(400, text::CERTIFICATE_IN_USE, detail));
        }
        if let Some(storage) = &self.storage {
            storage.remove(name).map_err(not_stored)?;
        }
        self.by_name.remove(name);
        Ok(())
    }

    /// The description of a certificate, in the format of NGINX Unit's `GET /certificates/NAME`.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub fn describe(&self, name: &str) -> Result<Document, Refusal> {
        self.get(name).map(|bundle| bundle.description().clone())
    }

    /// The descriptions of all certificates: an object by name.
    pub fn describe_all(&self) -> Document {
        let issued = self.issued.iter().map(|(domain, issued)| (Tls::acme_certificate(domain), &issued.bundle));
        let issued: Vec<_> = issued.collect();
        let uploaded = self.by_name.iter().map(|(name, bundle)| (name.as_str(), bundle));
        let all = uploaded.chain(issued.iter().map(|(name, bundle)| (name.as_str(), *bundle)));
        Document::compose(all.map(|(name, bundle)| (name, bundle.description().clone())))
    }

    /// The certificates with these names, for a router: a JSON object of PEM texts, with the keys.
    pub fn for_router<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> String {
        let texts: BTreeMap<_, _> =
            names.into_iter().filter_map(|name| Some((name, self.get(name).ok()?.pem()))).collect();
        serde_json::json!(texts).to_string()
    }

    /// The names of all certificates, and when each is accepted no more, in seconds since 1970.
    pub fn expiries(&self) -> impl Iterator<Item = (&str, i64)> {
        self.by_name.iter().map(|(name, bundle)| (name.as_str(), bundle.validity().until))
    }

    fn get(&self, name: &str) -> Result<&Bundle, Refusal> {
        let detail = || format!("there is no certificate {name:?}");
        let issued = || self.issued.get(Tls::acme_domain(name)?).map(|issued| &issued.bundle);
        self.by_name.get(name).or_else(issued).ok_or_else(|| Refusal::new(404, text::NO_SUCH_CERTIFICATE, detail()))
    }
}

/// Checks that an authority has sent a certificate for the domain, with its key.
fn check_issued(domain: &str, pem: &str) -> Result<Bundle, String> {
    let bundle = Bundle::parse(pem.as_bytes())?;
    if !bundle.has_key() || !bundle.host_names().iter().any(|name| name == domain) {
        return Err(format!("it is a certificate for {}, and not for {domain}", bundle.host_names().join(", ")));
    }
    Ok(bundle)
}

// === impl IssuedCertificate ===

impl IssuedCertificate {
    /// When it is accepted.
    pub fn validity(&self) -> Validity {
        self.bundle.validity()
    }

    /// The chain, as PEM.
    pub fn chain(&self) -> &str {
        self.bundle.certificates()
    }
}

/// The names of the certificates that listeners, upstreams and the action `proxy` use.
pub fn used(configuration: &Configuration) -> BTreeSet<&str> {
    let listeners = configuration.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let mut names = used_by_proxy(configuration);
    names.extend(listeners.flat_map(Tls::all_certificates));
    names
}

/// The names of the certificates that upstreams and the action `proxy` use.
pub fn used_by_proxy(configuration: &Configuration) -> BTreeSet<&str> {
    let of_servers = configuration.proxy_settings().filter_map(|settings| settings.tls.as_ref());
    of_servers.flat_map(ProxyTls::certificates).collect()
}

/// The names of the certificates that are used together with their keys.
pub fn used_with_key(configuration: &Configuration) -> BTreeSet<&str> {
    let listeners = configuration.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let of_listeners = listeners.flat_map(|tls| &tls.certificates).map(String::as_str);
    let of_servers = configuration.proxy_settings().filter_map(|settings| settings.tls.as_ref());
    of_listeners.chain(of_servers.filter_map(|tls| tls.client_certificate.as_deref())).collect()
}

/// A name is a file name that is not hidden: hidden files are those that are being written.
fn check_name(name: &str) -> Result<(), Refusal> {
    let problem = if name.is_empty() {
        "the name is empty"
    } else if name.starts_with('.') {
        "a name does not begin with a dot"
    } else if name.contains(['/', '\0']) {
        "a name has no slash and no NUL"
    } else if name.len() > MAX_NAME_BYTES {
        "a name has 240 bytes at most"
    } else {
        return Ok(());
    };
    Err(Refusal::new(400, text::INVALID_CERTIFICATE_NAME, format!("{problem}; choose another")))
}

fn not_stored(reason: String) -> Refusal {
    Refusal::new(500, text::CERTIFICATE_NOT_STORED, reason)
}

fn warn_of_expiry(name: &str, bundle: &Bundle) {
    if let Some(problem) = bundle.expiry_problem() {
        tracing::warn!("the certificate {name:?} {problem}: browsers refuse it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn bundle(name: &str) -> String {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        made.cert.pem() + &made.signing_key.serialize_pem()
    }

    fn names(certificates: &Certificates) -> Vec<String> {
        certificates.names().with_key.into_iter().collect()
    }

    #[test]
    fn a_file_that_is_not_a_certificate_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("certs")).unwrap();
        fs::write(folder.path().join("certs/bad"), "no PEM").unwrap();
        let mut certificates = Certificates::load(folder.path()).unwrap();
        assert!(names(&certificates).is_empty());
        certificates.delete("bad", &BTreeSet::new()).unwrap();
        assert!(!folder.path().join("certs/bad").exists());
        assert_eq!(certificates.delete("bad", &BTreeSet::new()).unwrap_err().status, 404);
        assert_eq!(certificates.delete("../lock", &BTreeSet::new()).unwrap_err().status, 404);
    }

    #[test]
    fn certificates_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut certificates = Certificates::load(folder.path()).unwrap();
        for name in ["shop", "blog 2026", "shop.new"] {
            certificates.put(name, bundle(name).as_bytes(), &BTreeSet::new()).unwrap();
        }
        let file = folder.path().join("certs/shop");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(folder.path().join("certs/.shop.new"), "half of a fi").unwrap();
        fs::write(folder.path().join("certs/broken"), "x").unwrap();
        fs::create_dir(folder.path().join("certs/folder")).unwrap();

        let mut certificates = Certificates::load(folder.path()).unwrap();
        assert_eq!(names(&certificates), ["blog 2026", "shop", "shop.new"]);
        certificates.delete("shop", &BTreeSet::from(["shop.new"])).unwrap();
        assert!(!file.exists());
        assert_eq!(names(&Certificates::load(folder.path()).unwrap()), ["blog 2026", "shop.new"]);
    }

    #[test]
    fn an_issued_certificate_that_has_expired_replaces_no_valid_one() {
        let with_end = |year| {
            let mut parameters = rcgen::CertificateParams::new(["shop".to_owned()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            parameters.self_signed(&key).unwrap().pem() + &key.serialize_pem()
        };
        let folder = tempfile::tempdir().unwrap();
        let mut certificates = Certificates::load(folder.path()).unwrap();
        let mut put = |year| {
            let (directory, challenge) = ("https://ca/directory".to_owned(), "http-01".to_owned());
            let origin = CertificateOrigin { directory, challenge, on_demand: false };
            certificates.put_issued("shop", origin, &with_end(year))
        };
        put(2001).unwrap();
        put(2002).unwrap();
        put(2201).unwrap();
        assert!(put(2003).unwrap_err().contains("the former one is still valid"));
        put(2202).unwrap();
    }

    #[test]
    fn a_name_stays_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut certificates = Certificates::load(&folder.path().join("state")).unwrap();
        let pem = bundle("x");
        for name in ["", ".", "..", "../x", "a/b", "/x", ".x", "a\0b", &"x".repeat(241)] {
            let refusal = certificates.put(name, pem.as_bytes(), &BTreeSet::new()).unwrap_err();
            assert_eq!((refusal.status, refusal.error.as_str()), (400, text::INVALID_CERTIFICATE_NAME), "{name:?}");
        }
        certificates.put(&"x".repeat(240), pem.as_bytes(), &BTreeSet::new()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn invalid_requests_are_refused() {
        let mut certificates = Certificates::default();
        let pem = bundle("x");
        certificates.put("shop", pem.as_bytes(), &BTreeSet::new()).unwrap();
        let refused = |result: Result<(), Refusal>| {
            let refusal = result.unwrap_err();
            assert!(!refusal.to_string().contains(pem.lines().rev().nth(1).unwrap()));
            (refusal.status, refusal.error)
        };
        let authority = pem.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap().to_owned();
        let used = BTreeSet::from(["shop"]);
        let cases = [
            (certificates.put("shop", authority.as_bytes(), &used).map(drop), 400, text::INVALID_CERTIFICATE),
            (certificates.put("blog", b"x", &used).map(drop), 400, text::INVALID_CERTIFICATE),
            (certificates.delete("blog", &BTreeSet::new()), 404, text::NO_SUCH_CERTIFICATE),
            (certificates.delete("shop", &BTreeSet::from(["shop"])), 400, text::CERTIFICATE_IN_USE),
            (certificates.describe("blog").map(drop), 404, text::NO_SUCH_CERTIFICATE),
        ];
        for (result, status, error) in cases {
            assert_eq!(refused(result), (status, error.to_owned()));
        }
        assert_eq!(names(&certificates), ["shop"]);
    }

    #[test]
    fn a_certificate_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let mut certificates = Certificates::load(folder.path()).unwrap();
        let (old, new) = (bundle("old").replace('\r', ""), bundle("new").replace('\r', ""));
        assert_eq!(certificates.put("shop", old.as_bytes(), &BTreeSet::new()), Ok(false));
        assert!(certificates.put("shop", b"half", &BTreeSet::new()).is_err());
        let file = folder.path().join("certs/shop");
        assert_eq!(fs::read_to_string(&file).unwrap(), old);
        assert_eq!(certificates.put("shop", new.as_bytes(), &BTreeSet::new()), Ok(true));
        assert_eq!(fs::read_to_string(&file).unwrap(), new);
        assert!(certificates.for_router(["shop"]).contains(new.lines().nth(1).unwrap()));
    }

    #[test]
    fn a_certificate_that_cannot_be_stored_does_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        let mut certificates = Certificates::load(folder.path()).unwrap();
        fs::create_dir(folder.path().join("certs/shop")).unwrap();
        let refusal = certificates.put("shop", bundle("x").as_bytes(), &BTreeSet::new()).unwrap_err();
        assert_eq!((refusal.status, refusal.error.as_str()), (500, text::CERTIFICATE_NOT_STORED));
        assert!(names(&certificates).is_empty());
    }

    #[test]
    fn only_a_router_gets_keys() {
        let mut certificates = Certificates::default();
        let pem = bundle("x").replace('\r', "");
        certificates.put("shop", pem.as_bytes(), &BTreeSet::new()).unwrap();
        certificates.put("blog", bundle("y").as_bytes(), &BTreeSet::new()).unwrap();
        let sent: BTreeMap<String, String> = serde_json::from_str(&certificates.for_router(["shop", "gone"])).unwrap();
        assert_eq!(sent, BTreeMap::from([("shop".to_owned(), pem)]));
        let shown = format!("{certificates:?}{}", certificates.describe_all().pretty());
        assert!(shown.contains("blog") && !shown.contains("PRIVATE"), "{shown}");
    }
}
