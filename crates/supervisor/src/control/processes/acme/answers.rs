//! The answers to the challenges of orders under way, which the router gives to the authorities.
//!
//! An order goes on when the router has reported that it answers: until then an authority would find nothing.

use crate::os::files::memory_file::memory_file;
use howdah_protocol::messages::acme::{ChallengeAnswer, ChallengeAnswers};
use howdah_protocol::messages::router::ToRouter;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// The answers, as a set with a number.
#[derive(Debug, Default)]
pub struct Answers {
    /// By order.
    answers: BTreeMap<u64, ChallengeAnswer>,
    /// The number of the set.
    version: u64,
    /// The router does not have this set.
    is_new: bool,
    /// The orders whose challenges the router does not answer yet, with the number of the set.
    unanswered: Vec<(u64, u64)>,
}

// === impl Answers ===

impl Answers {
    /// Adds the answer for an order.
    pub fn add(&mut self, order: u64, answer: ChallengeAnswer) {
        self.answers.insert(order, answer);
        self.change();
        self.unanswered.push((order, self.version));
    }

    /// An order has ended.
    pub fn forget(&mut self, order: u64) {
        self.unanswered.retain(|(known, _)| *known != order);
        if self.answers.remove(&order).is_some() {
            self.change();
        }
    }

    /// All orders have ended.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.unanswered.clear();
    }

    /// The message that lets the router answer, if the set has changed since the last question.
    pub fn take_new(&mut self) -> Option<(ToRouter, Vec<OwnedFd>)> {
        std::mem::take(&mut self.is_new).then(|| self.message().ok()).flatten()
    }

    /// The message that lets another router answer; `None` without answers.
    pub fn for_new_router(&self) -> Option<(ToRouter, Vec<OwnedFd>)> {
        if self.answers.is_empty() { None } else { self.message().ok() }
    }

    /// The router gives the answers of this set. Returns the orders that may go on.
    pub fn on_answered(&mut self, version: u64) -> impl Iterator<Item = u64> {
        self.unanswered.extract_if(.., move |(_, since)| *since <= version).map(|(order, _)| order)
    }

    fn message(&self) -> io::Result<(ToRouter, Vec<OwnedFd>)> {
        let mut all = ChallengeAnswers::default();
        for answer in self.answers.values().cloned() {
            match answer {
                ChallengeAnswer::Http(token, body) => drop(all.http.insert(token, body)),
                ChallengeAnswer::TlsAlpn(domain, pem) => drop(all.tls_alpn.insert(domain, pem)),
            }
        }
        let text = serde_json::to_vec(&all)?;
        Ok((ToRouter::AnswerChallenges { version: self.version }, vec![memory_file(&text)?]))
    }

    fn change(&mut self) {
        self.version += 1;
        self.is_new = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(token: &str) -> ChallengeAnswer {
        ChallengeAnswer::Http(token.to_owned(), "x".to_owned())
    }

    #[test]
    fn an_order_goes_on_when_the_router_answers_its_challenge() {
        let mut answers = Answers::default();
        assert!(answers.take_new().is_none() && answers.for_new_router().is_none());
        answers.add(1, answer("a"));
        answers.add(2, answer("b"));
        assert!(answers.take_new().is_some() && answers.take_new().is_none());
        assert_eq!(answers.on_answered(1).collect::<Vec<_>>(), [1]);
        answers.add(3, answer("c"));
        answers.forget(2);
        assert!(answers.for_new_router().is_some());
        assert_eq!(answers.on_answered(4).collect::<Vec<_>>(), [3]);
        answers.forget(1);
        answers.forget(3);
        assert!(answers.take_new().is_some() && answers.for_new_router().is_none());
        answers.forget(3);
        assert!(answers.take_new().is_none());
    }
}
