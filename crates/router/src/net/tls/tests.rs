//! Handshakes within the process: a client of rustls against the settings that a configuration results in.

use super::*;
use crate::net::tls::options::{provider, versions};
use howdah_config::{CipherSuite, KeyExchangeGroup, TlsPolicy, TlsVersions};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, Resumption};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, HandshakeKind, ProtocolVersion, ServerConnection, SignatureScheme};
use std::io::{Read, Write};

/// Accepts every certificate: the tests check it themselves.
#[derive(Debug)]
struct AcceptAll(Vec<SignatureScheme>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

const ALL_SCHEMES: [SignatureScheme; 2] = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519];

fn client(policy: &TlsPolicy, schemes: &[SignatureScheme]) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider(policy)))
        .with_protocol_versions(versions(policy.versions))
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAll(schemes.to_vec())))
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

/// Both ends after the handshake, and after the tickets that follow it.
fn connect(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<(ServerConnection, ClientConnection), rustls::Error> {
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    while server.is_handshaking() || client.is_handshaking() || server.wants_write() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok((server, client))
}

fn certificate(names: &[&str], common_name: &str, algorithm: &'static rcgen::SignatureAlgorithm) -> String {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parameters = CertificateParams::new(names).unwrap();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate_for(algorithm).unwrap();
    parameters.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}

fn ecdsa(names: &[&str], common_name: &str) -> String {
    certificate(names, common_name, &PKCS_ECDSA_P256_SHA256)
}

fn configuration(tls: &str) -> Configuration {
    let text = format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "tls": {tls}}}}}}}"#);
    Configuration::parse(&text).unwrap()
}

fn server(tls: &str, certificates: &CertificatePems) -> Arc<ServerConfig> {
    let mut configs = TlsConfigs::default().update(&configuration(tls), certificates).unwrap();
    configs.remove(0).unwrap()
}

fn shop_only() -> CertificatePems {
    CertificatePems::from([("shop".to_owned(), ecdsa(&["shop.example"], "shop"))])
}

#[test]
fn a_client_gets_the_certificate_for_the_name_in_its_hello() {
    let certificates = CertificatePems::from([
        ("first".to_owned(), ecdsa(&["one.example", "WWW.one.example"], "no.example")),
        ("wild".to_owned(), ecdsa(&["*.one.example", "*.two.example"], "wild")),
        ("exact".to_owned(), ecdsa(&["a.two.example", "one.example"], "exact")),
        ("common".to_owned(), ecdsa(&[], "common.example")),
    ]);
    let server = server(r#"{"certificate": ["first", "wild", "exact", "common"]}"#, &certificates);
    let cases = [
        ("one.example", "first"),
        ("www.One.example", "first"),
        ("x.one.example", "wild"),
        ("a.two.example", "exact"),
        ("b.two.example", "wild"),
        ("x.b.two.example", "first"),
        ("two.example", "first"),
        ("common.example", "common"),
        ("no.example", "first"),
        ("other.example", "first"),
        ("127.0.0.1", "first"),
    ];
    let client = Arc::new(client(&TlsPolicy::default(), &ALL_SCHEMES));
    for (name, expected) in cases {
        let (_, client) = connect(&server, &client, name).unwrap();
        let leaf = CertificateDer::from_pem_slice(certificates[expected].as_bytes()).unwrap();
        assert_eq!(client.peer_certificates().unwrap()[0], leaf, "{name}");
    }
}

#[test]
fn a_client_gets_a_certificate_that_it_can_check() {
    let certificates = CertificatePems::from([
        ("modern".to_owned(), certificate(&["one.example"], "modern", &PKCS_ED25519)),
        ("usual".to_owned(), ecdsa(&["one.example"], "usual")),
    ]);
    let server = server(r#"{"certificate": ["modern", "usual"]}"#, &certificates);
    for (schemes, expected) in [(&ALL_SCHEMES[..], "modern"), (&ALL_SCHEMES[..1], "usual")] {
        let client = Arc::new(client(&TlsPolicy::default(), schemes));
        let (_, client) = connect(&server, &client, "one.example").unwrap();
        let leaf = CertificateDer::from_pem_slice(certificates[expected].as_bytes()).unwrap();
        assert_eq!(client.peer_certificates().unwrap()[0], leaf);
    }
}

#[test]
fn conf_commands_limit_protocols_and_ciphers() {
    let any = TlsPolicy::default();
    let only = |versions| TlsPolicy { versions, ..any.clone() };
    let suites = |suites: &[CipherSuite]| TlsPolicy { cipher_suites: suites.to_vec(), ..any.clone() };
    let groups = |groups: &[KeyExchangeGroup]| TlsPolicy { groups: groups.to_vec(), ..any.clone() };
    let chacha_first = suites(&[CipherSuite::Tls13Chacha20Poly1305Sha256, CipherSuite::Tls13Aes256GcmSha384]);
    // The server's commands, the client's policy, and the result: a protocol and a cipher suite, or no connection.
    let cases = [
        ("{}", any.clone(), Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384"))),
        ("{}", only(TlsVersions::Tls12), Some(("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"))),
        (r#"{"MinProtocol": "TLSv1.3"}"#, only(TlsVersions::Tls12), None),
        (r#"{"MaxProtocol": "TLSv1.2"}"#, any.clone(), Some(("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"))),
        (r#"{"Ciphersuites": "TLS_AES_128_GCM_SHA256"}"#, any.clone(), Some(("TLSv1.3", "TLS_AES_128_GCM_SHA256"))),
        (
            r#"{"CipherString": "ECDHE-ECDSA-CHACHA20-POLY1305", "Protocol": "-TLSv1.3"}"#,
            any.clone(),
            Some(("TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305")),
        ),
        (r#"{"Groups": "P-384"}"#, groups(&[KeyExchangeGroup::X25519]), None),
        ("{}", chacha_first.clone(), Some(("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"))),
        (r#"{"Options": "ServerPreference"}"#, chacha_first, Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384"))),
    ];
    for (commands, policy, expected) in cases {
        let server = server(&format!(r#"{{"certificate": "shop", "conf_commands": {commands}}}"#), &shop_only());
        let result = connect(&server, &Arc::new(client(&policy, &ALL_SCHEMES)), "shop.example");
        let negotiated = result.ok().map(|(server, _)| Negotiated::of(&server));
        assert_eq!(negotiated.map(|n| (n.protocol, n.cipher)), expected, "{commands}");
    }
}

#[test]
fn the_version_of_http_is_agreed_on() {
    let listener = |http2: bool| {
        let mut configuration = configuration(r#"{"certificate": "shop"}"#);
        configuration.listeners[0].http2 = http2;
        TlsConfigs::default().update(&configuration, &shop_only()).unwrap().remove(0).unwrap()
    };
    for (http2, offered, expected) in [
        (true, &["http/1.1", "h2"][..], Some(&b"h2"[..])),
        (true, &["http/1.1"], Some(b"http/1.1")),
        (true, &[], None),
        (false, &["h2", "http/1.1"], Some(b"http/1.1")),
    ] {
        let mut config = client(&TlsPolicy::default(), &ALL_SCHEMES);
        config.alpn_protocols = offered.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let (server, _) = connect(&listener(http2), &Arc::new(config), "shop.example").unwrap();
        assert_eq!(server.alpn_protocol(), expected, "{http2} {offered:?}");
    }
}

#[test]
fn sessions_are_resumed_as_configured() {
    let key = |byte: &str| byte.repeat(64);
    let cases = [
        ("{}".to_owned(), false),
        (r#"{"cache_size": 100}"#.to_owned(), true),
        (r#"{"tickets": true}"#.to_owned(), true),
        (r#"{"tickets": true, "cache_size": 100}"#.to_owned(), true),
        (format!(r#"{{"tickets": ["{}", "{}"]}}"#, key("A"), key("B")), true),
        (r#"{"tickets": []}"#.to_owned(), false),
    ];
    for (session, resumed) in cases {
        for versions in [TlsVersions::Tls12, TlsVersions::Tls13] {
            let server = server(&format!(r#"{{"certificate": "shop", "session": {session}}}"#), &shop_only());
            let policy = TlsPolicy { versions, ..TlsPolicy::default() };
            let client = Arc::new(client(&policy, &ALL_SCHEMES));
            let kinds: Vec<_> = (0..3)
                .map(|_| {
                    connect(&server, &client, "shop.example").unwrap().0.handshake_kind()
                        == Some(HandshakeKind::Resumed)
                })
                .collect();
            assert_eq!(kinds, [false, resumed, resumed], "{session} {versions:?}");
        }
    }
}

#[test]
fn two_servers_with_the_same_keys_share_sessions() {
    let tls = format!(r#"{{"certificate": "shop", "session": {{"tickets": "{}"}}}}"#, "K".repeat(64));
    let certificates = shop_only();
    let client = Arc::new(client(&TlsPolicy::default(), &ALL_SCHEMES));
    let kind = |server| connect(&server, &client, "shop.example").unwrap().0.handshake_kind();
    assert_eq!(kind(server(&tls, &certificates)), Some(HandshakeKind::Full));
    assert_eq!(kind(server(&tls, &certificates)), Some(HandshakeKind::Resumed));
}

#[test]
fn an_unchanged_listener_keeps_its_sessions() {
    let mut configs = TlsConfigs::default();
    let mut certificates = shop_only();
    let mut update = |tls: &str, certificates: &CertificatePems| {
        configs.update(&configuration(tls), certificates).map(|mut configs| configs.remove(0).unwrap())
    };
    let plain = r#"{"certificate": "shop"}"#;
    let first = update(plain, &certificates).unwrap();
    certificates.insert("other".to_owned(), ecdsa(&["other.example"], "other"));
    assert!(Arc::ptr_eq(&first, &update(plain, &certificates).unwrap()));
    assert!(update(r#"{"certificate": "gone"}"#, &certificates).is_err());
    assert!(Arc::ptr_eq(&first, &update(plain, &certificates).unwrap()), "a refused change changes nothing");
    assert!(!Arc::ptr_eq(
        &first,
        &update(r#"{"certificate": "shop", "session": {"cache_size": 9}}"#, &certificates).unwrap()
    ));
    let renewed = shop_only();
    assert!(!Arc::ptr_eq(&first, &update(plain, &renewed).unwrap()));
}

#[test]
fn an_error_names_the_listener_and_the_certificate() {
    let mut certificates = shop_only();
    certificates.insert("torn".to_owned(), certificates["shop"].replace("MII", "!"));
    certificates
        .insert("keyless".to_owned(), certificates["shop"].split("-----BEGIN PRIVATE").next().unwrap().to_owned());
    let other = shop_only()["shop"].split_once("-----BEGIN PRIVATE").unwrap().1.to_owned();
    certificates.insert("mixed".to_owned(), format!("{}-----BEGIN PRIVATE{other}", certificates["keyless"]));
    let cases = [
        ("gone", "there is no certificate \"gone\"; upload it"),
        ("torn", "the certificate \"torn\" cannot be used: its chain cannot be read"),
        ("keyless", "the certificate \"keyless\" cannot be used: its key cannot be read"),
        ("mixed", "the certificate \"mixed\" cannot be used: keys may not be consistent: KeyMismatch"),
    ];
    for (name, expected) in cases {
        let tls = format!(r#"{{"certificate": ["shop", "{name}"]}}"#);
        let error = TlsConfigs::default().update(&configuration(&tls), &certificates).err().unwrap();
        assert!(error.starts_with(&format!("listeners/*:1/tls: {expected}")), "{error}");
    }
}

#[test]
fn data_goes_both_ways() {
    let server = server(r#"{"certificate": "shop"}"#, &shop_only());
    let (mut server, mut client) =
        connect(&server, &Arc::new(client(&TlsPolicy::default(), &ALL_SCHEMES)), "shop.example").unwrap();
    assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    client.writer().write_all(b"GET /").unwrap();
    let mut wire = Vec::new();
    client.write_tls(&mut wire).unwrap();
    server.read_tls(&mut wire.as_slice()).unwrap();
    assert!(server.wants_read());
    server.process_new_packets().unwrap();
    // `Socket::poll_readable` depends on this.
    assert!(!server.wants_read());
    let mut request = [0; 5];
    server.reader().read_exact(&mut request).unwrap();
    assert_eq!(&request, b"GET /");
    assert!(server.wants_read());
}

#[test]
fn only_what_names_a_replaced_certificate_changes() {
    let text = r#"{"routes": [], "listeners": {
        "*:1": {"pass": "routes", "tls": {"certificate": "shop"}}, "*:2": {"pass": "routes"},
        "*:3": {"pass": "routes", "tls": {"certificate": "blog"}}}}"#;
    let mut certificates = shop_only();
    certificates.insert("blog".to_owned(), ecdsa(&["blog.example"], "blog"));
    let mut configs = TlsConfigs::default();
    let before = configs.update(&Configuration::parse(text).unwrap(), &certificates).unwrap();
    certificates.insert("blog".to_owned(), ecdsa(&["blog.example"], "new"));
    let after = configs.replace_certificates(&certificates).unwrap();
    assert_eq!(after.len(), 2);
    assert!(Arc::ptr_eq(before[0].as_ref().unwrap(), &after[0]), "its sessions and tickets stay");
    assert!(!Arc::ptr_eq(before[2].as_ref().unwrap(), &after[1]));
    certificates.remove("shop");
    assert!(configs.replace_certificates(&certificates).is_err());
    assert!(
        Arc::ptr_eq(
            &after[1],
            &configs
                .replace_certificates(&{
                    let mut all = shop_only();
                    all.insert("blog".to_owned(), certificates["blog"].clone());
                    all
                })
                .unwrap()[1]
        ),
        "a failure changes nothing"
    );
}
