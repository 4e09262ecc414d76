//! Conditional and range requests.

use super::*;

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
            let kind = "text/plain";
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
