//! Certificates by themselves: which domains need one, the orders under way, and the challenges that the router answers.
//!
//! The supervisor decides, stores and passes on; [`process`] talks to the authorities. Each [`domain`] has one certificate
//! for all listeners. Until the first one is issued, the router has a temporary one. A failure is logged with its remedy,
//! and the next attempt follows after a pause; what serves goes on with what it has. Clients may ask for further names:
//! [`names`] passes them on, [`on_demand`] decides which of them are asked for. The router gives the [`answers`] to the
//! authorities' challenges; [`status`] is for `GET /status`.

mod answers;
mod domain;
mod names;
mod on_demand;
mod process;
mod status;

pub use status::DomainStatus;

use crate::os::identity::UserAccount;
use crate::policy::renewal;
use crate::store::certificates::{CertificateOrigin, Certificates, IssuedCertificate, StoredAccount, time_text};
use answers::Answers;
use domain::{ManagedDomain, Permission, seconds_since_1970};
use howdah_config::{AcmeAuthority, AcmeChallenge, AcmeKey, Configuration};
use howdah_protocol::messages::acme::{
    CertificateOrder, FailureCause, FromAcme, OrderAuthority, OrderChallenge, OrderFailure, OrderKey, Secret, ToAcme,
    WindowQuestion,
};
use howdah_protocol::test_time::divided_for_acme;
use on_demand::OnDemandNames;
use process::AcmeProcess;
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The domains, and the process that obtains their certificates.
#[derive(Debug)]
pub struct AcmeControl {
    account: UserAccount,
    domains: BTreeMap<String, ManagedDomain>,
    process: Option<AcmeProcess>,
    /// Since when the process has had nothing to do.
    idle_since: Option<Instant>,
    /// Of the next order, or of the next question.
    next_number: u64,
    accounts: Vec<StoredAccount>,
    /// The answers to the challenges of orders under way.
    answers: Answers,
    has_new_certificates: bool,
    /// The names that clients have asked for.
    on_demand: OnDemandNames,
    /// When to try again to store what could not be stored.
    store_at: Option<Instant>,
    /// Whether the log has that the clock is wrong.
    has_warned_of_clock: bool,
    /// The clocks at the last look: the monotonic one, and that of the wall.
    last_look: (Instant, i64),
}

/// The most orders at a time; the others wait.
const ORDERS_AT_ONCE: usize = 8;
/// The same for names on demand, so that strangers do not delay the configured names.
const ORDERS_ON_DEMAND_AT_ONCE: usize = 4;
/// A name on demand without a certificate is given up after this number of rounds.
const ROUNDS_ON_DEMAND: u32 = 3;
/// The process has its own deadline, which is shorter.
const ORDER_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// How long the process is kept without orders.
const KEPT_IDLE: Duration = Duration::from_secs(10);
/// How often the wall clock is looked at: it may jump.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(60);
/// How often storing is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(60);

// === impl AcmeControl ===

impl AcmeControl {
    /// Without domains. The process runs as this account.
    pub fn new(account: UserAccount, accounts: Vec<StoredAccount>) -> AcmeControl {
        AcmeControl {
            account,
            domains: BTreeMap::new(),
            process: None,
            idle_since: None,
            next_number: 1,
            accounts,
            answers: Answers::default(),
            has_new_certificates: false,
            on_demand: OnDemandNames::new(),
            store_at: None,
            has_warned_of_clock: false,
            last_look: (Instant::now(), seconds_since_1970()),
        }
    }

    /// Takes over the domains of a configuration that is active now.
    pub fn update(&mut self, configuration: &Configuration, certificates: &Certificates, now: Instant) {
        let listeners = configuration.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.acme.as_ref());
        let former_names: BTreeSet<String> = self.names_on_demand().map(str::to_owned).collect();
        let mut former = std::mem::take(&mut self.domains);
        for acme in listeners {
            for name in &acme.domains {
                if self.domains.contains_key(name) {
                    continue;
                }
                let certificate = certificates.issued(name);
                let known =
                    former.remove(name).filter(|known| known.issuance == acme.issuance && !known.is_on_demand());
                let is_known = known.is_some();
                let domain = known.unwrap_or_else(|| ManagedDomain::new(acme.issuance.clone(), certificate, now));
                if certificate.is_none() && !is_known {
                    tracing::warn!(
                        "{name} has no certificate yet; until an authority has issued one, clients get a temporary one, \
                         which browsers warn of"
                    );
                }
                self.domains.insert(name.clone(), domain);
            }
        }
        let asks_another = self.on_demand.update(configuration);
        if let Some((on_demand, issuance)) = self.on_demand.settings() {
            let asked_for = former.iter().filter(|(_, domain)| domain.is_on_demand()).map(|(name, _)| name.clone());
            let stored = certificates.issued_on_demand().map(str::to_owned);
            let names: BTreeSet<String> = asked_for.chain(stored).collect();
            let names: Vec<_> = names.into_iter().filter(|name| !self.domains.contains_key(name)).collect();
            for name in names.into_iter().take(on_demand.names as usize) {
                let certificate = certificates.issued(&name);
                let known = former.remove(&name).filter(|known| known.is_on_demand() && known.issuance == *issuance);
                let mut domain = known.unwrap_or_else(|| ManagedDomain::on_demand(issuance.clone(), certificate, now));
                if asks_another && domain.permission == Permission::Asked {
                    domain.permission = Permission::Needed;
                }
                self.domains.insert(name, domain);
            }
        }
        if !self.names_on_demand().eq(former_names.iter().map(String::as_str)) {
            self.on_demand.replace_all();
        }
        // The process goes on with orders that no domain waits for; their results are ignored.
        let ended = former.into_values().filter_map(|domain| domain.order).map(|(order, _)| order);
        ended.for_each(|order| self.answers.forget(order));
    }

    /// The status of each domain.
    pub fn status(&self, certificates: &Certificates, now: Instant) -> BTreeMap<String, DomainStatus> {
        let status = |(name, domain): (&String, &ManagedDomain)| {
            (name.clone(), DomainStatus::of(domain, certificates.issued(name), now))
        };
        self.domains.iter().map(status).collect()
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self, certificates: &Certificates, now: Instant) -> Option<Instant> {
        let has_room = self.orders() < ORDERS_AT_ONCE;
        let has_room_on_demand = has_room && self.orders_on_demand() < ORDERS_ON_DEMAND_AT_ONCE;
        let of_domain = |(name, domain): (&String, &ManagedDomain)| match domain.order {
            Some((_, deadline)) => Some(deadline),
            None => {
                let pause = domain.pause(certificates.issued(name), now).min(divided_for_acme(LOOK_AT_CLOCK));
                let can_begin = match domain.permission {
                    Permission::Configured => has_room,
                    Permission::Needed => self.on_demand.has_room(),
                    Permission::Asked => false,
                    Permission::Given => has_room_on_demand,
                };
                let attempt = can_begin.then_some(now + pause);
                attempt.into_iter().chain(domain.ask_at()).min()
            }
        };
        let idle = self.idle_since.map(|since| since + KEPT_IDLE);
        self.domains
            .iter()
            .filter_map(of_domain)
            .chain(idle)
            .chain(self.store_at)
            .chain(self.on_demand.next_deadline())
            .min()
    }

    /// Begins the attempts that are due, and ends those that take too long.
    pub fn on_time(&mut self, certificates: &mut Certificates, now: Instant) {
        self.look_at_clock(now);
        if self.store_at.is_some_and(|at| at <= now) {
            store_again(certificates);
            self.store_at = certificates.has_unstored().then(|| now + divided_for_acme(STORE_AGAIN));
        }
        let overdue = |domain: &ManagedDomain| domain.order.filter(|(_, deadline)| *deadline <= now);
        if self.domains.values().any(|domain| overdue(domain).is_some()) {
            tracing::error!("the process that obtains certificates does not answer; killing it");
            self.on_process_end("did not answer in time", now);
        }
        for question in self.on_demand.questions_without_answer(Some(now)) {
            self.on_no_answer(question, "it did not answer in time", now);
        }
        let mut room = ORDERS_AT_ONCE.saturating_sub(self.orders());
        let mut room_on_demand = ORDERS_ON_DEMAND_AT_ONCE.saturating_sub(self.orders_on_demand());
        let names: Vec<String> = self.domains.keys().cloned().collect();
        for name in names {
            let Some(domain) = self.domains.get_mut(&name).filter(|domain| domain.order.is_none()) else { continue };
            let certificate = certificates.issued(&name);
            let is_due = domain.pause(certificate, now).is_zero();
            let can_begin = match domain.permission {
                Permission::Configured => room > 0,
                Permission::Given => room > 0 && room_on_demand > 0,
                Permission::Needed | Permission::Asked => false,
            };
            if is_due && can_begin {
                room -= 1;
                room_on_demand -= usize::from(domain.is_on_demand());
                self.begin_order(&name, certificates, now);
            } else if is_due && domain.permission == Permission::Needed && self.on_demand.has_room() {
                domain.permission = Permission::Asked;
                self.ask_for_name(name, now);
            } else if domain.ask_at().is_some_and(|at| at <= now)
                && let Some(certificate) = certificate
            {
                let question = self.next_number;
                self.next_number += 1;
                domain.on_ask(question, now);
                // The authority that has issued it, if it is still among the configured ones.
                let directory = &certificate.origin.directory;
                let authority = domain.issuance.authorities.iter().find(|known| known.directory == *directory).cloned();
                if let Some(authority) = authority.map(|authority| self.order_authority(&authority, certificates)) {
                    let certificate = certificate.chain().to_owned();
                    self.send(
                        ToAcme::AskForWindow(WindowQuestion { question, domain: name, authority, certificate }),
                        now,
                    );
                }
            }
        }
        let is_busy = self.orders() > 0 || self.on_demand.is_asking();
        if self.process.is_none() || is_busy {
            self.idle_since = None;
        } else if *self.idle_since.get_or_insert(now) + KEPT_IDLE <= now {
            // The end of its socket ends it.
            self.process = None;
            self.idle_since = None;
        }
    }

    fn look_at_clock(&mut self, now: Instant) {
        let wall = seconds_since_1970();
        let (at, before) = std::mem::replace(&mut self.last_look, (now, wall));
        if let Some(jump) = renewal::jump(before, wall, now.saturating_duration_since(at))
            && !self.domains.is_empty()
        {
            let (distance, direction) = (time_span(jump), if jump > 0 { "ahead" } else { "back" });
            tracing::info!("the clock of this machine has jumped {direction} by {distance}");
            self.has_warned_of_clock = false;
        }
    }

    fn begin_order(&mut self, name: &str, certificates: &Certificates, now: Instant) {
        let Some(domain) = self.domains.get(name) else { return };
        let (authority, challenge) = (domain.authority(), domain.challenge());
        tracing::info!("asking {} for a certificate of {name} ({})", authority.directory, challenge.as_str());
        let order = self.next_number;
        let former = certificates.issued(name).filter(|issued| issued.origin.directory == authority.directory);
        let message = CertificateOrder {
            order,
            domain: name.to_owned(),
            authority: self.order_authority(authority, certificates),
            contact: domain.issuance.contact.clone(),
            challenge: match (challenge, &domain.issuance.dns) {
                (AcmeChallenge::Http, _) => OrderChallenge::Http,
                (AcmeChallenge::Dns, Some(dns)) => {
                    OrderChallenge::Dns { command: dns.command.clone(), wait_seconds: dns.wait.as_secs() }
                }
                (AcmeChallenge::TlsAlpn | AcmeChallenge::Dns, _) => OrderChallenge::TlsAlpn,
            },
            replaces: former.map(|former| former.chain().to_owned()),
            key: match domain.issuance.key {
                AcmeKey::P256 => OrderKey::P256,
                AcmeKey::P384 => OrderKey::P384,
            },
        };
        self.next_number += 1;
        if let Some(domain) = self.domains.get_mut(name) {
            domain.order = Some((order, now + ORDER_PATIENCE));
        }
        self.send(ToAcme::Obtain(Box::new(message)), now);
    }

    fn order_authority(&self, authority: &AcmeAuthority, certificates: &Certificates) -> OrderAuthority {
        let key_id = authority.external_account.as_ref().map(|account| account.key_id.clone());
        let known = self.accounts.iter().find(|known| known.directory == authority.directory && known.key_id == key_id);
        OrderAuthority {
            directory: authority.directory.clone(),
            roots: authority.roots.as_deref().and_then(|name| certificates.authorities(name)),
            external_account: authority
                .external_account
                .as_ref()
                .map(|account| Secret((account.key_id.clone(), account.hmac_key.clone()))),
            credentials: known.map(|known| known.credentials.clone()),
        }
    }

    fn orders(&self) -> usize {
        self.domains.values().filter(|domain| domain.order.is_some()).count()
    }

    fn orders_on_demand(&self) -> usize {
        self.domains.values().filter(|domain| domain.order.is_some() && domain.is_on_demand()).count()
    }

    // The process

    /// Sends a message, and starts the process for it if it does not run.
    fn send(&mut self, message: ToAcme, now: Instant) {
        if self.process.is_none() {
            match AcmeProcess::start(&self.account) {
                Ok(process) => self.process = Some(process),
                Err(error) => return self.on_process_end(&format!("cannot be started: {error}"), now),
            }
        }
        if let Some(process) = &mut self.process {
            process.send(message);
        }
    }

    /// Its next message; `None` when it has closed its socket.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromAcme>> {
        self.process.as_mut().map_or(Poll::Pending, |process| process.poll_receive(cx))
    }

    /// A child has died. If it is the process, its orders have failed.
    pub fn on_death(&mut self, pid: Pid, end: &str, now: Instant) {
        if self.process.as_ref().is_some_and(|process| process.is_process(pid)) {
            self.on_process_end(end, now);
        }
    }

    /// The process is of no use any more.
    pub fn on_process_end(&mut self, end: &str, now: Instant) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
        for question in self.on_demand.questions_without_answer(None) {
            self.on_no_answer(question, &format!("the process that asks it {end}; see howdah's log"), now);
        }
        let orders: Vec<_> = self.domains.values().filter_map(|domain| domain.order).collect();
        for (order, _) in orders {
            let reason = format!("the process that obtains certificates {end}; see howdah's log");
            self.on_failure(
                order,
                &OrderFailure { cause: FailureCause::Challenge, reason, retry_after_seconds: None },
                now,
            );
        }
    }

    /// Ends the process, because howdah shuts down.
    pub fn stop(&mut self, certificates: &mut Certificates) {
        if self.store_at.take().is_some() {
            store_again(certificates);
        }
        self.domains.clear();
        self.on_demand = OnDemandNames::new();
        self.answers.clear();
        self.idle_since = None;
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// A message of the process; `None` when it has closed its socket.
    pub fn on_message(&mut self, message: Option<FromAcme>, certificates: &mut Certificates, now: Instant) {
        match message {
            None => self.on_process_end("has ended", now),
            Some(FromAcme::Account { directory, key_id, credentials }) => {
                self.on_account(StoredAccount { directory, key_id, credentials }, certificates, now);
            }
            Some(FromAcme::NameAnswer { question, answer: Ok(is_allowed) }) => {
                self.on_name_answer(question, is_allowed, certificates, now);
            }
            Some(FromAcme::NameAnswer { question, answer: Err(reason) }) => self.on_no_answer(question, &reason, now),
            Some(FromAcme::Challenge { order, answer }) => {
                if self.domain_of(order).is_some() {
                    self.answers.add(order, answer);
                }
            }
            Some(FromAcme::Obtained { order, pem }) => self.on_obtained(order, &pem.0, certificates, now),
            Some(FromAcme::Failed { order, failure }) => self.on_failure(order, &failure, now),
            Some(FromAcme::RenewalWindow { question, window, ask_again_seconds }) => {
                for domain in self.domains.values_mut() {
                    domain.on_window(question, window, Duration::from_secs(ask_again_seconds), now);
                }
            }
        }
    }

    fn on_account(&mut self, account: StoredAccount, certificates: &mut Certificates, now: Instant) {
        tracing::info!("made an account at {}", account.directory);
        if let Err(problem) = certificates.put_account(&account) {
            tracing::error!(
                "the account at {} is lost at the end of howdah if it cannot be stored before: {problem}",
                account.directory
            );
            self.store_at.get_or_insert(now + divided_for_acme(STORE_AGAIN));
        }
        self.accounts.retain(|known| known.directory != account.directory || known.key_id != account.key_id);
        self.accounts.push(account);
    }

    fn on_obtained(&mut self, order: u64, pem: &str, certificates: &mut Certificates, now: Instant) {
        self.answers.forget(order);
        let Some((name, domain)) = self.domain_of(order) else { return };
        let name = name.clone();
        let (directory, challenge) = (domain.authority().directory.clone(), domain.challenge());
        let on_demand = domain.is_on_demand();
        let origin =
            CertificateOrigin { directory: directory.clone(), challenge: challenge.as_str().to_owned(), on_demand };
        match certificates.put_issued(&name, origin, pem) {
            Ok(warning) => {
                let Some(validity) = certificates.issued(&name).map(IssuedCertificate::validity) else { return };
                if let Some(domain) = self.domains.get_mut(&name) {
                    domain.on_success(validity, now);
                }
                if on_demand {
                    self.on_demand.add_new(&name);
                } else {
                    self.has_new_certificates = true;
                }
                let until = time_text(validity.until);
                tracing::info!("{directory} has issued a certificate of {name}, valid until {until}");
                let difference = renewal::clock_difference(validity, seconds_since_1970());
                if let Some(ahead) = difference
                    && !std::mem::replace(&mut self.has_warned_of_clock, true)
                {
                    tracing::error!(
                        "the clock of this machine is {} {} that of {directory}; set it, because one of them is wrong",
                        time_span(ahead),
                        if ahead > 0 { "ahead of" } else { "behind" }
                    );
                }
                if let Some(warning) = warning {
                    tracing::error!(
                        "the certificate of {name} is used, but lost at the end of howdah if it cannot be stored before: \
                         {warning}"
                    );
                    self.store_at.get_or_insert(now + divided_for_acme(STORE_AGAIN));
                }
            }
            Err(problem) => {
                let reason = format!("the authority has not sent a certificate that can be used: {problem}");
                let failure = OrderFailure { cause: FailureCause::Authority, reason, retry_after_seconds: None };
                self.on_failure(order, &failure, now);
            }
        }
    }

    fn on_failure(&mut self, order: u64, failure: &OrderFailure, now: Instant) {
        self.answers.forget(order);
        let found = self.domains.iter_mut().find(|(_, domain)| domain.order.is_some_and(|(known, _)| known == order));
        let Some((name, domain)) = found else { return };
        let (directory, challenge) = (domain.authority().directory.clone(), domain.challenge().as_str());
        let pause = domain.on_failure(failure, now);
        let next = match pause.as_secs() {
            0 if pause.is_zero() => {
                format!("trying {} with {}", domain.authority().directory, domain.challenge().as_str())
            }
            0..120 => format!("trying again in {} s", pause.as_secs()),
            seconds => format!("trying again in {} min", seconds / 60),
        };
        let is_hopeless =
            domain.is_on_demand() && !domain.has_certificate() && domain.failed_rounds >= ROUNDS_ON_DEMAND;
        let next = if is_hopeless { "giving up this name, which is not in the configuration".to_owned() } else { next };
        tracing::error!("{directory} has not issued a certificate of {name} ({challenge}): {}; {next}", failure.reason);
        if is_hopeless {
            let name = name.clone();
            self.domains.remove(&name);
            self.on_demand.on_hopeless(&name, now);
        }
    }

    fn domain_of(&self, order: u64) -> Option<(&String, &ManagedDomain)> {
        self.domains.iter().find(|(_, domain)| domain.order.is_some_and(|(known, _)| known == order))
    }

    // The router

    /// Whether certificates were issued since the last question.
    pub fn take_new_certificates(&mut self) -> bool {
        std::mem::take(&mut self.has_new_certificates)
    }

    /// The answers to challenges, for the router.
    pub fn answers(&mut self) -> &mut Answers {
        &mut self.answers
    }

    /// The router answers the challenges of this set.
    pub fn on_answered(&mut self, version: u64) {
        for order in self.answers.on_answered(version) {
            if let Some(process) = &mut self.process {
                process.send(ToAcme::ChallengeIsAnswered { order });
            }
        }
    }
}

fn store_again(certificates: &mut Certificates) {
    for stored in certificates.store_again() {
        tracing::info!("{stored}, which could not be stored before, is stored now");
    }
}

/// A number of seconds, without its sign, in a unit that fits.
fn time_span(seconds: i64) -> String {
    const HOUR: u64 = 60 * 60;
    match seconds.unsigned_abs().saturating_add(HOUR / 2) / HOUR {
        hours @ 0..48 => format!("{hours} hours"),
        hours => format!("{} days", (hours + 12) / 24),
    }
}
