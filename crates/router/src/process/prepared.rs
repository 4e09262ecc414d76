//! A configuration that was checked, and whose files were read. Each check fails with the reason why the configuration
//! cannot be served.
//!
//! Files that the configuration before names, too, do not fail: a user who owns one must not prevent the changes of others. Nor do they
//! in a router that begins: its configuration was active before.

use crate::access::UserFiles;
use crate::backends::proxy::{TlsBySettings, UpstreamTlsConfigs};
use crate::file_access::within_deadline;
use crate::net::tls::{CertificatePems, TlsConfigs};
use crate::response::error_pages::LoadedErrorPages;
use howdah_config::Configuration;
use rustls::ServerConfig;
use std::collections::HashSet;
use std::sync::Arc;

/// A configuration that can be served, and what was loaded for it.
pub struct PreparedConfiguration {
    /// The configuration.
    pub configuration: Configuration,
    /// The files with users for `basic_auth`.
    pub user_files: UserFiles,
    /// The pages of errors.
    pub error_pages: LoadedErrorPages,
    /// The TLS configurations of servers behind howdah.
    pub upstream_tls: TlsBySettings,
    /// The TLS configuration of each listener that has one, in the order of the listeners.
    pub tls: Vec<Option<Arc<ServerConfig>>>,
}

/// Prepares this text as a configuration.
///
/// # Errors
/// The reason why it cannot be served: the path of the option, and what to do.
pub fn prepare(
    text: &str,
    certificates: &CertificatePems,
    tls: &mut TlsConfigs,
    upstream_tls: &mut UpstreamTlsConfigs,
    before: Option<&Configuration>,
) -> Result<PreparedConfiguration, String> {
    let configuration = Configuration::parse(text).map_err(|error| error.to_string())?;
    if before.is_some() {
        check_body_folder(&configuration)?;
    }
    Ok(PreparedConfiguration {
        error_pages: load_error_pages(&configuration, before)?,
        user_files: read_user_files(&configuration, before)?,
        upstream_tls: upstream_tls.update(&configuration, certificates, before.is_none())?,
        tls: tls.update(&configuration, certificates)?,
        configuration,
    })
}

/// Checks that bodies can be written to their folder.
fn check_body_folder(configuration: &Configuration) -> Result<(), String> {
    const OPTION: &str = "settings/http/body_temp_path";
    let Some(folder) = configuration.settings.http.body_temp_path.clone() else { return Ok(()) };
    within_deadline(OPTION, move || {
        let advice = "let the router's user write there, or choose another folder";
        let problem = |error| format!("{OPTION}: no file can be made in {folder:?}: {error}; {advice}");
        tempfile::tempfile_in(&folder).map(drop).map_err(problem)
    })
}

/// Loads the pages of errors.
fn load_error_pages(configuration: &Configuration, before: Option<&Configuration>) -> Result<LoadedErrorPages, String> {
    let files = |configuration: &Configuration| {
        let pages = configuration.settings.http.error_pages.iter();
        pages.map(|(_, page)| page.file.clone()).collect::<HashSet<_>>()
    };
    let tolerated = before.map_or_else(|| files(configuration), files);
    let are_all_tolerated = files(configuration).is_subset(&tolerated);
    let pages = configuration.settings.http.error_pages.clone();
    match within_deadline("settings/http/error_pages", move || LoadedErrorPages::load(&pages, &tolerated)) {
        Err(reason) if are_all_tolerated => {
            tracing::error!("{reason}; errors have howdah's own pages");
            Ok(LoadedErrorPages::default())
        }
        pages => pages,
    }
}

/// Reads the files with users.
fn read_user_files(configuration: &Configuration, before: Option<&Configuration>) -> Result<UserFiles, String> {
    let user_files = UserFiles::of(configuration);
    let tolerated: HashSet<_> = before.map_or_else(|| user_files.clone(), UserFiles::of).paths().cloned().collect();
    let are_all_tolerated = user_files.paths().all(|path| tolerated.contains(path));
    let files = user_files.clone();
    match within_deadline("basic_auth/user_file", move || files.read(&tolerated)) {
        Err(reason) if are_all_tolerated => {
            tracing::error!("{reason}; requests with a password are answered 500 until the file can be read");
        }
        read => read?,
    }
    Ok(user_files)
}
