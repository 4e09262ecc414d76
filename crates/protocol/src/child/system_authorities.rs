//! The certificates of authorities that the system has, for the processes that connect to servers.

use std::io;

/// Where the distributions keep the bundle: Debian, Alpine and Arch; Fedora and RHEL; openSUSE.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// The bundle, as PEM.
///
/// # Errors
/// A phrase, when no file can be read.
pub fn system_authorities() -> Result<Vec<u8>, String> {
    for path in BUNDLES {
        match std::fs::read(path) {
            Ok(bundle) => return Ok(bundle),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read the system's certificates in {path}: {error}")),
        }
    }
    let places = BUNDLES.join(", ");
    Err(format!("the system has no certificates of authorities in {places}; install the package ca-certificates"))
}
