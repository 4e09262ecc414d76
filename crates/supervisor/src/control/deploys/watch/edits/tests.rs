use super::*;
use howdah_config::Configuration;
use howdah_protocol::messages::generation_paths::PinnedLink;
use std::os::fd::AsRawFd;

fn watched(root: &Path) -> WatchedApplication {
    let text = serde_json::json!({"applications": {"x": {"type": "php", "root": root, "reload": "on-change"}}});
    let application = Configuration::parse(&text.to_string()).unwrap().applications["x"].as_php().unwrap().clone();
    let led_to = vec![PinnedLink { link: root.to_owned(), leads_to: root.to_owned() }];
    WatchedApplication { name: "x".to_owned(), generation: 1, made: Instant::now(), application, led_to }
}

fn next(watching: &mut Watching) -> Option<PathBuf> {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        wait(watching);
        watching.read();
        watching.check_folders(Instant::now());
        if let Some(DeployNotice::Edited { files, .. }) = watching.notice(Instant::now()) {
            return files.into_iter().next();
        }
    }
    None
}

#[test]
fn edits_below_the_project_are_reported_once_after_the_last_write() {
    let folder = tempfile::tempdir().unwrap();
    let project = std::fs::canonicalize(folder.path()).unwrap();
    for below in ["public", "src", "var/cache", "vendor/x", "vendor/composer"] {
        std::fs::create_dir_all(project.join(below)).unwrap();
    }
    std::fs::write(project.join("composer.json"), "{}").unwrap();
    let mut watching = Watching::begin(watched(&project.join("public"))).unwrap();
    assert_eq!(watching.folders.len(), 5, "{:?}", watching.folders);

    for ignored in ["var/cache/a.php", "vendor/x/a.php", "public/a.css"] {
        std::fs::write(project.join(ignored), "").unwrap();
    }
    std::fs::write(project.join("src/a.php"), "").unwrap();
    std::fs::write(project.join("src/b.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(project.join("src/a.php")));
    assert!(watching.written.is_none(), "the other one was reported with it");

    // A new folder, with the files in it, and files that are added to it later.
    std::fs::create_dir_all(project.join("src/new/deep")).unwrap();
    std::fs::write(project.join("src/new/deep/c.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(project.join("src/new/deep/c.php")));
    std::fs::write(project.join("src/new/deep/d.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(project.join("src/new/deep/d.php")));
    std::fs::rename(project.join("src/new"), project.join("src/renamed")).unwrap();
    std::fs::write(project.join("vendor/composer/installed.php"), "").unwrap();
    assert!(next(&mut watching).is_some());
}

#[test]
fn edits_before_the_watch_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::create_dir(root.join("src")).unwrap();
    for name in ["old.php", "src/edited.php", "src/moved.php.new"] {
        std::fs::write(root.join(name), "").unwrap();
    }
    // The kernel's time of a file is some milliseconds old.
    std::thread::sleep(Duration::from_millis(50));
    let watched = watched(&root);
    std::thread::sleep(Duration::from_millis(50));
    std::fs::write(root.join("src/edited.php"), "<?php").unwrap();
    std::fs::rename(root.join("src/moved.php.new"), root.join("src/moved.php")).unwrap();
    let mut watching = Watching::begin(watched).unwrap();
    let mut files = watching.written.take().map(|written| written.files).unwrap_or_default();
    files.sort();
    assert_eq!(files, [root.join("src/edited.php"), root.join("src/moved.php")]);
}

#[test]
fn a_folder_that_takes_the_path_of_another_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| std::fs::canonicalize(folder.path()).unwrap().join(name);
    for name in ["app", "new"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let mut watching = Watching::begin(watched(&at("app"))).unwrap();
    std::fs::rename(at("app"), at("old")).unwrap();
    std::fs::rename(at("new"), at("app")).unwrap();
    assert_eq!(next(&mut watching), Some(at("app")));
    std::fs::write(at("old/a.php"), "").unwrap();
    std::fs::write(at("app/b.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(at("app/b.php")));

    std::fs::remove_dir_all(at("app")).unwrap();
    std::fs::create_dir(at("app")).unwrap();
    watching.checked = Instant::now().checked_sub(FOLDER_CHECK_INTERVAL).unwrap();
    assert_eq!(next(&mut watching), Some(at("app/b.php")), "the folder is reported with it");
    std::fs::write(at("app/c.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(at("app/c.php")));
}

#[test]
fn a_project_that_comes_back_piece_by_piece_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let project = std::fs::canonicalize(folder.path()).unwrap().join("project");
    let make = |names: &[&str]| {
        for name in names {
            match name.ends_with(".json") {
                true => std::fs::write(project.join(name), "{}").unwrap(),
                false => std::fs::create_dir(project.join(name)).unwrap(),
            }
        }
    };
    make(&["", "composer.json", "public", "src"]);
    let mut watching = Watching::begin(watched(&project.join("public"))).unwrap();
    std::fs::remove_dir_all(&project).unwrap();
    watching.read();
    make(&[""]);
    assert_eq!(next(&mut watching), Some(project.clone()));
    make(&["src", "public", "composer.json"]);
    std::fs::write(project.join("src/a.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(project.join("src/a.php")));
}

#[test]
fn folders_behind_links_of_their_owner_are_neither_listed_nor_watched() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| std::fs::canonicalize(folder.path()).unwrap().join(name);
    for name in ["app/src", "private/conf"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let put_link = |place: &str| {
        std::os::unix::fs::symlink(at("private"), at(place)).unwrap();
        std::os::unix::fs::lchown(at(place), Some(65534), None).unwrap();
    };
    let mut watching = Watching::begin(watched(&at("app"))).unwrap();
    std::fs::write(at("private/conf/secret.php"), "").unwrap();
    // It is made, and reported; then a link takes the place of the folder above it.
    std::fs::create_dir(at("app/src/conf")).unwrap();
    std::fs::rename(at("app/src"), at("app/.s")).unwrap();
    put_link("app/src");
    watching.read();
    std::fs::write(at("private/conf/other.php"), "").unwrap();
    watching.read();
    let is_private = |(_, folder): &(Rc<Path>, PathBuf)| folder.ends_with("src/conf");
    assert!(!watching.folders.values().any(is_private), "{:?}", watching.folders);
    assert!(watching.written.is_none());

    // The same above the root.
    let mut watching = Watching::begin(watched(&at("app/.s/conf"))).unwrap();
    std::fs::rename(at("app/.s"), at("app/was")).unwrap();
    put_link("app/.s");
    assert_eq!(next(&mut watching), Some(at("app/.s/conf")));
    std::fs::write(at("private/conf/third.php"), "").unwrap();
    watching.read();
    assert!(watching.written.is_none() && watching.folders.is_empty());
}

#[test]
fn a_root_in_a_rootfs_whose_path_has_a_link_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| std::fs::canonicalize(folder.path()).unwrap().join(name);
    std::fs::create_dir_all(at("rootfs/app/src")).unwrap();
    std::os::unix::fs::symlink(at("rootfs"), at("link")).unwrap();
    let mut watched = watched(&at("link/app"));
    watched.application.isolation.rootfs = Some(at("link"));
    let mut watching = Watching::begin(watched).unwrap();
    std::fs::write(at("rootfs/app/src/a.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(at("link/app/src/a.php")));
}

#[test]
fn an_application_does_not_take_all_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let (mut deep, mut watched_folders) = (root.clone(), 1);
    for level in 1..=100 {
        for name in ["a", "b"] {
            std::fs::create_dir(deep.join(name)).unwrap();
            watched_folders += usize::from(level <= MAX_LEVELS);
        }
        deep.push("a");
    }
    let watching = Watching::begin(watched(&root)).unwrap();
    assert_eq!(watching.folders.len(), watched_folders);
}

#[test]
fn an_application_does_not_take_all_watches() {
    let folder = tempfile::tempdir().unwrap();
    let project = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::write(project.join("composer.json"), "{}").unwrap();
    for number in 0..=MAX_FOLDERS {
        std::fs::create_dir(project.join(number.to_string())).unwrap();
    }
    let mut watching = Watching::begin(watched(&project)).unwrap();
    std::fs::create_dir(project.join("more")).unwrap();
    watching.read();
    assert_eq!(watching.folders.len(), MAX_FOLDERS);
    std::fs::write(project.join("a.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(project.join("a.php")));
}

#[test]
fn long_paths_stay_in_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let name = "n".repeat(250);
    let mut deep = root.clone();
    for _ in 0..6 {
        deep.push(&name);
        std::fs::create_dir(&deep).unwrap();
    }
    let watching = Watching::begin(watched(&root)).unwrap();
    let inside = |(_, folder): &(Rc<Path>, PathBuf)| folder.strip_prefix(&root).unwrap().as_os_str().len();
    assert_eq!(watching.folders.values().map(inside).max(), Some(3 * 251 + 250));
    assert!(watching.has_logged_depth);
}

#[test]
fn a_tree_with_too_many_folders_is_watched_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let mut watching = Watching::begin(watched(&root)).unwrap();
    // It is not watched yet, because its name begins with a dot.
    std::fs::create_dir(root.join(".tree")).unwrap();
    for number in 0..=MAX_FOLDERS {
        std::fs::create_dir(root.join(".tree").join(number.to_string())).unwrap();
    }
    let mut left = Vec::new();
    for entry in std::fs::read_dir(root.join(".tree")).unwrap() {
        let path = root.join("tree").join(entry.unwrap().file_name());
        watching.choose(&root, NewFolder { path, above: None }, &mut left);
    }
    assert_eq!((left.len(), watching.exhausted), (MAX_FOLDERS - 1, true));

    let mut watching = Watching::begin(watched(&root)).unwrap();
    std::fs::rename(root.join(".tree"), root.join("tree")).unwrap();
    watching.read();
    assert_eq!((watching.folders.len(), watching.exhausted), (MAX_FOLDERS, true));
}

#[test]
fn events_are_handled_by_the_buffer() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let mut watching = Watching::begin(watched(&root)).unwrap();
    for number in 0..1000 {
        std::fs::write(root.join(format!("{number}.php")), "").unwrap();
    }
    let events = watching.read_some();
    assert!((1..=BUFFER_BYTES / 32).contains(&events), "{events}");
    assert_eq!(watching.written.as_ref().unwrap().files.len(), MAX_FILES);
    watching.read();
    assert_eq!(watching.read_some(), 0);
}

#[test]
fn folders_whose_events_were_lost_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let mut watching = Watching::begin(watched(&root)).unwrap();
    std::fs::create_dir_all(root.join("moved/away")).unwrap();
    while watching.folders.len() < 3 {
        wait(&watching);
        watching.read();
    }
    std::fs::rename(root.join("moved"), root.join(".hidden")).unwrap();
    let most: usize =
        std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    for number in 0..=most {
        std::fs::write(root.join(format!("{number}.txt")), "").unwrap();
    }
    std::fs::create_dir(root.join("new")).unwrap();
    assert_eq!(next(&mut watching), Some(root.clone()));
    let descriptor = format!("/proc/self/fdinfo/{}", watching.inotify.as_raw_fd());
    let watches = std::fs::read_to_string(descriptor).unwrap().matches("inotify wd:").count();
    assert_eq!(watches, 2, "folders that were moved away keep no watch");
    std::fs::write(root.join("new/a.php"), "").unwrap();
    assert_eq!(next(&mut watching), Some(root.join("new/a.php")));
}
