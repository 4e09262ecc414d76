//! `howdah certificate`: the certificate chains and keys of listeners with `tls`.

use crate::control_client::{ApiOptions, ControlApi, name_segment};
use crate::rejection::SourceText;
use crate::terminal::output;
use clap::{Args, Subcommand};
use howdah_config::DocumentPath;
use std::path::{Path, PathBuf};

/// The arguments of `howdah certificate`.
#[derive(Debug, Args)]
pub struct CertificateCommand {
    #[command(flatten)]
    api: ApiOptions,
    #[command(subcommand)]
    action: CertificateAction,
}

#[derive(Debug, Subcommand)]
enum CertificateAction {
    /// Upload a certificate chain with its private key, or certificates of authorities.
    Put {
        /// The name for "tls" in a listener, an upstream or an action.
        #[arg(value_name = "NAME")]
        name: String,
        /// A PEM file: the certificate, its issuers' certificates, the private key; or only certificates of
        /// authorities.
        /// - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Delete a certificate that the configuration does not use.
    Delete {
        /// The certificate's name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print the kind of key, the subjects, the issuers and the validity of the certificates.
    List {
        /// The certificate's name. Default: all.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

// === impl CertificateCommand ===

impl CertificateCommand {
    /// Uploads, deletes or lists.
    ///
    /// # Errors
    /// The reason of the control API, or a file that cannot be read.
    pub fn run(&self) -> Result<(), String> {
        let api = ControlApi::new(&self.api)?;
        match &self.action {
            CertificateAction::Put { name, file } => put(&api, name, file),
            CertificateAction::Delete { name } => delete(&api, name),
            CertificateAction::List { name } => list(&api, name.as_deref()),
        }
    }
}

fn put(api: &ControlApi, name: &str, file: &Path) -> Result<(), String> {
    let path = url(name)?;
    // The text is never shown in an error: it has a private key in it.
    let bundle = SourceText::read(file, DocumentPath::default())?.content;
    output::print(&api.request("PUT", &path, None, bundle)?.accepted(None)?.message());
    Ok(())
}

fn delete(api: &ControlApi, name: &str) -> Result<(), String> {
    output::print(&api.request("DELETE", &url(name)?, None, Vec::new())?.accepted(None)?.message());
    Ok(())
}

fn list(api: &ControlApi, name: Option<&str>) -> Result<(), String> {
    let path = name.map_or(Ok("/certificates".to_owned()), url)?;
    output::print_json(&api.get(&path)?.accepted(None)?.body);
    Ok(())
}

fn url(name: &str) -> Result<String, String> {
    Ok(format!("/certificates/{}", name_segment(name)?))
}
