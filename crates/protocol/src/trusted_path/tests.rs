//! Links of several users, and folders that are swapped meanwhile.

use super::*;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CREATE);

fn append(path: &Path) -> io::Result<()> {
    open(path, APPEND, Mode::from_raw_mode(0o600))?.write_all(b"x")
}

#[test]
fn links_of_our_own_are_followed_wherever_they_lead() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("logs")).unwrap();
    symlink("logs/relative", at("first")).unwrap();
    symlink(at("last"), at("logs/relative")).unwrap();
    append(&at("first")).unwrap();
    assert_eq!(std::fs::read(at("last")).unwrap(), b"x");
    symlink("circle", at("circle")).unwrap();
    assert_eq!(Errno::from_io_error(&append(&at("circle")).unwrap_err()), Some(Errno::LOOP));
    symlink("..", at("up")).unwrap();
    assert!(append(&at("up")).is_err() && append(Path::new("/")).is_err());
}

#[test]
fn a_folder_that_another_user_replaces_by_a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["private", "shop", "shop/release", "shop/release/logs"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    symlink(at("private"), at("shop/logs")).unwrap();
    symlink("release", at("shop/current")).unwrap();
    symlink("shop", at("ours")).unwrap();
    symlink("circle/x", at("circle")).unwrap();
    append(&at("shop/logs/log")).unwrap();
    append(&at("ours/./current/../release/logs/log")).unwrap();
    assert_eq!(Errno::from_io_error(&append(&at("circle/log")).unwrap_err()), Some(Errno::LOOP));
    assert_eq!(Errno::from_io_error(&append(&at("private/log/x")).unwrap_err()), Some(Errno::NOTDIR));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for name in ["shop", "shop/release", "shop/release/logs", "shop/logs", "shop/current"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    let refused = append(&at("shop/logs/log")).unwrap_err().to_string();
    assert!(refused.starts_with("a folder of its path is a symbolic link of user id 65534"), "{refused}");
    append(&at("ours/current/logs/log")).unwrap();
    // Through a folder of its own, to one that is not.
    symlink(at("private"), at("shop/release/away")).unwrap();
    lchown(at("shop/release/away"), Some(65534), None).unwrap();
    append(&at("ours/current/away/log")).unwrap_err();
    assert_eq!(std::fs::read(at("private/log")).unwrap(), b"x");
    assert_eq!(std::fs::read(at("shop/release/logs/log")).unwrap(), b"xx");
}

#[test]
fn a_pipe_of_our_own_is_opened_through_procfs() {
    let (mut reader, writer) = io::pipe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    let of_procfs = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    symlink(&of_procfs, &link).unwrap();
    append(&of_procfs).unwrap();
    append(&link).unwrap();
    drop(writer);
    assert_eq!(io::read_to_string(&mut reader).unwrap(), "xx");
}

#[test]
fn a_link_of_another_user_leads_to_no_link_of_procfs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let real = std::fs::canonicalize(folder.path()).unwrap().join("real");
    let through_procfs = PathBuf::from(format!("/proc/self/root{}", real.display()));
    std::fs::create_dir(&real).unwrap();
    symlink(&through_procfs, at("logs")).unwrap();
    symlink(at("logs"), at("nested")).unwrap();
    symlink(through_procfs.join("log"), at("log")).unwrap();
    append(&at("logs/log")).unwrap();
    append(&at("nested/log")).unwrap();
    read(&at("log")).unwrap();
    for name in ["real", "real/log", "logs", "log"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    for name in ["logs/log", "nested/log"] {
        let refused = append(&at(name)).unwrap_err().to_string();
        assert!(refused.ends_with("a link in /proc, which is not followed"), "{refused}");
        read(&at(name)).unwrap_err();
    }
    append(&at("log")).unwrap_err();
    read(&at("log")).unwrap_err();
    owner_of_folder(&at("logs")).unwrap_err();
    assert_eq!(std::fs::read(at("real/log")).unwrap(), b"xx");
}

#[test]
fn a_file_without_its_name_is_refused_where_others_may_have_removed_it() {
    let folder = tempfile::tempdir().unwrap();
    let parent = OwnedFd::from(File::open(folder.path()).unwrap());
    let open = || OwnedFd::from(File::create(folder.path().join("log")).unwrap());
    let removed = || {
        std::fs::hard_link(folder.path().join("log"), folder.path().join("victim")).unwrap();
        let file = open();
        std::fs::remove_file(folder.path().join("log")).unwrap();
        file
    };
    with_one_name(&parent, open()).unwrap();
    with_one_name(&parent, removed()).unwrap();
    std::fs::rename(folder.path().join("victim"), folder.path().join("log")).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    with_one_name(&parent, open()).unwrap();
    let error = with_one_name(&parent, removed()).unwrap_err().to_string();
    assert_eq!(error, "another user has removed it while it was opened; use a folder to which no other user can write");
}

#[test]
fn a_way_up_behind_a_link_of_another_user_stays_with_this_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("private/theirs/inner")).unwrap();
    symlink(at("private/theirs"), at("up")).unwrap();
    symlink(at("private/theirs/inner"), at("inner")).unwrap();
    symlink(at("up"), at("of-root")).unwrap();
    symlink(folder.path(), at("home")).unwrap();
    for name in ["private/theirs", "private/theirs/inner", "up", "inner"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    for refused in ["up/../log", "of-root/../log", "inner/../../log"] {
        let error = append(&at(refused)).unwrap_err().to_string();
        assert!(error.starts_with("a `..` of its path, behind a symbolic link of user id 65534"), "{error}");
        owner_of_folder(at(refused).parent().unwrap()).unwrap_err();
    }
    assert!(!at("private/log").exists());
    append(&at("inner/../log")).unwrap();
    append(&at("home/private/../log")).unwrap();
    assert!(at("private/theirs/log").exists() && at("log").exists());
    // The text of their own link may pass folders of others, if it ends in one of theirs.
    std::fs::create_dir(at("private/shared")).unwrap();
    symlink("../../shared", at("private/theirs/inner/shared")).unwrap();
    for name in ["private/shared", "private/theirs/inner/shared"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    append(&at("inner/shared/log")).unwrap();
    append(&at("inner/shared/../log")).unwrap_err();
}

#[test]
fn the_owner_of_a_folder_is_not_that_of_another_users_choice() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("site")).unwrap();
    symlink("site", at("link")).unwrap();
    let ours = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(owner_of_folder(&at("link")).unwrap(), ours);
    owner_of_folder(&at("missing")).unwrap_err();
    if rustix::process::geteuid().is_root() {
        lchown(at("site"), Some(5), Some(5)).unwrap();
        assert_eq!(owner_of_folder(&at("link")).unwrap(), (5, 5));
        lchown(at("link"), Some(65534), None).unwrap();
        owner_of_folder(&at("link")).unwrap_err();
        lchown(at("link"), Some(5), None).unwrap();
        assert_eq!(owner_of_folder(&at("link")).unwrap(), (5, 5));
    }
}

#[test]
fn the_link_to_a_shared_folder_leads_also_into_a_folder_of_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["site/releases/1/public", "private/files"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    symlink("releases/1", at("site/current")).unwrap();
    symlink(at("private"), at("site/private")).unwrap();
    symlink(at("private/files"), at("site/files")).unwrap();
    symlink("../../private/files", at("site/releases/files")).unwrap();
    symlink("/proc/self", at("site/process")).unwrap();
    symlink("site/private", at("of-root")).unwrap();
    for name in ["site", "site/releases", "site/current", "site/private", "site/files", "site/releases/files"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    lchown(at("site/process"), Some(65534), None).unwrap();
    open_folder(&at("site/current/public")).unwrap_err();
    open_shared_folder(&at("site/current/public")).unwrap();
    for name in ["site/private", "site/private/files", "site/files", "site/releases/files", "site/process", "of-root"] {
        open_shared_folder(&at(name)).expect_err(name);
    }
    let refused = open_shared_folder(&at("site/files")).unwrap_err().to_string();
    assert!(refused.ends_with("/private/files, which belongs to another user, id 0: it is not followed"), "{refused}");
    let many = std::iter::repeat_n("../site/", 400).collect::<String>();
    for (link, target) in [("site/many", many.clone()), ("site/more", many + "many/")] {
        symlink(target, at(link)).unwrap();
        lchown(at(link), Some(65534), None).unwrap();
    }
    open_shared_folder(&at("site/many")).unwrap();
    let refused = open_shared_folder(&at("site/more")).unwrap_err().to_string();
    assert_eq!(refused, "its symbolic links have too many names");
    // Root may lead anywhere, from a folder of its own.
    symlink(at("private"), at("private-of-root")).unwrap();
    open_shared_folder(&at("private-of-root/files")).unwrap();
}

#[test]
fn a_link_of_root_that_another_user_may_have_renamed_is_as_good_as_one_of_this_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["private", "site/releases/1/public", "site/theirs", "site/of-root"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at("private/file"), "private").unwrap();
    symlink(at("private"), at("site/away")).unwrap();
    symlink(at("private/file"), at("site/file")).unwrap();
    symlink(at("private/file"), at("file")).unwrap();
    symlink(at("private"), at("site/of-root/away")).unwrap();
    symlink(at("site/theirs"), at("site/of-root/theirs")).unwrap();
    symlink(at("site/releases/1"), at("site/current")).unwrap();
    symlink("../private", at("site/up")).unwrap();
    symlink(at("site"), at("of-root")).unwrap();
    for name in ["site", "site/theirs"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    for name in ["site/away", "site/of-root/away", "site/up", "of-root/away", "site/current/../../../../private"] {
        for result in [open_folder(&at(name)), open_shared_folder(&at(name)), open_shared_folder(&at(name).join("."))] {
            let refused = result.expect_err(name).to_string();
            assert!(refused.contains("a symbolic link in a folder of user id 65534"), "{refused}");
        }
        append(&at(name).join("file")).unwrap_err();
    }
    for name in ["site/current/public", "of-root/current", "site/of-root/theirs", "site/theirs"] {
        open_folder(&at(name)).unwrap();
        open_shared_folder(&at(name)).unwrap();
    }
    let refused = "it is a symbolic link in a folder of user id 65534, which is not followed";
    assert_eq!(append(&at("site/file")).unwrap_err().to_string(), refused);
    assert_eq!(read(&at("of-root/file")).unwrap_err().to_string(), refused);
    read(&at("file")).unwrap();
    assert_eq!(std::fs::read(at("private/file")).unwrap(), b"private");
    lchown(at("private/file"), Some(65534), None).unwrap();
    read(&at("site/file")).unwrap();
    symlink("/dev/stderr", at("site/stderr")).unwrap();
    append(&at("site/stderr")).unwrap();
}

#[test]
fn a_link_that_another_user_may_have_moved_or_renamed_is_not_trusted() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["private", "tmp/ours", "tmp/below", "site/releases", "site/of-other", "other"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at("private/file"), "private").unwrap();
    std::fs::set_permissions(at("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
    for (link, target) in [
        ("tmp/file", "../private/file"),
        ("tmp/away", "../private"),
        ("tmp/in", "below"),
        ("tmp/their-below", "below"),
        ("site/their-away", "../other"),
        ("site/their-current", "releases"),
    ] {
        symlink(target, at(link)).unwrap();
    }
    for (user, names) in [
        (65534, &["site"] as &[_]),
        (65533, &["other", "site/their-away", "site/their-current", "site/of-other", "tmp/their-below"]),
    ] {
        names.iter().for_each(|name| lchown(at(name), Some(user), None).unwrap());
    }
    let refused = "it is a symbolic link in a folder to which all users can write, which is not followed";
    assert_eq!(append(&at("tmp/file")).unwrap_err().to_string(), refused);
    assert_eq!(read(&at("tmp/file")).unwrap_err().to_string(), refused);
    for name in ["tmp/away", "site/their-away", "tmp/their-below"] {
        open_shared_folder(&at(name)).expect_err(name);
        open_folder(&at(name)).expect_err(name);
    }
    for name in ["tmp/in", "tmp/ours", "site/their-current"] {
        open_shared_folder(&at(name)).expect(name);
    }
    open_folder(&at("site/their-current")).unwrap_err();
    let refused = append(&at("site/their-away/file")).unwrap_err().to_string();
    assert!(
        refused.contains("a symbolic link of user id 65533 in a folder of user id 65534 to ../other, which"),
        "{refused}"
    );
    lchown(at("site"), Some(65533), None).unwrap();
    append(&at("site/their-away/file")).unwrap();
    append(&at("tmp/ours/file")).unwrap();
}

#[test]
fn a_hard_link_that_another_user_may_have_made_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, victim) = (folder.path().join("log"), folder.path().join("victim"));
    std::fs::write(&victim, "").unwrap();
    std::fs::hard_link(&victim, &log).unwrap();
    append(&log).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o770)).unwrap();
    assert!(append(&log).unwrap_err().to_string().starts_with("it has 2 names (hard links)"));
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        lchown(folder.path(), Some(12345), None).unwrap();
        append(&log).unwrap_err();
    }
    assert_eq!(std::fs::read(&victim).unwrap(), b"x");
    std::fs::remove_file(&victim).unwrap();
    append(&log).unwrap();
}

#[test]
fn a_file_is_read_behind_a_link_of_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let content = |name: &str| read(&at(name)).and_then(io::read_to_string).map_err(|error| error.to_string());
    std::fs::write(at("page"), "page").unwrap();
    std::fs::write(at("private"), "private").unwrap();
    std::fs::hard_link(at("page"), at("name")).unwrap();
    symlink("page", at("to-page")).unwrap();
    symlink("private", at("to-private")).unwrap();
    symlink("to-page", at("ours")).unwrap();
    rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for name in ["page", "name", "to-page", "ours"] {
        assert_eq!(content(name), Ok("page".to_owned()), "{name}");
    }
    for name in ["pipe", "."] {
        content(name).expect_err(name);
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for name in ["page", "to-page", "to-private"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    for name in ["page", "name", "to-page", "ours"] {
        assert_eq!(content(name), Ok("page".to_owned()), "{name}");
    }
    assert!(content("to-private").unwrap_err().starts_with("it is a symbolic link of user id 65534"));
    // A link of ours in between changes nothing.
    symlink("private", at("to-page.new")).unwrap();
    std::fs::rename(at("to-page.new"), at("page")).unwrap();
    content("to-page").unwrap_err();
}

#[test]
fn a_link_that_is_swapped_in_meanwhile_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (log, victim) = (at("log"), at("victim"));
    std::fs::write(&victim, "").unwrap();
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::Relaxed) {
                // Both renames are atomic: the log is always one or the other.
                std::fs::write(at("file.new"), "").unwrap();
                std::fs::rename(at("file.new"), &log).unwrap();
                symlink(&victim, at("link.new")).unwrap();
                lchown(at("link.new"), Some(65534), None).unwrap();
                std::fs::rename(at("link.new"), &log).unwrap();
                // A link of ours, which leads to another file: a check of the wrong link would be passed.
                symlink(at("other"), at("ours.new")).unwrap();
                std::fs::rename(at("ours.new"), &log).unwrap();
            }
        });
        for _ in 0..20_000 {
            let _ = append(&log);
        }
        finished.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read(&victim).unwrap(), b"");
    assert!(std::fs::metadata(at("other")).unwrap().len() > 0, "our own link was followed");
}

#[test]
fn a_link_to_a_socket_leads_to_one_of_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["theirs", "private"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let listener = std::os::unix::net::UnixListener::bind(at("private/socket")).unwrap();
    symlink("private/socket", at("ours")).unwrap();
    symlink(at("private/socket"), at("theirs/socket")).unwrap();
    symlink(at("private"), at("theirs/folder")).unwrap();
    std::fs::hard_link(at("private/socket"), at("theirs/name")).unwrap();
    let found = socket(&at("ours")).unwrap();
    std::os::unix::net::UnixStream::connect(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap();
    listener.accept().unwrap();
    assert_eq!(socket(&at("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for name in ["theirs", "theirs/socket", "theirs/folder"] {
        lchown(at(name), Some(65534), None).unwrap();
    }
    for (name, reason) in [
        (
            "theirs/socket",
            "it is a symbolic link of user id 65534 to a socket of another user, id 0: it is not followed",
        ),
        ("theirs/folder/socket", "which belongs to another user, id 0: it is not followed"),
        ("theirs/name", "it has 2 names (hard links)"),
    ] {
        let refused = socket(&at(name)).unwrap_err().to_string();
        assert!(refused.contains(reason) && refused.ends_with("the socket itself into the configuration"), "{refused}");
    }
    socket(&at("private/socket")).unwrap();
    lchown(at("private/socket"), Some(65534), None).unwrap();
    socket(&at("theirs/socket")).unwrap();
}
