//! `howdah config`: the configuration, read and changed by path.

use crate::client::connection::Server;
use crate::client::problem::Problem;
use crate::client::source::Source;
use crate::output;
use howdah_config::{Configuration, Document, DocumentPath};
use std::path::Path;

/// Prints what there is, or the ETag of the whole.
pub fn get(server: &Server, path: &str, etag: bool) -> Result<(), String> {
    let answer = server.ask("GET", &url(&parse(path)?), None, Vec::new())?.succeeded(None)?;
    match answer.etag.filter(|_| etag) {
        Some(etag) => output::print(&format!("{etag}\n")),
        None => output::print(&answer.body),
    }
    Ok(())
}

/// Sends a file.
pub fn send(server: &Server, method: &str, path: &str, file: &Path, etag: &Option<String>) -> Result<(), String> {
    let source = Source::read(file, parse(path)?)?;
    let answer = server.ask(method, &url(&source.path), quoted(etag).as_deref(), source.content.clone())?;
    // What POST adds stands at an index that is not known here.
    let shown = if method == "POST" { Source { path: DocumentPath::default(), ..source } } else { source };
    output::print(&answer.succeeded(Some(&shown))?.message());
    Ok(())
}

/// Removes something.
pub fn delete(server: &Server, path: &str, etag: &Option<String>) -> Result<(), String> {
    let answer = server.ask("DELETE", &url(&parse(path)?), quoted(etag).as_deref(), Vec::new())?;
    output::print(&answer.succeeded(None)?.message());
    Ok(())
}

/// Says whether a file is a configuration.
pub fn check(file: &Path) -> Result<(), String> {
    let source = Source::read(file, DocumentPath::default())?;
    match Document::parse_bytes(&source.content).and_then(|document| Configuration::of(&document)) {
        Ok(configuration) => {
            configuration.warnings.iter().for_each(|warning| eprintln!("howdah: warning: {warning}"));
            output::print(&format!("{}: the configuration is right\n", source.name));
        }
        Err(error) => return Err(Problem::from(error).describe(Some(&source))),
    }
    Ok(())
}

/// Reads a path as a person types it: names may be escaped or not.
pub fn parse(path: &str) -> Result<DocumentPath, String> {
    DocumentPath::parse(path)
        .map_err(|refusal| format!("the path {path:?} is none: {}", refusal.detail.unwrap_or_default()))
}

/// Where the control API has it.
pub fn url(path: &DocumentPath) -> String {
    format!("/config/{path}")
}

/// An ETag has quotes, which a shell takes away.
fn quoted(etag: &Option<String>) -> Option<String> {
    let etag = etag.as_ref()?;
    Some(if etag == "*" || etag.contains('"') { etag.clone() } else { format!("\"{etag}\"") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_escaped_as_far_as_it_must_be() {
        for (typed, expected) in [
            ("", "/config/"),
            ("/", "/config/"),
            ("listeners/*:80", "/config/listeners/*:80"),
            ("listeners/[::1]:80", "/config/listeners/[::1]:80"),
            ("applications/my app", "/config/applications/my%20app"),
            ("applications/caf\u{e9}?#", "/config/applications/caf%C3%A9%3F%23"),
            ("listeners/unix:%2Frun%2fx", "/config/listeners/unix:%2Frun%2Fx"),
            ("applications/100%25/root", "/config/applications/100%25/root"),
        ] {
            let url = url(&parse(typed).unwrap());
            assert_eq!(url, expected);
            assert!(url.parse::<hyper::Uri>().is_ok(), "{url}");
        }
        assert!(parse("applications/100%").unwrap_err().contains("write %25 for a percent sign"));
    }

    #[test]
    fn an_etag_may_have_lost_its_quotes() {
        for (given, expected) in [("abc", "\"abc\""), ("\"abc\"", "\"abc\""), ("*", "*")] {
            assert_eq!(quoted(&Some(given.to_owned())).as_deref(), Some(expected));
        }
    }
}
