//! `response_headers`: the changes that an action makes to the headers of its response.

use crate::request::subject::Subject;
use crate::response::header_case;
use howdah_config::HeaderChange;
use http::Response;
use http::header::{HeaderName, HeaderValue};

/// Carries the changes out. As in NGINX Unit, an error (400 and above) keeps its headers.
pub fn change<B>(response: &mut Response<B>, changes: &[HeaderChange], subject: &Subject<'_>) {
    if changes.is_empty() || response.status().as_u16() >= 400 {
        return;
    }
    // All values come from the response before the changes.
    let status = response.status();
    let values: Vec<_> = {
        let subject = subject.answered(status, response.headers());
        changes.iter().map(|change| change.value.as_ref().map(|value| value.render(&subject).into_owned())).collect()
    };
    for (change, value) in changes.iter().zip(values) {
        let Ok(name) = HeaderName::from_bytes(change.name.as_bytes()) else { continue };
        match value.map(|value| HeaderValue::from_str(&value)) {
            None => drop(response.headers_mut().remove(name)),
            Some(Ok(value)) => {
                let Ok(replaced) = response.headers_mut().try_insert(name, value) else {
                    tracing::error!("an action's \"response_headers\" are too many: the rest is left out");
                    return;
                };
                header_case::rename(response, &change.written, replaced.is_some());
            }
            Some(Err(_)) => {
                tracing::warn!(header = %name, "a variable's value is not possible in a header: it is left as it was");
            }
        }
    }
}
