//! The accounts at the authorities: one for each directory and external account, made at its first use.
//!
//! An account that was made before comes with the order. An account that the authority does not know any more is replaced.
//! Orders that wait for an account together get the same account, or the same error: an authority that does not answer
//! costs them its timeout once, and not once each.

use crate::https_client::HttpsClient;
use howdah_protocol::messages::acme::{OrderAuthority, Secret};
use instant_acme::{Account, Error, ExternalAccountKey, NewAccount};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Mutex;

/// An account, and the client that it uses.
#[derive(Clone)]
pub struct KnownAccount {
    pub account: Account,
    pub client: HttpsClient,
}

/// The accounts.
#[derive(Default)]
pub struct Accounts {
    slots: Mutex<BTreeMap<Key, Arc<Mutex<Slot>>>>,
}

/// The place of one account.
#[derive(Default)]
struct Slot {
    known: Option<KnownAccount>,
    /// When the last attempt to get it failed, and why.
    failure: Option<(Instant, Arc<Error>)>,
}

/// The directory, the identifier of the external account, and the roots.
type Key = (String, Option<String>, Option<String>);

/// An account that was made now, for the supervisor.
pub type NewCredentials = Option<Secret<String>>;

// === impl Accounts ===

impl Accounts {
    /// The account at this authority. Of orders at the same time, the first one makes it.
    ///
    /// # Errors
    /// The error of the authority, or of the way there.
    pub async fn of(
        &self,
        authority: &OrderAuthority,
        contact: Option<&str>,
    ) -> Result<(KnownAccount, NewCredentials), Arc<Error>> {
        let since = Instant::now();
        let slot = Arc::clone(self.slots.lock().await.entry(key(authority)).or_default());
        let mut slot = slot.lock().await;
        if let Some(known) = &slot.known {
            return Ok((known.clone(), None));
        }
        if let Some((_, error)) = slot.failure.as_ref().filter(|(at, _)| *at > since) {
            return Err(Arc::clone(error));
        }
        match open(authority, contact).await {
            Ok((known, credentials)) => {
                slot.known = Some(known.clone());
                Ok((known, credentials))
            }
            Err(error) => {
                let error = Arc::new(error);
                slot.failure = Some((Instant::now(), Arc::clone(&error)));
                Err(error)
            }
        }
    }

    /// Forgets an account that the authority does not know. The next order makes another one, unless it comes with one.
    pub async fn forget(&self, authority: &OrderAuthority) {
        self.slots.lock().await.remove(&key(authority));
    }
}

/// Takes the account that comes with the order, or makes one.
async fn open(authority: &OrderAuthority, contact: Option<&str>) -> Result<(KnownAccount, NewCredentials), Error> {
    let client = HttpsClient::new(&authority.directory, authority.roots.as_deref());
    let client = client.map_err(|problem| Error::Other(problem.into()))?;
    let builder = || Account::builder_with_http(Box::new(client.clone()));
    if let Some(Secret(text)) = &authority.credentials
        && let Ok(credentials) = serde_json::from_str(text)
    {
        let account = builder().from_credentials(credentials).await?;
        return Ok((KnownAccount { account, client }, None));
    }
    let external = authority.external_account.as_ref();
    let external = external.map(|Secret((id, key))| ExternalAccountKey::new(id.clone(), key));
    let contact: Vec<&str> = contact.into_iter().collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder().create(&new, authority.directory.clone(), external.as_ref()).await?;
    let credentials = serde_json::to_string(&credentials)?;
    Ok((KnownAccount { account, client }, Some(Secret(credentials))))
}

fn key(authority: &OrderAuthority) -> Key {
    let account = authority.external_account.as_ref().map(|Secret((id, _))| id.clone());
    (authority.directory.clone(), account, authority.roots.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An authority that closes each connection.
    fn broken_authority() -> (OrderAuthority, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let directory = format!("http://{}/directory", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        (OrderAuthority { directory, roots: None, external_account: None, credentials: None }, connections)
    }

    #[tokio::test]
    async fn orders_that_wait_together_have_one_error() {
        let (authority, connections) = broken_authority();
        let accounts = Accounts::default();
        let order = || async { accounts.of(&authority, None).await.map(drop).unwrap_err() };
        let (first, second, third) = tokio::join!(order(), order(), order());
        assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &third));
        assert_eq!(connections.load(Ordering::SeqCst), 1, "the others do not try again");
        let later = order().await;
        assert!(!Arc::ptr_eq(&first, &later), "a later order tries again");
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }
}
