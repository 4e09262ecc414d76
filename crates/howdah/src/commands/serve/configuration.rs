//! The configuration that serves a folder, from its layout and the options of `howdah serve`.

use crate::commands::serve::layout::{Workers, detect, find_workers};
use crate::commands::serve::options::ServeOptions;
use crate::paths::absolute;
use howdah_config::{Address, LogDaemon, PhpVersion, Processes};
use howdah_supervisor::identity::UserAccount;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The application's name.
const NAME: &str = "app";
/// The default of the configuration's `reload`, too, so it is not written.
const RELOAD_BY_DEFAULT: &str = "on-swap";
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";
const DEFAULT_ADDRESSES_OF_DOMAIN: [&str; 2] = ["*:443", "*:80"];
const HTTP_PORT: u16 = 80;
/// PHP has limits of its own for bodies: post_max_size and upload_max_filesize.
const MAX_BODY_BYTES: u64 = 256 << 20;

/// A folder, ready to be served.
#[derive(Debug)]
pub struct Served {
    /// The folder, absolute.
    pub folder: PathBuf,
    /// The configuration that serves it.
    pub configuration: Value,
    /// For the banner: what the folder is.
    pub description: String,
}

/// The folder to serve, absolute.
///
/// # Errors
/// It does not exist, or is not a folder.
pub fn folder(options: &ServeOptions) -> Result<PathBuf, String> {
    let folder = absolute(&options.folder)?;
    if !folder.is_dir() {
        let problem = if folder.exists() { "is not a folder" } else { "does not exist" };
        return Err(format!("the folder {} {problem}; name the folder of your application", folder.display()));
    }
    Ok(folder)
}

/// Detects the folder's layout and writes its configuration, in which everything runs as the account.
///
/// # Errors
/// The option, what is wrong with its value, and what to do.
pub fn plan(options: &ServeOptions, folder: PathBuf, account: &UserAccount) -> Result<Served, String> {
    let layout = detect(&folder, options.front_controller.as_deref())?;
    let workers = find_workers(&folder, &layout, &options.worker)?;
    if let Workers::Several(_) = workers {
        for (is_set, name) in [(options.preboot, "preboot"), (options.concurrency.is_some(), "concurrency")] {
            if is_set {
                return Err(format!("--{name} needs one --worker, without a path; remove one of them"));
            }
        }
    }
    let pass = json!({ "pass": format!("applications/{NAME}") });

    let mut listeners = Map::new();
    let addresses = addresses(options)?;
    for address in &addresses {
        listeners.insert(address.to_string(), listener(options, address, &addresses));
    }
    let mut share = json!({
        "share": share_of(&layout.root)?,
        "index": index_files(&workers),
        "fallback": pass,
    });
    share["chroot"] = utf8(&layout.root)?.replace('$', "${dollar}").into();
    if options.follow_symlinks {
        share["follow_symlinks"] = true.into();
    }
    Ok(Served {
        configuration: json!({
            "listeners": listeners,
            "routes": [
                { "match": { "uri": ["*.php", "*.php/*"] }, "action": pass },
                { "action": share },
            ],
            "applications": { NAME: application(options, &layout.root, layout.front_controller, &workers)? },
            "settings": settings(account),
            "access_log": access_log(&options.access_log)?,
        }),
        description: match workers {
            Workers::None => layout.description,
            Workers::One(worker) => format!("{}, worker script {}", layout.description, worker.script),
            Workers::Several(scripts) => {
                let names: Vec<_> = scripts.iter().map(|(script, _)| script.as_str()).collect();
                format!("{}, worker scripts {}", layout.description, names.join(", "))
            }
        },
        folder,
    })
}

fn addresses(options: &ServeOptions) -> Result<Vec<Address>, String> {
    let texts: Vec<&str> = match (options.listen.is_empty(), options.domain.is_empty()) {
        (false, _) => options.listen.iter().map(String::as_str).collect(),
        (true, true) => vec![DEFAULT_ADDRESS],
        (true, false) => DEFAULT_ADDRESSES_OF_DOMAIN.to_vec(),
    };
    let addresses = texts.into_iter().map(|text| text.parse().map_err(|error| format!("--listen: {error}")));
    addresses.collect()
}

/// With a domain, TCP has HTTPS, and port 80 sends its clients there. A Unix socket is for a proxy, which has HTTPS itself.
fn listener(options: &ServeOptions, address: &Address, all: &[Address]) -> Value {
    let has_https = |address: &Address| match address {
        Address::Tcp(tcp) => !options.domain.is_empty() && tcp.port() != HTTP_PORT,
        _ => false,
    };
    let https = all.iter().find_map(|address| match address {
        Address::Tcp(tcp) if has_https(address) => Some(tcp.port()),
        _ => None,
    });
    match (address, https) {
        (Address::Tcp(tcp), Some(port)) if tcp.port() == HTTP_PORT => json!({ "redirect": format!("https:{port}") }),
        (address, _) if has_https(address) => {
            let mut acme = json!({ "domains": options.domain });
            if let Some(email) = &options.email {
                acme["contact"] = email.as_str().into();
            }
            if let Some(directory) = &options.acme_directory {
                acme["authorities"] = json!([{ "directory": directory }]);
            }
            json!({ "pass": "routes", "tls": { "acme": acme } })
        }
        _ => json!({ "pass": "routes" }),
    }
}

/// If one worker script has all requests, no script is the index of a folder.
fn index_files(workers: &Workers) -> &'static [&'static str] {
    if let Workers::One(_) = workers { &["index.html"] } else { &["index.php", "index.html"] }
}

/// The user is that of the router and of PHP.
fn settings(account: &UserAccount) -> Value {
    let mut settings = json!({ "http": { "max_body_size": MAX_BODY_BYTES, "chunked_transform": true } });
    if let Some((user, group)) = account.to_names() {
        settings["user"] = user.into();
        if let Some(group) = group {
            settings["group"] = group.into();
        }
    }
    settings
}

fn application(
    options: &ServeOptions,
    root: &Path,
    front_controller: Option<String>,
    workers: &Workers,
) -> Result<Value, String> {
    let kind = match &options.php {
        Some(text) => {
            let version: PhpVersion = text.parse().map_err(|error| format!("--php: {error}"))?;
            format!("php {version}")
        }
        None => "php".to_owned(),
    };
    let mut application = match workers {
        Workers::One(worker) => {
            json!({ "type": kind, "root": utf8(&worker.root)?, "worker": { "script": worker.script } })
        }
        Workers::None => json!({ "type": kind, "root": utf8(root)?, "index": "index.php" }),
        Workers::Several(scripts) => {
            let scripts: Vec<_> = scripts.iter().map(matched_script).collect();
            json!({ "type": kind, "root": utf8(root)?, "index": "index.php", "worker": scripts })
        }
    };
    if options.preboot {
        application["worker"]["preboot"] = true.into();
    }
    if let Some(concurrency) = options.concurrency {
        application["worker"]["concurrency"] = concurrency.into();
    }
    if let Some(script) = front_controller.filter(|_| !matches!(workers, Workers::One(_))) {
        application["front_controller"] = script.into();
    }
    if let Some(Processes::Fixed(processes)) = options.processes {
        application["processes"] = processes.into();
    }
    if options.reload != RELOAD_BY_DEFAULT {
        application["reload"] = options.reload.as_str().into();
    }
    if let Some(threshold) = options.slow_log {
        application["slow_log"] = json!({ "threshold": threshold });
    }
    if !options.env.is_empty() {
        application["environment"] = object(&options.env);
    }
    if options.inherit_env {
        application["inherit_environment"] = true.into();
    }
    let mut php_options = Map::new();
    if let Some(file) = &options.php_ini {
        let file = absolute(file)?;
        if !file.is_file() {
            return Err(format!("--php-ini: the file {} does not exist; correct the path", file.display()));
        }
        php_options.insert("file".to_owned(), utf8(&file)?.into());
    }
    if !options.ini.is_empty() {
        php_options.insert("admin".to_owned(), object(&options.ini));
    }
    if !php_options.is_empty() {
        application["options"] = php_options.into();
    }
    Ok(application)
}

fn matched_script((script, paths): &(String, Vec<String>)) -> Value {
    if paths.is_empty() { json!({ "script": script }) } else { json!({ "script": script, "match": paths }) }
}

fn object(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>().into()
}

fn access_log(path: &Path) -> Result<Value, String> {
    let is_word = |text: &&str| *text == "-" || LogDaemon::is_meant(text);
    if let Some(word) = path.to_str().filter(is_word) {
        return Ok(word.into());
    }
    Ok(utf8(&absolute(path)?)?.into())
}

/// The value of `share` for the files below a folder.
fn share_of(root: &Path) -> Result<String, String> {
    let root = utf8(root)?.trim_end_matches('/');
    let root = root.replace('$', "${dollar}");
    Ok(if root.is_empty() { "/$uri".to_owned() } else { format!("{root}$uri") })
}

fn utf8(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("the path {} is not UTF-8; rename it", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::{Configuration, Reload, Settings};
    use howdah_supervisor::LogFormat;
    use std::time::Duration;

    fn options(folder: &Path) -> ServeOptions {
        ServeOptions {
            folder: folder.to_owned(),
            listen: vec!["0.0.0.0:80".to_owned(), "unix:/run/x".to_owned()],
            php: Some("8.2".to_owned()),
            processes: Some(Processes::Fixed(3)),
            front_controller: None,
            worker: Vec::new(),
            preboot: false,
            dashboard: None,
            concurrency: None,
            php_ini: None,
            ini: vec![("memory_limit".to_owned(), "1G".to_owned())],
            env: vec![("APP_ENV".to_owned(), "prod".to_owned())],
            inherit_env: true,
            access_log: "x.log".into(),
            reload: "on-change".to_owned(),
            user: None,
            follow_symlinks: true,
            slow_log: Some(0.5),
            control: None,
            log_format: LogFormat::Text,
            print_config: false,
            domain: Vec::new(),
            email: None,
            acme_directory: None,
            certificate_dir: None,
        }
    }

    fn plan(options: &ServeOptions) -> Result<Served, String> {
        let account = UserAccount { ids: Some((54321, 54322)), name: None };
        super::plan(options, folder(options)?, &account)
    }

    #[test]
    fn the_written_configuration_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["plain", "with $dollar and %25 and \"quotes\"", "ümläut"] {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("index.php"), "").unwrap();
            let served = plan(&options(&folder)).unwrap();
            let configuration = Configuration::parse(&served.configuration.to_string()).unwrap();
            let addresses: Vec<_> = configuration.listeners.iter().map(|l| l.address.to_string()).collect();
            assert_eq!(addresses, ["*:80", "unix:/run/x"]);
            let application = configuration.applications[NAME].as_php().unwrap();
            let target = application.target(None).unwrap();
            assert_eq!(target.root, folder);
            assert_eq!(target.front_controller.as_deref(), Some("index.php"));
            assert_eq!(application.processes, Processes::Fixed(3));
            assert_eq!(application.options.admin["memory_limit"], "1G");
            assert_eq!(application.process_settings.environment["APP_ENV"], "prod");
            assert!(application.process_settings.inherit_environment);
            assert_eq!(application.reload, Reload::OnChange);
            let Settings { user, group, .. } = &configuration.settings;
            assert_eq!((user.as_deref(), group.as_deref()), (Some("54321"), Some("54322")));
            assert_eq!(application.slow_log.as_ref().unwrap().threshold, Duration::from_millis(500));
        }
    }

    #[test]
    fn a_worker_script_replaces_the_front_controller() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("public")).unwrap();
        std::fs::write(folder.path().join("public/index.php"), "").unwrap();
        std::fs::write(folder.path().join("worker.php"), "").unwrap();
        let worker = vec!["worker.php".to_owned()];
        let options =
            ServeOptions { worker, preboot: true, concurrency: Some(9), slow_log: None, ..options(folder.path()) };
        let served = plan(&options).unwrap();
        let configuration = Configuration::parse(&served.configuration.to_string()).unwrap();
        let application = configuration.applications[NAME].as_php().unwrap();
        let worker = application.worker.as_ref().unwrap();
        assert_eq!((worker.script.as_str(), worker.preboot, worker.concurrency), ("worker.php", true, Some(9)));
        assert_eq!(application.target(None).unwrap().root, folder.path());
        assert_eq!(served.configuration["routes"][1]["action"]["index"], json!(["index.html"]));
        assert!(served.description.ends_with(", worker script worker.php"), "{}", served.description);
    }

    #[test]
    fn several_worker_scripts_run_beside_classic_mode() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["index.php", "api.php"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let worker = vec!["api.php=/api/*".to_owned(), "index.php".to_owned()];
        let options = ServeOptions { worker, ..options(folder.path()) };
        let served = plan(&options).unwrap();
        let configuration = Configuration::parse(&served.configuration.to_string()).unwrap();
        let application = configuration.applications[NAME].as_php().unwrap();
        assert_eq!(application.target(None).unwrap().front_controller.as_deref(), Some("index.php"));
        let scripts = &application.worker_scripts;
        assert_eq!(scripts.iter().map(|script| &*script.script).collect::<Vec<_>>(), ["api.php", "index.php"]);
        assert!(served.description.ends_with(", worker scripts api.php, index.php"), "{}", served.description);
        let error = plan(&ServeOptions { preboot: true, ..options }).unwrap_err();
        assert_eq!(error, "--preboot needs one --worker, without a path; remove one of them");
    }

    #[test]
    fn a_domain_has_https_and_port_80_leads_there() {
        let folder = tempfile::tempdir().unwrap();
        let listeners = |listen: &[&str], domain: &[&str]| {
            let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let served = plan(&ServeOptions {
                listen: strings(listen),
                domain: strings(domain),
                email: Some("ops@shop.example".to_owned()),
                ..options(folder.path())
            });
            let configuration = served.unwrap().configuration;
            Configuration::parse(&configuration.to_string()).unwrap();
            configuration["listeners"].clone()
        };
        let pass = json!({ "pass": "routes" });
        let acme = json!({ "domains": ["shop.example"], "contact": "ops@shop.example" });
        let https = json!({ "pass": "routes", "tls": { "acme": acme } });
        assert_eq!(listeners(&[], &[]), json!({ "127.0.0.1:8080": pass }));
        let both = json!({ "*:443": https, "*:80": { "redirect": "https:443" } });
        assert_eq!(listeners(&[], &["shop.example"]), both);
        assert_eq!(listeners(&["*:443"], &["shop.example"]), json!({ "*:443": https }));
        let others = json!({ "*:80": { "redirect": "https:8443" }, "*:8443": https, "unix:/x": pass });
        assert_eq!(listeners(&["*:80", "*:8443", "unix:/x"], &["shop.example"]), others);
        assert_eq!(listeners(&["*:80"], &["shop.example"]), json!({ "*:80": pass }));
    }

    #[test]
    fn an_error_names_its_option() {
        let folder = tempfile::tempdir().unwrap();
        type Change = fn(&mut ServeOptions);
        let cases: [(Change, &str); 4] = [
            (|o| o.folder = "/no/such/folder".into(), "the folder /no/such/folder does not exist; "),
            (|o| o.listen = vec!["8080".to_owned()], "--listen: \"8080\" is not an address to listen on; write *:8080"),
            (|o| o.php = Some("new".to_owned()), "--php: \"new\" is not a PHP version; write 8.2"),
            (|o| o.php_ini = Some("/no/php.ini".into()), "--php-ini: the file /no/php.ini does not exist; "),
        ];
        for (change, expected) in cases {
            let mut options = options(folder.path());
            change(&mut options);
            let error = plan(&options).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_root_folder_can_be_shared() {
        assert_eq!(share_of(Path::new("/")).unwrap(), "/$uri");
        assert_eq!(share_of(Path::new("/srv/a$b")).unwrap(), "/srv/a${dollar}b$uri");
    }
}
