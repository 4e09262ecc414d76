//! Requests from a recording: an access log in the common or combined format, or a HAR file of a browser.

use super::target::{Checks, Target};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The highest number of different requests of an access log; the most frequent ones are taken.
const MAX_TARGETS: usize = 1000;

/// The GET and HEAD requests of an access log, weighted by their number. Requests with bodies are left out: a log has none.
///
/// # Errors
/// No line is one of an access log.
pub fn from_access_log(text: &str, checks: &Checks) -> Result<Vec<Target>, String> {
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for line in text.lines() {
        let Some(request) = line.split('"').nth(1) else { continue };
        let mut words = request.split(' ');
        if let (Some(method @ ("GET" | "HEAD")), Some(path), Some(_)) = (words.next(), words.next(), words.next())
            && path.starts_with('/')
        {
            *counts.entry((method, path)).or_default() += 1;
        }
    }
    if counts.is_empty() {
        return Err("no line has a GET request, such as \"GET /index.php HTTP/1.1\" in quotes".to_owned());
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.truncate(MAX_TARGETS);
    let target = |((method, path), weight): ((&str, &str), u32)| Target {
        method: method.to_owned(),
        weight,
        checks: checks.clone(),
        ..Target::get(path)
    };
    Ok(counts.into_iter().map(target).collect())
}

#[derive(Deserialize)]
struct Har {
    log: HarLog,
}

#[derive(Deserialize)]
struct HarLog {
    entries: Vec<HarEntry>,
}

#[derive(Deserialize)]
struct HarEntry {
    request: HarRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarRequest {
    method: String,
    url: String,
    headers: Vec<HarHeader>,
    post_data: Option<HarBody>,
}

#[derive(Deserialize)]
struct HarHeader {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct HarBody {
    text: Option<String>,
}

/// Header fields that the load generator sets itself, or that belong to one connection.
const OWN_HEADERS: [&str; 8] =
    ["host", "connection", "content-length", "keep-alive", "te", "transfer-encoding", "upgrade", "accept-encoding"];

/// The requests of a HAR file to the host of its first one, as often as they are there.
///
/// # Errors
/// The text is not a HAR file, or has no request.
pub fn from_har(text: &str, checks: &Checks) -> Result<Vec<Target>, String> {
    let har: Har = serde_json::from_str(text).map_err(|error| format!("not a HAR file: {error}"))?;
    let mut targets: Vec<Target> = Vec::new();
    let mut first_host = None;
    for HarEntry { request } in har.log.entries {
        let Some((host, path)) = split_url(&request.url) else { continue };
        if *first_host.get_or_insert_with(|| host.clone()) != host {
            continue;
        }
        let is_own = |name: &str| name.starts_with(':') || OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str());
        let headers = request.headers.into_iter().filter(|header| !is_own(&header.name));
        let target = Target {
            method: request.method,
            headers: headers.map(|header| (header.name, header.value)).collect(),
            body: request.post_data.and_then(|body| body.text).unwrap_or_default().into_bytes(),
            checks: checks.clone(),
            ..Target::get(&path)
        };
        let is_same = |other: &&mut Target| {
            (&other.method, &other.path, &other.headers, &other.body)
                == (&target.method, &target.path, &target.headers, &target.body)
        };
        match targets.iter_mut().find(is_same) {
            Some(other) => other.weight += 1,
            None => targets.push(target),
        }
    }
    if targets.is_empty() { Err("the HAR file has no HTTP request".to_owned()) } else { Ok(targets) }
}

/// Host and path of a URL; `None` if it is not HTTP.
fn split_url(url: &str) -> Option<(String, String)> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let rest = rest.split('#').next().unwrap_or_default();
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => Some((rest[..at].to_owned(), rest[at..].to_owned())),
        Some(at) => Some((rest[..at].to_owned(), format!("/{}", &rest[at..]))),
        None => Some((rest.to_owned(), "/".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_log_becomes_weighted_requests() {
        let log = r#"127.0.0.1 - - [20/Nov/2026:23:14:01 +0000] "GET /a?x=1 HTTP/1.1" 200 3 "-" "curl/7.88.1"
127.0.0.1 - - [20/Nov/2026:23:14:02 +0000] "GET /a?x=1 HTTP/1.1" 200 3 "-" "curl/7.88.1"
127.0.0.1 - - [20/Nov/2026:23:14:03 +0000] "POST /form HTTP/1.1" 200 3 "-" "curl/7.88.1"
127.0.0.1 - - [20/Nov/2026:23:14:04 +0000] "HEAD /b HTTP/1.1" 200 0 "-" "-"
127.0.0.1 - - [20/Nov/2026:23:14:05 +0000] "-" 400 0 "-" "-"
"#;
        let targets = from_access_log(log, &Checks::default()).unwrap();
        let found: Vec<_> = targets.iter().map(|t| (t.method.as_str(), t.path.as_str(), t.weight)).collect();
        assert_eq!(found, [("GET", "/a?x=1", 2), ("HEAD", "/b", 1)]);
        assert!(from_access_log("hello\n", &Checks::default()).unwrap_err().contains("GET request"));
    }

    #[test]
    fn a_har_file_becomes_requests_to_its_first_host() {
        let har = r#"{"log": {"entries": [
            {"request": {"method": "GET", "url": "https://shop.example/a?b=1#c", "headers": [{"name": "Accept", "value": "*/*"}, {"name": "Host", "value": "shop.example"}]}},
            {"request": {"method": "GET", "url": "https://cdn.example/x.js", "headers": []}},
            {"request": {"method": "POST", "url": "https://shop.example", "headers": [], "postData": {"mimeType": "text/plain", "text": "hi"}}},
            {"request": {"method": "POST", "url": "https://shop.example", "headers": [], "postData": {"mimeType": "text/plain", "text": "hi"}}}
        ]}}"#;
        let targets = from_har(har, &Checks::default()).unwrap();
        assert_eq!(targets.len(), 2);
        assert_eq!((targets[0].path.as_str(), targets[0].headers.len()), ("/a?b=1", 1));
        assert_eq!((targets[1].path.as_str(), targets[1].body.as_slice(), targets[1].weight), ("/", &b"hi"[..], 2));
        assert!(from_har("{}", &Checks::default()).unwrap_err().contains("HAR"));
    }
}
