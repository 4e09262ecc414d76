//! Verifies the user and the password of a request, off the event loop.
//!
//! Hashing a password takes CPU time by design, so anyone who sends wrong ones costs us much: at most one verification
//! for each processor runs at a time, a limited number waits, and further requests are answered 503. A client has no more
//! than a part of the places that are free, so that one that guesses passwords leaves some to others. One of several files of users has a
//! part of the places and of the processors, because its owner chooses how long a verification takes. A user who was verified just
//! now does not wait. The time of an answer does not reveal which users exist.

use crate::access::client::{ClientMap, CountedRequest, LimitedClient};
use crate::access::credentials::Credentials;
use crate::access::password;
use crate::access::user_file::{UserFile, UserFiles};
use crate::access::verified::VerifiedPasswords;
use crate::file_access::{Place, on_file_thread};
use crate::report::OncePerMinute;
use crate::resources::processors::processors;
use crate::resources::slow_work::PROCESSOR_THREADS;
use crate::response::failure::Failure;
use howdah_config::{BasicAuth, PasswordHash};
use http::HeaderMap;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A thread's means to verify passwords.
#[derive(Default)]
pub struct Authentication {
    verified: VerifiedPasswords,
}

/// Where to look a user up.
enum UserSource {
    /// A user of the configuration.
    Hash(PasswordHash),
    /// The file, for all other users.
    File(Arc<UserFile>),
    /// There is no such user. The hash of another one is verified, so that this takes as long.
    NoSuchUser(PasswordHash),
}

/// The hash to verify.
struct FoundHash {
    /// `None` if there is no user at all.
    hash: Option<PasswordHash>,
    /// The hash is that of the user, and not of another one.
    is_of_user: bool,
}

/// A verification that waits, in the count of all threads.
struct Waiting {
    /// The same, in the count of its client; `None` for clients on Unix sockets.
    of_client: Option<CountedRequest>,
    /// Its place among those of its file of users.
    _of_file: Option<OwnedSemaphorePermit>,
}

/// The target of the lines about wrong passwords, whose limit is by client.
pub const WRONG_PASSWORDS: &str = "howdah_router::wrong_passwords";

/// At 100 ms each, the last one waits for some seconds.
const MAX_WAITING: u32 = 100;
/// A client has this part of the free places, at most.
const PART_OF_FREE: u32 = 4;
/// `Retry-After` of the requests beyond that, in seconds.
const RETRY_AFTER: u32 = 5;

static RUNNING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(processors())));
static WAITING: AtomicU32 = AtomicU32::new(0);
static CLIENTS: LazyLock<Arc<ClientMap<u32>>> = LazyLock::new(Arc::default);
static PROBLEMS: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

// === impl Authentication ===

impl Authentication {
    /// The user whose password the request of this client has; `None` if it must ask for one.
    ///
    /// # Errors
    /// 500 if the file of the users cannot be read, 503 if too many passwords are being verified or no thread can be started,
    /// 503 or 504 if the file system of the file does not answer.
    pub async fn user(
        &self,
        basic_auth: &BasicAuth,
        files: &UserFiles,
        headers: &HeaderMap,
        client: &str,
    ) -> Result<Option<Rc<str>>, Failure> {
        let Some(Credentials { user, password }) = Credentials::of(headers) else { return Ok(None) };
        let Some(source) = UserSource::of(basic_auth, files, &user) else {
            log_wrong(&user);
            return Ok(None);
        };
        let fingerprint = self.verified.fingerprint(&[source.identity(), user.as_bytes(), &password]);
        if self.verified.contains(&fingerprint) {
            return Ok(Some(user.into()));
        }
        // Also for users of the configuration beside it: a quick answer would reveal them.
        let file = basic_auth.user_file.as_ref().and_then(|path| files.find(path));
        let waiting = Waiting::begin(client, file.map(Arc::as_ref))?;
        // The file system may hang: this needs no processor.
        let hash = source.find(&user).await?;
        let turn = match file {
            Some(file) => file.turn().await,
            None => None,
        };
        let permit = Arc::clone(&RUNNING).acquire_owned().await.map_err(|_| Failure::Internal)?;
        drop(waiting);
        // A browser opens several connections at once.
        if self.verified.contains(&fingerprint) {
            return Ok(Some(user.into()));
        }
        // The permits are released when a verification that has begun has ended, even if the client left.
        let verification = PROCESSOR_THREADS.spawn(move || {
            let _permits = (permit, turn);
            hash.verify(&password)
        });
        let is_right = verification.await.map_err(|failure| match failure {
            howdah_blocking_work::Failure::NoThread(_) => refusal(format!("cannot verify passwords: {failure}")),
            howdah_blocking_work::Failure::Panicked => Failure::Internal,
        });
        if !is_right? {
            log_wrong(&user);
            return Ok(None);
        }
        self.verified.insert(fingerprint);
        Ok(Some(user.into()))
    }
}

/// The context of the line has the client, which fail2ban needs.
fn log_wrong(user: &str) {
    tracing::warn!(target: WRONG_PASSWORDS, user, "wrong user or password: answered 401");
}

/// The failure of a request whose password cannot wait, because of this.
fn refusal(problem: String) -> Failure {
    if PROBLEMS.is_due(&problem) {
        tracing::warn!("{problem}; answering 503");
    }
    Failure::Unavailable { retry_after: RETRY_AFTER }
}

// === impl UserSource ===

impl UserSource {
    /// Where to look this user up; `None` if there is no user at all.
    fn of(basic_auth: &BasicAuth, files: &UserFiles, user: &str) -> Option<UserSource> {
        if let Some(hash) = basic_auth.users.get(user) {
            return Some(UserSource::Hash(hash.clone()));
        }
        if let Some(path) = &basic_auth.user_file {
            return files.find(path).cloned().map(UserSource::File);
        }
        basic_auth.users.values().next().cloned().map(UserSource::NoSuchUser)
    }

    /// The source of the hash with which a password was compared. A user who does not exist is never verified.
    fn identity(&self) -> &[u8] {
        match self {
            UserSource::Hash(hash) | UserSource::NoSuchUser(hash) => hash.as_str().as_bytes(),
            UserSource::File(file) => file.path().as_os_str().as_bytes(),
        }
    }

    /// The hash to verify for this user.
    async fn find(self, user: &str) -> Result<FoundHash, Failure> {
        let file = match self {
            UserSource::Hash(hash) => return Ok(FoundHash { hash: Some(hash), is_of_user: true }),
            UserSource::NoSuchUser(hash) => return Ok(FoundHash { hash: Some(hash), is_of_user: false }),
            UserSource::File(file) => file,
        };
        let place = Place::of(file.path());
        let read = move || file.users().map_err(|error| file.problem(&error));
        let users = on_file_thread(place, read).await?.map_err(|problem| {
            if PROBLEMS.is_due(&problem) {
                tracing::error!("{problem}; answering 500");
            }
            Failure::Internal
        })?;
        let hash = users.get(user);
        let other = || users.values().next();
        Ok(FoundHash { hash: hash.or_else(other).cloned(), is_of_user: hash.is_some() })
    }
}

// === impl FoundHash ===

impl FoundHash {
    /// Whether this is the password of the user. This takes long.
    fn verify(&self, password: &[u8]) -> bool {
        let is_right = self.hash.as_ref().is_some_and(|hash| password::verify(hash, password));
        is_right && self.is_of_user
    }
}

// === impl Waiting ===

impl Waiting {
    /// One more of this client.
    ///
    /// # Errors
    /// 503 if all places are taken, or if the client or the file has its part of them.
    fn begin(client: &str, file: Option<&UserFile>) -> Result<Waiting, Failure> {
        let full = || refusal("too many passwords of one user_file wait for their verification".to_owned());
        let of_file = file.map(|file| file.place().ok_or_else(full)).transpose()?;
        let others = WAITING.fetch_add(1, Ordering::Relaxed);
        let mut waiting = Waiting { of_client: None, _of_file: of_file };
        if others >= MAX_WAITING {
            return Err(refusal(format!("more than {MAX_WAITING} passwords wait for their verification")));
        }
        let Ok(address) = client.parse() else { return Ok(waiting) };
        let most = ((MAX_WAITING - others) / PART_OF_FREE).max(1);
        waiting.of_client = CountedRequest::begin(&CLIENTS, LimitedClient::new(address, 0), most);
        match waiting.of_client {
            Some(_) => Ok(waiting),
            None => Err(refusal("too many passwords of one client wait for their verification".to_owned())),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use howdah_config::Configuration;
    use http::header::AUTHORIZATION;

    /// `password`.
    const HASH: &str = "$apr1$8sFt66rZ$CwW5jnBTcCMb9M9VZMRdm/";

    #[tokio::test]
    async fn a_user_with_the_right_password_is_known_at_once_the_next_time() {
        let basic_auth = format!(r#"{{"realm": "x", "users": {{"ann": "{HASH}"}}}}"#);
        let text = format!(r#"{{"routes": [{{"action": {{"return": 200, "basic_auth": {basic_auth}}}}}]}}"#);
        let configuration = Configuration::parse(&text).unwrap();
        let basic_auth = configuration.routes.actions().next().unwrap().basic_auth.clone().unwrap();
        let authentication = Authentication::default();
        let files = UserFiles::default();
        let user = |credentials: &'static str| {
            let value = format!("Basic {}", STANDARD.encode(credentials));
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            let (authentication, basic_auth, files) = (&authentication, &basic_auth, &files);
            async move { authentication.user(basic_auth, files, &headers, "192.0.2.1").await }
        };
        for wrong in ["ann:Password", "bob:password", "ann:", ":"] {
            assert_eq!(user(wrong).await, Ok(None), "{wrong}");
        }
        assert_eq!(user("ann:password").await, Ok(Some("ann".into())));
        let fingerprint = authentication.verified.fingerprint(&[HASH.as_bytes(), b"ann", b"password"]);
        assert!(authentication.verified.contains(&fingerprint));
        let another = authentication.verified.fingerprint(&[HASH.as_bytes(), b"bob", b"password"]);
        assert!(!authentication.verified.contains(&another), "a user who does not exist is not remembered");
        assert_eq!(user("ann:Password").await, Ok(None), "another password is verified again");
        assert_eq!(authentication.user(&basic_auth, &files, &HeaderMap::new(), "").await, Ok(None));
        assert_eq!(RUNNING.available_permits(), processors());
    }
}
