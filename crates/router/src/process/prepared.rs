//! A configuration that was checked, and whose files were read. Each check fails with the reason why the configuration
//! cannot be served.
//!
//! A router that replaces another serves with what it can read: its configuration was active before.

use crate::access::UserFiles;
use crate::backends::proxy::{TlsBySettings, UpstreamTlsConfigs};
use crate::file_access::within_deadline;
use crate::net::tls::{CertificatePems, TlsConfigs};
use crate::response::error_pages::LoadedErrorPages;
use howdah_config::Configuration;
use rustls::ServerConfig;
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
    is_replacement: bool,
) -> Result<PreparedConfiguration, String> {
    let configuration = Configuration::parse(text).map_err(|error| error.to_string())?;
    if !is_replacement {
        check_body_folder(&configuration)?;
    }
    Ok(PreparedConfiguration {
        error_pages: load_error_pages(&configuration, is_replacement)?,
        user_files: read_user_files(&configuration, is_replacement)?,
        upstream_tls: upstream_tls.update(&configuration, certificates, is_replacement)?,
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
fn load_error_pages(configuration: &Configuration, is_replacement: bool) -> Result<LoadedErrorPages, String> {
    let pages = configuration.settings.http.error_pages.clone();
    match within_deadline("settings/http/error_pages", move || LoadedErrorPages::load(&pages)) {
        Err(reason) if is_replacement => {
            tracing::error!("{reason}; errors have howdah's own pages");
            Ok(LoadedErrorPages::default())
        }
        pages => pages,
    }
}

/// Reads the files with users.
fn read_user_files(configuration: &Configuration, is_replacement: bool) -> Result<UserFiles, String> {
    let user_files = UserFiles::of(configuration);
    let files = user_files.clone();
    match within_deadline("basic_auth/user_file", move || files.read()) {
        Err(reason) if is_replacement => {
            tracing::error!(
                "{reason}; requests with a password are answered 500 until the router's user can read the file"
            );
        }
        read => read?,
    }
    Ok(user_files)
}
