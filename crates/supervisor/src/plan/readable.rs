//! The paths that an application's user must be able to read: the folders of its targets, and the scripts that they
//! name.
//!
//! Only a process that runs as that user, inside the application's root directory, can check that. The prototype does
//! it before it loads PHP, and fails if a path is not readable.

use howdah_config::PhpApplication;
use howdah_protocol::messages::prototype::RequiredPath;

/// The paths that the application needs. Options are named with the application's name if there is a configuration that
/// the user has written.
pub fn needs(application: &PhpApplication, name: Option<&str>) -> Vec<RequiredPath> {
    let mut needs = Vec::new();
    for (target, settings) in application.targets() {
        let option = |option: &str| {
            let target = target.map_or(String::new(), |target| format!("targets/{target}/"));
            name.map_or(option.to_owned(), |name| format!("applications/{name}/{target}{option}"))
        };
        needs.push(RequiredPath { option: option("root"), path: settings.root.clone(), is_folder: true });
        // An index file may exist only in subfolders, or be added later.
        let script_option = if application.worker.is_some() { "worker/script" } else { "script" };
        for (name, script) in [(script_option, &settings.script), ("front_controller", &settings.front_controller)] {
            let path = script.as_ref().map(|script| settings.root.join(script));
            needs.extend(path.map(|path| RequiredPath { option: option(name), path, is_folder: false }));
        }
    }
    if let Some(target) = application.target(None) {
        for (number, matched) in application.worker_scripts.iter().enumerate() {
            let option = format!("worker/{number}/script");
            let option = name.map_or(option.clone(), |name| format!("applications/{name}/{option}"));
            needs.push(RequiredPath { option, path: target.root.join(&matched.script), is_folder: false });
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;

    #[test]
    fn each_target_needs_its_folder_and_its_scripts() {
        let needed = |options: &str, name: Option<&str>| {
            let text = format!(r#"{{"applications": {{"shop": {{"type": "php", {options}}}}}}}"#);
            let configuration = Configuration::parse(&text).unwrap();
            let needs = needs(configuration.applications["shop"].as_php().unwrap(), name);
            let shown = needs.into_iter().map(|need| format!("{} {:?} {}", need.option, need.path, need.is_folder));
            shown.collect::<Vec<_>>()
        };
        let shop = Some("shop");
        assert_eq!(needed(r#""root": "/srv", "index": "x.php""#, shop), [r#"applications/shop/root "/srv" true"#]);
        assert_eq!(
            needed(r#""root": "/srv", "front_controller": "a/b.php""#, None),
            [r#"root "/srv" true"#, r#"front_controller "/srv/a/b.php" false"#]
        );
        assert_eq!(
            needed(r#""root": "/srv", "worker": [{"script": "a.php"}]"#, shop),
            [r#"applications/shop/root "/srv" true"#, r#"applications/shop/worker/0/script "/srv/a.php" false"#]
        );
        assert_eq!(
            needed(r#""targets": {"a": {"root": "/a", "script": "s.php"}, "b": {"root": "/b"}}"#, shop),
            [
                r#"applications/shop/targets/a/root "/a" true"#,
                r#"applications/shop/targets/a/script "/a/s.php" false"#,
                r#"applications/shop/targets/b/root "/b" true"#,
            ]
        );
    }
}
