//! Asks the operator's program whether a name may get a certificate (`on_demand`): a GET with `?domain=NAME`.

use crate::https_client::HttpsClient;
use howdah_protocol::messages::acme::{FromAcme, NameQuestion};
use http::StatusCode;
use std::cell::RefCell;
use std::time::Duration;

/// The operator's program.
#[derive(Default)]
pub struct Program {
    /// Its client, by its URL: all listeners have the same one, until the configuration changes.
    client: RefCell<Option<(String, HttpsClient)>>,
}

/// A client waits in its handshake.
const TIMEOUT: Duration = Duration::from_secs(10);

// === impl Program ===

impl Program {
    /// Asks it.
    pub async fn ask(&self, question: NameQuestion) -> FromAcme {
        let answer = tokio::time::timeout(TIMEOUT, self.answer(&question)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
        FromAcme::NameAnswer { question: question.question, answer }
    }

    async fn answer(&self, question: &NameQuestion) -> Result<bool, String> {
        let client = self.client(&question.url)?;
        let status = client.status(&url(&question.url, &question.name)).await.map_err(|error| error.to_string())?;
        meaning(status)
    }

    fn client(&self, url: &str) -> Result<HttpsClient, String> {
        let mut known = self.client.borrow_mut();
        if let Some((_, client)) = known.as_ref().filter(|(known, _)| known == url) {
            return Ok(client.clone());
        }
        let client = HttpsClient::new(url, None)?;
        *known = Some((url.to_owned(), client.clone()));
        Ok(client)
    }
}

/// 200 is a yes. The fault of a server is not a no: a certificate that exists is kept.
fn meaning(status: StatusCode) -> Result<bool, String> {
    match status {
        StatusCode::OK => Ok(true),
        StatusCode::TOO_MANY_REQUESTS => Err(format!("it answers {status}")),
        status if status.is_server_error() => Err(format!("it answers {status}")),
        _ => Ok(false),
    }
}

/// A name has no characters with a meaning in a URL.
fn url(program: &str, name: &str) -> String {
    let (url, _) = program.split_once('#').unwrap_or((program, ""));
    format!("{url}{}domain={name}", if url.contains('?') { '&' } else { '?' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_an_argument() {
        for (program, expected) in [
            ("http://127.0.0.1:1/allowed", "http://127.0.0.1:1/allowed?domain=a.example"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1?domain=a.example"),
            ("https://ask.example/?key=1#x", "https://ask.example/?key=1&domain=a.example"),
        ] {
            assert_eq!(url(program, "a.example"), expected);
        }
    }

    #[test]
    fn only_200_allows_a_name() {
        for (status, expected) in [
            (200, Some(true)),
            (204, Some(false)),
            (302, Some(false)),
            (403, Some(false)),
            (404, Some(false)),
            (429, None),
            (500, None),
            (503, None),
        ] {
            assert_eq!(meaning(StatusCode::from_u16(status).unwrap()).ok(), expected, "{status}");
        }
    }
}
