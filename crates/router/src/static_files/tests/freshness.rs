//! Files that change before, while and after they are sent.

use super::*;

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
async fn a_changed_type_is_visible_at_once() {
    let mut site = Site::new();
    let path = site.write("a.thing", "x");
    site.settle(&path).await;
    assert_eq!(site.get("/a.thing").await.header("content-type"), None);
    for kind in ["text/x-thing", "text/x-other"] {
        site.mime_types.extensions.insert("thing".to_owned(), kind.to_owned());
        assert_eq!(site.get("/a.thing").await.header("content-type"), Some(kind));
        assert_eq!(site.get("/a.thing").await.body, b"x");
    }
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_is_an_error() {
    let site = Site::new();
    let path = site.write("large", vec![1; cache::MAX_FILE as usize + 1]);
    let ShareOutcome::Response(response) = site.serve("GET", "/large", &[]) else { panic!("a response") };
    File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
    assert!(response.into_body().collect().await.is_err());
}
