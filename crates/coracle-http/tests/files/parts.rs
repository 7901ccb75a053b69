//! Rows N3, N4 and N6: only what the client needs.

use crate::client::{Answer, Client};
use crate::harness::Harness;
use crate::site::{Site, pattern};

fn ask(client: &Client<'_>, target: &str, fields: &str) -> Answer {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.answer()
}

pub(crate) fn n3_what_the_client_has_is_not_sent_again(h: &Harness) {
    let site = Site::new();
    site.file("page.html", "a page");
    let client = Client::of(h, site.files());
    let first = client.get("/page.html");
    let (etag, modified) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    for fields in [
        format!("If-None-Match: {etag}\r\n"),
        format!("If-None-Match: \"a\", W/{etag}\r\n"),
        format!("If-None-Match: \"a\"\r\nIf-None-Match: {etag}\r\n"),
        "If-None-Match: *\r\n".to_owned(),
        format!("If-Modified-Since: {modified}\r\n"),
        format!("If-None-Match: {etag}\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
    ] {
        let answer = ask(&client, "/page.html", &fields);
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{fields}");
        assert_eq!(answer.header("etag"), Some(etag));
    }
    for (fields, status) in [
        ("If-None-Match: \"other\"\r\n".to_owned(), 200),
        (format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {modified}\r\n"), 200),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(), 200),
        ("If-Match: \"other\"\r\n".to_owned(), 412),
        (format!("If-Match: W/{etag}\r\n"), 412),
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(), 412),
    ] {
        assert_eq!(ask(&client, "/page.html", &fields).status, status, "{fields}");
    }
    assert_eq!(client.get("/page.html").text(), "a page", "the framing is whole");
}

pub(crate) fn n3_range_of_another_state_is_the_whole(h: &Harness) {
    let site = Site::new();
    site.file("file", pattern(100));
    let client = Client::of(h, site.files());
    let etag = client.get("/file").header("etag").unwrap().to_owned();
    for (value, status) in [(&*etag, 206), ("\"other\"", 200), (&format!("W/{etag}"), 200)] {
        let fields = format!("Range: bytes=0-4\r\nIf-Range: {value}\r\n");
        assert_eq!(ask(&client, "/file", &fields).status, status, "{value}");
    }
}

/// What another's server did with these: the whole file, no body, a length of 321, a client that hangs.
pub(crate) fn n4_ranges_of_a_hundred_bytes(h: &Harness) {
    let site = Site::new();
    let contents = pattern(100);
    site.file("hundred", &contents);
    for files in [site.files(), site.files().limit_memory_file_bytes(0)] {
        let client = Client::of(h, files);
        for (range, expected, content_range) in [
            ("bytes=0-0", 0..1, "bytes 0-0/100"),
            ("bytes=95-", 95..100, "bytes 95-99/100"),
            ("bytes=-5", 95..100, "bytes 95-99/100"),
            ("bytes=90-500", 90..100, "bytes 90-99/100"),
            ("bytes=0-99999999999999999999", 0..100, "bytes 0-99/100"),
            ("bytes=0-9,5-20", 0..21, "bytes 0-20/100"),
        ] {
            let answer = ask(&client, "/hundred", &format!("Range: {range}\r\n"));
            assert_eq!((answer.status, &answer.body[..]), (206, &contents[expected]), "{range}");
            assert_eq!(answer.header("content-range"), Some(content_range));
        }
        for range in ["bytes=200-300", "bytes=100-", "bytes=-0"] {
            let answer = ask(&client, "/hundred", &format!("Range: {range}\r\n"));
            assert_eq!((answer.status, answer.header("content-range")), (416, Some("bytes */100")));
        }
        for range in ["bytes=5-1", "bytes=x", "lines=0-1", "bytes"] {
            let answer = ask(&client, "/hundred", &format!("Range: {range}\r\n"));
            assert_eq!((answer.status, &answer.body), (200, &contents), "{range}");
        }
        client.send("HEAD /hundred HTTP/1.1\r\nHost: a\r\nRange: bytes=0-4\r\n\r\n");
        let head = client.head();
        assert_eq!((head.status, head.header("content-length")), (200, Some("100")));
        assert_eq!(client.get("/hundred").body, contents, "the framing is whole");
    }
}

pub(crate) fn n4_ranges_of_a_large_file(h: &Harness) {
    let site = Site::new();
    let contents = pattern(3_000_000);
    site.file("large", &contents);
    let client = Client::of(h, site.files());
    for range in [0..1, 1_000_000..2_500_000, 2_999_999..3_000_000] {
        let fields = format!("Range: bytes={}-{}\r\n", range.start, range.end - 1);
        let answer = ask(&client, "/large", &fields);
        assert_eq!(answer.status, 206);
        assert!(answer.body == contents[range], "{fields}");
    }
}

pub(crate) fn n4_several_ranges_are_one_body(h: &Harness) {
    let site = Site::new();
    let contents = pattern(300_000);
    site.file("file.txt", &contents);
    for files in [site.files(), site.files().limit_memory_file_bytes(0)] {
        let client = Client::of(h, files);
        let fields = "Range: bytes=200000-299999, 0-1,-1, 5-9\r\n";
        let answer = ask(&client, "/file.txt", fields);
        assert_eq!(answer.status, 206);
        let content_type = answer.header("content-type").unwrap();
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let mut expected = Vec::new();
        for (name, range) in [("200000-299999", 200_000..300_000), ("0-1", 0..2), ("5-9", 5..10)] {
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
                 Content-Range: bytes {name}/300000\r\n\r\n"
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&contents[range]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(answer.body == expected);
        let many: Vec<_> = (0..17).map(|at| format!("{0}-{0}", at * 2)).collect();
        let answer = ask(&client, "/file.txt", &format!("Range: bytes={}\r\n", many.join(",")));
        assert_eq!((answer.status, answer.body.len()), (200, 300_000), "too many");
    }
}

pub(crate) fn n6_compressed_siblings(h: &Harness) {
    let site = Site::new();
    site.file("app.js", "plain");
    for (extension, contents) in [("gz", "as gzip"), ("br", "as br"), ("zst", "as zstd")] {
        site.file(&format!("app.js.{extension}"), contents);
    }
    let client = Client::of(h, site.files());
    for (accept, coding, body) in [
        ("gzip, deflate, br, zstd", Some("br"), "as br"),
        ("gzip;q=0.5, zstd;q=0.9, br;q=0.1", Some("zstd"), "as zstd"),
        ("gzip", Some("gzip"), "as gzip"),
        ("*;q=0.5, br;q=0", Some("zstd"), "as zstd"),
        ("identity", None, "plain"),
        ("gzip;q=0", None, "plain"),
    ] {
        let answer = ask(&client, "/app.js", &format!("Accept-Encoding: {accept}\r\n"));
        assert_eq!((answer.header("content-encoding"), answer.text()), (coding, body), "{accept}");
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
        assert_eq!(answer.header("content-type"), Some("text/javascript; charset=utf-8"));
    }
    let plain = client.get("/app.js");
    assert_eq!((plain.text(), plain.header("vary")), ("plain", Some("accept-encoding")));
    let gzip = ask(&client, "/app.js", "Accept-Encoding: gzip\r\n");
    let known =
        format!("Accept-Encoding: gzip\r\nIf-None-Match: {}\r\n", gzip.header("etag").unwrap());
    assert_eq!(ask(&client, "/app.js", &known).status, 304);
    let other = format!("If-None-Match: {}\r\n", gzip.header("etag").unwrap());
    assert_eq!(ask(&client, "/app.js", &other).status, 200, "each has its own tag");
}
