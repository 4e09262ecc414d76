//! Symbolic links, and the limits of a base.

use super::*;

#[test]
fn a_path_outside_of_its_base_is_not_served() {
    let site = Site::new();
    let (request, ()) = Request::new(()).into_parts();
    for path in ["outside/secret", "base-too/secret", "base/../outside/secret"].map(|path| site.tree.path().join(path))
    {
        let (path, index) = (path.to_str().unwrap(), &[]);
        let share = ShareRequest {
            place: &site.base,
            path,
            base: &site.base,
            index,
            follow_symlinks: Some(true),
            traverse_mounts: true,
            types: None,
            mime_types: &MimeTypes::default(),
            target: &|| unreachable!("only a redirect to a folder needs it"),
        };
        assert!(matches!(site.files.serve(&share, &request), Ok(ShareOutcome::NotFound)), "{path}");
    }
}

#[test]
fn links_follow_the_setting() {
    let mut site = Site::new();
    site.write("folder/a.txt", "x");
    symlink("folder/a.txt", site.base.join("inner")).unwrap();
    symlink(site.base.join("folder/a.txt"), site.base.join("absolute")).unwrap();
    symlink("folder", site.base.join("inner-folder")).unwrap();
    symlink("../outside/secret", site.base.join("leaves")).unwrap();
    symlink("../outside", site.base.join("folder-leaves")).unwrap();
    //               None                 Some(false)    Some(true)
    let table = [
        ("/inner", [Got::Status(200), Got::NotFound, Got::Status(200)]),
        ("/absolute", [Got::Status(200), Got::NotFound, Got::Status(200)]),
        ("/inner-folder/a.txt", [Got::Status(200), Got::NotFound, Got::Status(200)]),
        ("/inner-folder", [Got::Status(301), Got::NotFound, Got::Status(301)]),
        ("/leaves", [Got::NotFound, Got::NotFound, Got::Status(200)]),
        ("/folder-leaves/secret", [Got::NotFound, Got::NotFound, Got::Status(200)]),
        ("/folder-leaves", [Got::NotFound, Got::NotFound, Got::Status(301)]),
    ];
    for (target, expected) in table {
        for (setting, expected) in [None, Some(false), Some(true)].into_iter().zip(expected) {
            site.follow_symlinks = setting;
            assert_eq!(site.got("GET", target), expected, "{target} {setting:?}");
        }
    }
}

#[tokio::test]
async fn a_cached_file_obeys_the_setting_for_links() {
    let mut site = Site::new();
    let secret = site.tree.path().join("outside/secret");
    symlink(&secret, site.base.join("leaves")).unwrap();
    site.settle(&secret).await;
    site.follow_symlinks = Some(true);
    for _ in 0..2 {
        assert_eq!(site.get("/leaves").await.body, b"secret");
    }
    for setting in [None, Some(false)] {
        site.follow_symlinks = setting;
        assert_eq!(site.got("GET", "/leaves"), Got::NotFound);
    }
}

#[tokio::test]
async fn a_name_that_now_leads_out_of_the_base_is_not_served_from_the_cache() {
    let site = Site::new();
    let path = site.write("a.txt", "public");
    let secret = site.tree.path().join("outside/secret");
    site.settle(&path).await;
    site.settle(&secret).await;
    assert_eq!(site.get("/a.txt").await.body, b"public");
    fs::remove_file(&path).unwrap();
    symlink(&secret, &path).unwrap();
    assert_eq!(site.got("GET", "/a.txt"), Got::NotFound);
}

#[tokio::test]
async fn the_links_to_a_cached_file_are_checked_again_after_a_second() {
    let site = Site::new();
    let path = site.write("folder/a.txt", "public");
    site.settle(&path).await;
    assert_eq!(site.get("/folder/a.txt").await.body, b"public");
    // The same file, but from now on by a way that leaves the base.
    fs::rename(site.base.join("folder"), site.tree.path().join("outside/folder")).unwrap();
    symlink("../outside/folder", site.base.join("folder")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while site.got("GET", "/folder/a.txt") != Got::NotFound {
        assert!(Instant::now() < deadline, "still served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_deploy_that_swaps_a_link_is_visible_at_once() {
    let mut site = Site::new();
    let releases = site.tree.path().join("releases");
    for release in ["1", "2"] {
        fs::create_dir_all(releases.join(release)).unwrap();
        fs::write(releases.join(release).join("a.txt"), release).unwrap();
    }
    site.base = site.tree.path().join("current");
    symlink("releases/1", &site.base).unwrap();
    site.settle(&releases.join("2/a.txt")).await;
    assert_eq!(site.get("/a.txt").await.body, b"1");
    assert_eq!(site.get("/a.txt").await.body, b"1");
    symlink("releases/2", site.tree.path().join("next")).unwrap();
    fs::rename(site.tree.path().join("next"), &site.base).unwrap();
    assert_eq!(site.get("/a.txt").await.body, b"2");
}
