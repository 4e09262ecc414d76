//! Where the paths of an application lead. All symbolic links are resolved at one moment, when a generation is planned,
//! so that a deploy that swaps a link is not half seen.
//!
//! File systems may be slow, or hang, so this runs only on threads that may wait. A path that does not exist is an
//! error with the option and what to do, except for scripts, which may be added later.

use crate::plan::confinement::inside;
use crate::plan::option_error::OptionError;
use howdah_config::{PhpApplication, PhpOptions};
use howdah_protocol::canonical;
use howdah_protocol::messages::generation_paths::{
    FixedScript, GenerationPaths, PinnedLink, TargetPaths, WorkerScriptPaths,
};
use howdah_protocol::trusted_path;
use rustix::fs::fstat;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where all paths led at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The paths for the router: resolved, unless the application has `"resolve_links": false`.
    pub paths: GenerationPaths,
    /// The same for the workers.
    pub working_directory: Option<PathBuf>,
    /// Each path of the configuration and where it led, as seen from outside of a rootfs. Always resolved.
    pub led_to: Vec<PinnedLink>,
}

/// Settings of php.ini that are lists of folders or scripts, separated by colons.
const SETTINGS: [&str; 5] =
    ["auto_append_file", "auto_prepend_file", "include_path", "opcache.preload", "open_basedir"];

/// If links are swapped during the resolution, it is repeated, at most this number of times.
const MAX_ATTEMPTS: usize = 5;

/// Resolves all paths.
///
/// # Errors
/// With the option and what to do.
pub fn resolve(application: &PhpApplication) -> Result<Resolution, OptionError> {
    let mut found = resolve_once(application)?;
    for _ in 0..MAX_ATTEMPTS {
        let again = resolve_once(application)?;
        if again == found {
            return Ok(found);
        }
        found = again;
    }
    Err(OptionError::new("/root", "its symbolic links keep changing; is a deploy under way?"))
}

fn resolve_once(application: &PhpApplication) -> Result<Resolution, OptionError> {
    let mut finder = Finder {
        rootfs: application.isolation.rootfs.as_deref(),
        resolves: application.resolve_links,
        pins: Vec::new(),
        led_to: Vec::new(),
    };
    let mut targets = Vec::new();
    for (name, target) in application.targets() {
        let option = name.map_or("/root".to_owned(), |name| format!("/targets/{name}/root"));
        let root = finder.find(&target.root).map_err(|problem| OptionError::new(&*option, problem))?;
        let mut fixed = |script: &Option<String>| {
            let script = script.as_ref()?;
            // The script is resolved below the resolved root, so that both belong to the same release.
            let filename = finder.find_script(&target.root, &root, script);
            Some(FixedScript { name: script.clone(), filename })
        };
        let (script, front_controller) = (fixed(&target.script), fixed(&target.front_controller));
        let name = name.map(str::to_owned);
        targets.push(TargetPaths { name, root, script, index: target.index.clone(), front_controller });
    }
    let mut worker_scripts = Vec::new();
    if let (Some(target), Some(found)) = (application.target(None), targets.first()) {
        for matched in &application.worker_scripts {
            let filename = finder.find_script(&target.root, &found.root, &matched.script);
            let script = FixedScript { name: matched.script.clone(), filename };
            worker_scripts.push(WorkerScriptPaths { script, patterns: matched.patterns.clone() });
        }
    }
    let working_directory = application.working_directory.as_ref().map(|folder| finder.find(folder));
    let working_directory =
        working_directory.transpose().map_err(|problem| OptionError::new("/working_directory", problem))?;
    let Finder { mut pins, led_to, .. } = finder;
    pins.sort();
    pins.dedup();
    let paths = GenerationPaths { targets, worker_scripts, rootfs: application.isolation.rootfs.clone(), pins };
    Ok(Resolution { paths, working_directory, led_to })
}

// === impl Resolution ===

impl Resolution {
    /// PHP's settings, in which paths of the release are resolved: PHP itself would follow the link at each use. Not
    /// below a rootfs.
    pub fn settings(&self, options: &PhpOptions) -> PhpOptions {
        let options = options.clone();
        if self.paths.rootfs.is_some() {
            return options;
        }
        PhpOptions { admin: self.pinned(options.admin), user: self.pinned(options.user), file: options.file }
    }

    fn pinned(&self, mut settings: BTreeMap<String, String>) -> BTreeMap<String, String> {
        for (_, value) in settings.iter_mut().filter(|(name, _)| SETTINGS.contains(&name.as_str())) {
            let paths: Vec<_> = value.split(':').map(|path| self.pinned_path(path)).collect();
            *value = paths.join(":");
        }
        settings
    }

    fn pinned_path(&self, path: &str) -> String {
        let at = |folder: &Path| self.paths.pins.iter().find(|pin| pin.link == folder);
        let pinned = Path::new(path).ancestors().find_map(at).and_then(|pin| {
            let rest = path.strip_prefix(pin.link.to_str()?)?;
            Some(format!("{}{rest}", pin.leads_to.to_str()?))
        });
        pinned.unwrap_or_else(|| path.to_owned())
    }
}

/// The first path that leads elsewhere than before, and where it leads now.
pub fn difference<'a>(old: &[PinnedLink], new: &'a [PinnedLink]) -> Option<&'a PinnedLink> {
    new.iter().find(|pin| !old.contains(pin))
}

struct Finder<'a> {
    rootfs: Option<&'a Path>,
    resolves: bool,
    pins: Vec<PinnedLink>,
    led_to: Vec<PinnedLink>,
}

// === impl Finder ===

impl Finder<'_> {
    /// Where this path leads, as seen by the application.
    fn find(&mut self, path: &Path) -> Result<PathBuf, String> {
        let resolved = self.canonical(path).ok_or_else(|| format!("{path:?} cannot be found; correct the path"))?;
        if resolved.to_str().is_none() {
            return Err(format!("{path:?} leads to {resolved:?}, which is not UTF-8; rename it"));
        }
        self.led_to.push(PinnedLink { link: self.outside(path), leads_to: self.outside(&resolved) });
        if !self.resolves {
            return Ok(path.to_owned());
        }
        if let Some(pin) = pin(path, &resolved, |path| self.canonical(path)) {
            self.pin(&pin);
        }
        Ok(resolved)
    }

    fn find_script(&mut self, configured_root: &Path, root: &Path, script: &str) -> PathBuf {
        let (configured, below) = (configured_root.join(script), root.join(script));
        // A script that does not exist yet is searched again at each request.
        let resolved = self.canonical(&below).filter(|resolved| resolved.to_str().is_some());
        let resolved = resolved.unwrap_or_else(|| below.clone());
        self.led_to.push(PinnedLink { link: self.outside(&configured), leads_to: self.outside(&resolved) });
        if !self.resolves {
            return below;
        }
        // If the name of the script contains a link, the files beside the script belong to the same release.
        if let Some(folders) = Path::new(script).parent()
            && let Some(led_to) = resolved.parent()
            && let Some(pin) = pin(&configured_root.join(folders), led_to, |path| self.canonical(path))
        {
            self.pin(&pin);
        }
        resolved
    }

    /// A share at a pinned link has no link any more, at which the router would see that it leads to a folder of another user.
    /// Such a link is left to the router. A rootfs may have folders of several users, too.
    fn pin(&mut self, pin: &PinnedLink) {
        if is_shared(self.rootfs, pin) {
            self.pins.push(PinnedLink { link: self.outside(&pin.link), leads_to: self.outside(&pin.leads_to) });
        }
    }

    /// The path without links, as seen by a process with this root directory.
    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        let Some(rootfs) = self.rootfs else { return canonical(path).ok() };
        let outside = inside(Some(rootfs), path)?;
        let below = outside.strip_prefix(canonical(rootfs).ok()?).ok()?.to_owned();
        Some(Path::new("/").join(below))
    }

    fn outside(&self, path: &Path) -> PathBuf {
        match self.rootfs {
            Some(rootfs) => rootfs.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }
}

/// Whether the router may follow the link, and would come to the same folder.
fn is_shared(rootfs: Option<&Path>, pin: &PinnedLink) -> bool {
    let open = |path: &Path| match rootfs {
        Some(rootfs) => trusted_path::open_shared_folder_in(rootfs, path),
        None => trusted_path::open_shared_folder(path),
    };
    let identity = |path: &Path| {
        let stat = fstat(open(path).ok()?).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    identity(&pin.link).is_some_and(|linked| identity(&pin.leads_to) == Some(linked))
}

/// The part of a path that is the link: without the names that follow it on both sides. `/srv/current` for
/// `/srv/current/public` if that is `/srv/releases/1/public`.
fn pin(path: &Path, resolved: &Path, canonical: impl Fn(&Path) -> Option<PathBuf>) -> Option<PinnedLink> {
    let (mut link, mut leads_to) = (path, resolved);
    while link != leads_to
        && link.file_name() == leads_to.file_name()
        && let (Some(above), Some(leads_above)) = (link.parent(), leads_to.parent())
        && canonical(above).as_deref() == Some(leads_above)
    {
        (link, leads_to) = (above, leads_above);
    }
    (link != leads_to).then(|| PinnedLink { link: link.to_owned(), leads_to: leads_to.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use std::fs::create_dir_all;
    use std::os::unix::fs::symlink;

    /// Two releases, of which the first one is current.
    struct Deployed {
        folder: tempfile::TempDir,
    }

    impl Deployed {
        /// Its users can rename only what is their own: a link leads no further.
        fn set_sticky(&self) {
            rustix::fs::chmod(self.folder.path(), rustix::fs::Mode::from_raw_mode(0o1755)).unwrap();
        }

        fn new() -> Deployed {
            let folder = tempfile::tempdir().unwrap();
            let deployed = Deployed { folder };
            for release in ["1", "2"] {
                create_dir_all(deployed.at(&format!("releases/{release}/public"))).unwrap();
                std::fs::write(deployed.at(&format!("releases/{release}/public/index.php")), "").unwrap();
            }
            symlink("releases/1", deployed.at("current")).unwrap();
            deployed
        }

        /// Resolved, because the temporary folder itself may lie behind a link.
        fn at(&self, path: &str) -> PathBuf {
            std::fs::canonicalize(self.folder.path()).unwrap().join(path)
        }

        fn application(&self, options: &str) -> PhpApplication {
            let options = options.replace("$", self.at("").to_str().unwrap());
            let text = format!(r#"{{"applications": {{"x": {{"type": "php", {options}}}}}}}"#);
            Configuration::parse(&text).unwrap().applications["x"].as_php().unwrap().clone()
        }

        fn pins(&self, resolution: &Resolution) -> Vec<(String, String)> {
            let base = self.at("");
            let below = |path: &Path| path.strip_prefix(&base).unwrap_or(path).to_str().unwrap().to_owned();
            resolution.paths.pins.iter().map(|pin| (below(&pin.link), below(&pin.leads_to))).collect()
        }
    }

    fn pair(link: &str, leads_to: &str) -> (String, String) {
        (link.to_owned(), leads_to.to_owned())
    }

    #[test]
    fn all_paths_belong_to_one_release_and_so_do_the_files_beside_them() {
        let deployed = Deployed::new();
        let options = r#""root": "$current/public", "front_controller": "index.php", "working_directory": "$current""#;
        let found = resolve(&deployed.application(options)).unwrap();
        let target = found.paths.target(None).unwrap();
        assert_eq!(target.root, deployed.at("releases/1/public"));
        let front = target.front_controller.as_ref().unwrap();
        assert_eq!((&*front.name, &front.filename), ("index.php", &deployed.at("releases/1/public/index.php")));
        assert_eq!(found.working_directory, Some(deployed.at("releases/1")));
        assert_eq!(deployed.pins(&found), [pair("current", "releases/1")]);
    }

    #[test]
    fn a_link_to_a_folder_of_another_user_is_not_pinned() {
        use std::os::unix::fs::lchown;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let deployed = Deployed::new();
        deployed.set_sticky();
        let application = deployed.application(r#""root": "$current/public""#);
        lchown(deployed.at("current"), Some(65534), None).unwrap();
        let found = resolve(&application).unwrap();
        assert_eq!((deployed.pins(&found), found.led_to.len()), (vec![], 1));
        lchown(deployed.at("releases/1"), Some(65534), None).unwrap();
        assert_eq!(deployed.pins(&resolve(&application).unwrap()), [pair("current", "releases/1")]);
    }

    #[test]
    fn a_link_in_the_name_of_a_script_is_resolved() {
        let deployed = Deployed::new();
        let found = resolve(&deployed.application(r#""root": "$", "script": "current/public/index.php""#)).unwrap();
        let target = found.paths.target(None).unwrap();
        assert_eq!(target.root, deployed.at("").components().collect::<PathBuf>());
        assert_eq!(target.script.as_ref().unwrap().filename, deployed.at("releases/1/public/index.php"));
        assert_eq!(deployed.pins(&found), [pair("current", "releases/1")]);
        let found = resolve(&deployed.application(r#""root": "$current", "script": "later.php""#)).unwrap();
        let script = found.paths.target(None).unwrap().script.clone().unwrap();
        assert_eq!(script.filename, deployed.at("releases/1/later.php"));
    }

    #[test]
    fn a_swap_is_a_difference() {
        let deployed = Deployed::new();
        for options in [r#""root": "$current/public""#, r#""root": "$current/public", "resolve_links": false"#] {
            let application = deployed.application(options);
            let old = resolve(&application).unwrap();
            std::fs::remove_file(deployed.at("current")).unwrap();
            assert!(resolve(&application).unwrap_err().problem.contains("cannot be found"));
            symlink("releases/2", deployed.at("current")).unwrap();
            let new = resolve(&application).unwrap();
            let expected =
                PinnedLink { link: deployed.at("current/public"), leads_to: deployed.at("releases/2/public") };
            assert_eq!(difference(&old.led_to, &new.led_to), Some(&expected));
            assert_eq!(difference(&new.led_to, &new.led_to), None);
            std::fs::remove_file(deployed.at("current")).unwrap();
            symlink("releases/1", deployed.at("current")).unwrap();
        }
    }

    #[test]
    fn with_resolve_links_false_paths_keep_their_links() {
        let deployed = Deployed::new();
        let options = r#""root": "$current/public", "script": "index.php", "resolve_links": false"#;
        let found = resolve(&deployed.application(options)).unwrap();
        let target = found.paths.target(None).unwrap();
        assert_eq!(target.root, deployed.at("current/public"));
        assert_eq!(target.script.as_ref().unwrap().filename, deployed.at("current/public/index.php"));
        assert_eq!(deployed.pins(&found), []);
    }

    #[test]
    fn settings_of_php_that_name_a_release_are_resolved() {
        let deployed = Deployed::new();
        let settings = r#""opcache.preload": "$current/preload.php", "include_path": ".:$current/lib:/usr/share/php:$currently",
            "error_log": "$current/log""#;
        let application =
            deployed.application(&format!(r#""root": "$current", "options": {{"admin": {{{settings}}}}}"#));
        let found = resolve(&application).unwrap().settings(&application.options).admin;
        let at = |path: &str| deployed.at(path).to_str().unwrap().to_owned();
        assert_eq!(found["opcache.preload"], at("releases/1/preload.php"));
        assert_eq!(found["include_path"], format!(".:{}:/usr/share/php:{}", at("releases/1/lib"), at("currently")));
        assert_eq!(found["error_log"], at("current/log"));
    }

    #[test]
    fn below_a_rootfs_links_are_resolved_inside_of_it() {
        let deployed = Deployed::new();
        symlink("/releases/2", deployed.at("absolute")).unwrap();
        let options = r#""root": "/absolute/public", "isolation": {"rootfs": "$"}"#;
        let found = resolve(&deployed.application(options)).unwrap();
        assert_eq!(found.paths.target(None).unwrap().root, Path::new("/releases/2/public"));
        assert_eq!(deployed.pins(&found), [pair("absolute", "releases/2")]);
    }

    #[test]
    fn below_a_rootfs_a_link_to_a_folder_of_another_user_is_not_pinned() {
        use std::os::unix::fs::lchown;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let deployed = Deployed::new();
        deployed.set_sticky();
        symlink("/releases/2", deployed.at("absolute")).unwrap();
        let application = deployed.application(r#""root": "/absolute/public", "isolation": {"rootfs": "$"}"#);
        lchown(deployed.at("absolute"), Some(65534), None).unwrap();
        assert_eq!(deployed.pins(&resolve(&application).unwrap()), []);
        lchown(deployed.at("releases/2"), Some(65534), None).unwrap();
        assert_eq!(deployed.pins(&resolve(&application).unwrap()), [pair("absolute", "releases/2")]);
        std::fs::remove_file(deployed.at("absolute")).unwrap();
        symlink("/../../../releases/1/../2", deployed.at("absolute")).unwrap();
        assert_eq!(deployed.pins(&resolve(&application).unwrap()), [pair("absolute", "releases/2")]);
    }

    #[test]
    fn a_link_inside_of_a_release_is_pinned_itself() {
        let deployed = Deployed::new();
        create_dir_all(deployed.at("shared/uploads")).unwrap();
        symlink("../../shared/uploads", deployed.at("releases/1/uploads")).unwrap();
        let found = resolve(&deployed.application(r#""root": "$current/uploads""#)).unwrap();
        assert_eq!(deployed.pins(&found), [pair("current/uploads", "shared/uploads")]);
    }
}
