//! The accounts at the authorities: one for each directory and external account, made at its first use.
//!
//! An account that was made before comes with the order. An account that the authority does not know any more is replaced.

use crate::https_client::HttpsClient;
use howdah_protocol::messages::acme::{OrderAuthority, Secret};
use instant_acme::{Account, Error, ExternalAccountKey, NewAccount};
use std::collections::BTreeMap;
use std::sync::Arc;
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
    known: Mutex<BTreeMap<Key, Arc<Mutex<Option<KnownAccount>>>>>,
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
    ) -> Result<(KnownAccount, NewCredentials), Error> {
        let slot = Arc::clone(self.known.lock().await.entry(key(authority)).or_default());
        let mut slot = slot.lock().await;
        if let Some(known) = &*slot {
            return Ok((known.clone(), None));
        }
        let client = HttpsClient::new(&authority.directory, authority.roots.as_deref());
        let client = client.map_err(|problem| Error::Other(problem.into()))?;
        let builder = || Account::builder_with_http(Box::new(client.clone()));
        if let Some(Secret(text)) = &authority.credentials
            && let Ok(credentials) = serde_json::from_str(text)
        {
            let account = builder().from_credentials(credentials).await?;
            let known = KnownAccount { account, client };
            *slot = Some(known.clone());
            return Ok((known, None));
        }
        let external = authority.external_account.as_ref();
        let external = external.map(|Secret((id, key))| ExternalAccountKey::new(id.clone(), key));
        let contact: Vec<&str> = contact.into_iter().collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) = builder().create(&new, authority.directory.clone(), external.as_ref()).await?;
        let credentials = serde_json::to_string(&credentials)?;
        let known = KnownAccount { account, client };
        *slot = Some(known.clone());
        Ok((known, Some(Secret(credentials))))
    }

    /// Forgets an account that the authority does not know. The next order makes another one, unless it comes with one.
    pub async fn forget(&self, authority: &OrderAuthority) {
        self.known.lock().await.remove(&key(authority));
    }
}

fn key(authority: &OrderAuthority) -> Key {
    let account = authority.external_account.as_ref().map(|Secret((id, _))| id.clone());
    (authority.directory.clone(), account, authority.roots.clone())
}
