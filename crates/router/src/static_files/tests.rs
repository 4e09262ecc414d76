//! Behaviour of the whole: real files, requests, responses.

use std::{
    fs::{self, File, FileTimes},
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, Request, header};
use http_body::Body;
use http_body_util::BodyExt;

use super::*;

/// A folder to be served, a folder outside of it, and somebody who serves.
struct Site {
    tree: tempfile::TempDir,
    base: PathBuf,
    index: Vec<String>,
    follow_symlinks: Option<bool>,
    mime_types: BTreeMap<String, String>,
    files: StaticFiles,
}

#[derive(Debug, PartialEq, Eq)]
enum Got {
    Status(u16),
    NotFound,
    Forbidden,
    Php,
}

struct Reply {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Site {
    fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        let base = tree.path().join("base");
        fs::create_dir_all(base.join("folder")).unwrap();
        fs::create_dir_all(tree.path().join("outside")).unwrap();
        fs::write(tree.path().join("outside/secret"), "secret").unwrap();
        let index = vec!["index.php".to_owned(), "index.html".to_owned()];
        let mime_types = BTreeMap::new();
        Self { tree, base, index, follow_symlinks: None, mime_types, files: StaticFiles::new() }
    }

    /// Writes a file that looks as if it had been there for an hour.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.base.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(hour_ago)).unwrap();
        path
    }

    /// The change time cannot be set back: whoever needs a file to be cached has to wait until it has settled.
    async fn settle(&self, path: &Path) {
        while !Identity::new(&rustix::fs::stat(path).unwrap()).is_settled(SystemTime::now()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn serve(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Outcome {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (request, ()) = request.body(()).unwrap().into_parts();
        let path = format!("{}{}", self.base.display(), normalise(request.uri.path()).unwrap());
        let share = Share {
            path: &path,
            base: &self.base,
            index: &self.index,
            follow_symlinks: self.follow_symlinks,
            mime_types: &self.mime_types,
        };
        self.files.serve(&share, &request)
    }

    fn got(&self, method: &str, target: &str) -> Got {
        match self.serve(method, target, &[]) {
            Outcome::Response(response) => Got::Status(response.status().as_u16()),
            Outcome::NotFound => Got::NotFound,
            Outcome::Forbidden => Got::Forbidden,
            Outcome::Php => Got::Php,
        }
    }

    async fn reply(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
        let outcome = self.serve(method, target, headers);
        let Outcome::Response(response) = outcome else { panic!("{method} {target}: {outcome:?}") };
        let (parts, body) = response.into_parts();
        let announced = body.size_hint().exact().unwrap();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        assert_eq!(announced, body.len() as u64);
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn get(&self, target: &str) -> Reply {
        self.reply("GET", target, &[]).await
    }

    /// The content that is kept for a file, if it is kept.
    fn kept(&self, name: &str) -> Option<Bytes> {
        let path = self.base.join(name);
        let mut key = String::new();
        let links = Links::StayBelow;
        cache::write_key(&mut key, Place { path: path.to_str().unwrap(), base: &self.base, relative: name, links });
        self.files.cache.borrow().find(&key).and_then(|entry| entry.content.clone())
    }
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

#[tokio::test]
async fn a_file_comes_with_all_that_caches_need() {
    let site = Site::new();
    site.write("a.txt", "hello");
    let reply = site.get("/a.txt").await;
    assert_eq!((reply.status, &reply.body[..]), (200, &b"hello"[..]));
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(reply.header("content-length"), Some("5"));
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    assert!(httpdate::parse_http_date(reply.header("last-modified").unwrap()).is_ok());
    let etag = reply.header("etag").unwrap();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");

    let head = site.reply("HEAD", "/a.txt", &[]).await;
    assert_eq!((head.status, &head.headers), (200, &reply.headers));
    assert!(head.body.is_empty());
}

#[tokio::test]
async fn files_of_all_sizes_arrive_whole_and_again() {
    let site = Site::new();
    let sizes = [0, 1, 10_000, read::CHUNK, cache::MAX_FILE as usize, cache::MAX_FILE as usize + 1, 5_000_000];
    let content = |size: usize| (0..size).map(|at| (at % 253) as u8).collect::<Vec<_>>();
    let paths = sizes.map(|size| site.write(&size.to_string(), content(size)));
    site.settle(&paths[6]).await;
    for _ in 0..3 {
        for size in sizes {
            let reply = site.get(&format!("/{size}")).await;
            assert_eq!(reply.status, 200);
            assert!(reply.body == content(size), "{size}");
        }
    }
    assert!(site.kept("10000").is_some());
    assert!(site.kept("5000000").is_none());
}

#[test]
fn what_may_not_be_sent_is_not_there() {
    let site = Site::new();
    for name in [
        ".env",
        ".git/config",
        "folder/.htaccess",
        "a.php",
        "A.PHTML",
        "x.phar",
        "a.txt",
        "index.php/a.css",
        "b.php.",
        ".well-known/acme-challenge/token",
        ".well-known/.secret",
        "script.php/x",
    ] {
        site.write(name, "x");
    }
    let table = [
        ("/.env", Got::NotFound),
        ("/.git/config", Got::NotFound),
        ("/.git/", Got::NotFound),
        ("/.git", Got::NotFound),
        ("/%2egit/config", Got::NotFound),
        ("/folder/.htaccess", Got::NotFound),
        ("/.well-known/acme-challenge/token", Got::Status(200)),
        ("/.well-known/.secret", Got::NotFound),
        ("/a.php", Got::Php),
        ("/a.PHP", Got::Php),
        ("/a.php/", Got::Php),
        ("/a.php.", Got::Php),
        ("/b.php.", Got::Php),
        ("/b.php.%20", Got::Php),
        ("/A.PHTML", Got::Php),
        ("/x.phar", Got::Php),
        ("/a.txt", Got::Status(200)),
        ("/a.txt/", Got::NotFound),
        ("/a.txt/b", Got::NotFound),
        ("/missing", Got::NotFound),
        ("/missing/", Got::NotFound),
        ("/folder/", Got::NotFound),
    ];
    for (target, expected) in table {
        assert_eq!(site.got("GET", target), expected, "{target}");
    }
    assert_eq!(site.got("GET", &format!("/{}", "n".repeat(300))), Got::NotFound);
    assert_eq!(site.got("GET", &"/n".repeat(3000)), Got::NotFound);
}

#[test]
fn a_base_that_is_named_like_a_script_is_a_folder() {
    let mut site = Site::new();
    site.base = site.tree.path().join(".hidden/site.php");
    site.write("index.html", "x");
    assert_eq!(site.got("GET", "/"), Got::Status(200));
}

#[test]
fn a_path_outside_of_its_base_is_not_served() {
    let site = Site::new();
    let (request, ()) = Request::new(()).into_parts();
    for path in ["outside/secret", "base-too/secret", "base/../outside/secret"].map(|path| site.tree.path().join(path))
    {
        let (path, index) = (path.to_str().unwrap(), &[]);
        let share = Share { path, base: &site.base, index, follow_symlinks: Some(true), mime_types: &BTreeMap::new() };
        assert!(matches!(site.files.serve(&share, &request), Outcome::NotFound), "{path}");
    }
}

#[test]
fn only_regular_files_are_sent_and_a_fifo_does_not_block() {
    use rustix::fs::{CWD, Mode, mknodat};
    let site = Site::new();
    mknodat(CWD, site.base.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.base.join("socket")).unwrap();
    for target in ["/fifo", "/socket"] {
        assert_eq!(site.got("GET", target), Got::NotFound, "{target}");
    }
}

#[tokio::test]
async fn a_folder_is_its_index() {
    let site = Site::new();
    site.write("folder/index.html", "folder");
    site.write("scripted/index.html", "not this one");
    site.write("scripted/index.php", "<?php");
    fs::create_dir_all(site.base.join("strange/index.html")).unwrap();
    assert_eq!(site.get("/folder/").await.body, b"folder");
    assert_eq!(site.get("/folder/").await.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(site.got("GET", "/scripted/"), Got::Php);
    assert_eq!(site.got("GET", "/strange/"), Got::NotFound);

    let redirect = site.get("/folder?a=b").await;
    assert_eq!((redirect.status, redirect.header("location")), (301, Some("/folder/?a=b")));
    let redirect = site.get("//evil.example/../folder").await;
    assert_eq!((redirect.status, redirect.header("location")), (301, Some("/evil.example/../folder/")));
}

#[test]
fn other_methods_are_refused_where_there_is_a_file() {
    let site = Site::new();
    site.write("a.txt", "x");
    site.write("folder/index.html", "x");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"] {
        let Outcome::Response(response) = site.serve(method, "/a.txt", &[]) else { panic!("{method}") };
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::ALLOW]),
            (405, &"GET, HEAD".parse().unwrap())
        );
        assert_eq!(site.got(method, "/folder/"), Got::Status(405));
        assert_eq!(site.got(method, "/missing"), Got::NotFound);
        assert_eq!(site.got(method, "/folder"), Got::NotFound);
    }
}

#[tokio::test]
async fn conditions_and_ranges_work_together() {
    let site = Site::new();
    site.write("a.txt", "0123456789");
    let first = site.get("/a.txt").await;
    let (etag, modified) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    let weak = format!("W/{etag}");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let table: &[(&str, Headers<'_>, u16, &str)] = &[
        ("GET", &[("if-none-match", etag)], 304, ""),
        ("HEAD", &[("if-none-match", etag)], 304, ""),
        ("GET", &[("if-modified-since", modified)], 304, ""),
        ("GET", &[("if-none-match", "\"other\"")], 200, "0123456789"),
        ("GET", &[("if-match", "\"other\"")], 412, ""),
        ("GET", &[("range", "bytes=2-4")], 206, "234"),
        ("GET", &[("range", "bytes=-3")], 206, "789"),
        ("GET", &[("range", "bytes=7-")], 206, "789"),
        ("GET", &[("range", "bytes=10-")], 416, ""),
        ("GET", &[("range", "lines=1-2")], 200, "0123456789"),
        ("GET", &[("range", "bytes=0-1"), ("range", "bytes=2-3")], 200, "0123456789"),
        ("HEAD", &[("range", "bytes=2-4")], 200, ""),
        ("GET", &[("range", "bytes=2-4"), ("if-range", etag)], 206, "234"),
        ("GET", &[("range", "bytes=2-4"), ("if-range", modified)], 206, "234"),
        ("GET", &[("range", "bytes=2-4"), ("if-range", &weak)], 200, "0123456789"),
        ("GET", &[("range", "bytes=2-4"), ("if-range", "\"other\"")], 200, "0123456789"),
        ("GET", &[("range", "bytes=2-4"), ("if-none-match", etag)], 304, ""),
        ("GET", &[("range", "bytes=99-"), ("if-match", "\"other\"")], 412, ""),
    ];
    for (method, headers, status, body) in table {
        let reply = site.reply(method, "/a.txt", headers).await;
        assert_eq!((reply.status, reply.body.as_slice()), (*status, body.as_bytes()), "{method} {headers:?}");
        let expected_length = match (*method, status) {
            ("HEAD", 200) => Some("10".to_owned()),
            (_, 200 | 206) => Some(body.len().to_string()),
            _ => None,
        };
        assert_eq!(reply.header("content-length"), expected_length.as_deref(), "{method} {headers:?}");
        match status {
            304 => {
                assert_eq!((reply.header("etag"), reply.header("last-modified")), (Some(etag), Some(modified)));
                assert_eq!(reply.header("content-type"), None);
            }
            206 => assert!(reply.header("content-range").unwrap().ends_with("/10")),
            416 => assert_eq!(reply.header("content-range"), Some("bytes */10")),
            _ => assert_eq!(reply.header("content-range"), None),
        }
    }
}

#[tokio::test]
async fn several_ranges_are_parts_of_one_body() {
    let site = Site::new();
    let large = cache::MAX_FILE as usize + 10;
    site.write("small.txt", "0123456789");
    site.write("large.txt", "0123456789".repeat(large / 10));
    for (target, size) in [("/small.txt", 10), ("/large.txt", large / 10 * 10)] {
        let reply = site.reply("GET", target, &[("range", "bytes=1-2,5-5")]).await;
        assert_eq!(reply.status, 206);
        let boundary = reply.header("content-type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
        let part = |range: &str, body: &str| {
            let kind = "text/plain; charset=utf-8";
            format!("--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {range}/{size}\r\n\r\n{body}\r\n")
        };
        let expected = format!("{}{}--{boundary}--\r\n", part("1-2", "12"), part("5-5", "5"));
        assert_eq!(String::from_utf8(reply.body.clone()).unwrap(), expected);
        assert_eq!(reply.header("content-length"), Some(expected.len().to_string().as_str()));
        assert_eq!(reply.header("content-range"), None);
    }
}

#[tokio::test]
async fn a_range_of_a_large_file_is_that_range() {
    let site = Site::new();
    let content: Vec<u8> = (0..cache::MAX_FILE + 100_000).map(|at| (at % 251) as u8).collect();
    site.write("large", &content);
    let reply = site.reply("GET", "/large", &[("range", "bytes=2000001-2050000")]).await;
    assert!(reply.body == content[2_000_001..=2_050_000]);
}

#[tokio::test]
async fn a_changed_file_is_never_served_from_the_cache() {
    let site = Site::new();
    let path = site.write("a.txt", "first");
    site.settle(&path).await;
    assert_eq!(site.get("/a.txt").await.body, b"first");
    assert_eq!(site.kept("a.txt").as_deref(), Some(&b"first"[..]));
    let first = site.get("/a.txt").await;

    // the same length and the same modification time, set back by hand
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "other").unwrap();
    File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
    assert_eq!(site.get("/a.txt").await.body, b"other");

    for round in 0..200 {
        let content = format!("{round:05}");
        fs::write(&path, &content).unwrap();
        assert_eq!(site.get("/a.txt").await.body, content.as_bytes());
    }
    let other = site.write("b.txt", "moved");
    fs::rename(other, &path).unwrap();
    assert_eq!(site.get("/a.txt").await.body, b"moved");
    assert_eq!(site.reply("GET", "/a.txt", &[("if-none-match", first.header("etag").unwrap())]).await.status, 200);
    fs::remove_file(&path).unwrap();
    assert_eq!(site.got("GET", "/a.txt"), Got::NotFound);
}

#[tokio::test]
async fn a_file_that_has_just_changed_is_not_kept() {
    let site = Site::new();
    site.write("a.txt", "x");
    assert_eq!(site.get("/a.txt").await.body, b"x");
    assert_eq!(site.kept("a.txt"), None);
}

#[tokio::test]
async fn a_changed_type_counts_at_once() {
    let mut site = Site::new();
    let path = site.write("a.thing", "x");
    site.settle(&path).await;
    assert_eq!(site.get("/a.thing").await.header("content-type"), Some("application/octet-stream"));
    for kind in ["text/x-thing", "text/x-other"] {
        site.mime_types.insert(".thing".to_owned(), kind.to_owned());
        assert_eq!(site.get("/a.thing").await.header("content-type"), Some(kind));
        assert_eq!(site.get("/a.thing").await.body, b"x");
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
async fn a_name_that_comes_to_leave_the_base_is_not_served_from_the_cache() {
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
async fn the_way_to_a_cached_file_is_judged_again_after_a_second() {
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
async fn a_deploy_that_swaps_a_link_counts_at_once() {
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

#[tokio::test]
async fn what_the_file_system_refuses_is_forbidden() {
    let site = Site::new();
    let path = site.write("a.txt", "x");
    site.settle(&path).await;
    assert_eq!(site.got("GET", "/a.txt"), Got::Status(200));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(&path).is_ok() {
        return; // nothing is refused to root
    }
    assert_eq!(site.got("GET", "/a.txt"), Got::Forbidden);
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_is_an_error() {
    let site = Site::new();
    let path = site.write("large", vec![1; cache::MAX_FILE as usize + 1]);
    let Outcome::Response(response) = site.serve("GET", "/large", &[]) else { panic!("a response") };
    File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
    assert!(response.into_body().collect().await.is_err());
}
