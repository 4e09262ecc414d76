//! `howdah certificate`: what listeners with `tls` need.

use crate::client::connection::Server;
use crate::client::segment;
use crate::client::source::Source;
use crate::output;
use howdah_config::DocumentPath;
use std::path::Path;

/// Uploads a PEM bundle.
pub fn put(server: &Server, name: &str, file: &Path) -> Result<(), String> {
    let path = url(name)?;
    // Never shown: it has a private key in it.
    let bundle = Source::read(file, DocumentPath::default())?.content;
    output::print(&server.ask("PUT", &path, None, bundle)?.succeeded(None)?.message());
    Ok(())
}

/// Removes one.
pub fn delete(server: &Server, name: &str) -> Result<(), String> {
    output::print(&server.ask("DELETE", &url(name)?, None, Vec::new())?.succeeded(None)?.message());
    Ok(())
}

/// Prints what is known about one, or about all.
pub fn list(server: &Server, name: Option<&str>) -> Result<(), String> {
    let path = name.map_or(Ok("/certificates".to_owned()), url)?;
    output::print(&server.ask("GET", &path, None, Vec::new())?.succeeded(None)?.body);
    Ok(())
}

fn url(name: &str) -> Result<String, String> {
    Ok(format!("/certificates/{}", segment(name)?))
}
