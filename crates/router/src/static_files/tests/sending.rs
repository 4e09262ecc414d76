//! Which files are sent, and which are not.

use super::*;

#[tokio::test]
async fn a_file_is_sent_with_the_headers_that_caches_need() {
    let site = Site::new();
    site.write("a.txt", "hello");
    let reply = site.get("/a.txt").await;
    assert_eq!((reply.status, &reply.body[..]), (200, &b"hello"[..]));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
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
fn hidden_files_and_php_sources_are_never_sent() {
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
    assert_eq!(site.get("/folder/").await.header("content-type"), Some("text/html"));
    assert_eq!(site.got("GET", "/scripted/"), Got::Php);
    assert_eq!(site.got("GET", "/strange/"), Got::NotFound);

    let redirect = site.get("/folder?a=b").await;
    assert_eq!((redirect.status, redirect.header("location")), (301, Some("/folder/?a=b")));
    let redirect = site.get("//evil.example/../folder").await;
    assert_eq!((redirect.status, redirect.header("location")), (301, Some("/evil.example/../folder/")));
}

#[test]
fn other_methods_are_rejected_where_there_is_a_file() {
    let site = Site::new();
    site.write("a.txt", "x");
    site.write("folder/index.html", "x");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"] {
        let ShareOutcome::Response(response) = site.serve(method, "/a.txt", &[]) else { panic!("{method}") };
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
async fn a_file_without_read_permission_is_forbidden() {
    let site = Site::new();
    let path = site.write("a.txt", "x");
    site.settle(&path).await;
    assert_eq!(site.got("GET", "/a.txt"), Got::Status(200));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(&path).is_ok() {
        return; // root may read every file
    }
    assert_eq!(site.got("GET", "/a.txt"), Got::Forbidden);
}
