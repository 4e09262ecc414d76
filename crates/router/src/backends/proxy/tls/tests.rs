use super::*;
use howdah_config::ActionKind;
use rcgen::{CertificateParams, KeyPair};
use std::collections::BTreeMap;

/// A certificate with its key.
fn bundle() -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["x.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    certificate.pem() + &key.serialize_pem()
}

fn configuration(tls: &str) -> Configuration {
    Configuration::parse(&format!(r#"{{"routes": [{{"action": {{"proxy": "https://x", "tls": {tls}}}}}]}}"#)).unwrap()
}

fn settings(configuration: &Configuration) -> ProxySettings {
    match &configuration.routes.find(None).unwrap().steps()[0].action.kind {
        ActionKind::Proxy(_, settings) => settings.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_keeps_its_settings_until_they_change() {
    let mut certificates = BTreeMap::from([("one".to_owned(), bundle()), ("two".to_owned(), bundle())]);
    let mut configs = UpstreamTlsConfigs::default();
    let mut update = |tls: &str, certificates: &CertificatePems| {
        let configuration = configuration(tls);
        let by_settings = configs.update(&configuration, certificates, false)?;
        Ok::<_, String>(Arc::clone(by_settings.of(&settings(&configuration)).unwrap()))
    };
    let options = r#"{"ca": "one", "client_certificate": "two"}"#;
    let first = update(options, &certificates).unwrap();
    assert!(Arc::ptr_eq(&first, &update(options, &certificates).unwrap()));
    assert!(!Arc::ptr_eq(&first, &update(r#"{"ca": "one"}"#, &certificates).unwrap()));
    let second = update(options, &certificates).unwrap();
    certificates.insert("two".to_owned(), bundle());
    assert!(!Arc::ptr_eq(&second, &update(options, &certificates).unwrap()), "a certificate was replaced");
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let keyless = bundle().split("-----BEGIN PRIVATE").next().unwrap().to_owned();
    let torn = bundle().replace("MII", "!");
    let certificates = BTreeMap::from([("keyless".to_owned(), keyless), ("torn".to_owned(), torn)]);
    for (tls, expected) in [
        (r#"{"ca": "gone"}"#, "there is no certificate \"gone\""),
        (r#"{"ca": "torn"}"#, "the certificate \"torn\" cannot be used as an authority: "),
        (
            r#"{"client_certificate": "keyless", "verify": false}"#,
            "the certificate \"keyless\" cannot be used: its key",
        ),
    ] {
        let result = UpstreamTlsConfigs::default().update(&configuration(tls), &certificates, false);
        let error = result.err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_systems_authorities_are_read() {
    // Not each machine that builds howdah has them.
    if let Ok(bundle) = authorities::system_bundle() {
        assert!(authorities::of_bundle(&bundle).len() > 10);
    }
    assert_eq!(authorities::of_bundle(b"").len(), 0);
}
