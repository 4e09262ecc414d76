//! The handshake with a server. It has no timeout: the caller sets one.
//!
//! An error is a phrase for the log: what is wrong with the server or its certificate, and which option changes that.

use crate::net::transport::Transport;
use howdah_config::{Endpoint, ProxySettings};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, Error, InvalidMessage, OtherError};
use std::io;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How handshakes with a server are made.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ClientConfig>,
    /// The name in the server's certificate.
    name: String,
}

// === impl ServerTls ===

impl ServerTls {
    /// For this server, with the settings of its handshakes; `None`: without TLS.
    pub fn of(endpoint: &Endpoint, settings: &ProxySettings, config: Option<&Arc<ClientConfig>>) -> Option<ServerTls> {
        let name = settings.tls.as_ref().and_then(|tls| tls.server_name.clone()).or_else(|| endpoint.host());
        config.map(|config| ServerTls { config: Arc::clone(config), name: name.unwrap_or_default() })
    }

    /// Encrypts a connection.
    ///
    /// # Errors
    /// The reason, as a phrase.
    pub async fn handshake(&self, transport: Transport) -> Result<TlsStream<Transport>, String> {
        let name = ServerName::try_from(self.name.trim_end_matches('.').to_owned());
        let name =
            name.map_err(|_| format!("no certificate can have the name {:?}; set \"server_name\"", self.name))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(name, transport).await.map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &io::Error) -> String {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return "it closed the connection during the TLS handshake; is its port for HTTPS?".to_owned();
        }
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match inner {
            Some(Error::InvalidCertificate(problem)) => self.explain_certificate(problem),
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                "it does not answer in TLS; is its port for plain HTTP?".to_owned()
            }
            Some(Error::AlertReceived(alert)) => format!("it refused the TLS handshake: {alert:?}"),
            _ => format!("the TLS handshake failed: {error}"),
        }
    }

    fn explain_certificate(&self, problem: &CertificateError) -> String {
        let name = &self.name;
        match problem {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; is the clock right?".to_owned()
            }
            CertificateError::UnknownIssuer => {
                "the issuer of its certificate is unknown; name the authority in \"tls/ca\"".to_owned()
            }
            CertificateError::NotValidForName => {
                format!("its certificate is not for the name {name:?}; correct \"tls/server_name\"")
            }
            CertificateError::NotValidForNameContext { presented, .. } => format!(
                "its certificate is not for the name {name:?}, but for {}; correct \"tls/server_name\"",
                match presented.is_empty() {
                    true => "no name".to_owned(),
                    false => presented.join(", "),
                }
            ),
            CertificateError::Other(OtherError(other)) if other.to_string() == "CaUsedAsEndEntity" => {
                "its certificate is that of an authority (CA:TRUE), which no server may use; issue another".to_owned()
            }
            other => format!("its certificate is not accepted: {other:?}"),
        }
    }
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}
